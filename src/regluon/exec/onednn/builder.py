"""The primitives of a region: one for each layer, and reorders where a layer wants another format."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node
from ...ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY, constant_op
from ...ops.opdef import Spec
from ...passes.attention import ATTENTION_BY_ROWS
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
from .blocks import Joined, blocked
from .forms import FEW_CHANNELS, PRODUCTS, pooling_window, shape_at
from .interface import Descriptor, Library, Primitive, Unsupported
from .products import attention, dense
from .recurrent import lstm
from .region import Built, Place, Region, Step, Value, plan_memory

__all__ = ["Refused", "build"]


SINGLE = constant_op("single", Tensor.float)
# No copy, of a parameter that lies so.
IN_ROWS = constant_op("in_rows", Tensor.contiguous)


class Refused(RuntimeError):
    """A node for which oneDNN has no fast kernel; in a call, a reason to run the general program."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def build(region: Region, api: Library, in_blocks: int = 0) -> Built:
    """The steps of a region for the number of threads that torch has now.

    Of the first ``in_blocks`` nodes, the images in float32 lie with their channels in blocks.

    Raises
    ------
    Refused
        If oneDNN has no fast kernel for one of the layers.
    """
    return _Builder(region, api, in_blocks).build()


class _Builder:
    """Creates the primitives of a region."""

    def __init__(self, region: Region, api: Library, in_blocks: int) -> None:
        self.region, self.api, self.in_blocks = region, api, in_blocks
        self.built = Built()
        self.values: dict[tuple[int, int], Value] = {}
        # The values that share a place, by its id.
        self.holders: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.group = region.group
        self.renewed = bool(region.packing)
        self.weights = 0
        # Whether the node at hand is one of those in blocks.
        self.blocks = in_blocks > 0
        self.joined = Joined(api, self.built, self.group.nodes[:in_blocks])
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
        for place, node in enumerate(self.group.nodes):
            self.blocks = place < self.in_blocks
            try:
                if self.in_blocks and not self.blocks:
                    self._leave_blocks(node)
                made = lstm(self, node) if node.op and node.op.name == "RNN" else [self._made(node)]
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
        return self.api.images(shape, dtype) if channels_last else self.api.plain(shape, dtype)

    def _give(self, entry: Entry, descriptor: Descriptor, index: int) -> None:
        """Let the last step write an output where its tensor will be, or copy it there."""
        value = self.values[id(entry.node), entry.index]
        wanted = Value(descriptor, Place("output", index))
        if value.place.where == "memory" and value.descriptor == descriptor and not self._is_shared(value):
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
        if len(shape) == 4 and self.blocks:
            return blocked(self.api, shape)
        return self.api.any(shape, dtype)

    def _image(self, entry: Entry) -> Descriptor:
        """The format in which a convolution reads a value."""
        value, shape = self._of(entry), shape_at(entry)
        assert entry.spec is not None
        if self.blocks and value.place.where == "input" and shape[1] <= FEW_CHANNELS:
            # There are kernels that read images of few channels as they come.
            return value.descriptor
        return self._free(shape, entry.spec.dtype)

    def _is_blocked(self, entry: Entry) -> bool:
        """Whether a value lies with its channels in blocks."""
        shape, spec = shape_at(entry), entry.spec
        if not self.in_blocks or len(shape) != 4 or spec is None or spec.dtype is not torch.float32:
            return False
        return self._of(entry).descriptor == blocked(self.api, shape)

    def _leave_blocks(self, node: Node) -> None:
        """Bring what a node reads into the order of the nodes that are not in blocks."""
        for entry in node.inputs:
            if (id(entry.node), entry.index) in self.values and self._is_blocked(entry):
                target = self._outside(shape_at(entry), torch.float32, True)
                value = self._in(self._of(entry), target, node)
                self.values[id(entry.node), entry.index] = value
                self.holders[id(value.place)].append((id(entry.node), entry.index))

    def _is_shared(self, value: Value) -> bool:
        """Whether other values lie in the memory of this one, or around it."""
        return value.place.where == "memory" and value.place.index in self.joined.shared

    def _buffer(self, descriptor: Descriptor, node: Node | None = None) -> Value:
        """Memory for a value; for the result of a node, where it is to be joined to others."""
        found = None if node is None else self.joined.result(node, descriptor)
        if found is not None:
            return found
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
        if value.place.where != "memory" or self.reads[key] != 1 or self._is_shared(value):
            return False
        return not any(self.reads[other] for other in self.holders[id(value.place)] if other != key)

    def _result(self, descriptor: Descriptor, over: Entry, node: Node) -> Value:
        """Where a result goes: over a value that has its format and is not read again, or into new memory."""
        if self._may_overwrite(over) and self._of(over).descriptor == descriptor:
            return Value(descriptor, self._of(over).place)
        return self._buffer(descriptor, node)

    def _made(self, node: Node) -> Value:
        op = node.op
        assert op is not None
        by_kind: dict[Any, Callable[[Node], Value]] = {
            CONVOLUTION: self._convolution,
            DENSE: partial(dense, self),
            ATTENTION_BY_ROWS: partial(attention, self),
            UNARY: self._unary,
            AFFINE: self._affine,
            QUANTIZED_CONVOLUTION: self._convolution,
            QUANTIZED_DENSE: partial(dense, self),
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

    def _unpacked(self, entry: Entry, descriptor: Descriptor) -> Value:
        """A weight that is read as it is, of rows one after another."""
        assert entry.spec is not None
        specs = [entry.spec]
        place = self.region.constant(
            (id(entry.node), entry.index, "in rows"),
            lambda: make(IN_ROWS, entry.node, [entry], {}, specs, f"{entry.node.name}_in_rows"),
        )
        return Value(descriptor, Place("constant", place))

    def _packed(self, entry: Callable[[], Entry], source: Descriptor, wanted: Descriptor) -> Value:
        packing = self.region.packing
        if not self.renewed:
            packing.append((entry(), source, wanted))
        self.weights += 1
        return Value(packing[self.weights - 1][2], Place("packed", self.weights - 1))

    def _convolution(self, node: Node) -> Value:
        api, attrs, inputs = self.api, node.attrs, node.inputs
        weight, spec = inputs[1].spec, node.specs[0] if node.specs else None
        assert weight is not None and spec is not None
        shape, filters, groups = tuple(spec.shape), shape_at(inputs[1]), attrs["groups"]
        if groups > 1:
            filters = (groups, filters[0] // groups, *filters[1:])
        plain = api.plain(filters, weight.dtype)
        attributes, scales = self._integer_scales(node, 3 if groups > 1 else 1)
        bias = self._bias(node, (shape[1],))
        target = self._free(shape, spec.dtype)
        post, added, result = self._sum(node, target)
        primitive = api.convolution(
            self._image(inputs[0]),
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
        return self._add(primitive, arguments, result or self._buffer(primitive.destination, node), node)

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
        result = self._result(source.descriptor, entry, node)
        return self._add(primitive, {interface.SOURCE: source}, result, node)

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

    def _affine(self, node: Node) -> Value:
        """A convolution of each channel with one number, which takes half of a product's time."""
        api, (data, scale, shift), ones = self.api, node.inputs, (1, 1)
        shape = shape_at(data)
        filters = (shape[1], 1, 1, 1, 1)
        bias = self._vector(shift, (shape[1],))
        primitive = api.convolution(
            self._free(shape, torch.float32),
            self._wanted(filters, torch.float32),
            bias.descriptor,
            self._free(shape, torch.float32),
            ones,
            ones,
            (0, 0),
            post=self._post(node),
        )
        assert primitive.destination is not None
        arguments = {
            interface.SOURCE: self._in(self._of(data), primitive.source, node),
            interface.WEIGHTS: self._weight(scale, api.plain(filters, torch.float32), primitive),
            interface.BIAS: bias,
        }
        return self._add(primitive, arguments, self._buffer(primitive.destination, node), node)

    def _binary(self, node: Node, kind: str) -> Value:
        first, second = map(self._of, node.inputs)
        same_type = node.inputs[0].spec == node.inputs[1].spec
        if same_type:
            second = self._in(second, first.descriptor, node)
        elif self._is_blocked(node.inputs[0]):
            second = self._in(second, blocked(self.api, shape_at(node.inputs[1])), node)
        primitive = self.api.binary(kind, first.descriptor, second.descriptor, first.descriptor)
        result = self._result(first.descriptor, node.inputs[0], node)
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
        result = self._buffer(primitive.destination, node)
        return self._add(primitive, {interface.SOURCE: source}, result, node)

    def _concat(self, node: Node) -> Value:
        spec = node.specs[0] if node.specs else None
        assert spec is not None
        if id(node) in self.joined.parts:
            return self._join(node)
        sources = [self._of(entry) for entry in node.inputs]
        primitive = self.api.concat(
            [source.descriptor for source in sources], self._free(tuple(spec.shape), spec.dtype), 1
        )
        assert primitive.destination is not None
        arguments = {interface.MULTIPLE_SOURCE + i: source for i, source in enumerate(sources)}
        return self._add(primitive, arguments, self._buffer(primitive.destination), node)

    def _join(self, node: Node) -> Value:
        """Values one after another, of which most were written there."""
        for entry, part in zip(node.inputs, self.joined.parts[id(node)], strict=True):
            value = self._of(entry)
            if value.place is part.place and value.descriptor != part.descriptor:
                raise Unsupported("a value seen in another format")
            if value.place is not part.place:
                primitive = self.api.reorder(value.descriptor, part.descriptor)
                self._add(primitive, {interface.SOURCE: value}, part, node)
        return self._buffer(blocked(self.api, shape_at(Entry(node, 0))), node)
