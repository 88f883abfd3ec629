"""The primitives of a region: one for each layer, and reorders where a layer wants another format."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node
from ...ops.defs.rnn import layout_of
from ...ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY, constant_op
from ...ops.opdef import Spec
from ...passes.cleanup import CASTS
from ...passes.integers import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZED_CONCATENATE,
    QUANTIZED_CONVOLUTION,
    QUANTIZED_DENSE,
    QUANTIZED_MAX_POOL,
    Scale,
)
from ...passes.rewrite import make
from ..quantized import filter_steps
from . import interface
from .forms import PRODUCTS, pooling_window, shape_at
from .interface import Descriptor, Library, Primitive, Unsupported
from .region import Built, Place, Region, Step, Value, plan_memory

__all__ = ["Refused", "build"]


SINGLE = constant_op("single", Tensor.float)


def _lstm_part(parameters: Tensor, *, attrs: dict[str, Any], width: int, part: int) -> Tensor:
    """Of all cells: the weights of the data, those of the state, or the sums of the two biases."""
    layout = layout_of(attrs)
    tensors = layout.unpack(parameters, width)
    if part < 2:
        return torch.stack(tensors[part::4])
    return torch.stack([a + b for a, b in zip(tensors[2::4], tensors[3::4], strict=True)])


LSTM_PART = constant_op("lstm_weights", _lstm_part, "attrs", "width", "part")


def lstm_part(node: Node, part: int) -> Entry:
    """A part of an LSTM's parameters as a node of its own."""
    attrs, width = node.full_attrs, shape_at(node.inputs[0])[2]
    cells, rows = attrs["num_layers"] * (2 if attrs["bidirectional"] else 1), 4 * attrs["state_size"]
    shape = (cells, rows) if part == 2 else (cells, rows, width if part == 0 else attrs["state_size"])
    own = {"attrs": attrs, "width": width, "part": part}
    name = f"{node.name}_{('weights', 'recurrent_weights', 'bias')[part]}"
    return make(LSTM_PART, node, [node.inputs[1]], own, [Spec(shape, torch.float32)], name)


