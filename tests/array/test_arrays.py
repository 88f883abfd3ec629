"""Arrays of both kinds as Python, NumPy and torch objects: copies, bridges, devices, files, errors."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx

KINDS = [mx.nd, mx.np]
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]


@pytest.fixture(params=KINDS, ids=["nd", "np"])
def space(request: pytest.FixtureRequest) -> Any:
    return request.param


def values(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_and_back_keeps_type_and_values(space: Any, dtype: str) -> None:
    host = values(2, 3).astype(dtype)
    array = space.array(host, dtype=dtype)
    assert np.dtype(array.dtype) == np.dtype(dtype)
    back = array.asnumpy()
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, host)
    back[...] = 1
    np.testing.assert_array_equal(array.asnumpy(), host)
    np.testing.assert_array_equal(np.asarray(array), host)
    assert np.asarray(array, dtype="float64").dtype == np.float64


def test_bfloat16_goes_out_as_float32(space: Any) -> None:
    array = space.array([1.0, 2.5]).astype("bfloat16")
    assert array.asnumpy().dtype == np.float32
    assert array.asnumpy().tolist() == [1.0, 2.5]
    assert array.to_torch().dtype is torch.bfloat16


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_copies_and_pickles(space: Any, copied: Any, shape: tuple[int, ...]) -> None:
    array = space.array(values(*shape), ctx=mx.cpu(2), dtype="int32")
    other = copied(array)
    assert type(other) is type(array)
    assert (other.shape, other.dtype, other.context) == (array.shape, array.dtype, mx.cpu(2))
    np.testing.assert_array_equal(other.asnumpy(), array.asnumpy())
    array[...] = 7
    assert not other.size or (other.asnumpy() != 7).any()


def test_a_pickled_leaf_is_a_leaf(space: Any) -> None:
    array = space.array([1.0, 2.0])
    array.attach_grad("add")
    for other in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array)):
        with mx.autograd.record():
            total = (other * other).sum()
        total.backward()
        assert other.grad.asnumpy().tolist() == [2.0, 4.0]
    assert array.grad.asnumpy().tolist() == [0.0, 0.0]


def test_deepcopy_keeps_what_is_shared(space: Any) -> None:
    array = space.ones((2,))
    first, second = copy.deepcopy([array, array])
    assert first is second
    assert first is not array


def test_from_numpy_shares_memory(space: Any) -> None:
    function = mx.nd.from_numpy if space is mx.nd else mx.npx.from_numpy
    host = values(2, 3)
    array = function(host)
    assert type(array) is (mx.nd.NDArray if space is mx.nd else mx.np.ndarray)
    array[0, 0] = 9
    assert host[0, 0] == 9
    with pytest.raises(ValueError, match="read-only"):
        host[0, 0] = 1
    free = values(2)
    function(free, zero_copy=False)[0] = 9
    assert free[0] == 0
    with pytest.raises(ValueError, match="only C-contiguous arrays can share memory; use zero_copy=False"):
        function(values(2, 3).T)


def test_dlpack_shares_memory(space: Any) -> None:
    array = space.array(values(2, 3))
    tensor = torch.from_dlpack(array)
    tensor[0, 1] = 50
    assert float(array[0, 1].asnumpy().reshape(-1)[0]) == 50
    assert np.from_dlpack(array)[0, 1] == 50
    assert array.__dlpack_device__()[0] == 1
    function = mx.nd.from_dlpack if space is mx.nd else mx.np.from_dlpack
    back = function(array.to_dlpack_for_write())
    back[0, 2] = 60
    assert tensor[0, 2] == 60
    assert type(function(torch.ones(2))) is type(array)
    np.testing.assert_array_equal(mx.npx.from_dlpack(mx.npx.to_dlpack_for_read(array)).asnumpy(), tensor)


def test_torch_in_and_out(space: Any) -> None:
    tensor = torch.arange(4.0, requires_grad=True)
    array = mx.from_torch(tensor, np_kind=space is mx.np)
    assert not array.to_torch().requires_grad
    array[0] = 5
    assert tensor[0].item() == 5
    assert (array + tensor).asnumpy().tolist() == [10, 2, 4, 6]
    assert space.array(torch.ones(2, dtype=torch.int32)).asnumpy().tolist() == [1, 1]


def test_numpy_functions_give_arrays() -> None:
    array = mx.np.array(values(2, 3))
    for result, expected in (
        (np.mean(array), 2.5),
        (np.add(array, 1), values(2, 3) + 1),
        (np.concatenate([array, array]), np.concatenate([values(2, 3)] * 2)),
        (np.maximum(array, np.full((2, 3), 3.0, np.float32)), np.maximum(values(2, 3), 3)),
        (np.linalg.norm(array), np.linalg.norm(values(2, 3))),
        (np.percentile(array, 50), 2.5),
        (np.add.reduce(array), values(2, 3).sum(0)),
        (np.multiply.outer(array[0], array[1]), np.multiply.outer(values(2, 3)[0], values(2, 3)[1])),
    ):
        assert isinstance(result, mx.np.ndarray)
        np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-6)
    target = np.zeros((2, 3), np.float32)
    assert np.exp(array, out=target) is target
    np.testing.assert_allclose(target, np.exp(values(2, 3)), rtol=1e-6)
    own = mx.np.zeros((2, 3))
    assert np.sqrt(array, out=own) is own
    np.testing.assert_allclose(own.asnumpy(), np.sqrt(values(2, 3)), rtol=1e-6)
    host = values(3)
    assert isinstance(host + array, mx.np.ndarray)
    np.testing.assert_allclose((host * array).asnumpy(), host * values(2, 3))


def test_numpy_functions_record() -> None:
    array = mx.np.array([1.0, 4.0])
    array.attach_grad()
    with mx.autograd.record():
        total = np.sum(np.sqrt(array))
    total.backward()
    np.testing.assert_allclose(array.grad.asnumpy(), [0.5, 0.25])


def test_nd_goes_through_numpy_as_values() -> None:
    array = mx.nd.array(values(2, 3))
    assert float(np.mean(array)) == 2.5
    np.testing.assert_allclose(np.exp(array), np.exp(values(2, 3)), rtol=1e-6)


def test_iteration_and_length(space: Any) -> None:
    array = space.array(values(3, 2))
    rows = list(array)
    assert [row.asnumpy().tolist() for row in rows] == values(3, 2).tolist()
    rows[0][:] = 9
    assert array.asnumpy()[0].tolist() == [9, 9]
    assert len(array) == 3
    first, *_ = array
    assert first.shape == (2,)
    assert [x.size for x in (array, array[:0])] == [6, 0]
    scalar = space.array(1.0)
    with pytest.raises(TypeError, match="len\\(\\) of unsized object"):
        len(scalar)
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        list(scalar)


CONVERSIONS: list[tuple[Any, type[Exception], str]] = [
    (lambda m: bool(m.ones((2,))), ValueError, "truth value of an (NDArray|ndarray) with multiple elements"),
    (lambda m: int(m.ones((2,))), TypeError, "only size-1 arrays can be converted to Python scalars"),
    (lambda m: float(m.ones((2,))), TypeError, "only size-1 arrays can be converted to Python scalars"),
    (lambda m: m.ones((2,)).item(), ValueError, "array of size 1 to a Python scalar"),
    (lambda m: m.ones((2,)).asscalar(), ValueError, r"not a scalar: it has shape \(2,\)"),
    (lambda m: range(3)[m.ones((1,))], TypeError, "only integer scalar arrays"),
    (lambda m: m.array(["a", "b"]), TypeError, "array"),
    (lambda m: m.array([[1, 2], [3]]), TypeError, "array"),
    (lambda m: m.array(object()), TypeError, "array"),
    (lambda m: m.ones((2,)) + "a", TypeError, "type <class 'str'> not supported"),
    (lambda m: m.ones((2,)) + None, TypeError, "type <class 'NoneType'> not supported"),
    (lambda m: m.ones((2,)).astype("float31"), Exception, "float31"),
    (lambda m: m.ones((2,)).copyto(3), TypeError, "copyto does not support type <class 'int'>"),
    (lambda m: m.ones((2,)).copyto(m.ones((3,))), mx.MXNetError, r"one shape; received \(2,\) to \(3,\)"),
    (lambda m: m.ones((2,)) + m.ones((3,)), mx.MXNetError, "broadcast"),
    (lambda m: m.ones((2, 3)).reshape((4, 2)), mx.MXNetError, r"\(4, 2\)"),
]


@pytest.mark.parametrize("number", range(len(CONVERSIONS)))
def test_conversion_errors(space: Any, number: int) -> None:
    call, kind, text = CONVERSIONS[number]
    with pytest.raises(kind, match=text):
        call(space)


def test_conversions(space: Any) -> None:
    one = space.array([2.5])
    assert (float(one), int(one), bool(one), one.item(), f"{one:.2f}") == (2.5, 2, True, 2.5, "2.50")
    assert isinstance(one.asscalar(), np.float32)
    assert isinstance(one.item(), float)
    assert not bool(space.zeros((0,)))
    index = space.array([1], dtype="int32")
    assert ["a", "b"][index] == "b"
    assert space.array(values(2, 2)).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert (space.ones((2,)) == None) is False  # noqa: E711
    assert (space.ones((2,)) != None) is True  # noqa: E711
    assert len({space.ones((1,)), space.ones((1,))}) == 2
    with pytest.warns(RuntimeWarning, match="copy an array to itself"):
        assert one.copyto(one) is False


def test_devices_are_labels(space: Any) -> None:
    first, second = space.ones((2,), ctx=mx.cpu(0)), space.ones((2,), ctx=mx.cpu(1))
    assert (str(first.context), str(second.device), second.ctx) == ("cpu(0)", "cpu(1)", mx.cpu(1))
    moved = first.as_in_context(mx.cpu(3))
    assert moved.context == mx.cpu(3)
    moved[:] = 9
    assert first.asnumpy().tolist() == [1, 1]
    assert first.copyto(mx.cpu(4)).context == mx.cpu(4)
    assert second.to_device(mx.cpu(5)).context == mx.cpu(5)
    assert (second + second).context == mx.cpu(1)
    with mx.cpu(7):
        assert mx.current_context() == mx.cpu(7)
        assert space.zeros((1,)).context == mx.cpu(7)
        with mx.cpu(8):
            assert space.array([1]).context == mx.cpu(8)
        assert mx.nd.random.uniform().context == mx.cpu(7)
    assert mx.current_context() == mx.cpu(0)
    if mx.num_gpus() == 0:
        with pytest.raises(mx.MXNetError, match="gpu"):
            space.ones((2,), ctx=mx.gpu(0))
    assert mx.cpu(1) == mx.Context("cpu", 1) != mx.cpu(2)
    array = space.ones((2,))
    array.wait_to_read()
    mx.nd.waitall()
    mx.npx.waitall()


def test_nd_files(tmp_path: Path) -> None:
    file = str(tmp_path / "arrays.params")
    pair = [mx.nd.array(values(2, 3)), mx.nd.array([1, 2], dtype="int64")]
    mx.nd.save(file, pair)
    loaded = mx.nd.load(file)
    assert [array.dtype for array in loaded] == [np.float32, np.int64]
    np.testing.assert_array_equal(loaded[0].asnumpy(), values(2, 3))
    mx.nd.save(file, {"w": pair[0], "b": pair[1]})
    assert sorted(mx.nd.load(file)) == ["b", "w"]
    mx.nd.save(file, pair[1])
    assert mx.nd.load(file)[0].asnumpy().tolist() == [1, 2]
    assert mx.nd.load_frombuffer(Path(file).read_bytes())[0].asnumpy().tolist() == [1, 2]
    with pytest.raises(TypeError, match="Element 0 of the data must be an NDArray"):
        mx.nd.save(file, [1, 2])


def test_np_files(tmp_path: Path) -> None:
    single, several = str(tmp_path / "one.npy"), str(tmp_path / "many.npz")
    mx.npx.save(single, mx.np.array(values(2, 3)))
    np.testing.assert_array_equal(np.load(single), values(2, 3))
    loaded = mx.npx.load(single)
    assert type(loaded) is mx.np.ndarray
    mx.npx.savez(several, mx.np.ones(2), w=mx.np.array(3.0))
    with np.load(several) as host:
        assert sorted(host) == ["arr_0", "w"]
        assert host["w"].shape == ()
    loaded = mx.npx.load(several)
    assert loaded["w"].item() == 3.0
    assert type(loaded["arr_0"]) is mx.np.ndarray


def test_numpy_mode() -> None:
    assert not mx.util.is_np_array()
    mx.npx.set_np()
    assert mx.npx.is_np_array()
    assert mx.npx.is_np_shape()
    assert not mx.npx.is_np_default_dtype()
    mx.npx.set_np(dtype=True)
    assert mx.np.zeros(2).dtype == np.float64
    assert mx.nd.random.uniform().dtype == np.float64
    assert mx.nd.random.randint(0, 5).dtype == np.int32
    assert mx.nd.zeros((2,)).dtype == np.float32
    mx.npx.reset_np()
    assert mx.np.zeros(2).dtype == np.float32
    assert not mx.npx.is_np_array()

    @mx.npx.use_np
    def inside() -> bool:
        return bool(mx.npx.is_np_array() and mx.npx.is_np_shape())

    assert inside()
    assert not mx.npx.is_np_array()
    with pytest.raises(ValueError, match="shape=True"):
        mx.npx.set_np(shape=False, array=True)


def test_both_kinds_share_memory() -> None:
    array = mx.nd.zeros((2,))
    other = array.as_np_ndarray()
    other[:] = 3
    assert array.asnumpy().tolist() == [3, 3]
    assert type(other.as_nd_ndarray()) is mx.nd.NDArray
    assert type(array + other) is mx.np.ndarray


def test_histogram() -> None:
    data = [1.0, 2.0, 1.0, 4.0]
    counts, edges = mx.nd.histogram(mx.nd.array(data), bins=3)
    expected = np.histogram(data, bins=3)
    assert counts.asnumpy().tolist() == expected[0].tolist()
    np.testing.assert_allclose(edges.asnumpy(), expected[1])
    counts, edges = mx.nd.histogram(mx.nd.array(data), bins=mx.nd.array([0, 1, 2, 3]))
    assert counts.asnumpy().tolist() == [0, 2, 1]
    counts, _ = mx.nd.histogram(mx.nd.array(data), bins=3, range=(0, 4))
    assert counts.asnumpy().tolist() == [2, 1, 1]
    with pytest.raises(ValueError, match="bins is an integer or an array of edges; received 'a'"):
        mx.nd.histogram(mx.nd.array(data), bins="a")
    with pytest.raises(mx.MXNetError, match="at least 1 bin"):
        mx.nd.histogram(mx.nd.array(data), bins=0)


def test_number_tests_of_contrib() -> None:
    data = mx.nd.array([1.0, np.nan, np.inf, -np.inf])
    assert mx.nd.contrib.isnan(data).asnumpy().tolist() == [0, 1, 0, 0]
    assert mx.nd.contrib.isinf(data).asnumpy().tolist() == [0, 0, 1, 1]
    assert mx.nd.contrib.isfinite(data).asnumpy().tolist() == [1, 0, 0, 0]


def test_zipfian_candidates() -> None:
    drawn, true, sampled = mx.nd.contrib.rand_zipfian(mx.nd.array([3]), 20_000, 5)
    share = np.log([2.0, 1.5, 4 / 3, 1.25, 1.2]) / np.log(6)
    found = np.bincount(drawn.asnumpy(), minlength=5) / 20_000
    np.testing.assert_allclose(found, share, atol=6 * 0.5 / np.sqrt(20_000))
    assert (drawn.dtype, true.dtype) == (np.int64, np.float64)
    np.testing.assert_allclose(true.asnumpy(), [20_000 * share[3]], rtol=1e-6)
    np.testing.assert_allclose(sampled.asnumpy(), 20_000 * share[drawn.asnumpy()], rtol=1e-6)


def test_further_names_of_np() -> None:
    x = mx.np.array([0.1, 0.5])
    for short, long in (("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"), ("asinh", "arcsinh")):
        np.testing.assert_allclose(
            getattr(mx.np, short)(x).asnumpy(), getattr(np, long)(x.asnumpy()), rtol=1e-5
        )
    assert mx.np.pow(x, 2).asnumpy() == pytest.approx([0.01, 0.25])
    assert mx.np.interp(mx.np.array([1.5]), mx.np.array([1, 2]), mx.np.array([10, 20])).asnumpy() == [15]
    assert mx.np.product(mx.np.array([2, 3])).item() == 6
    assert mx.np.sometrue(mx.np.array([0, 1])).item()
    assert np.isnan(mx.np.NaN)
