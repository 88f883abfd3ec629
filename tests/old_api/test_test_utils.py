"""mx.test_utils: comparisons, checks and samples as in 1.9.1."""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import test_utils as t


def test_tolerances_are_the_originals() -> None:
    inexact = [numpy.dtype(name) for name in ("float16", "float32", "float64")]
    assert [t.default_rtols()[dtype] for dtype in inexact] == [1e-2, 1e-4, 1e-5]
    assert [t.default_atols()[dtype] for dtype in inexact] == [1e-1, 1e-3, 1e-20]
    assert [t.default_numeric_eps()[dtype] for dtype in inexact] == [0.015625, 0.001953125, 6.103515625e-05]
    assert t.default_rtols()[numpy.dtype("int32")] == t.default_atols()[numpy.dtype("bool")] == 0
    assert t.get_tols(numpy.zeros(3, "float16"), mx.nd.zeros(3), None, None) == (1e-2, 1e-1)
    assert (t.get_rtol(), t.get_atol(1e-3), t.get_etol()) == (1e-5, 1e-3, 0)


def test_assert_almost_equal_says_where() -> None:
    t.assert_almost_equal(mx.nd.array([1, 2]), mx.np.array([1.0, 2.0001]))
    t.assert_almost_equal(mx.nd.ones((2,)), 1)
    text = (
        r"Error 714.285714 exceeds tolerance rtol=1.000000e-04, atol=1.000000e-03 \(mismatch 66.666667%\).\n"
        r"Location of maximum error: \(2,\), a=3.00000000, b=4.00000000\nNext: \(1,\), a=2.0"
    )
    with pytest.raises(AssertionError, match=text):
        t.assert_almost_equal(mx.nd.array([1, 2, 3]), numpy.array([1, 2.5, 4]))
    nan = numpy.array([1, numpy.nan])
    with pytest.raises(AssertionError, match=r"Location of maximum error: \(1,\)"):
        t.assert_almost_equal(nan, nan)
    t.assert_almost_equal(nan, nan, equal_nan=True)
    t.assert_almost_equal_ignore_nan(nan, numpy.array([1, 5]))
    with pytest.raises(AssertionError, match=r"a.shape = \(2, 3\) and b.shape = \(1, 3\) are not equal"):
        t.assert_almost_equal(numpy.ones((2, 3)), numpy.ones((1, 3)), use_broadcast=False)
    four = numpy.array([1.0, 2, 3, 4])
    t.assert_almost_equal_with_err(four, four + numpy.eye(4)[3], etol=0.3)
    with pytest.raises(AssertionError, match="mismatch 25"):
        t.assert_almost_equal_with_err(four, four + numpy.eye(4)[3], etol=0.1)


def test_same_and_memory() -> None:
    array = mx.nd.arange(4)
    assert t.same(array, numpy.arange(4)) and not t.same(array, numpy.ones(4))
    assert t.same_array(array, array[:]) and not t.same_array(array, array.copy())
    numpy.testing.assert_array_equal(array.asnumpy(), [0, 1, 2, 3])
    t.assert_exception(lambda: 1 // 0, ZeroDivisionError)
    with pytest.raises(AssertionError, match="did not raise ZeroDivisionError"):
        t.assert_exception(lambda: 1, ZeroDivisionError)
    t.compare_ndarray_tuple((array, (array, None)), (array, (array.copy(), None)))


def product() -> Any:
    a, b = mx.sym.var("a"), mx.sym.var("b")
    return a * b + a


def test_symbolic_checks() -> None:
    one = numpy.ones(2)
    assert t.simple_forward(product(), a=one, b=one).tolist() == [2, 2]
    (output,) = t.check_symbolic_forward(product(), [one, one], [2 * one])
    assert output.asnumpy().tolist() == [2, 2]
    with pytest.raises(AssertionError, match=r"EXPECTED__plus[0-9]+_output=3.0.*FORWARD__plus"):
        t.check_symbolic_forward(product(), [one, one], [3 * one])
    expected = {"a": 4 * one, "b": 2 * one}
    for request in ("write", "add"):
        found = t.check_symbolic_backward(
            product(), [2 * one, one], [2 * one], {"a": 4 * one}, grad_req=request
        )
        assert found.keys() == {"a"}
        with pytest.raises(AssertionError, match=r"EXPECTED_b=2.0.*BACKWARD_b=4.0"):
            t.check_symbolic_backward(
                product(), {"a": 2 * one, "b": one}, [2 * one], expected, grad_req=request, atol=1e-3
            )
    with pytest.raises(ValueError, match=re.escape("location needs 2 values (a, b); received 1")):
        t.check_symbolic_forward(product(), [one], [one])


def test_numeric_gradients() -> None:
    draw = numpy.random.RandomState(1)
    values = [draw.rand(2, 3), draw.rand(2, 3)]
    t.check_numeric_gradient(product(), values)
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.var("a"), num_hidden=3, name="fc"), fix_gamma=False)
    location = {name: draw.rand(*shape) for name, shape in _shapes(net).items()}
    states = {name: numpy.full(3, 0.7) for name in net.list_auxiliary_states()}
    t.check_numeric_gradient(net, location, states, numeric_eps=1e-4, rtol=1e-3, atol=1e-4, dtype="float64")
    wrong = mx.sym.BlockGrad(mx.sym.var("a")) * mx.sym.var("b")
    with pytest.raises(AssertionError, match=r"NUMERICAL_a=0.*BACKWARD_a=0.00000000"):
        t.check_numeric_gradient(wrong, values)
    t.check_numeric_gradient(wrong, values, grad_nodes=["b"])
    t.check_numeric_gradient(product(), values, grad_nodes={"a": "add"})


