"""The indexing engine against NumPy: reads and writes, on tensors and as operator calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regluon.array.indexing import getitem_ops, getitem_torch, plan, setitem_ops, setitem_torch
from regluon.ops import opdef, registry

registry.load()


def call(name: str, inputs: list[Any], **attrs: Any) -> torch.Tensor:
    """Apply an operator the way a trace does; constants of a key arrive as NumPy arrays."""
    definition = registry.get(name)
    tensors = [torch.as_tensor(value) if isinstance(value, np.ndarray) else value for value in inputs]
    return opdef.run(definition, tensors, definition.parse(attrs), False, None)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def for_torch(key: Any) -> Any:
    """Turn some index arrays of a key into tensors: both forms must work."""
    if isinstance(key, tuple):
        return tuple(for_torch(item) for item in key)
    return tensor(key) if isinstance(key, np.ndarray) and key.size % 2 else key


@st.composite
def arrays_and_keys(draw: st.DrawFn) -> tuple[np.ndarray, Any]:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    array = numbered(shape)
    parts: list[Any] = []
    broadcast = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    axis = 0
    while axis < len(shape):
        size = shape[axis]
        what = draw(st.sampled_from(["int", "slice", "slice", "whole", "index", "mask", "new", "stop"]))
        if what == "stop":
            break
        if what == "new":
            parts.append(None)
            continue
        if what == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif what == "slice":
            parts.append(draw(st.slices(size)))
        elif what == "whole":
            parts.append(slice(None))
        elif what == "index":
            parts.append(draw(hnp.arrays(np.int64, broadcast, elements=st.integers(-size, size - 1))))
        elif any(isinstance(part, np.ndarray) for part in parts):
            parts.append(slice(None))
        else:
            parts.append(draw(hnp.arrays(bool, (size,))))
        axis += 1
    if draw(st.booleans()) and axis < len(shape):
        parts.append(Ellipsis)
        last = shape[-1]
        if axis < len(shape) - 1 and draw(st.booleans()):
            parts.append(draw(st.integers(-last, last - 1)))
    return array, tuple(parts) if len(parts) != 1 or draw(st.booleans()) else parts[0]


def numpy_read(array: np.ndarray, key: Any) -> np.ndarray | None:
    """NumPy's result, or None where it refuses the key (a mask next to arrays of another length)."""
    try:
        return array[key]
    except IndexError:
        return None


@settings(max_examples=300, deadline=None)
@given(arrays_and_keys())
def test_reads_agree_with_numpy(case: tuple[np.ndarray, Any]) -> None:
    array, key = case
    expected = numpy_read(array, key)
    if expected is None:
        with pytest.raises(IndexError):
            getitem_torch(tensor(array), key)
        return
    result, shared = getitem_torch(tensor(array), for_torch(key))
    np.testing.assert_array_equal(result.numpy(), expected)
    assert result.is_contiguous() or shared
    np.testing.assert_array_equal(getitem_ops(tensor(array), for_torch(key), call).numpy(), expected)


@settings(max_examples=300, deadline=None)
@given(arrays_and_keys(), st.data())
def test_writes_agree_with_numpy(case: tuple[np.ndarray, Any], data: st.DataObject) -> None:
    array, key = case
    selected = numpy_read(array, key)
    if selected is None:
        return
    # A number, the whole selection, or trailing dimensions of it that broadcast.
    depth = data.draw(st.integers(-1, selected.ndim))
    shape = selected.shape[selected.ndim - depth :] if depth >= 0 else ()
    value: Any = 7.0 if depth < 0 else np.full(shape, 100, np.float32)
    if depth >= 0 and not _writes_twice(array, key):
        value = value + numbered(shape)
    expected = array.copy()
    expected[key] = value
    written = tensor(array)
    setitem_torch(written, for_torch(key), value)
    np.testing.assert_array_equal(written.numpy(), expected)
    source = tensor(array)
    functional = setitem_ops(source, for_torch(key), value, call)
    np.testing.assert_array_equal(functional.numpy(), expected)
    np.testing.assert_array_equal(source.numpy(), array)


def _writes_twice(array: np.ndarray, key: Any) -> bool:
    """Whether an element is selected more than once: which value it gets is then not defined."""
    places = numbered(array.shape)[key].reshape(-1)
    return len(np.unique(places)) != len(places)


# Recorded from MXNet: whether the result of x[key] shares memory with an x of shape (4, 3, 5).
SHARES = [
    (0, True),
    (-1, True),
    (slice(1, 3), True),
    ((slice(0, 1), slice(1, 3)), True),
    ((slice(2, 3), 0, slice(0, 2)), True),
    ((0, slice(1, 3)), True),
    ((0, 1, 2), True),
    (None, True),
    ((slice(1, 3), None), True),
    (Ellipsis, True),
    ((), True),
    (slice(None, None, 2), False),
    (slice(None, None, -1), False),
    ((slice(None), 0), False),
    ((slice(1, 2), slice(None), 0), False),
    ((Ellipsis, 0), False),
    ([0, 2], False),
    (np.array([True, False, True, False]), False),
]


