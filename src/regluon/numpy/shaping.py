"""Functions of ``mx.np`` that rearrange, join and split arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy

from .creation import zeros
from .tools import apply, as_array, as_arrays, axes_of, is_value, known_shape, listed, sizes

__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_to",
    "column_stack",
    "concat",
    "concatenate",
    "copy",
    "dsplit",
    "dstack",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hsplit",
    "hstack",
    "meshgrid",
    "moveaxis",
    "pad",
    "permute_dims",
    "ravel",
    "repeat",
    "reshape",
    "resize",
    "roll",
    "rollaxis",
    "rot90",
    "row_stack",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "vsplit",
    "vstack",
]


def copy(a: Any, out: Any = None) -> Any:
    """Return a copy of ``a``."""
    return apply("_copy", [as_array(a)], out=out)


def reshape(a: Any, newshape: Any, order: str = "C", out: Any = None, reverse: bool = False) -> Any:
    """Give ``a`` a new shape; -1 is computed, and the codes -2 to -6 of ``npx.reshape`` are understood."""
    attrs: dict[str, Any] = {"newshape": sizes(newshape), "order": order, "reverse": reverse}
    return apply("_npx_reshape", [as_array(a)], out=out, **attrs)


def ravel(x: Any, order: str = "C") -> Any:
    """Return the elements of ``x`` as a vector."""
    return apply("_npx_reshape", [as_array(x)], newshape=(-1,), order=order)


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """Permute the dimensions; without ``axes`` their order is reversed."""
    return apply("_npi_transpose", [as_array(a)], axes=axes_of(axes))


permute_dims = transpose


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Exchange two dimensions."""
    return apply("SwapAxis", [as_array(a)], dim1=axis1, dim2=axis2)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Move axes to other positions; the others keep their order."""
    return apply("_npi_moveaxis", [as_array(a)], source=axes_of(source), destination=axes_of(destination))


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Roll ``axis`` backwards until it lies before position ``start``."""
    return apply("_npi_rollaxis", [as_array(a)], axis=axis, start=start)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift the elements cyclically along ``axis``; without an axis the flattened array is rolled."""
    return apply("_npi_roll", [as_array(a)], shift=axes_of(shift), axis=axes_of(axis))


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Rotate by ``k`` quarter turns in the plane of two axes."""
    return apply("_npi_rot90", [as_array(m)], k=k, axes=tuple(axes))


def flip(m: Any, axis: Any = None, out: Any = None) -> Any:
    """Reverse the order of the elements along ``axis``, or along every axis."""
    return apply("_npi_flip", [as_array(m)], out=out, axis=axes_of(axis))


def flipud(m: Any) -> Any:
    """Reverse the order of the first dimension."""
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """Reverse the order of the second dimension."""
    return flip(m, 1)


def expand_dims(a: Any, axis: Any) -> Any:
    """Insert dimensions of size 1 at the positions ``axis`` of the result."""
    a = as_array(a)
    if isinstance(axis, int):
        return apply("expand_dims", [a], axis=axis)
    places = sorted(one + len(a.shape) + len(axis) if one < 0 else one for one in axis)
    for place in places:
        a = apply("expand_dims", [a], axis=place)
    return a


def squeeze(a: Any, axis: Any = None, out: Any = None) -> Any:
    """Drop dimensions of size 1: all of them, or those named."""
    return apply("_npi_squeeze", [as_array(a)], out=out, axis=axes_of(axis))


def _at_least(ndim: int, arys: Sequence[Any]) -> Any:
    results = listed(apply(f"_npi_atleast_{ndim}d", as_arrays(arys)))
    return results[0] if len(results) == 1 else results


