"""C++ for a whole graph of a small network: calls of the templates of ``kernels.hpp``, one after another.

Samples of a batch do not depend on one another in any of the layers here, so that threads take blocks of the
batch, and a block goes through all layers while its values are in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node, topological
from ...ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY
from ...passes.cleanup import RESHAPES
from ...passes.rewrite import Settings, shape_of
from ..onednn.forms import PRODUCTS, pooling_window
from .writing import Buffer, Step, TooLarge, write

__all__ = ["Generated", "Piece", "Unsuited", "generate"]

_ALIGNMENT = 16
# A graph with more multiplications in a call, more layers or more weights is no small one: other kernels are
# as fast, and the compiler takes long.
_MOST_WORK, _MOST_STEPS, _MOST_WEIGHTS = 30_000_000, 64, 2_000_000
# Units, filters or pixels of a row: for every few vectors of them the compiler writes a loop of its own.
_LONGEST_ROW = 4096
# Samples that one thread takes through all layers together.
_LARGEST_BLOCK = 8
_ACTIVATIONS = {
    "": "Identity",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "silu": "Silu",
    "gelu": "Gelu",
    "gelu_tanh": "GeluTanh",
    "leaky": "Leaky",
    "clip": "Clip",
}
# The numbers of activations that have some, where none are given.
_USUAL: dict[str, tuple[float, ...]] = {"leaky": (0.01,)}
_SOFTMAX = ("softmax", "_npx_softmax", "log_softmax", "_npx_log_softmax")


class Unsuited(RuntimeError):
    """A graph that has something for which there is no template, or is too large."""


@dataclass(frozen=True)
class Piece:
    """A constant of the graph among the packed weights: its axes, as ``shape``, lie there in this order."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    offset: int

    def pack(self, value: Tensor, into: Tensor) -> None:
        """Write the constant's numbers to their place."""
        count = math.prod(self.shape)
        into[self.offset : self.offset + count] = value.reshape(self.shape).permute(self.order).reshape(-1)


@dataclass
class Generated:
    """A graph's C++: ``regluon_run(addresses, first, end)`` computes some samples of the batch.

    The addresses are those of the inputs, the packed weights and the outputs. ``constants`` are the entries
    that ``pieces`` say the places of, among ``weights`` numbers; ``nodes`` is what is computed.
    """

    source: str
    nodes: list[Node]
    inputs: list[Entry]
    constants: list[Entry]
    pieces: tuple[Piece, ...]
    weights: int
    batch: int
    block: int
    work: int


@dataclass
class _Value:
    """A value without its first axis, the batch; ``last`` is the shape of an image with its channels last."""

    buffer: Buffer
    shape: tuple[int, ...]
    last: tuple[int, ...] | None = None


def generate(entries: Sequence[Entry], settings: Settings, threads: int) -> Generated:
    """The C++ of a graph in the common forms, which all passes went over.

    Raises
    ------
    Unsuited
        If it cannot be one function.
    """
    return _Generator(entries, settings, threads).run()


