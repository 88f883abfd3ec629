"""Pure arithmetic on shapes: axes, reshape codes, slice bounds, broadcasting.

Nothing here touches tensors, so the same functions serve operators, shape rules and the
indexing engine. A wrong argument raises :class:`regluon.base.errors.MXNetError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from regluon.base.errors import MXNetError

Dims = tuple[int, ...]


def normalise_axis(axis: int, ndim: int, what: str = "axis") -> int:
    """Return ``axis`` counted from the front; raise MXNetError outside ``[-ndim, ndim)``."""
    if not -ndim <= axis < ndim:
        raise MXNetError(
            f"{what} {axis} is out of bounds for an array of {ndim} dimension(s); "
            f"expected a value in [{-ndim}, {ndim - 1}]"
        )
    return axis + ndim if axis < 0 else axis


def normalise_axes(axes: Iterable[int], ndim: int, what: str = "axis") -> Dims:
    """Normalise several axes and refuse a repeated one."""
    result = tuple(normalise_axis(axis, ndim, what) for axis in axes)
    if len(set(result)) != len(result):
        raise MXNetError(f"repeated {what} in {tuple(axes)} for an array of {ndim} dimension(s)")
    return result


def permutation(axes: Sequence[int] | None, ndim: int) -> Dims:
    """Return a full permutation; no axes (or an empty sequence) means reversed order."""
    if axes is None or len(axes) == 0:
        return tuple(range(ndim - 1, -1, -1))
    if len(axes) != ndim:
        raise MXNetError(
            f"transpose: axes {tuple(axes)} must name each of the {ndim} dimension(s) of the array once"
        )
    return normalise_axes(axes, ndim, "transpose axis")


def broadcast_shapes(first: Dims, second: Dims) -> Dims:
    """Broadcast two shapes by NumPy's rule; raise MXNetError when they do not fit."""
    length = max(len(first), len(second))
    left = (1,) * (length - len(first)) + tuple(first)
    right = (1,) * (length - len(second)) + tuple(second)
    result = []
    for a, b in zip(left, right, strict=True):
        if a != b and 1 not in (a, b):
            raise MXNetError(f"shapes {tuple(first)} and {tuple(second)} cannot be broadcast together")
        result.append(b if a == 1 else a)
    return tuple(result)


class _ReshapeCursor:
    """Walks over the source dimensions while the codes of a target shape are consumed."""

    def __init__(self, source: Sequence[int], target: Sequence[int], reverse: bool, name: str) -> None:
        self.source = list(reversed(source)) if reverse else list(source)
        self.codes = list(reversed(target)) if reverse else list(target)
        self.reverse = reverse
        self.name = name
        self.position = 0
        self.dims: list[int] = []
        self.copied: list[bool] = []
        self.unknown: int | None = None
        self.original = (tuple(source), tuple(target))

    def error(self, reason: str) -> MXNetError:
        source, target = self.original
        return MXNetError(
            f"{self.name}: cannot reshape an array of shape {source} to shape={target}"
            f"{' with reverse=True' if self.reverse else ''}: {reason}"
        )

    def take(self) -> int:
        if self.position >= len(self.source):
            raise self.error("more dimensions are referred to than the array has")
        self.position += 1
        return self.source[self.position - 1]

    def put(self, dim: int, copied: bool) -> None:
        if dim == -1:
            if self.unknown is not None:
                raise self.error("at most one dimension may be -1")
            self.unknown = len(self.dims)
        self.dims.append(dim)
        self.copied.append(copied)

    def copy_rest(self) -> None:
        while self.position < len(self.source):
            self.put(self.take(), True)

    def merge(self) -> None:
        self.put(self.take() * self.take(), True)

    def split(self, first: int, second: int) -> None:
        whole = self.take()
        if first == -1 and second == -1:
            raise self.error("only one of the two factors of a split may be -1")
        if first == -1 and second > 0:
            first = whole // second
        elif second == -1 and first > 0:
            second = whole // first
        if first * second != whole:
            raise self.error(f"{first} * {second} does not give the dimension {whole} to split")
        self.put(first, True)
        self.put(second, True)

    def skip_one(self) -> None:
        if self.take() != 1:
            raise self.error(f"the dimension to drop has size {self.source[self.position - 1]}, not 1")

    def finish(self) -> Dims:
        total = prod(self.source)
        if self.unknown is not None:
            # A batch of size 0 that is merely copied must not make the rest undetermined.
            zeros = [copied for dim, copied in zip(self.dims, self.copied, strict=True) if dim == 0]
            substitute = bool(zeros) and all(zeros)
            source = [dim or 1 for dim in self.source] if substitute else self.source
            known = prod((dim or 1) if substitute else dim for dim in self.dims if dim != -1)
            if known == 0 or prod(source) % known:
                raise self.error(f"its {total} elements do not determine the dimension given as -1")
            self.dims[self.unknown] = prod(source) // known
        if prod(self.dims) != total:
            raise self.error(f"it has {total} elements and the new shape {prod(self.dims)}")
        return tuple(reversed(self.dims)) if self.reverse else tuple(self.dims)