def atleast_1d(*arys: Any) -> Any:
    """View the inputs as arrays of at least one dimension."""
    return _at_least(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """View the inputs as arrays of at least two dimensions."""
    return _at_least(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """View the inputs as arrays of at least three dimensions."""
    return _at_least(3, arys)


def broadcast_to(array: Any, shape: Any) -> Any:
    """Broadcast to ``shape``."""
    return apply("_npi_broadcast_to", [as_array(array)], shape=sizes(shape))


def broadcast_arrays(*args: Any) -> list[Any]:
    """Broadcast all arrays to one shape. Raises ValueError when they do not fit."""
    arrays = as_arrays(args)
    dims = [shape for shape in map(known_shape, arrays) if shape is not None]
    if len(dims) < len(arrays):
        # Only the shape of the sum is used.
        leader = reduce(lambda a, b: apply("broadcast_add", [a, b]), arrays)
        return [apply("broadcast_like", [one, leader]) for one in arrays]
    common = numpy.broadcast_shapes(*dims)
    return [one if tuple(one.shape) == common else broadcast_to(one, common) for one in arrays]


def meshgrid(*xi: Any, **kwargs: Any) -> list[Any]:
    """Return coordinate arrays of a grid from vectors: ``indexing`` "xy" (default) or "ij", ``sparse``,
    ``copy``.

    Raises ValueError for another ``indexing`` and TypeError for other keywords.
    """
    indexing = kwargs.pop("indexing", "xy")
    sparse = kwargs.pop("sparse", False)
    kwargs.pop("copy", True)
    if kwargs:
        raise TypeError(f"np.meshgrid: unexpected keyword(s) {', '.join(kwargs)}")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid: indexing must be 'xy' or 'ij', received {indexing!r}")
    count = len(xi)
    grids = []
    for position, vector in enumerate(as_arrays(xi)):
        place = 1 - position if indexing == "xy" and position < 2 <= count else position
        grids.append(
            apply("_np_reshape", [vector], newshape=tuple(-1 if i == place else 1 for i in range(count)))
        )
    return grids if sparse else broadcast_arrays(*grids)


def tile(A: Any, reps: Any) -> Any:
    """Repeat the whole array ``reps`` times along each axis."""
    return apply("tile", [as_array(A)], reps=sizes(reps))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat every element, ``repeats`` times or as often as the sequence says; flattened without an axis."""
    if is_value(repeats):
        repeats = repeats.asnumpy()
    if not isinstance(repeats, int) and hasattr(repeats, "__iter__"):
        counts = tuple(int(count) for count in numpy.asarray(repeats).reshape(-1))
        if len(counts) != 1:
            return apply("_npi_repeats", [as_array(a)], repeats=counts, axis=axis)
        repeats = counts[0]
    return apply("repeat", [as_array(a)], repeats=operator.index(repeats), axis=axis)


def resize(a: Any, new_shape: Any) -> Any:
    """Give ``a`` another size: its elements, in row-major order, are repeated or cut off as needed."""
    target = tuple(int(dim) for dim in sizes(new_shape))
    flat = ravel(a)
    count, wanted = flat.shape[0], int(numpy.prod(target, dtype=numpy.int64))
    if wanted == 0 or count == 0:
        return zeros(target, dtype=flat.dtype)
    copies = -(-wanted // count)
    repeated = apply("tile", [flat], reps=(copies,)) if copies > 1 else flat
    cut = apply("slice_axis", [repeated], axis=0, begin=0, end=wanted)
    return apply("_np_reshape", [cut], newshape=target)


_PAD_OPTIONS = {"constant": "constant_values", "reflect": "reflect_type", "symmetric": "reflect_type"}


def pad(x: Any, pad_width: Any = None, mode: str = "constant", **kwargs: Any) -> Any:
    """Pad every axis by its (before, after): modes constant, edge, reflect, symmetric, maximum, minimum.

    Raises ValueError for another mode or for a keyword that the mode does not take.
    """
    if mode not in ("constant", "edge", "reflect", "symmetric", "maximum", "minimum"):
        raise ValueError(f"np.pad: mode={mode!r} is not supported")
    unknown = [
        key for key in kwargs if key not in (_PAD_OPTIONS.get(mode), "stat_length") or kwargs[key] is None
    ]
    if unknown:
        raise ValueError(f"np.pad: mode {mode!r} does not take {', '.join(unknown)}")
    if kwargs.pop("stat_length", None) is not None:
        raise ValueError("np.pad: stat_length is not supported; the whole axis is used")
    x = as_array(x)
    dims = known_shape(x)
    pairs = numpy.asarray(pad_width)
    if dims is not None:
        pairs = numpy.broadcast_to(pairs, (len(dims), 2))
    elif pairs.ndim < 2:
        pairs = numpy.broadcast_to(pairs, (1, 2))
    widths = tuple((int(before), int(after)) for before, after in pairs)
    return apply("_npi_pad", [x], pad_width=widths, mode=mode, **kwargs)


def concatenate(seq: Sequence[Any], axis: int | None = 0, out: Any = None) -> Any:
    """Join arrays along an existing axis; ``axis=None`` flattens them first."""
    return apply("Concat", as_arrays(seq), out=out, dim=axis)


concat = concatenate


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Join ``values`` to the end of ``arr`` along ``axis``; without an axis both are flattened."""
    return apply("Concat", as_arrays([arr, values]), dim=axis)


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    """Join arrays of one shape along a new axis."""
    return apply("stack", as_arrays(arrays), out=out, axis=axis)


def vstack(arrays: Sequence[Any], out: Any = None) -> Any:
    """Join arrays along the first axis; vectors are rows."""
    return apply("_npi_vstack", as_arrays(arrays), out=out)


row_stack = vstack


def hstack(arrays: Sequence[Any]) -> Any:
    """Join arrays along the second axis (vectors along the first)."""
    return apply("_npi_hstack", as_arrays(arrays))


def dstack(arrays: Sequence[Any]) -> Any:
    """Join arrays along the third axis."""
    return apply("_npi_dstack", as_arrays(arrays))


def column_stack(tup: Sequence[Any]) -> Any:
    """Join arrays along the second axis; vectors are columns."""
    return apply("_npi_column_stack", as_arrays(tup))


def _split(ary: Any, indices_or_sections: Any, axis: int, equal: bool, name: str) -> list[Any]:
    ary = as_array(ary)
    if not hasattr(indices_or_sections, "__iter__"):
        sections = operator.index(indices_or_sections)
        if sections < 1:
            raise ValueError(f"np.{name}: the number of sections must be positive, received {sections}")
        dims = known_shape(ary)
        if dims is None and equal:
            return listed(apply("_split_v2", [ary], indices=(), axis=axis, sections=sections))
        size = ary.shape[axis]
        if size % sections == 0:
            return listed(apply("_split_v2", [ary], indices=(), axis=axis, sections=sections))
        if equal:
            raise ValueError(f"np.{name}: an axis of size {size} does not divide into {sections} equal parts")
        short, longer = divmod(int(size), sections)
        starts = tuple(i * short + min(i, longer) for i in range(sections))
    else:
        starts = (0, *(int(index) for index in indices_or_sections))
    return listed(apply("_split_v2", [ary], indices=starts, axis=axis))


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split into equal parts, or at the given indices. Raises ValueError when equal parts are not
    possible."""
    return _split(ary, indices_or_sections, axis, True, "split")


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split into parts that are as equal as possible, or at the given indices."""
    return _split(ary, indices_or_sections, axis, False, "array_split")


def _check_ndim(ary: Any, least: int, name: str) -> Any:
    ary = as_array(ary)
    dims = known_shape(ary)
    if dims is not None and len(dims) < least:
        raise ValueError(
            f"np.{name} needs an array of at least {least} dimension(s), received {tuple(ary.shape)}"
        )
    return ary


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the first axis."""
    return _split(_check_ndim(ary, 2, "vsplit"), indices_or_sections, 0, True, "vsplit")


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the second axis (a vector along its only one)."""
    ary = _check_ndim(ary, 1, "hsplit")
    dims = known_shape(ary)
    if dims is not None:
        return _split(ary, indices_or_sections, 1 if len(dims) > 1 else 0, True, "hsplit")
    if hasattr(indices_or_sections, "__iter__"):
        return listed(apply("_npi_hsplit", [ary], indices=(0, *indices_or_sections)))
    return listed(apply("_npi_hsplit", [ary], indices=(), sections=indices_or_sections))


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the third axis."""
    return _split(_check_ndim(ary, 3, "dsplit"), indices_or_sections, 2, True, "dsplit")