class _Generator:
    """Goes through a graph, and notes a step for each layer."""

    def __init__(self, entries: Sequence[Entry], settings: Settings, threads: int) -> None:
        self.entries, self.settings = entries, settings
        self.nodes: list[Node] = []
        self.inputs: list[Entry] = []
        self.constants: list[Entry] = []
        self.pieces: list[Piece] = []
        self.weights = 0
        self.work = 0
        self.values: dict[tuple[int, int], _Value] = {}
        self.steps: list[Step] = []
        shapes = [shape_of(entry) for entry in entries]
        if not shapes or any(not shape or 0 in shape for shape in shapes):
            raise Unsuited("outputs without a batch")
        assert shapes[0] is not None
        self.batch = shapes[0][0]
        self.block = min(_LARGEST_BLOCK, -(-self.batch // max(threads, 1)))

    def run(self) -> Generated:
        """The steps as a function."""
        for node in topological(self.entries):
            if self.settings.is_constant(Entry(node, 0)):
                continue
            if node.op is None:
                entry = Entry(node, 0)
                shape = self._shape(entry)
                self.values[id(node), 0] = _Value(Buffer(math.prod(shape), f"x{len(self.inputs)}"), shape)
                self.inputs.append(entry)
            else:
                self._node(node)
                self.nodes.append(node)
        for index, entry in enumerate(self.entries):
            self._give(self._plain(entry), index)
        if not self.inputs or len(self.steps) > _MOST_STEPS or self.weights > _MOST_WEIGHTS:
            raise Unsuited("no inputs, or too many layers or weights")
        work = self.work * self.batch
        if work > _MOST_WORK:
            raise Unsuited("too much work")
        try:
            source = write(self.steps, len(self.inputs), len(self.entries), self.block)
        except TooLarge as error:
            raise Unsuited(str(error)) from error
        sizes = (self.weights, self.batch, self.block, work)
        return Generated(source, self.nodes, self.inputs, self.constants, tuple(self.pieces), *sizes)

    # Values ----------------------------------------------------------------------

    def _shape(self, entry: Entry) -> tuple[int, ...]:
        """A value's shape without the batch."""
        shape, spec = shape_of(entry), entry.spec
        if shape is None or spec is None or spec.dtype is not torch.float32 or 0 in shape:
            raise Unsuited("a value that is not of float32")
        if len(shape) < 2 or shape[0] != self.batch:
            raise Unsuited("a value without the batch")
        return tuple(shape[1:])

    def _of(self, entry: Entry) -> _Value:
        if self.settings.is_constant(entry):
            raise Unsuited("a constant in the place of a value")
        return self.values[id(entry.node), entry.index]

    def _add(
        self, single: bool, read: Sequence[_Value], shape: tuple[int, ...], text: str, last: bool = False
    ) -> _Value:
        made = Buffer(math.prod(shape))
        self.steps.append(Step(single, [value.buffer for value in read], made, text))
        return _Value(made, shape, shape if last else None)

    def _plain(self, entry: Entry) -> _Value:
        """A value in rows-first memory."""
        value = self._of(entry)
        if value.last is None:
            return value
        text = f"channels_first<{_image(value.last, True)}>({{}}, {{}});"
        return self._add(True, [value], value.shape, text)

    def _give(self, value: _Value, index: int) -> None:
        """Let a value lie in the memory of an output; one that lies outside already is copied there."""
        if value.buffer.place:
            size = value.buffer.size
            text = f"copy({{}}, {{}}, {size} * count);"
            value = self._add(False, [value], value.shape, text)
        value.buffer.place = f"y{index}"

    def _constant(self, entry: Entry, shape: tuple[int, ...], order: tuple[int, ...]) -> str:
        """The address of a constant among the packed weights."""
        spec, there = entry.spec, shape_of(entry)
        if not self.settings.is_constant(entry) or spec is None or spec.dtype is not torch.float32:
            raise Unsuited("weights that are no constants of float32")
        if there is None or math.prod(there) != math.prod(shape):
            raise Unsuited("a constant of another size")
        piece = Piece(shape, order, self.weights)
        self.constants.append(entry)
        self.pieces.append(piece)
        self.weights += -(-math.prod(shape) // _ALIGNMENT) * _ALIGNMENT
        return f"weights + {piece.offset}"

    # Layers ----------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        op = node.op
        assert op is not None
        rules: dict[Any, Callable[[Node, tuple[int, ...]], _Value]] = {
            DENSE: self._dense,
            CONVOLUTION: self._convolution,
            UNARY: self._unary,
            AFFINE: self._affine,
            ADD: self._pair,
            "LayerNorm": self._layer_norm,
            "Pooling": self._pooling,
            **dict.fromkeys(RESHAPES, self._reshape),
            **dict.fromkeys(PRODUCTS, self._pair),
            **dict.fromkeys(_SOFTMAX, self._softmax),
        }
        rule = rules.get(op) or rules.get(op.name)
        if rule is None or node.outputs != 1:
            raise Unsuited(op.name)
        self.values[id(node), 0] = rule(node, self._shape(Entry(node, 0)))

    def _residual(self, node: Node, shape: tuple[int, ...], last: bool) -> list[_Value]:
        if not node.attrs.get("residual"):
            return []
        value = self._of(node.inputs[-1])
        if not last:
            value = self._plain(node.inputs[-1])
        if value.shape != shape or (value.last is not None) != last:
            raise Unsuited("a residual in another order")
        return [value]

    def _bias(self, node: Node, count: int) -> str:
        return self._constant(node.inputs[2], (count,), (0,)) if node.attrs.get("bias") else "nullptr"

    def _dense(self, node: Node, shape: tuple[int, ...]) -> _Value:
        units, width = _known(node.inputs[1])
        _check_row(units)
        value = self._of(node.inputs[0])
        if value.last is not None and value.buffer.size == width:
            # The weights are put in the order in which the image lies.
            packed = self._constant(node.inputs[1], (units, *value.last), (2, 3, 1, 0))
        else:
            value = self._plain(node.inputs[0])
            packed = self._constant(node.inputs[1], (units, width), (1, 0))
        rows, rest = divmod(value.buffer.size, width)
        if rest or math.prod(shape) != rows * units:
            raise Unsuited("a dense layer over another axis")
        bias = self._bias(node, units)
        residual = self._residual(node, shape, False)
        self.work += rows * units * width
        text = f"dense<{width}, {units}>({{}}, {rows} * count, {packed}, {bias}, "
        text += f"{'{}' if residual else 'nullptr'}, {{}}, {_activation(node)});"
        return self._add(False, [value, *residual], shape, text)

    def _convolution(self, node: Node, shape: tuple[int, ...]) -> _Value:
        attrs, value = node.attrs, self._of(node.inputs[0])
        if len(shape) != 3 or len(value.shape) != 3 or attrs["transposed"] or attrs["groups"] != 1:
            raise Unsuited("a convolution of another kind")
        filters = _known(node.inputs[1])
        value = self._padded(value, attrs["pad"])
        stride, dilate = attrs["stride"], attrs["dilate"]
        packed = self._constant(node.inputs[1], filters, (1, 2, 3, 0))
        bias = self._bias(node, shape[0])
        last = value.last is not None or not _over_pixels(shape, stride[1])
        _check_row(shape[0] if last else shape[2])
        residual = self._residual(node, shape, last)
        self.work += math.prod(shape) * math.prod(filters[1:])
        images = f"{_image(value.shape, value.last is not None)}, {_image(shape, last)}"
        text = f"convolution<{images}, {_window(filters[2:], stride, dilate)}>({{}}, {packed}, {bias}, "
        text += f"{'{}' if residual else 'nullptr'}, {{}}, {_activation(node)});"
        return self._add(True, [value, *residual], shape, text, last)

    def _padded(self, value: _Value, pad: Sequence[int]) -> _Value:
        if not any(pad):
            return value
        channels, height, width = value.shape
        shape, last = (channels, height + 2 * pad[0], width + 2 * pad[1]), value.last is not None
        images = f"{_image(value.shape, last)}, {_image(shape, last)}"
        return self._add(True, [value], shape, f"pad<{images}, {pad[0]}, {pad[1]}>({{}}, {{}});", last)

    def _pooling(self, node: Node, shape: tuple[int, ...]) -> _Value:
        window = pooling_window(node) if len(shape) == 3 else None
        if window is None:
            raise Unsuited("a pooling of another kind")
        kind, kernel, stride, pad, after = window
        value = self._of(node.inputs[0])
        last = value.last is not None
        maximum = str(kind == "max").lower()
        form = f"{_image(value.shape, last)}, {_image(shape, last)}, {_window(kernel, stride, (1, 1))}"
        if any((*pad, *after)):
            # As `ops.defs.pooling` has it: a maximum over little padding, as much on both sides, ignores it.
            filled = after != pad or any(2 * p > k for p, k in zip(pad, kernel, strict=True))
            border = str(kind == "avg_include" or (kind == "max" and filled)).lower()
            text = f"pooling<{form}, {pad[0]}, {pad[1]}, {maximum}, {border}>"
        else:
            text = f"inner_pooling<{form}, {maximum}>"
        return self._add(True, [value], shape, f"{text}({{}}, {{}});", last)

    def _unary(self, node: Node, shape: tuple[int, ...]) -> _Value:
        value = self._of(node.inputs[0])
        text = f"unary({{}}, {{}}, {value.buffer.size}, {_activation(node)});"
        made = self._add(True, [value], shape, text)
        made.last = value.last
        return made

    def _affine(self, node: Node, shape: tuple[int, ...]) -> _Value:
        value = self._of(node.inputs[0])
        if node.attrs["axis"] != 1 or value.shape != shape or (value.last and len(shape) != 3):
            raise Unsuited("factors along another axis")
        channels, inner = shape[0], math.prod(shape[1:])
        scale, shift = (self._constant(entry, (channels,), (0,)) for entry in node.inputs[1:])
        sizes = (inner, channels, 1) if value.last else (1, channels, inner)
        text = f"affine<{', '.join(map(str, sizes))}>({{}}, {scale}, {shift}, {{}}, {_activation(node)});"
        made = self._add(True, [value], shape, text)
        made.last = value.last
        return made

    def _pair(self, node: Node, shape: tuple[int, ...]) -> _Value:
        first, second = map(self._of, node.inputs)
        if first.shape != shape or second.shape != shape:
            raise Unsuited("operands of other shapes")
        if first.last != second.last:
            first, second = map(self._plain, node.inputs)
        function = "add" if node.op is ADD else "multiply"
        text = f"{function}({{}}, {{}}, {{}}, {first.buffer.size});"
        made = self._add(True, [first, second], shape, text)
        made.last = first.last
        return made

    def _reshape(self, node: Node, shape: tuple[int, ...]) -> _Value:
        if node.full_attrs.get("order", "C") != "C":
            raise Unsuited("another order")
        value = self._of(node.inputs[0])
        if value.last is None or len(shape) > 1:
            value = self._plain(node.inputs[0])
        return _Value(value.buffer, shape, value.last)

    def _softmax(self, node: Node, shape: tuple[int, ...]) -> _Value:
        attrs = node.full_attrs
        plain = len(node.inputs) == 1 and not attrs.get("use_length") and attrs.get("dtype") is None
        if not plain or attrs.get("temperature") is not None or attrs["axis"] not in (-1, len(shape)):
            raise Unsuited("a softmax of another kind")
        assert node.op is not None
        logarithm, rows = str("log" in node.op.name).lower(), math.prod(shape[:-1])
        text = f"softmax<{shape[-1]}, {logarithm}>({{}}, {{}}, {rows} * count);"
        return self._add(False, [self._plain(node.inputs[0])], shape, text)

    def _layer_norm(self, node: Node, shape: tuple[int, ...]) -> _Value:
        attrs = node.full_attrs
        if attrs["axis"] not in (-1, len(shape)) or attrs["output_mean_var"]:
            raise Unsuited("a normalization of another kind")
        value = self._plain(node.inputs[0])
        gamma, beta = (self._constant(entry, shape[-1:], (0,)) for entry in node.inputs[1:3])
        rows, epsilon = math.prod(shape[:-1]), _number(attrs["eps"])
        text = f"layer_norm<{shape[-1]}>({{}}, {gamma}, {beta}, {{}}, {rows} * count, {epsilon});"
        return self._add(False, [value], shape, text)


def _known(entry: Entry) -> tuple[int, ...]:
    shape = shape_of(entry)
    if shape is None:
        raise Unsuited("a weight of unknown shape")
    return tuple(shape)


def _check_row(size: int) -> None:
    if size > _LONGEST_ROW:
        raise Unsuited("rows that are too long")


def _number(value: float) -> str:
    number = float(value)
    if not math.isfinite(number):
        return (
            "-__builtin_inff()" if number < 0 else "__builtin_inff()" if number > 0 else '__builtin_nanf("")'
        )
    return f"{number!r}f"


def _activation(node: Node) -> str:
    """The activation of a node; braces are doubled, since addresses are put in."""
    kind: str = node.attrs.get("kind") or ""
    if kind not in _ACTIVATIONS:
        raise Unsuited(f"the activation {kind}")
    scalars = tuple(node.attrs.get("scalars") or ()) or _USUAL.get(kind, ())
    return f"{_ACTIVATIONS[kind]}{{{{{', '.join(map(_number, scalars))}}}}}"


def _image(shape: Sequence[int], last: bool) -> str:
    return f"Image<{', '.join(map(str, shape))}, {str(last).lower()}>"


def _window(kernel: Sequence[int], stride: Sequence[int], dilate: Sequence[int]) -> str:
    return f"Window<{', '.join(map(str, (*kernel, *stride, *dilate)))}>"


def _over_pixels(shape: tuple[int, ...], stride: int) -> bool:
    """Whether vectors over the pixels of a row have fewer lanes to spare than those over filters."""
    channels, _, width = shape
    return stride == 1 and channels * _vectors(width) < width * _vectors(channels)


def _vectors(size: int) -> int:
    lanes = next((lanes for lanes in (16, 8, 4) if size >= lanes), 1)
    return -(-size // lanes)