def legacy_reshape(source: Sequence[int], target: Sequence[int], reverse: bool = False) -> Dims:
    """Resolve the codes of the 1.x ``Reshape``.

    0 copies a dimension, -1 is computed, -2 copies all remaining ones, -3 merges the next two, -4 splits
    one into the two numbers that follow. With ``reverse`` everything is read from the right.
    """
    cursor = _ReshapeCursor(source, target, reverse, "Reshape")
    index = 0
    while index < len(cursor.codes):
        code = cursor.codes[index]
        if code == 0:
            cursor.put(cursor.take(), True)
        elif code == -2:
            cursor.copy_rest()
        elif code == -3:
            cursor.merge()
        elif code == -4:
            if index + 2 >= len(cursor.codes):
                raise cursor.error("-4 must be followed by the two factors of the split")
            cursor.split(cursor.codes[index + 1], cursor.codes[index + 2])
            index += 2
        elif code >= -1:
            cursor.put(code, False)
            cursor.position += 1
        else:
            raise cursor.error(f"{code} is no shape code; known codes are 0, -1, -2, -3 and -4")
        index += 1
    return cursor.finish()


def npx_reshape(source: Sequence[int], target: Sequence[int], reverse: bool = False) -> Dims:
    """Resolve the codes of ``npx.reshape``.

    -1 is computed, -2 copies a dimension, -3 drops one of size 1, -4 copies all remaining ones, -5 merges
    the next two, -6 splits one into the two numbers that follow. With ``reverse`` all is read from the right.
    """
    cursor = _ReshapeCursor(source, target, reverse, "npx.reshape")
    index = 0
    while index < len(cursor.codes):
        code = cursor.codes[index]
        if code == -2:
            cursor.put(cursor.take(), True)
        elif code == -3:
            cursor.skip_one()
        elif code == -4:
            cursor.copy_rest()
        elif code == -5:
            cursor.merge()
        elif code == -6:
            if index + 2 >= len(cursor.codes):
                raise cursor.error("-6 must be followed by the two factors of the split")
            cursor.split(cursor.codes[index + 1], cursor.codes[index + 2])
            index += 2
        elif code >= -1:
            cursor.put(code, False)
            cursor.position += 1
        else:
            raise cursor.error(f"{code} is no shape code; known codes are -1 to -6")
        index += 1
    return cursor.finish()


def plain_reshape(source: Sequence[int], target: Sequence[int]) -> Dims:
    """Resolve a NumPy target shape, in which only -1 is special."""
    cursor = _ReshapeCursor(source, target, False, "reshape")
    for dim in target:
        if dim < -1:
            raise cursor.error(f"{dim} is not a size")
        cursor.put(dim, False)
    return cursor.finish()


def reshape_like(
    source: Dims,
    like: Dims,
    source_range: tuple[int | None, int | None],
    like_range: tuple[int | None, int | None],
) -> Dims:
    """Replace ``source[begin:end]`` by ``like[begin:end]`` in the shape ``source``."""
    begin, end, _ = slice(*source_range).indices(len(source))
    like_begin, like_end, _ = slice(*like_range).indices(len(like))
    result = source[:begin] + like[like_begin:like_end] + source[max(begin, end) :]
    if prod(result) != prod(source):
        raise MXNetError(
            f"reshape_like: cannot reshape {source} to {result}: sizes {prod(source)} and "
            f"{prod(result)} differ"
        )
    return result


def slice_bounds(
    shape: Sequence[int],
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] = (),
    name: str = "slice",
) -> list[tuple[int, int, int]]:
    """Return ``(start, length, step)`` for every axis; axes not mentioned are whole.

    Bounds outside the array are clipped and negative steps walk backwards, as Python slices do.
    """
    if len(begin) != len(end) or len(begin) > len(shape):
        raise MXNetError(
            f"{name}: begin={tuple(begin)} and end={tuple(end)} must have the same length, "
            f"at most the number of dimensions of {tuple(shape)}"
        )
    result = []
    for axis, size in enumerate(shape):
        first = begin[axis] if axis < len(begin) else None
        last = end[axis] if axis < len(end) else None
        stride = (step[axis] if axis < len(step) else None) or (None if axis >= len(step) else step[axis])
        if stride == 0:
            raise MXNetError(f"{name}: step must not be 0, received step={tuple(step)}")
        start, stop, stride = slice(first, last, stride).indices(size)
        result.append((start, len(range(start, stop, stride)), stride))
    return result


def split_points(
    size: int, indices: Sequence[int], sections: int, name: str = "split"
) -> list[tuple[int, int]]:
    """Return ``(begin, end)`` of every part of an axis of ``size``.

    ``sections`` > 0 asks for equal parts; otherwise ``indices`` holds the beginning of every part, the first
    included, negative ones counted from the end and clipped to the axis as slices are.
    """
    if sections > 0:
        if size % sections:
            raise MXNetError(
                f"{name}: an axis of size {size} does not divide into {sections} equal parts; "
                "choose a divisor or give the indices to split at"
            )
        width = size // sections
        return [(i * width, (i + 1) * width) for i in range(sections)]
    starts = [min(max(index + size if index < 0 else index, 0), size) for index in indices]
    stops = [*starts[1:], size]
    return [(begin, max(begin, end)) for begin, end in zip(starts, stops, strict=True)]