def _shapes(net: Any) -> dict[str, Any]:
    return dict(zip(net.list_arguments(), net.infer_shape(a=(4, 2))[0], strict=True))


def test_consistency_between_types() -> None:
    places = [
        {"ctx": mx.cpu(0), "a": (2, 3), "b": (2, 3), "type_dict": {"a": "float32", "b": "float32"}},
        {"ctx": mx.cpu(1), "a": (2, 3), "b": (2, 3), "type_dict": {"a": "float64", "b": "float64"}},
    ]
    found = t.check_consistency(product(), places)
    assert found["a"].dtype == numpy.float64 and len(found) == 3
    other = mx.sym.var("a") - mx.sym.var("b")
    with pytest.raises(AssertionError, match="executor 0: "):
        t.check_consistency([other, product()], places)


def test_hybridize_consistency() -> None:
    data = [mx.nd.array(numpy.random.RandomState(0).rand(2, 4))]
    t.check_gluon_hybridize_consistency(lambda: mx.gluon.nn.Dense(3, activation="tanh"), data)

    class Fickle(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return x * (1 if F is mx.nd else 2)

    with pytest.raises(AssertionError, match="hybridized"):
        t.check_gluon_hybridize_consistency(Fickle, data)


def test_optimizers_are_compared() -> None:
    same = [mx.optimizer.SGD(learning_rate=0.1, momentum=0.9) for _ in range(2)]
    t.compare_optimizer(*same, (3, 4), "float32")
    with pytest.raises(AssertionError, match="exceeds tolerance"):
        t.compare_optimizer(same[0], mx.optimizer.SGD(learning_rate=0.2, momentum=0.9), [(3, 4)], "float32")


def test_shapes_and_arrays() -> None:
    for _ in range(20):
        assert all(1 <= size <= 4 for size in t.rand_shape_2d(4, 4) + t.rand_shape_3d(4, 4, 4))
        assert all(0 <= size <= 2 for size in t.rand_shape_nd(3, 2, allow_zero_size=True))
        x, y = t.rand_coord_2d(1, 3, 4, 6)
        assert x in (1, 2) and y in (4, 5)
    assert t.random_arrays((2,)).dtype == numpy.float32 and len(t.random_arrays((2,), (3, 1))) == 2
    (uniform,) = t.random_uniform_arrays((50,), low=1, high=2, dtype="float64")
    assert 1 <= uniform.min() < uniform.max() <= 2 and uniform.dtype == numpy.float64
    assert sorted(t.random_sample([1, 2, 3], 3)) == [1, 2, 3]
    assert t.np_reduce(numpy.ones((2, 3, 4)), (0, 2), True, numpy.sum).tolist() == [[[8.0], [8.0], [8.0]]]
    assert t.collapse_sum_like(numpy.ones((2, 3, 4)), (3, 1)).tolist() == [[8.0], [8.0], [8.0]]
    assert t.assign_each(numpy.arange(3.0), lambda x: 2 * x).tolist() == [0, 2, 4]
    assert t.create_2d_tensor(2, 3).asnumpy().tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_sparse_arrays(stype: str) -> None:
    array, parts = t.rand_sparse_ndarray((40, 30), stype, density=0.4)
    dense = array.asnumpy()
    assert array.stype == stype and 0.15 < (dense != 0).mean() < 0.65
    values = parts[0] if stype == "row_sparse" else parts[2]
    numpy.testing.assert_array_equal(numpy.sort(dense[dense != 0]), numpy.sort(values.ravel()))
    assert (
        t.create_sparse_array((4, 3), stype, data_init=2.0, density=1.0).asnumpy().tolist() == [[2.0] * 3] * 4
    )
    assert not t.rand_ndarray((4, 3), stype, density=0.0).asnumpy().any()
    with pytest.raises(ValueError, match="unknown storage type 'coo'"):
        t.rand_ndarray((4, 3), "coo")


def test_generators_are_tested() -> None:
    pytest.importorskip("scipy", reason="Pearson's test needs SciPy's distribution")
    draw = numpy.random.RandomState(3)
    buckets, probabilities = t.gen_buckets_probs_with_ppf(lambda p: p, 4)
    assert buckets[1] == (0.25, 0.5) and sum(probabilities) == 1
    p, observed, expected = t.chi_square_check(draw.rand, buckets, probabilities, 10000)
    assert p > 1e-4 and sum(observed) == 10000 and expected.tolist() == [2500] * 4
    t.verify_generator(draw.rand, buckets, probabilities, 10000)
    with pytest.raises(AssertionError, match="Generator test fails, Chi-square p="):
        t.verify_generator(lambda n: draw.rand(n) ** 2, buckets, probabilities, 10000)
    assert t.mean_check(draw.rand, 0.5, (1 / 12) ** 0.5, 10000)
    assert not t.mean_check(draw.rand, 0.6, (1 / 12) ** 0.5, 10000)
    assert t.var_check(lambda n: draw.normal(size=n), 1, 10000)
    assert not t.var_check(lambda n: 2 * draw.normal(size=n), 1, 10000)


def test_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGLUON_TEST_ONE", "before")
    monkeypatch.delenv("REGLUON_TEST_TWO", raising=False)
    with t.environment({"REGLUON_TEST_ONE": None, "REGLUON_TEST_TWO": 2}):
        assert "REGLUON_TEST_ONE" not in os.environ and os.environ["REGLUON_TEST_TWO"] == "2"
        with t.environment("REGLUON_TEST_ONE", "inner"):
            assert os.environ["REGLUON_TEST_ONE"] == "inner"
    assert os.environ["REGLUON_TEST_ONE"] == "before" and "REGLUON_TEST_TWO" not in os.environ


def test_default_context() -> None:
    before = t.default_context()
    t.set_default_context(mx.cpu(2))
    try:
        assert mx.nd.ones(1).context == t.default_device() == mx.cpu(2)
    finally:
        t.set_default_context(before)
    assert list(t.list_gpus()) == list(range(mx.num_gpus()))


def test_retry() -> None:
    calls: list[int] = []

    @t.retry(3)
    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise AssertionError("bad luck")
        return "done"

    assert flaky() == "done" and len(calls) == 3
    with pytest.raises(ValueError, match="positive number"):
        t.retry(0)


def test_discarded_stream(capfd: pytest.CaptureFixture[str]) -> None:
    with t.discard_stderr():
        sys.stderr.write("lost")
        os.write(2, b"lost too")
    sys.stderr.write("kept")
    assert capfd.readouterr().err == "kept"


def write_idx(path: Path, array: Any) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.astype("uint8").tobytes())


