"""Dense layers and attention as primitives of a region."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...graph.node import Node
from . import interface
from .forms import shape_at
from .interface import Descriptor, Library, Primitive, Unsupported, execution_arguments
from .region import Value

if TYPE_CHECKING:
    from .builder import _Builder

__all__ = ["attention", "dense", "heads_of"]

# Products in 16 bits with fewer rows than this are not measured against convolutions.
_MANY_ROWS = 384
# Rows that lie in one line of an image.
_LINE = 128
# A convolution must be faster by this factor than a product.
_CLEARLY, _RUNS = 0.9, 5


# Dense layers ----------------------------------------------------------------------


def dense(builder: _Builder, node: Node) -> Value:
    """A product of matrices with all that is joined to it."""
    inputs = node.inputs
    weight, spec = inputs[1].spec, node.specs[0] if node.specs else None
    assert weight is not None and spec is not None
    shape, (units, width) = tuple(spec.shape), shape_at(inputs[1])
    rows = math.prod(shape[:-1])
    integers, scales = builder._integer_scales(node, 2)
    activation = builder._post(node)
    form = _Form(builder.api, rows, units, width, weight.dtype, activation)
    usual = not integers and spec.dtype is weight.dtype
    as_it_is = usual and builder.region.reads_as_it_is(weight, rows)
    images = usual and not as_it_is and _runs_as_convolution(builder, form)
    source = builder._plain(inputs[0], (rows, width), node)
    bias = builder._bias(node, (units,) if images else (1, units))
    post, arguments = list(activation), {interface.SOURCE: source, **scales}
    if node.attrs.get("residual"):
        residual = builder._plain(inputs[-1], (rows, units), node)
        assert inputs[-1].spec is not None
        place = form.images(units, inputs[-1].spec.dtype) if images else residual.descriptor
        post.insert(0, ("add", place))
        arguments[interface.POST_OPERATION | interface.SOURCE_1] = Value(place, residual.place)
    target = builder.api.plain((rows, units), spec.dtype)
    bias_format = None if bias is None else bias.descriptor
    if images:
        wanted = builder._wanted((units, width, 1, 1), weight.dtype)
        primitive = form.convolution(wanted, bias_format, post)
        plain = form.filters
    else:
        plain = builder.api.plain((width, units), weight.dtype, (1, width))
        wanted = plain if as_it_is else builder._wanted((width, units), weight.dtype)
        primitive = builder.api.matmul(source.descriptor, wanted, bias_format, target, post=post, **integers)
    if as_it_is:
        arguments[interface.WEIGHTS] = builder._unpacked(inputs[1], plain)
    else:
        arguments[interface.WEIGHTS] = builder._weight(inputs[1], plain, primitive)
    if bias is not None:
        arguments[interface.BIAS] = bias
    if images:
        arguments[interface.SOURCE] = Value(form.images(width), source.place)
        result = builder._add(primitive, arguments, builder._buffer(form.images(units)), node)
    else:
        result = builder._add(primitive, arguments, builder._buffer(target), node)
    return Value(builder.api.plain(shape, spec.dtype), result.place)


class _Form:
    """A product of (rows, width) and (width, units) matrices, and the same as a convolution of one pixel.

    The rows are the pixels of images whose channels are last, which is how they lie in memory anyway.
    """

    def __init__(
        self,
        api: Library,
        rows: int,
        units: int,
        width: int,
        dtype: torch.dtype,
        activation: Sequence[tuple[Any, ...]],
    ) -> None:
        self.api, self.rows, self.units, self.width, self.dtype = api, rows, units, width, dtype
        self.activation = tuple(activation)
        line = math.gcd(rows, _LINE)
        self.line = line if line >= _LINE // 4 else rows
        self.filters = api.plain((units, width, 1, 1), dtype)

    def images(self, channels: int, dtype: torch.dtype | None = None) -> Descriptor:
        """The rows with so many columns as images of one line each."""
        shape = (self.rows // self.line, channels, 1, self.line)
        size = channels * self.line
        return self.api.plain(shape, dtype or self.dtype, (size, 1, size, channels))

    def convolution(
        self, weights: Descriptor, bias: Descriptor | None, post: Sequence[tuple[Any, ...]]
    ) -> Primitive:
        """The product as a convolution."""
        ones = (1, 1)
        settings = (ones, ones, (0, 0))
        given = (self.images(self.width), weights, bias, self.images(self.units), *settings)
        return self.api.convolution(*given, post=post)

    def product(self) -> Primitive:
        """The product and its activation."""
        source, target = (self.api.plain((self.rows, each), self.dtype) for each in (self.width, self.units))
        weights = self.api.any((self.width, self.units), self.dtype)
        return self.api.matmul(source, weights, None, target, post=self.activation)


def _runs_as_convolution(builder: _Builder, form: _Form) -> bool:
    """Whether a product is faster as a convolution; where weights are packed already, whether they are so."""
    if builder.renewed:
        return builder.region.packing[builder.weights][1] == form.filters
    if form.dtype is not torch.bfloat16 or form.rows < _MANY_ROWS or form.line > _LINE:
        return False
    sizes = (form.rows, form.units, form.width)
    return _convolution_is_faster(*sizes, form.dtype, form.activation, torch.get_num_threads())


@functools.cache
def _convolution_is_faster(
    rows: int, units: int, width: int, dtype: torch.dtype, activation: tuple[Any, ...], threads: int
) -> bool:
    """Measured: for some sizes oneDNN 3.12 cuts products in 16 bits up so that they take twice the time."""
    api = interface.library()
    assert api is not None
    form = _Form(api, rows, units, width, dtype, activation)
    try:
        convolution = form.convolution(api.any((units, width, 1, 1), dtype), None, activation)
    except Unsupported:
        return False
    trials = [_Trial(api, each) for each in (form.product(), convolution)]
    best = [math.inf, math.inf]
    for turn in range(_RUNS + 1):
        for place, trial in enumerate(trials):
            start = time.perf_counter()
            trial()
            if turn:
                best[place] = min(best[place], time.perf_counter() - start)
    return best[1] < _CLEARLY * best[0]


class _Trial:
    """A primitive of one source on memory of its own."""

    def __init__(self, api: Library, primitive: Primitive) -> None:
        self._execute, self._primitive, self._stream = api.primitive_execute, primitive, api.stream()
        places = {
            interface.SOURCE: primitive.source,
            interface.WEIGHTS: primitive.weights,
            interface.DESTINATION: primitive.destination,
            interface.SCRATCHPAD: primitive.scratchpad,
        }
        memories, self._owned = [], []
        for place, descriptor in places.items():
            if descriptor is not None and descriptor.size:
                numbers = torch.ones(-(-descriptor.size // 4)).view(torch.uint8)
                memories.append((place, api.memory(descriptor, numbers.data_ptr())))
                self._owned.append((numbers, memories[-1][1]))
        self._array = execution_arguments(memories)

    def __call__(self) -> None:
        self._execute(self._primitive.pointer, self._stream.pointer, len(self._array), self._array)


# Attention ----------------------------------------------------------------------


def attention(builder: _Builder, node: Node) -> Value:
    """Two products and a softmax between them; the heads stay where they are in the rows."""
    api, heads, spec = builder.api, node.attrs["heads"], node.specs[0] if node.specs else None
    assert spec is not None
    dtype, single = spec.dtype, torch.float32
    shapes = [shape_at(entry) for entry in node.inputs]
    query, key, value = (
        Value(heads_of(api, shape, heads, dtype, place == 1), builder._plain(entry, shape, node).place)
        for place, (entry, shape) in enumerate(zip(node.inputs, shapes, strict=True))
    )
    sizes = (shapes[0][0], heads, shapes[0][1], shapes[1][1])
    scores = builder._buffer(api.plain(sizes, single))
    weights = scores if dtype is single else builder._buffer(api.plain(sizes, dtype))
    post = [("linear", (node.attrs["scale"], 0.0))]
    product = api.matmul(query.descriptor, key.descriptor, None, scores.descriptor, post=post)
    arguments = {interface.SOURCE: query, interface.WEIGHTS: key}
    builder._add(product, arguments, scores, node)
    softmax = api.softmax(scores.descriptor, weights.descriptor, 3)
    builder._add(softmax, {interface.SOURCE: scores}, weights, node)
    shape = tuple(spec.shape)
    target = heads_of(api, shape, heads, dtype, False)
    result = builder._buffer(api.plain(shape, dtype))
    mixed = api.matmul(weights.descriptor, value.descriptor, None, target)
    arguments = {interface.SOURCE: weights, interface.WEIGHTS: value}
    builder._add(mixed, arguments, Value(target, result.place), node)
    return result


def heads_of(
    api: Library, shape: tuple[int, ...], heads: int, dtype: torch.dtype, turned: bool
) -> Descriptor:
    """(batch, length, heads * D) rows as (batch, heads, length, D), or with the last two axes turned."""
    batch, length, width = shape
    depth = width // heads
    if turned:
        return api.plain((batch, heads, depth, length), dtype, (length * width, depth, 1, width))
    return api.plain((batch, heads, length, depth), dtype, (length * width, depth, width, 1))
