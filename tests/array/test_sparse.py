"""Sparse arrays against MXNet 1.9.1 (golden/sparse.json), SciPy and dense NumPy."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import regluon as mx
from regluon.array import sparse_operators
from regluon.base import config

GOLDEN = Path(__file__).parent.parent / "golden"
SPEC = importlib.util.spec_from_file_location("sparse_cases", GOLDEN / "make" / "sparse_cases.py")
assert SPEC is not None and SPEC.loader is not None
CASES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CASES)
WANTED = json.loads((GOLDEN / "sparse.json").read_text())
sparse = mx.nd.sparse


@pytest.fixture(scope="module", autouse=True)
def first_generation() -> Any:
    level = config.api_level()
    config.set_api(1)
    yield
    config.set_api(level)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    found: dict[str, Any] = CASES.evaluate(mx, np)
    return found


@pytest.mark.parametrize("expression", WANTED)
def test_as_the_original(expression: str, results: dict[str, Any]) -> None:
    got, want = results[expression], WANTED[expression]
    assert {k: got[k] for k in ("stype", "shape", "dtype")} == {
        k: want[k] for k in ("stype", "shape", "dtype")
    }
    for part in sorted(set(want) - {"stype", "shape", "dtype"}):
        np.testing.assert_allclose(got[part], want[part], rtol=2e-6, err_msg=part)


def matrices(columns: int = 4) -> st.SearchStrategy[np.ndarray]:
    numbers = st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0, 3.5])
    return st.integers(1, 5).flatmap(
        lambda rows: st.lists(numbers, min_size=rows * columns, max_size=rows * columns).map(
            lambda values: np.array(values, "float32").reshape(rows, columns)
        )
    )


@given(matrices(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_products_and_sums_are_those_of_dense_matrices(matrix: np.ndarray, seed: int) -> None:
    random = np.random.RandomState(seed)
    array = mx.nd.array(matrix).tostype("csr")
    other = np.where(random.rand(*matrix.shape) < 0.5, random.randn(*matrix.shape), 0).astype("float32")
    right, left = random.randn(4, 3).astype("float32"), random.randn(len(matrix), 2).astype("float32")
    for got, want in [
        (mx.nd.dot(array, mx.nd.array(right)), matrix @ right),
        (mx.nd.dot(array, mx.nd.array(left), transpose_a=True), matrix.T @ left),
        (mx.nd.dot(mx.nd.array(left.T), array), left.T @ matrix),
        (array + sparse.csr_matrix(other), matrix + other),
        (array - sparse.csr_matrix(other), matrix - other),
        (array * sparse.csr_matrix(other), matrix * other),
        (array * mx.nd.array(other), matrix * other),
    ]:
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-6)
        if got.stype != "default":
            got.check_format()
    rows = mx.nd.array(matrix).tostype("row_sparse")
    assert (rows + sparse.row_sparse_array(other)).asnumpy().tolist() == (matrix + other).tolist()
    assert (rows * sparse.row_sparse_array(other)).asnumpy().tolist() == (matrix * other).tolist()


@given(matrices())
@settings(max_examples=30, deadline=None)
def test_scipy_both_ways(matrix: np.ndarray) -> None:
    theirs = scipy.sparse.csr_matrix(matrix)
    ours = mx.nd.array(theirs, dtype="float32")
    assert ours.stype == "csr"
    back = sparse.array(scipy.sparse.coo_matrix(matrix)).asscipy()
    assert (back != theirs).nnz == 0 and back.shape == theirs.shape
    assert ours.indptr.asnumpy().tolist() == theirs.indptr.tolist()
    assert ours.indices.asnumpy().tolist() == theirs.indices.tolist()


def test_coordinates_are_sorted_and_added() -> None:
    made = sparse.csr_matrix(([1.0, 2, 3, 4], ([1, 0, 1, 1], [2, 0, 0, 2])), shape=(2, 4))
    want = scipy.sparse.coo_matrix(([1.0, 2, 3, 4], ([1, 0, 1, 1], [2, 0, 0, 2])), shape=(2, 4)).toarray()
    assert made.asnumpy().tolist() == want.tolist() and made.indices.asnumpy().tolist() == [0, 0, 2]


def test_printing_shows_what_it_is() -> None:
    assert repr(sparse.zeros("csr", (3, 4))) == "\n<CSRNDArray 3x4 @cpu(0)>"
    assert str(sparse.zeros("row_sparse", (3, 4, 2))) == "\n<RowSparseNDArray 3x4x2 @cpu(0)>"


def test_writing() -> None:
    array = sparse.zeros("csr", (2, 2))
    array[:] = mx.nd.array([[0, 1], [2, 0]])
    assert array.data.asnumpy().tolist() == [1, 2]
    array[:] = np.array([[3, 0], [0, 0]])
    assert array.asnumpy().tolist() == [[3, 0], [0, 0]]
    array += sparse.csr_matrix([[1, 1], [0, 0]])
    assert array.stype == "csr" and array.asnumpy().tolist() == [[4, 1], [0, 0]]
    array *= 2
    mx.nd.square(array, out=array)
    assert array.asnumpy().tolist() == [[64, 4], [0, 0]]
    dense = mx.nd.ones((2, 2))
    mx.nd.elemwise_add(array, array, out=dense)
    assert dense.asnumpy().tolist() == [[128, 8], [0, 0]]
    array[:] = 0
    assert not array.asnumpy().any()


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda a, r: a[::2], ValueError, "only supports continuous slicing on axis 0"),
        (lambda a, r: a[0, 1], ValueError, "Multi-dimension indexing is not supported"),
        (lambda a, r: a[7], IndexError, "row 7 is outside of an array with 3 rows"),
        (lambda a, r: r[0], ValueError, r"RowSparseNDArray only supports \[:\]"),
        (lambda a, r: a.tostype("row_sparse"), ValueError, "from csr to row_sparse is not supported"),
        (lambda a, r: a.tostype("coo"), ValueError, "unknown storage type 'coo'"),
        (lambda a, r: a.__setitem__(0, 1), ValueError, "only supports .:. for assignment"),
        (lambda a, r: a.__setitem__(slice(None), 2), ValueError, "only 0 can be assigned"),
        (lambda a, r: a.__setitem__(slice(None), r), TypeError, "cannot be assigned to one of type csr"),
        (lambda a, r: a.reshape((4, 3)), mx.base.MXNetError, "reshape is not supported for CSRNDArray"),
        (lambda a, r: r.retain([9]), mx.base.MXNetError, "the array has 4 rows"),
        (lambda a, r: mx.nd.dot(a, mx.nd.ones((3, 2))), mx.base.MXNetError, "dot: the sizes do not match"),
        (lambda a, r: a + a.astype("float64"), mx.base.MXNetError, "arrays of one data type were expected"),
        (lambda a, r: sparse.csr_matrix(3), ValueError, "should be 2 Dimensional"),
        (lambda a, r: sparse.csr_matrix((1, 2, 3, 4)), ValueError, "Unexpected length of input tuple: 4"),
        (lambda a, r: sparse.csr_matrix(r), ValueError, "Unexpected input type: RowSparseNDArray"),
        (lambda a, r: sparse.csr_matrix(np.eye(2), shape=(3, 3)), ValueError, "Shape mismatch detected"),
        (lambda a, r: sparse.csr_matrix(([1], ([5], [0])), shape=(2, 2)), ValueError, "must be inside"),
        (lambda a, r: sparse.array([[1]]), ValueError, "Unexpected source_array type: list"),
        (lambda a, r: sparse.zeros("csr", (2,)), ValueError, "a csr array has two axes"),
        (lambda a, r: type(a)(), TypeError, "CSRNDArray is not made directly"),
    ],
)
def test_mistakes(action: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        action(sparse.csr_matrix(np.eye(3, 4, dtype="float32")), sparse.row_sparse_array(np.ones((4, 2))))


@pytest.mark.parametrize(
    ("parts", "shape", "message"),
    [
        (([1, 2], [0, 5], [0, 1, 2]), (2, 2), "a column is outside of 0 to 1"),
        (([1, 2], [1, 0], [0, 2, 2]), (2, 2), "not in ascending order"),
        (([1, 2], [0, 1], [0, 2]), (2, 2), "2 row pointers, 2 columns and 2 numbers"),
        (([1, 2], [0, 1], [0, 2, 1]), (2, 2), "the row pointers do not increase"),
    ],
)
def test_check_format(parts: Any, shape: Any, message: str) -> None:
    with pytest.raises(mx.base.MXNetError, match=message):
        sparse.csr_matrix(parts, shape=shape).check_format()
    with pytest.raises(mx.base.MXNetError, match="row numbers are not in ascending order"):
        sparse.row_sparse_array((np.ones((2, 1)), [1, 0])).check_format()


def test_gradients_of_a_linear_model_on_a_sparse_matrix() -> None:
    matrix = np.array([[1, 0, 0, 2], [0, 0, 0, 3]], "float32")
    weight = mx.nd.ones((4, 2))
    weight.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        product = mx.nd.dot(sparse.csr_matrix(matrix), weight)
        (product * product).sum().backward()
    assert weight.grad.stype == "row_sparse" and weight.grad.indices.asnumpy().tolist() == [0, 3]
    np.testing.assert_allclose(weight.grad.asnumpy(), 2 * matrix.T @ (matrix @ np.ones((4, 2))), rtol=1e-6)


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_gradients_of_sparse_arrays(stype: str) -> None:
    array = mx.nd.array(np.eye(3)).tostype(stype)
    array.attach_grad()
    with mx.autograd.record():
        mx.nd.square(array).sum().backward()
    # The original gives the same numbers and storage type.
    assert array.grad.stype == stype and array.grad.asnumpy().tolist() == (2 * np.eye(3)).tolist()
    dense = mx.nd.ones((2, 2))
    dense.attach_grad()
    with mx.autograd.record():
        (dense.tostype(stype) * 3).sum().backward()
    assert dense.grad.asnumpy().tolist() == [[3, 3], [3, 3]]


def test_fallback_is_said_once_and_can_be_silenced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = sparse.csr_matrix(np.eye(2, dtype="float32"))
    with caplog.at_level(logging.WARNING):
        monkeypatch.setattr(sparse_operators, "_said", set())
        mx.nd.softmax(array)
        mx.nd.softmax(array)
        mx.nd.square(array)
        assert caplog.text.count("operator softmax knows dense arrays only") == 1
        assert caplog.text.count("fallback") == 1
        caplog.clear()
        monkeypatch.setattr(sparse_operators, "_said", set())
        monkeypatch.setenv("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
        mx.nd.softmax(array)
        assert not caplog.text


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_copies_of_every_kind(stype: str, tmp_path: Path) -> None:
    array = mx.nd.array([[0, 1], [0, 0], [2, 3]]).tostype(stype)
    mx.nd.save(str(tmp_path / "a.params"), {"x": array, "y": [array][0]})
    loaded = mx.nd.load(str(tmp_path / "a.params"))["x"]
    for twin in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array)), loaded):
        assert type(twin) is type(array) and twin.asnumpy().tolist() == [[0, 1], [0, 0], [2, 3]]
        twin[:] = 0
    assert array.asnumpy().tolist() == [[0, 1], [0, 0], [2, 3]]


@pytest.mark.parametrize("hybridize", [False, True])
def test_blocks_take_sparse_inputs(hybridize: bool) -> None:
    net = mx.gluon.nn.Dense(2, in_units=4)
    net.initialize()
    if hybridize:
        net.hybridize()
    matrix = np.array([[1, 0, 0, 2], [0, 0, 0, 3]], "float32")
    want = matrix @ net.weight.data().asnumpy().T + net.bias.data().asnumpy()
    np.testing.assert_allclose(net(sparse.csr_matrix(matrix)).asnumpy(), want, rtol=1e-5)


def test_a_large_matrix_is_never_dense() -> None:
    rows, columns = 200_000, 3_000_000
    random = np.random.RandomState(0)
    places = (random.randint(0, rows, 1000), random.randint(0, columns, 1000))
    array = sparse.csr_matrix((np.ones(1000, "float32"), places), shape=(rows, columns))
    twice = (array * 2 + array)[:1000]
    assert float(mx.nd.sum(array, axis=0).sum().asscalar()) == 1000
    assert twice.shape == (1000, columns)
    assert mx.nd.dot(array, mx.nd.ones((columns, 1))).sum().asscalar() == 1000


def test_row_sparse_parameters() -> None:
    weight = mx.gluon.Parameter("weight", shape=(4, 2), stype="row_sparse", init="ones")
    weight.initialize()
    rows = weight.row_sparse_data(mx.nd.array([1, 3]))
    assert rows.stype == "row_sparse" and rows.indices.asnumpy().tolist() == [1, 3]
    assert rows.data.asnumpy().tolist() == [[1, 1], [1, 1]]


# Of two steps with lr=0.1, wd=0.5 from ones, the gradient of rows 1 and 3 being 4 and 2 (MXNet 1.9.1).
STEPS = [
    ("sgd", {}, [1.0, 0.12249991, 1.0, 0.51249999, 1.0]),
    ("sgd", {"lazy_update": False}, [0.90249997, 0.12249991, 0.90249997, 0.51249999, 0.90249997]),
    ("sgd", {"momentum": 0.9}, [1.0, -0.28250003, 1.0, 0.28750002, 1.0]),
    ("adam", {}, [1.0, 0.80002934, 1.0, 0.80005646, 1.0]),
]


@pytest.mark.parametrize(("rule", "options", "rows"), STEPS)
def test_embedding_with_sparse_gradients(rule: str, options: dict[str, Any], rows: list[float]) -> None:
    if rule == "adam":
        net = mx.gluon.contrib.nn.SparseEmbedding(5, 2)
    else:
        net = mx.gluon.nn.Embedding(5, 2, sparse_grad=True)
    net.initialize("ones")
    options = {"learning_rate": 0.1, "wd": 0.5, **options}
    trainer = mx.gluon.Trainer(net.collect_params(), rule, options, kvstore=None)
    for _ in range(2):
        with mx.autograd.record():
            loss = (net(mx.nd.array([1, 3, 1])) * 2).sum()
        loss.backward()
        gradient = net.weight.grad()
        assert gradient.stype == "row_sparse" and gradient.indices.asnumpy().tolist() == [1, 3]
        assert gradient.data.asnumpy().tolist() == [[4, 4], [2, 2]]
        trainer.step(1)
    np.testing.assert_allclose(net.weight.data().asnumpy()[:, 0], rows, rtol=2e-6)


def test_writing_to_a_shown_gradient_reaches_the_buffer() -> None:
    weight = mx.nd.ones((3, 2))
    weight.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        (weight[1] * 3).sum().backward()
    gradient = weight.grad
    gradient *= 2
    assert weight.grad.asnumpy().tolist() == [[0, 0], [6, 6], [0, 0]]