def test_mnist_is_read_and_never_downloaded(tmp_path: Path) -> None:
    images = numpy.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", numpy.array([3, 7]))
    found = t.get_mnist(str(tmp_path))
    numpy.testing.assert_allclose(found["test_data"], images[:, None] / 255, rtol=1e-6)
    assert found["train_label"].tolist() == [3, 7]
    with pytest.raises(OSError, match=r"MNIST: nothing is downloaded, and train-images-idx3-ubyte"):
        t.get_mnist_iterator(1, (784,), path=str(tmp_path))
    with pytest.raises(OSError, match=r"nothing is downloaded: get https://host/a.zip"):
        t.download("https://host/a.zip", dirname=str(tmp_path))
    (tmp_path / "a.zip").write_bytes(b"")
    assert t.download("https://host/a.zip", dirname=str(tmp_path)) == str(tmp_path / "a.zip")


def test_dummy_iterator_and_speed() -> None:
    iterator = t.DummyIter(mx.io.NDArrayIter(numpy.ones((4, 2)), numpy.ones(4), 2))
    assert iterator.next() is iterator.next() and iterator.batch_size == 2
    assert 0 < t.check_speed(product(), N=2, a=(2,), b=(2,)) < 10
    assert t.same_symbol_structure(product(), product())
    assert not t.same_symbol_structure(product(), mx.sym.var("a") * mx.sym.var("b"))
