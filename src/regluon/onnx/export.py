"""``export_model``: a Symbol and its parameters as an ONNX file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes
from ..base.errors import MXNetError
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, topological
from .convert import convert
from .emitter import mapped_operators, require_onnx

__all__ = ["export_model", "get_operator_support"]

_LARGEST = 2**31 - 2**20  # what one protobuf message may hold, less room for the graph itself


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """The names of the operators that `export_model` can write."""
    del opset_version
    return mapped_operators()


def export_model(
    sym: Any,
    params: Any,
    in_shapes: Sequence[Sequence[int]] | None = None,
    in_types: Any = numpy.float32,
    onnx_file_path: Any = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Sequence[Sequence[Any]] | None = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    large_model: bool = False,
) -> str:
    """Write a network for prediction as an ONNX model (opset 17).

    Parameters
    ----------
    sym : Symbol or str
        The network, or the file ``-symbol.json`` of an export.
    params : dict or str
        Its parameters by name (``arg:`` and ``aux:`` in front of names are taken off), a list of such
        dictionaries, or the file ``-0000.params`` of an export.
    in_shapes : sequence of tuple of int
        The shape of each input, in the order of ``sym.list_inputs()`` without the parameters.
    in_types : type or sequence of type
        The type of all inputs, or of each.
    onnx_file_path : str or path
        Where to write.
    verbose : bool
        Print what is written.
    dynamic : bool
        Leave sizes of the inputs open: the first of each, or those that ``dynamic_input_shapes`` says.
    dynamic_input_shapes : sequence of tuple, optional
        For each input its shape with None, or a name, in place of the open sizes.
    run_shape_inference : bool
        Add the shapes of values inside the network.
    input_type, input_shape
        Older names of ``in_types`` and ``in_shapes``.
    large_model : bool
        Write the parameters to a second file beside the model (``.data``); models above 2 GB always are.

    Returns
    -------
    str
        The path that was written.

    Raises
    ------
    ImportError
        If the package onnx is not installed.
    MXNetError
        If an operator has no counterpart in ONNX (the message names it), or a parameter is missing.
    ValueError
        If the number of shapes or types is not that of the inputs.
    """
    require_onnx()
    source = _Source(sym, params, input_shape if in_shapes is None else in_shapes)
    types = source.types(in_types if input_type is None else input_type)
    opened = _open_shapes(source.shapes, dynamic, dynamic_input_shapes)
    model = _convert(source, types, opened)
    path = os.fspath(onnx_file_path)
    _write(model, path, run_shape_inference, large_model)
    if verbose:
        inputs = ", ".join(f"{name} {tuple(shape)}" for name, shape in zip(source.data, opened, strict=True))
        print(f"{path}: {len(model.graph.node)} ONNX operators; inputs {inputs}")
    return path


class _Source:
    """The network as given: its variables, their values, and which of them are inputs."""

    def __init__(self, sym: Any, params: Any, shapes: Any) -> None:
        from ..symbol import load

        self.symbol = load(os.fspath(sym)) if isinstance(sym, (str, os.PathLike)) else sym
        self.entries: tuple[Entry, ...] = self.symbol._list()
        self.values = _parameters(params)
        self.variables = [node for node in topological(self.entries) if node.op is None]
        free = [node.name for node in self.variables if node.name not in self.values]
        shapes = [tuple(shape) for shape in shapes or ()]
        if len(shapes) != len(free):
            # Labels are of no use in prediction; their shapes follow from the others.
            free = [name for name in free if not name.endswith("label")]
        if len(shapes) != len(free):
            raise ValueError(
                f"export_model: the network has the inputs {', '.join(free) or 'none'} (what is not among "
                f"the parameters), and in_shapes gives {len(shapes)} shape(s): {shapes}. Give one shape for "
                "each, or the parameters that are missing"
            )
        self.data, self.shapes = free, shapes

    def types(self, given: Any) -> list[torch.dtype]:
        """The type of each input."""
        several = isinstance(given, (list, tuple))
        types = list(given) if several else [given] * len(self.data)
        if len(types) != len(self.data):
            raise ValueError(
                f"export_model: in_types gives {len(types)} type(s) for the inputs {', '.join(self.data)}; "
                "give one for all or one for each"
            )
        return [dtypes.to_torch(dtype) for dtype in types]

    def tensors(self, shapes: Sequence[Sequence[int]], types: Sequence[torch.dtype]) -> list[torch.Tensor]:
        """A tensor for each variable; those of inputs hold nothing but a shape and a type."""
        given = {
            name: torch.empty(tuple(shape), dtype=dtype, device="meta")
            for name, shape, dtype in zip(self.data, shapes, types, strict=True)
        }
        known = {
            id(node): (tuple(tensor.shape), tensor.dtype)
            for node in self.variables
            if (tensor := given.get(node.name, self.values.get(node.name))) is not None
        }
        inferred = GraphShapes(self.entries, known).run()
        tensors = []
        for node in self.variables:
            tensor = given.get(node.name, self.values.get(node.name))
            if tensor is None:
                spec = inferred.spec(Entry(node, 0))
                if spec is None:
                    raise MXNetError(
                        f"export_model: the variable {node.name} is neither an input with a shape nor a "
                        "parameter with a value"
                    )
                tensor = torch.empty(spec.shape, dtype=spec.dtype, device="meta")
            tensors.append(tensor)
        return tensors


def _parameters(params: Any) -> dict[str, torch.Tensor]:
    """Values by name, without the ``arg:`` and ``aux:`` of files."""
    if isinstance(params, (str, os.PathLike)):
        from ..ndarray import load

        params = load(os.fspath(params))
    given = params if isinstance(params, (list, tuple)) else [params or {}]
    values = {}
    for part in given:
        if not isinstance(part, Mapping):
            raise TypeError(
                f"export_model: params is a dictionary of arrays by name, a list of them, or the path of a "
                f"parameter file; received {type(part).__name__}"
            )
        for name, array in part.items():
            array = array.data() if hasattr(array, "data") and callable(array.data) else array
            short = name[4:] if name[:4] in ("arg:", "aux:") else name
            values[short] = array._t if hasattr(array, "_t") else torch.from_numpy(numpy.array(array))
    return values


def _open_shapes(
    shapes: Sequence[Sequence[int]], dynamic: bool, wanted: Sequence[Sequence[Any]] | None
) -> list[list[Any]]:
    """For each input its sizes: numbers, names, or None where a size is open without a name."""
    if not dynamic and wanted is None:
        return [list(shape) for shape in shapes]
    if wanted is None:
        return [["batch", *shape[1:]] if shape else [] for shape in shapes]
    if len(wanted) != len(shapes) or any(len(a) != len(b) for a, b in zip(wanted, shapes, strict=False)):
        raise ValueError(
            f"export_model: dynamic_input_shapes {list(wanted)} does not fit in_shapes {list(shapes)}: give "
            "one tuple of the same length for each"
        )
    return [list(shape) for shape in wanted]


def _convert(source: _Source, types: Sequence[torch.dtype], opened: Sequence[Sequence[Any]]) -> Any:
    from ..exec.plan import specialise

    variables, entries = specialise(
        source.variables, source.entries, source.tensors(source.shapes, types), False
    )
    twins = {node.name: node for node in variables}
    other = None
    if any(not isinstance(size, int) for shape in opened for size in shape):
        # What differs in a second set of sizes is what stays open.
        second = [
            [size if isinstance(size, int) else known + 1 for size, known in zip(shape, sizes, strict=True)]
            for shape, sizes in zip(opened, source.shapes, strict=True)
        ]
        others = specialise(source.variables, source.entries, source.tensors(second, types), False)[1]
        nodes: dict[int, Node] = {
            id(a): b for a, b in zip(topological(entries), topological(others), strict=True)
        }

        def other(entry: Entry) -> Sequence[int] | None:
            twin = nodes.get(id(entry.node))
            spec = None if twin is None else Entry(twin, entry.index).spec
            return None if spec is None else spec.shape

    inputs = [(Entry(twins[name], 0), name) for name in source.data]
    values = [(Entry(node, 0), source.values[node.name]) for node in variables if node.name in source.values]
    names = [name.removesuffix("_output") for name in source.symbol.list_outputs()]
    model = convert("regluon", inputs, values, list(zip(entries, names, strict=True)), other)
    for value, shape in zip(model.graph.input, opened, strict=True):
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                value.type.tensor_type.shape.dim[axis].dim_param = size
    return model


def _write(model: Any, path: str, infer: bool, external: bool) -> None:
    from ..serial import atomic_writer

    onnx = require_onnx()
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if external or size > _LARGEST:
        name = os.path.basename(path)
        data = f"{name}.data"
        folder = os.path.dirname(os.path.abspath(path))
        with tempfile.TemporaryDirectory(prefix=".onnx.", dir=folder) as made:
            onnx.save_model(
                model,
                os.path.join(made, name),
                save_as_external_data=True,
                all_tensors_to_one_file=True,
                location=data,
                size_threshold=0,
            )
            for each in (data, name):
                os.replace(os.path.join(made, each), os.path.join(folder, each))
        return
    if infer:
        model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model)
    with atomic_writer(path) as file:
        file.write(model.SerializeToString())
