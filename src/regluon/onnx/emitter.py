"""The ONNX side of a conversion: nodes, constants and names, and the table of operators that have a mapping.

A mapping is a function of an `Emitter`, a graph node and the ONNX names of its inputs; it adds ONNX nodes and
gives the names of the node's results. It raises `Unmapped` for attributes or types that ONNX cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes
from ..base.errors import MXNetError
from ..graph.dims import dims_in
from ..graph.node import Entry, Node
from ..ops import registry
from ..ops.opdef import Spec

__all__ = [
    "OPSET",
    "Emitter",
    "Mapping",
    "Unmapped",
    "mapped_operators",
    "mapping_of",
    "maps",
    "require_onnx",
]

OPSET = 17
Mapping = Callable[["Emitter", Node, list[str]], "str | list[str]"]
_MAPPINGS: dict[str, Mapping] = {}

# torch type -> name in onnx.TensorProto
_TYPES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.bool: "BOOL",
}


class Unmapped(MXNetError):
    """An operator, or this use of it, that has no counterpart in ONNX."""


def require_onnx() -> Any:
    """The `onnx` package.

    Raises
    ------
    ImportError
        If it is not installed; the message says how to install it.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "ONNX models are made with the package 'onnx', which is not installed: pip install "
            "'regluon[onnx]' (or onnx itself)"
        ) from error
    return onnx


def maps(*names: str) -> Callable[[Mapping], Mapping]:
    """Register the decorated function as the mapping of these operators."""

    def keep(function: Mapping) -> Mapping:
        for name in names:
            _MAPPINGS[name] = function
        return function

    return keep


def mapping_of(node: Node) -> Mapping:
    """The mapping of a node's operator.

    Raises
    ------
    Unmapped
        If it has none.
    """
    assert node.op is not None
    found = _MAPPINGS.get(node.op.name)
    if found is None:
        raise Unmapped(f"the operator {node.op.name} (node {node.name}) has no counterpart in ONNX")
    return found


def mapped_operators() -> list[str]:
    """The names of all operators that have a mapping."""
    return sorted(name for name in _MAPPINGS if registry.exists(name) and registry.get(name).name == name)