@pytest.mark.parametrize(("key", "expected"), SHARES)
def test_only_contiguous_basic_slices_share_memory(key: Any, expected: bool) -> None:
    source = tensor(numbered((4, 3, 5)))
    before = source.clone()
    result, shared = getitem_torch(source, key)
    result.fill_(-1)
    assert shared == expected
    assert torch.equal(source, before) != expected


@pytest.mark.parametrize(
    ("shape", "key", "expected"),
    [((4,), 1, (1,)), ((4, 3), (1, 2), (1,)), ((4, 3), 1, (3,)), ((4,), (None, 0), (1,)), ((4,), True, (1,))],
)
def test_nd_results_keep_a_dimension(shape: tuple[int, ...], key: Any, expected: tuple[int, ...]) -> None:
    source = tensor(numbered(shape))
    assert tuple(getitem_torch(source, key, "nd")[0].shape) == expected
    assert tuple(getitem_ops(source, key, call, "nd").shape) == expected


def test_true_is_a_new_axis_for_np() -> None:
    source = tensor(numbered((4, 3)))
    assert tuple(getitem_torch(source, True)[0].shape) == (1, 4, 3)
    assert tuple(getitem_torch(source, False)[0].shape) == (0, 4, 3)


def test_float_index_arrays_are_cut_to_integers() -> None:
    source = tensor(numbered((4, 3)))
    index = torch.tensor([0.0, 2.9])
    np.testing.assert_array_equal(getitem_torch(source, index)[0].numpy(), numbered((4, 3))[[0, 2]])
    np.testing.assert_array_equal(getitem_ops(source, index, call).numpy(), numbered((4, 3))[[0, 2]])


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (7, IndexError, "index 7 is out of bounds for axis 0 with size 4"),
        ((0, -4), IndexError, "index -4 is out of bounds for axis 1 with size 3"),
        ([9], IndexError, "index 9 is out of bounds for axis 0 with size 4"),
        (
            (0, 0, 0),
            IndexError,
            r"too many indices: the array has 2 dimension\(s\) \(4, 3\), but 3 were indexed",
        ),
        ((Ellipsis, Ellipsis), IndexError, "only one ellipsis"),
        ("a", IndexError, "unsupported index 'a' of type str"),
        (1.5, IndexError, "unsupported index 1.5 of type float"),
        (np.array([True, False]), IndexError, r"boolean index of shape \(2,\) does not match"),
        (slice(0, 4, 0), ValueError, "step of a slice cannot be 0"),
        (slice(0, 1.5), TypeError, "the stop of a slice must be an integer or None, received 1.5"),
        (["x"], IndexError, "an index list must hold integers or booleans"),
    ],
)
def test_wrong_keys_say_what_is_wrong(key: Any, error: type[Exception], text: str) -> None:
    source = tensor(numbered((4, 3)))
    with pytest.raises(error, match=text):
        getitem_torch(source, key)
    with pytest.raises(error, match=text):
        getitem_ops(source, key, call)
    with pytest.raises(error, match=text):
        setitem_torch(source, key, 1)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([1, 2], ValueError, r"cannot broadcast a value of shape \(2,\) into the selected shape \(3,\)"),
        ("a", TypeError, "cannot assign 'a' of type str"),
        (None, TypeError, "cannot assign None of type NoneType"),
    ],
)
def test_wrong_values_say_what_is_wrong(value: Any, error: type[Exception], text: str) -> None:
    source = tensor(numbered((4, 3)))
    with pytest.raises(error, match=text):
        setitem_torch(source, 0, value)
    with pytest.raises(error, match=text):
        setitem_ops(source, 0, value, call)


def test_overlapping_assignment_reads_before_it_writes() -> None:
    source = tensor(numbered((5,)))
    setitem_torch(source, slice(1, None), source[:-1])
    assert source.tolist() == [0, 0, 1, 2, 3]


def test_values_are_converted_to_the_dtype_of_the_array() -> None:
    source = torch.zeros(3, dtype=torch.int32)
    setitem_torch(source, slice(None), np.array([1.7, 2.2, -3.9]))
    assert source.tolist() == [1, 2, -3]


def test_recorded_slices_keep_the_numbers_of_the_user() -> None:
    """A slice that is written without the size of the axis serves arrays of other sizes."""
    calls: list[dict[str, Any]] = []

    def record(name: str, inputs: list[Any], **attrs: Any) -> torch.Tensor:
        calls.append(attrs)
        return call(name, inputs, **attrs)

    getitem_ops(tensor(numbered((4, 3))), (slice(None), slice(1, -1)), record)
    assert calls == [{"begin": (None, 1), "end": (None, -1)}]


def test_plan_describes_a_key() -> None:
    described = plan((slice(1, 3), None, -1), (4, 3, 5))
    assert described.basic
    assert described.result_shape == (2, 1, 5)
    assert described.bounds == [(1, 2, 1), (2, 1, 1), (0, 5, 1)]
    assert not plan([0, 1], (4,)).basic
