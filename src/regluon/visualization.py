"""Looking at a Symbol: a table of its layers, and a drawing by graphviz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any

from .graph.node import Entry, Node, arguments_of, topological
from .symbol import Symbol
from .symbol.inference import shapes_of

__all__ = ["plot_network", "print_summary"]

# Inputs of layers that are learnt.
_LEARNT = frozenset(("weight", "bias", "gamma", "beta", "parameters"))
_HEADER = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")
# Fill colours by operator (the eight-class qualitative palette Set3 of ColorBrewer).
_COLOURS = ("#8dd3c7", "#fb8072", "#ffffb3", "#bebada", "#80b1d3", "#fdb462", "#b3de69", "#fccde5")
_COLOUR_OF = {
    **dict.fromkeys(("Convolution", "Deconvolution", "FullyConnected"), _COLOURS[1]),
    **dict.fromkeys(("Activation", "LeakyReLU"), _COLOURS[2]),
    "BatchNorm": _COLOURS[3],
    "Pooling": _COLOURS[4],
    **dict.fromkeys(("Concat", "Flatten", "Reshape"), _COLOURS[5]),
    "Softmax": _COLOURS[6],
}
# What a variable's name ends with that a drawing leaves out.
_WEIGHTS = (
    "_weight",
    "_bias",
    "_gamma",
    "_beta",
    "_moving_mean",
    "_moving_var",
    "_running_mean",
    "_running_var",
)


class _Shapes:
    """Shapes of a graph's outputs, as far as the given ones of variables tell."""

    def __init__(self, symbol: Any, shape: Mapping[str, Any] | None) -> None:
        entries = symbol._list()
        self.order = topological(entries)
        self.found = shapes_of(entries, (), dict(shape or {}))
        self.shown = shape is not None
        if self.shown:
            missing = [node.name for node in arguments_of(self.order)[0] if self.of(Entry(node, 0)) is None]
            if missing:
                raise ValueError(
                    f"Input shape is incomplete: the shapes of {', '.join(missing)} stay unknown. Give "
                    "them in shape="
                )

    def of(self, entry: Entry) -> tuple[int, ...] | None:
        """The shape of an output, or None where a size is not known."""
        spec = self.found.spec(entry)
        return None if spec is None else spec.shape

    def text(self, entry: Entry) -> str:
        """The sizes after the first axis, which is the batch, as ``3x16x16``."""
        shape = self.of(entry) if self.shown else None
        return "" if shape is None else "x".join(str(size) for size in shape[1:])


def _parameters(node: Node, shapes: _Shapes) -> int:
    """How many numbers a layer learns."""
    if node.op is None:
        return 0
    names = node.op.input_names(node.full_attrs, len(node.inputs))
    total = 0
    for name, entry in zip(names, node.inputs, strict=False):
        shape = shapes.of(entry)
        if name in _LEARNT and entry.node.op is None and shape is not None:
            total += prod(shape)
    return total


def _row(fields: Sequence[str], positions: Sequence[int]) -> str:
    line = ""
    for field, end in zip(fields, positions, strict=True):
        line = (line + field)[:end].ljust(end)
    return line


def print_summary(
    symbol: Any,
    shape: Mapping[str, Any] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of the layers: name and operator, output shape, parameters, and the layers before.

    Parameters
    ----------
    symbol : Symbol
        The network.
    shape : dict of str to tuple, optional
        Shapes of its inputs; without them output shapes are left blank. The first axis is not shown.
    line_length : int
        Width of the table in characters.
    positions : sequence of float
        Where the columns end, as fractions of the width or in characters.

    Raises
    ------
    TypeError
        If ``symbol`` is none.
    ValueError
        If ``shape`` does not determine the shapes of all inputs.
    MXNetError
        If the shapes do not fit the network.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"symbol must be Symbol; received {type(symbol).__name__}")
    shapes = _Shapes(symbol, shape)
    ends = [int(line_length * end) if positions[-1] <= 1 else int(end) for end in positions]
    print("_" * line_length)
    print(_row(_HEADER, ends))
    print("=" * line_length)
    total = 0
    rows = [node for place, node in enumerate(shapes.order) if node.op is not None or place == 0]
    for number, node in enumerate(rows):
        count = _parameters(node, shapes)
        total += count
        before = [e.node.name for e in node.inputs if e.node.op is not None or e.node is shapes.order[0]]
        label = f"{node.name}({'null' if node.op is None else node.op.name})"
        print(_row((label, shapes.text(Entry(node, 0)), str(count), before[0] if before else ""), ends))
        for name in before[1:]:
            print(_row(("", "", "", name), ends))
        print(("=" if number == len(rows) - 1 else "_") * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def _sizes(value: Any, default: str = "1") -> str:
    return "x".join(str(size) for size in value) if value else default


def _label(node: Node) -> str:
    """What stands in a node's box: the operator with what sets it apart, or the node's name."""
    attrs = node.full_attrs
    name = "" if node.op is None else node.op.name
    if name in ("Convolution", "Deconvolution"):
        return f"{name}\n{_sizes(attrs['kernel'])}/{_sizes(attrs['stride'])}, {attrs['num_filter']}"
    if name == "FullyConnected":
        return f"{name}\n{attrs['num_hidden']}"
    if name in ("Activation", "LeakyReLU"):
        return f"{name}\n{attrs['act_type']}"
    if name == "Pooling":
        return f"{name}\n{attrs['pool_type']}, {_sizes(attrs['kernel'])}/{_sizes(attrs['stride'])}"
    return node.name


def plot_network(
    symbol: Any,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Any] | None = None,
    dtype: Any = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """A drawing of the graph, data flowing upward.

    Parameters
    ----------
    symbol : Symbol
        The network.
    title : str
        Name of the drawing and of its file.
    save_format : str
        Format that ``render`` writes.
    shape : dict of str to tuple, optional
        Shapes of its inputs; with them edges show the shapes that flow, without the first axis.
    dtype : dict, optional
        Accepted for compatibility.
    node_attrs : dict of str
        Graphviz attributes for all nodes, over the usual ones.
    hide_weights : bool
        Leave parameters out.

    Returns
    -------
    graphviz.Digraph

    Raises
    ------
    ImportError
        If the package graphviz is not installed.
    TypeError
        If ``symbol`` is none.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"symbol must be a Symbol; received {type(symbol).__name__}")
    del dtype
    try:
        graphviz = import_module("graphviz")
    except ImportError as error:
        raise ImportError(
            "plot_network draws with the package graphviz, which is not installed: pip install graphviz (and "
            "the program dot, from https://graphviz.org, to render files). print_summary needs neither"
        ) from error
    shapes = _Shapes(symbol, shape)
    usual = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    usual.update(node_attrs or {})
    drawing = graphviz.Digraph(name=title, format=save_format)
    hidden = set()
    for node in shapes.order:
        if node.op is None and hide_weights and node.name.endswith(_WEIGHTS):
            hidden.add(id(node))
            continue
        own = {"fillcolor": _colour(node), **({"shape": "oval"} if node.op is None else {})}
        drawing.node(name=node.name, label=_label(node), **{**usual, **own})
    for node in shapes.order:
        for entry in node.inputs:
            if id(entry.node) not in hidden:
                known = {"label": shapes.text(entry)}
                drawing.edge(
                    tail_name=node.name, head_name=entry.node.name, dir="back", arrowtail="open", **known
                )
    return drawing


def _colour(node: Node) -> str:
    return _COLOURS[0] if node.op is None else _COLOUR_OF.get(node.op.name, _COLOURS[7])