class Emitter:
    """ONNX nodes and constants in the making.

    Parameters
    ----------
    other : callable, optional
        ``other(entry)`` gives the shape of a value for other input shapes: sizes that differ stay open in
        the model.
    """

    def __init__(self, other: Callable[[Entry], Sequence[int] | None] | None = None) -> None:
        self.onnx = require_onnx()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[tuple[int, int], str] = {}
        self._taken: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._other = other
        self._prefix = "value"

    # Names and types ----------------------------------------------------------------------

    def unique(self, wanted: str) -> str:
        """A name that nothing has yet, and that is taken from now on."""
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def type_of(self, dtype: torch.dtype) -> int:
        """ONNX's number of a type."""
        if dtype not in _TYPES:
            raise Unmapped(f"ONNX has no tensors of {dtype}")
        return int(getattr(self.onnx.TensorProto, _TYPES[dtype]))

    @staticmethod
    def spec(entry: Entry) -> Spec:
        """Shape and type of a value, which must be known."""
        spec = entry.spec
        if spec is None or not all(isinstance(size, int) for size in spec.shape):
            raise Unmapped(f"the shape of {entry.node.name} is not known before the call")
        return spec

    def shape(self, entry: Entry) -> list[int]:
        """The shape of a value, -1 for sizes that the model leaves open."""
        shape = list(self.spec(entry).shape)
        other = self._other(entry) if self._other is not None else None
        if other is None:
            return shape
        return [size if size == second else -1 for size, second in zip(shape, other, strict=True)]

    # Building ----------------------------------------------------------------------

    def add(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; gives the name of its output, or a list of names for several."""
        names = [self.unique(f"{self._prefix}_{kind.lower()}") for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, name=names[0], **given))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """The name of a constant array, of a torch type where one is given."""
        array = numpy.asarray(value)
        if dtype is not None:
            array = array.astype(dtypes.to_numpy(dtype))
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is not None and key in self._constants:
            return self._constants[key]
        name = self.unique("constant")
        self.initializers.append(self.onnx.numpy_helper.from_array(array.copy(order="C"), name))
        if key is not None:
            self._constants[key] = name
        return name

    def ints(self, values: Sequence[int]) -> str:
        """The name of a constant vector of int64."""
        return self.constant(numpy.asarray(list(values), dtype=numpy.int64))

    def cast(self, name: str, have: torch.dtype, want: torch.dtype) -> str:
        """A value as another type."""
        return name if have is want else str(self.add("Cast", [name], to=self.type_of(want)))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """A value in another shape; one size may be -1."""
        if list(shape).count(-1) > 1:
            raise Unmapped("more than one size of a reshape depends on the input; give fixed shapes")
        # Size 0 means "as in the input" to ONNX unless allowzero is set.
        zero = 1 if 0 in shape else None
        return str(self.add("Reshape", [name, self.ints(shape)], allowzero=zero))

    def transpose(self, name: str, axes: Sequence[int]) -> str:
        """A value with its axes in another order."""
        if list(axes) == list(range(len(axes))):
            return name
        return str(self.add("Transpose", [name], perm=list(axes)))

    def convert(self, node: Node) -> None:
        """Add what computes a node, whose inputs have names already.

        Raises
        ------
        Unmapped
            If ONNX cannot express the node.
        """
        assert node.op is not None
        if any(dims_in(value) for value in node.attrs.values()):
            raise Unmapped(f"an attribute of {node.name} is only known in a call")
        if node.specs is None:
            raise Unmapped(f"the shapes of {node.name} are not known before the call")
        function = mapping_of(node)
        self._prefix = node.name
        inputs = [self.names[id(entry.node), entry.index] for entry in node.inputs]
        made = function(self, node, inputs)
        for index, name in enumerate([made] if isinstance(made, str) else made):
            self.names[id(node), index] = name

    def name_of(self, entry: Entry) -> str:
        """The name of a value.

        Raises
        ------
        Unmapped
            For an output that the mapping of its operator does not give.
        """
        name = self.names.get((id(entry.node), entry.index))
        if name is None:
            raise Unmapped(f"output {entry.index} of {entry.node.name} has no counterpart in ONNX")
        return name

    def parameter(self, entry: Entry, value: torch.Tensor, name: str | None = None) -> None:
        """Give a variable a constant value in the model."""
        known = self.unique(name or entry.node.name)
        array = value.detach().cpu().contiguous()
        if array.dtype is torch.bfloat16:
            raw = array.view(torch.int16).numpy().tobytes()
            kind = self.type_of(torch.bfloat16)
            tensor = self.onnx.helper.make_tensor(known, kind, list(array.shape), raw, raw=True)
        else:
            tensor = self.onnx.numpy_helper.from_array(array.numpy(), known)
        self.initializers.append(tensor)
        self.names[id(entry.node), entry.index] = known

    def value_info(self, entry: Entry, name: str, names: dict[int, str] | None = None) -> Any:
        """What a model says of an input or an output: its type and its sizes."""
        spec = self.spec(entry)
        sizes: list[Any] = []
        for axis, size in enumerate(self.shape(entry)):
            sizes.append(size if size >= 0 else (names or {}).get(axis, f"{name}_{axis}"))
        return self.onnx.helper.make_tensor_value_info(name, self.type_of(spec.dtype), sizes)

    def model(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The finished model."""
        from .. import __version__

        helper = self.onnx.helper
        read = {given for node in self.nodes for given in node.input}
        read.update(value.name for value in outputs)
        initializers = [tensor for tensor in self.initializers if tensor.name in read]
        graph = helper.make_graph(self.nodes, name, list(inputs), list(outputs), initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="regluon",
            producer_version=__version__,
            ir_version=8,
        )
