"""Making a network quantized: BatchNorm folded, weights as int8, data quantized where layers read them.

The result is a graph of public operators. A layer's data go through ``_contrib_quantize_v2`` and
``_contrib_dequantize``, its weight is an int8 variable with a range that ``_contrib_dequantize`` reads, and
the layer itself stays real. So the graph means the same operator by operator, in a file and compiled;
compiled for prediction, `passes.integers` computes these layers on integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MXNetError
from ..graph.node import Entry, Node, rebuild, topological
from ..ops.registry import get
from .layers import BATCH_NORMS
from .rewrite import Reads, rewrite

__all__ = ["Quantized", "fold_norms", "layers_of", "quantize_layers", "with_ranges"]

QUANTIZE, DEQUANTIZE = "_contrib_quantize_v2", "_contrib_dequantize"
_ADDITIONS = frozenset({"broadcast_add", "elemwise_add", "_npi_add", "_plus"})
# Operators that read the quantized form of a value that a layer reads too.
_FOLLOWERS = _ADDITIONS | {"Pooling", "Concat"}
_ACTIVATIONS = frozenset({"Activation", "relu", "_npx_relu", "clip", "LeakyReLU"})
Ranges = Callable[[str], "tuple[float, float] | None"]


def _variable(entry: Entry) -> str | None:
    return entry.node.name if entry.node.op is None else None


# BatchNorm --------------------------------------------------------------------------------------------


def fold_norms(entries: Sequence[Entry], values: dict[str, Tensor]) -> tuple[list[Entry], dict[str, Tensor]]:
    """BatchNorm at prediction multiplied into the convolution or dense layer before it.

    Returns the graph and the values of its variables, by name; the values given are not changed.
    """
    result = dict(values)

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is None or node.op.name not in BATCH_NORMS or not reads(0):
            return None
        layer = inputs[0].node
        if layer.op is None or layer.op.name not in ("Convolution", "FullyConnected"):
            return None
        names = [_variable(entry) for entry in (*layer.inputs[1:], *inputs[1:])]
        attrs = node.full_attrs
        if any(name not in values for name in names) or attrs["axis"] != 1 or attrs.get("output_mean_var"):
            return None
        if layer.full_attrs.get("layout") not in (None, "NCW", "NCHW", "NCDHW"):
            return None
        return [_folded(layer, node, inputs, result)] * node.outputs

    return rewrite(entries, replace), result


def _folded(layer: Node, norm: Node, inputs: tuple[Entry, ...], values: dict[str, Tensor]) -> Entry:
    attrs = norm.full_attrs
    gamma, beta, mean, variance = (values[entry.node.name].double() for entry in inputs[1:5])
    scale = torch.rsqrt(variance + attrs["eps"])
    if not attrs["fix_gamma"]:
        scale = scale * gamma
    weight = values[layer.inputs[1].node.name].double()
    shift = beta - mean * scale
    if len(layer.inputs) > 2:
        shift = shift + values[layer.inputs[2].node.name].double() * scale
    folded = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
    operands = [layer.inputs[0]]
    for kind, value in (("weight", folded), ("bias", shift)):
        name = f"{layer.name}_{kind}_folded"
        values[name] = value.float()
        operands.append(Entry(Node(None, name), 0))
    # The value is BatchNorm's, and so is its name.
    made = Node(layer.op, norm.name, operands, {**layer.attrs, "no_bias": False}, dict(layer.user))
    made.specs = None if norm.specs is None else norm.specs[:1]
    return Entry(made, 0)


# Which layers --------------------------------------------------------------------------------------------


def layers_of(entries: Sequence[Entry], values: dict[str, Tensor]) -> list[Node]:
    """The layers that can be quantized: two-dimensional convolutions, channels first, and dense layers."""
    found = []
    for node in topological(entries):
        if node.op is None or node.op.name not in ("Convolution", "FullyConnected"):
            continue
        weight = values.get(_variable(node.inputs[1]) or "")
        if weight is None or weight.dtype is not torch.float32:
            continue
        if node.op.name == "Convolution":
            attrs = node.full_attrs
            if len(attrs["kernel"]) != 2 or attrs["layout"] not in (None, "NCHW"):
                continue
        found.append(node)
    return found


@dataclass
class Quantized:
    """A graph with quantized layers.

    Attributes
    ----------
    entries : list of Entry
        The outputs; ranges of data are those of each call until `with_ranges` fixes them.
    values : dict of Tensor
        Values of the variables, by name.
    watched : dict of Entry
        The real values that are quantized, by name, in the graph before.
    """

    entries: list[Entry]
    values: dict[str, Tensor]
    watched: dict[str, Entry]


def quantize_layers(
    entries: Sequence[Entry], values: dict[str, Tensor], layers: Iterable[Node], each_channel: bool = False
) -> Quantized:
    """Quantize layers: their weights once and for all, their data in a call.

    Weights of convolutions get a range for each filter, those of dense layers with ``each_channel``.
    """
    chosen = {id(node) for node in layers}
    watched = _watched(entries, chosen)
    keys = {(id(entry.node), entry.index): name for name, entry in watched.items()}
    values, result = dict(values), dict(values)
    made: dict[Any, Entry] = {}

    def data(entry: Entry, name: str) -> Entry:
        if name not in made:
            source = Node(get(QUANTIZE), f"{name}_quantize", [entry], {"out_type": "int8"})
            parts = [Entry(source, index) for index in range(3)]
            made[name] = Entry(Node(get(DEQUANTIZE), f"{name}_dequantize", parts), 0)
        return made[name]

    def weight(entry: Entry, split: bool) -> Entry:
        name = entry.node.name
        if name not in made:
            integers, high = _weight(values[name], split)
            parts = []
            for suffix, value in (("", integers), ("_min", -high), ("_max", high)):
                result[f"{name}_quantize{suffix}"] = value
                parts.append(Entry(Node(None, f"{name}_quantize{suffix}"), 0))
            made[name] = Entry(Node(get(DEQUANTIZE), f"{name}_dequantize", parts), 0)
        return made[name]

    def replace(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        layer = id(node) in chosen
        if node.op is None or not (layer or node.op.name in _FOLLOWERS):
            return None
        new = node.__copy__()
        operands = list(inputs)
        for place, entry in enumerate(node.inputs[:1] if layer else node.inputs):
            name = keys.get((id(entry.node), entry.index))
            if name is not None:
                operands[place] = data(inputs[place], name)
        if layer:
            operands[1] = weight(inputs[1], each_channel or node.op.name == "Convolution")
        new.inputs = tuple(operands)
        return [Entry(new, index) for index in range(new.outputs)]

    outputs = rebuild(entries, replace)
    used = {node.name for node in topological(outputs) if node.op is None}
    return Quantized(outputs, {name: value for name, value in result.items() if name in used}, watched)


def _weight(weight: Tensor, split: bool) -> tuple[Tensor, Tensor]:
    """int8 values of a weight, from -127 to 127, and the upper end of their range or ranges."""
    magnitude = weight.abs().reshape(weight.shape[0], -1).amax(1) if split else weight.abs().amax().reshape(1)
    magnitude = magnitude.double()
    magnitude = torch.where(magnitude > 0, magnitude, 1.0)
    steps = (magnitude / 127).reshape(-1, *[1] * (weight.dim() - 1))
    integers = (weight.double() / steps).round().clamp(-127, 127).to(torch.int8)
    # A range of T has steps of T / 127.5.
    return integers, (magnitude * (127.5 / 127)).float()


def _watched(entries: Sequence[Entry], layers: set[int]) -> dict[str, Entry]:
    """The values to quantize: what layers read, and what is added to a layer's output on its way to one."""
    order = topological(entries)
    reads = Reads(entries)
    wanted: dict[tuple[int, int], Entry] = {}

    def want(entry: Entry) -> None:
        wanted[id(entry.node), entry.index] = entry

    leads: set[int] = set()
    for node in reversed(order):
        if node.op is None:
            continue
        if (id(node), 0) in wanted or id(node) in leads:
            # The result is quantized, perhaps after an activation.
            if node.op.name in _ACTIVATIONS and reads.at(node)(0):
                leads.add(id(node.inputs[0].node))
            elif node.op.name in _ADDITIONS and len(node.inputs) == 2:
                for own, other in ((1, 0), (0, 1)):
                    entry = node.inputs[own]
                    if id(entry.node) in layers and reads.at(node)(own):
                        want(node.inputs[other])
                        break
        if id(node) in layers:
            want(node.inputs[0])
    names: dict[str, Entry] = {}
    for node in order:
        for index in range(node.outputs):
            if (id(node), index) in wanted:
                names[node.output_name(index)] = Entry(node, index)
    return names


# Ranges --------------------------------------------------------------------------------------------


def with_ranges(entries: Sequence[Entry], ranges: Ranges, dtype: str = "auto") -> list[Entry]:
    """Fix the ranges of the data that are quantized.

    ``ranges(name)`` gives the range of a value, None to leave it to each call. ``auto`` takes uint8 where
    there are no negative values.

    Raises
    ------
    MXNetError
        If a range is not finite.
    """

    def replace(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        if node.op is None or node.op.name != QUANTIZE or not node.name.endswith("_quantize"):
            return None
        name = node.name.removesuffix("_quantize")
        found = ranges(name)
        if found is None:
            return None
        low, high = float(found[0]), float(found[1])
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise MXNetError(
                f"the calibration data give {name} the range {low} to {high}: they, or the network, hold "
                "infinities or values that are no number"
            )
        kind = dtype if dtype != "auto" else "uint8" if low >= 0 else "int8"
        new = node.__copy__()
        new.inputs = inputs
        new.attrs = {"out_type": kind, "min_calib_range": low, "max_calib_range": high}
        return [Entry(new, index) for index in range(3)]

    return rebuild(entries, replace)