class Refused(RuntimeError):
    """A node for which oneDNN has no fast kernel; in a call, a reason to run the general program."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def build(region: Region, api: Library) -> Built:
    """The steps of a region for the number of threads that torch has now.

    Raises
    ------
    Refused
        If oneDNN has no fast kernel for one of the layers.
    """
    return _Builder(region, api).build()


class _Builder:
    """Creates the primitives of a region."""

    def __init__(self, region: Region, api: Library) -> None:
        self.region, self.api = region, api
        self.built = Built()
        self.values: dict[tuple[int, int], Value] = {}
        # The values that share a place, by its id.
        self.holders: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.group = region.group
        self.renewed = bool(region.packing)
        self.weights = 0
        self.reads: Counter[tuple[int, int]] = Counter()
        for node in self.group.nodes:
            for entry in node.inputs:
                self.reads[id(entry.node), entry.index] += 1
        for entry in self.group.outputs:
            self.reads[id(entry.node), entry.index] += 1

    def build(self) -> Built:
        """The steps, with a place for every value."""
        region = self.region
        for index, (entry, channels_last) in enumerate(zip(region.inputs, region.formats, strict=True)):
            shape = shape_at(entry)
            assert entry.spec is not None
            descriptor = self._outside(shape, entry.spec.dtype, channels_last)
            self.values[id(entry.node), entry.index] = Value(descriptor, Place("input", index))
        for node in self.group.nodes:
            try:
                made = self._lstm(node) if node.op and node.op.name == "RNN" else [self._made(node)]
            except Unsupported as error:
                raise Refused(node.name) from error
            for index, value in enumerate(made):
                self.values[id(node), index] = value
                self.holders[id(value.place)].append((id(node), index))
            for entry in node.inputs:
                self.reads[id(entry.node), entry.index] -= 1
        for index, (entry, channels_last) in enumerate(zip(self.group.outputs, region.last, strict=True)):
            assert entry.spec is not None
            try:
                self._give(entry, self._outside(shape_at(entry), entry.spec.dtype, channels_last), index)
            except Unsupported as error:
                raise Refused(entry.node.name) from error
        plan_memory(self.built)
        return self.built

    def _outside(self, shape: tuple[int, ...], dtype: torch.dtype, channels_last: bool) -> Descriptor:
        strides = None
        if channels_last:
            count, channels, height, width = shape
            del count
            strides = (channels * height * width, 1, channels * width, channels)
        return self.api.plain(shape, dtype, strides)

    def _give(self, entry: Entry, descriptor: Descriptor, index: int) -> None:
        """Let the last step write an output where its tensor will be, or copy it there."""
        value = self.values[id(entry.node), entry.index]
        wanted = Value(descriptor, Place("output", index))
        if value.place.where == "memory" and value.descriptor == descriptor:
            # The memory of every value that shares it.
            value.place.where, value.place.index = "output", index
            return
        primitive = self.api.reorder(value.descriptor, descriptor)
        self._add(primitive, {interface.SOURCE: value}, wanted, entry.node)

    # Steps ----------------------------------------------------------------------

    def _free(self, shape: tuple[int, ...], dtype: torch.dtype) -> Descriptor:
        """The format of a value between two layers: what the kernel likes best.

        Left to itself with types of 8 and 16 bits, oneDNN chooses kernels here and there that are ten times
        slower than those for images with their channels last.
        """
        if len(shape) == 4 and dtype is not torch.float32:
            return self._outside(shape, dtype, True)
        return self.api.any(shape, dtype)

    def _buffer(self, descriptor: Descriptor) -> Value:
        self.built.sizes.append(descriptor.size)
        return Value(descriptor, Place("memory", len(self.built.sizes) - 1))

    def _add(self, primitive: Primitive, arguments: dict[int, Value], result: Value, node: Node) -> Value:
        given = [*arguments.items(), (interface.DESTINATION, result)]
        scratchpad = primitive.scratchpad
        if scratchpad is not None and scratchpad.size:
            given.append((interface.SCRATCHPAD, self._buffer(scratchpad)))
        self.built.steps.append(Step(primitive, given, node))
        return result

    def _of(self, entry: Entry) -> Value:
        return self.values[id(entry.node), entry.index]

    def _in(self, value: Value, descriptor: Descriptor | None, node: Node) -> Value:
        """The value in the format that a primitive wants."""
        if descriptor is None or value.descriptor == descriptor:
            return value
        primitive = self.api.reorder(value.descriptor, descriptor)
        return self._add(primitive, {interface.SOURCE: value}, self._buffer(descriptor), node)

    def _may_overwrite(self, entry: Entry) -> bool:
        """Whether a value lies in memory of the region's own, and nothing reads that memory afterwards."""
        value, key = self._of(entry), (id(entry.node), entry.index)
        if value.place.where != "memory" or self.reads[key] != 1:
            return False
        return not any(self.reads[other] for other in self.holders[id(value.place)] if other != key)

    def _result(self, descriptor: Descriptor, over: Entry) -> Value:
        """Where a result goes: over a value that has its format and is not read again, or into new memory."""
        if self._may_overwrite(over) and self._of(over).descriptor == descriptor:
            return Value(descriptor, self._of(over).place)
        return self._buffer(descriptor)

    def _made(self, node: Node) -> Value:
        op = node.op
        assert op is not None
        by_kind: dict[Any, Callable[[Node], Value]] = {
            CONVOLUTION: self._convolution,
            DENSE: self._dense,
            UNARY: self._unary,
            AFFINE: self._affine,
            QUANTIZED_CONVOLUTION: self._convolution,
            QUANTIZED_DENSE: self._dense,
            QUANTIZED_MAX_POOL: self._pooling,
            QUANTIZED_CONCATENATE: self._concat,
            QUANTIZE: self._requantized,
            DEQUANTIZE: self._requantized,
        }
        if op in by_kind:
            return by_kind[op](node)
        if op is ADD or op.name in PRODUCTS:
            return self._binary(node, "add" if op is ADD else "mul")
        if op.name in CASTS:
            return self._cast(node)
        if op.name in ("Pooling", "LayerNorm"):
            return self._pooling(node) if op.name == "Pooling" else self._layer_norm(node)
        return self._concat(node) if op.name == "Concat" else self._flatten(node)

    def _post(self, node: Node) -> list[tuple[Any, ...]]:
        kind = node.attrs.get("kind")
        return [] if kind is None else [(kind, node.attrs.get("scalars") or ())]

    def _vector(self, entry: Entry, shape: tuple[int, ...]) -> Value:
        """A constant of one dimension, as one of ``shape``."""
        assert entry.spec is not None
        descriptor = self.api.plain(shape, entry.spec.dtype)
        place = self.region.constant((id(entry.node), entry.index), lambda: entry)
        return Value(descriptor, Place("constant", place))

    def _single(self, entry: Entry) -> Value:
        """A vector of constants in float32."""
        shape, spec = shape_at(entry), Spec(shape_at(entry), torch.float32)
        if entry.spec is not None and entry.spec.dtype is torch.float32:
            return self._vector(entry, shape)
        place = self.region.constant(
            (id(entry.node), entry.index, "single"),
            lambda: make(SINGLE, entry.node, [entry], {}, [spec], f"{entry.node.name}_single"),
        )
        return Value(self.api.plain(shape, torch.float32), Place("constant", place))

    def _number(self, value: float, dtype: torch.dtype) -> Value:
        return Value(self.api.plain((1,), dtype), Place("fixed", self.region.number(value, dtype)))

    def _scales(self, **scales: Scale | None) -> tuple[list[tuple[int, int]], list[int], dict[int, Value]]:
        """What ``attributes`` and the execution are told of the scales of source and destination."""
        masks: list[tuple[int, int]] = []
        zeros: list[int] = []
        values: dict[int, Value] = {}
        for name, place in (("source", interface.SOURCE), ("destination", interface.DESTINATION)):
            scale = scales.get(name)
            if scale is not None:
                masks.append((place, 0))
                values[interface.SCALES | place] = self._number(scale.step, torch.float32)
                if scale.zero:
                    zeros.append(place)
                    values[interface.ZERO_POINTS | place] = self._number(scale.zero, torch.int32)
        return masks, zeros, values

    def _integer_scales(self, node: Node, mask: int) -> tuple[dict[str, Any], dict[int, Value]]:
        """The same for a layer, with a step for each filter; nothing for a layer on real numbers."""
        if node.op not in (QUANTIZED_CONVOLUTION, QUANTIZED_DENSE):
            return {}, {}
        attrs, inputs = node.attrs, node.inputs
        masks, zeros, values = self._scales(source=attrs["scale"], destination=attrs["out"])
        filters = shape_at(inputs[1])[0]
        place = self.region.constant(
            (id(inputs[1].node), inputs[1].index, "steps"), lambda: filter_steps(node, inputs, filters)
        )
        values[interface.SCALES | interface.WEIGHTS] = Value(
            self.api.plain((filters,), torch.float32), Place("constant", place)
        )
        return {"scales": [*masks, (interface.WEIGHTS, mask)], "zeros": zeros}, values

    def _wanted(self, shape: tuple[int, ...], dtype: torch.dtype) -> Descriptor:
        """The format of the next weight: any, but for another number of threads the one it is packed in."""
        if self.renewed:
            return self.region.packing[self.weights][2]
        return self.api.any(shape, dtype)

    def _weight(self, entry: Entry, source: Descriptor, primitive: Primitive) -> Value:
        assert primitive.weights is not None
        return self._packed(lambda: entry, source, primitive.weights)

    def _packed(self, entry: Callable[[], Entry], source: Descriptor, wanted: Descriptor) -> Value:
        packing = self.region.packing
        if not self.renewed:
            packing.append((entry(), source, wanted))
        self.weights += 1
        return Value(packing[self.weights - 1][2], Place("packed", self.weights - 1))

    def _convolution(self, node: Node) -> Value:
        api, attrs, inputs = self.api, node.attrs, node.inputs
        data, weight, spec = inputs[0].spec, inputs[1].spec, node.specs[0] if node.specs else None
        assert data is not None and weight is not None and spec is not None
        shape, filters, groups = tuple(spec.shape), shape_at(inputs[1]), attrs["groups"]
        if groups > 1:
            filters = (groups, filters[0] // groups, *filters[1:])
        plain = api.plain(filters, weight.dtype)
        attributes, scales = self._integer_scales(node, 3 if groups > 1 else 1)
        bias = self._bias(node, (shape[1],))
        target = self._free(shape, spec.dtype)
        post, added, result = self._sum(node, target)
        primitive = api.convolution(
            self._free(shape_at(inputs[0]), data.dtype),
            self._wanted(filters, weight.dtype),
            None if bias is None else bias.descriptor,
            target if result is None else result.descriptor,
            attrs["stride"],
            attrs["dilate"],
            attrs["pad"],
            post=[*post, *self._post(node)],
            **attributes,
        )
        arguments = {
            interface.SOURCE: self._in(self._of(inputs[0]), primitive.source, node),
            interface.WEIGHTS: self._weight(inputs[1], plain, primitive),
            **scales,
            **added,
        }
        if bias is not None:
            arguments[interface.BIAS] = bias
        assert primitive.destination is not None
        return self._add(primitive, arguments, result or self._buffer(primitive.destination), node)

    def _bias(self, node: Node, shape: tuple[int, ...]) -> Value | None:
        if not node.attrs.get("bias"):
            return None
        integers = node.op in (QUANTIZED_CONVOLUTION, QUANTIZED_DENSE)
        return self._vector(node.inputs[4 if integers else 2], shape)

    def _sum(
        self, node: Node, target: Descriptor
    ) -> tuple[list[tuple[Any, ...]], dict[int, Value], Value | None]:
        """How a residual is added: the post operation, its operands, and the memory that it is added to.

        It is written over where it is not read again: then the result has its format. Integers, which have a
        scale of their own, are added to a copy where that is not so.
        """
        residual = node.attrs.get("residual")
        if not residual:
            return [], {}, None
        entry = node.inputs[-1]
        other = self._of(entry)
        scale = residual if isinstance(residual, Scale) else None
        free = scale is None and node.specs is not None and entry.spec == node.specs[0]
        if self._may_overwrite(entry) and (free or other.descriptor == target):
            result = Value(other.descriptor, other.place)
        elif scale is not None:
            primitive = self.api.reorder(other.descriptor, target)
            result = self._add(primitive, {interface.SOURCE: other}, self._buffer(target), node)
        else:
            place = interface.POST_OPERATION | interface.SOURCE_1
            return [("add", other.descriptor)], {place: other}, None
        return [("sum", *(scale or Scale(1.0, 0)))], {}, result

    def _dense(self, node: Node) -> Value:
        api, inputs = self.api, node.inputs
        data, weight, spec = inputs[0].spec, inputs[1].spec, node.specs[0] if node.specs else None
        assert data is not None and weight is not None and spec is not None
        shape, (units, width) = tuple(spec.shape), shape_at(inputs[1])
        rows = math.prod(shape[:-1])
        source = self._plain(inputs[0], (rows, width), node)
        attributes, scales = self._integer_scales(node, 2)
        bias = self._bias(node, (1, units))
        post, arguments = self._post(node), {interface.SOURCE: source, **scales}
        if node.attrs.get("residual"):
            residual = self._plain(inputs[-1], (rows, units), node)
            post.insert(0, ("add", residual.descriptor))
            arguments[interface.POST_OPERATION | interface.SOURCE_1] = residual
        target = api.plain((rows, units), spec.dtype)
        primitive = api.matmul(
            source.descriptor,
            self._wanted((width, units), weight.dtype),
            None if bias is None else bias.descriptor,
            target,
            post=post,
            **attributes,
        )
        plain = api.plain((width, units), weight.dtype, (1, width))
        arguments[interface.WEIGHTS] = self._weight(inputs[1], plain, primitive)
        if bias is not None:
            arguments[interface.BIAS] = bias
        result = self._add(primitive, arguments, self._buffer(target), node)
        return Value(api.plain(shape, spec.dtype), result.place)

    def _requantized(self, node: Node) -> Value:
        """Real numbers as integers, or integers as real numbers."""
        spec, source = node.specs[0] if node.specs else None, self._of(node.inputs[0])
        assert spec is not None
        shape, name = tuple(spec.shape), "destination" if node.op is QUANTIZE else "source"
        masks, zeros, scales = self._scales(**{name: node.attrs["scale"]})
        target = self._outside(shape, spec.dtype, len(shape) == 4)
        primitive = self.api.reorder(source.descriptor, target, scales=masks, zeros=zeros)
        return self._add(primitive, {interface.SOURCE: source, **scales}, self._buffer(target), node)

    def _plain(self, entry: Entry, shape: tuple[int, ...], node: Node) -> Value:
        """A value in rows-first memory, seen in another shape."""
        assert entry.spec is not None
        value = self._in(self._of(entry), self.api.plain(shape_at(entry), entry.spec.dtype), node)
        return Value(self.api.plain(shape, entry.spec.dtype), value.place)

    def _flatten(self, node: Node) -> Value:
        return self._plain(node.inputs[0], shape_at(Entry(node, 0)), node)

    def _unary(self, node: Node) -> Value:
        entry = node.inputs[0]
        source = self._of(entry)
        primitive = self.api.eltwise(source.descriptor, node.attrs["kind"], node.attrs.get("scalars") or ())
        return self._add(primitive, {interface.SOURCE: source}, self._result(source.descriptor, entry), node)

    def _layer_norm(self, node: Node) -> Value:
        entry, gamma, beta = node.inputs
        spec = entry.spec
        assert spec is not None
        shape = tuple(spec.shape)
        source = self._plain(entry, shape, node)
        primitive = self.api.layer_norm(source.descriptor, node.full_attrs["eps"])
        arguments = {
            interface.SOURCE: source,
            interface.GAMMA: self._single(gamma),
            interface.BETA: self._single(beta),
        }
        result = source.place is self._of(entry).place and self._may_overwrite(entry)
        made = Value(source.descriptor, source.place) if result else self._buffer(source.descriptor)
        return self._add(primitive, arguments, made, node)

    def _lstm(self, node: Node) -> list[Value]:
        """All layers as one primitive; the weights are cut out of the vector of parameters."""
        api, attrs, inputs = self.api, node.full_attrs, node.inputs
        (length, batch, width), hidden = shape_at(inputs[0]), attrs["state_size"]
        layers, directions = attrs["num_layers"], 2 if attrs["bidirectional"] else 1
        single = torch.float32
        data = self._plain(inputs[0], (length, batch, width), node)
        states = [self._plain(e, (layers, directions, batch, hidden), node) for e in inputs[2:4]]
        shapes = [(layers, directions, each, 4, hidden) for each in (width, hidden)]
        first, second = (api.any(shape, single) for shape in shapes)
        if self.renewed:
            first, second = (self.region.packing[self.weights + i][2] for i in range(2))
        bias = api.plain((layers, directions, 4, hidden), single)
        result = api.plain((length, batch, directions * hidden), single)
        more = node.outputs > 1
        given = (data.descriptor, states[0].descriptor, (first, second), bias, result)
        primitive = api.lstm(*given, directions == 2, more)
        assert primitive.weights is not None and primitive.recurrent_weights is not None
        arguments = dict(zip((interface.STATE, interface.CELL), states, strict=True))
        arguments[interface.SOURCE] = data
        kinds = (
            (interface.WEIGHTS, primitive.weights),
            (interface.RECURRENT_WEIGHTS, primitive.recurrent_weights),
        )
        for part, (place, descriptor) in enumerate(kinds):
            size = shapes[part][2]
            # Rows-first in the parameters: (gates, hidden, inputs).
            rows = 4 * hidden * size
            source = api.plain(shapes[part], single, (directions * rows, rows, 1, hidden * size, size))
            arguments[place] = self._packed(lambda p=part: lstm_part(node, p), source, descriptor)  # type: ignore[misc]
        place = self.region.constant((id(node), "bias"), lambda: lstm_part(node, 2))
        arguments[interface.BIAS] = Value(bias, Place("constant", place))
        made = [self._buffer(result)]
        if more:
            made += [self._buffer(states[0].descriptor) for _ in range(2)]
            arguments |= dict(zip((interface.LAST_STATE, interface.LAST_CELL), made[1:], strict=True))
        self._add(primitive, arguments, made[0], node)
        outer = api.plain((layers * directions, batch, hidden), single)
        return [made[0], *(Value(outer, value.place) for value in made[1:])]

    def _affine(self, node: Node) -> Value:
        entry, channels = node.inputs[0], shape_at(node.inputs[0])[1]
        source = self._of(entry)
        scale, shift = (self._vector(e, (1, channels, 1, 1)) for e in node.inputs[1:])
        post = [("add", shift.descriptor), *self._post(node)]
        primitive = self.api.binary("mul", source.descriptor, scale.descriptor, source.descriptor, post=post)
        arguments = {
            interface.SOURCE: source,
            interface.SOURCE_1: scale,
            interface.POST_OPERATION | interface.SOURCE_1: shift,
        }
        return self._add(primitive, arguments, self._result(source.descriptor, entry), node)

    def _binary(self, node: Node, kind: str) -> Value:
        first, second = map(self._of, node.inputs)
        same_type = node.inputs[0].spec == node.inputs[1].spec
        if same_type:
            second = self._in(second, first.descriptor, node)
        primitive = self.api.binary(kind, first.descriptor, second.descriptor, first.descriptor)
        result = self._result(first.descriptor, node.inputs[0])
        return self._add(primitive, {interface.SOURCE: first, interface.SOURCE_1: second}, result, node)

    def _cast(self, node: Node) -> Value:
        source, spec = self._of(node.inputs[0]), node.specs[0] if node.specs else None
        assert spec is not None
        target = self._outside(tuple(spec.shape), spec.dtype, len(spec.shape) == 4)
        primitive = self.api.reorder(source.descriptor, target)
        return self._add(primitive, {interface.SOURCE: source}, self._buffer(target), node)

    def _pooling(self, node: Node) -> Value:
        if node.op is QUANTIZED_MAX_POOL:
            attrs = node.attrs
            window: Any = ("max", attrs["kernel"], attrs["stride"], attrs["pad"], attrs["pad"])
        else:
            window = pooling_window(node)
        spec = node.specs[0] if node.specs else None
        assert window is not None and spec is not None
        source = self._of(node.inputs[0])
        primitive = self.api.pooling(source.descriptor, self._free(tuple(spec.shape), spec.dtype), *window)
        assert primitive.destination is not None
        return self._add(primitive, {interface.SOURCE: source}, self._buffer(primitive.destination), node)

    def _concat(self, node: Node) -> Value:
        spec = node.specs[0] if node.specs else None
        assert spec is not None
        sources = [self._of(entry) for entry in node.inputs]
        primitive = self.api.concat(
            [source.descriptor for source in sources], self._free(tuple(spec.shape), spec.dtype), 1
        )
        assert primitive.destination is not None
        arguments = {interface.MULTIPLE_SOURCE + i: source for i, source in enumerate(sources)}
        return self._add(primitive, arguments, self._buffer(primitive.destination), node)
