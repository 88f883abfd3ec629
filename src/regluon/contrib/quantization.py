"""Int8 inference: a trained network as one that computes convolutions and dense layers on 8-bit integers.

``quantize_net`` takes a HybridBlock, `quantize_model` a Symbol with its parameters. Both fold BatchNorm, turn
weights into int8, and choose the range of the data at each layer from calibration data.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from .. import autograd
from ..base.device import cpu
from ..exec import Program
from ..gluon.block import HybridBlock
from ..gluon.calling import level_outside
from ..gluon.parameter import Parameter
from ..gluon.symbol_block import SymbolBlock
from ..graph.node import Entry, Node, arguments_of, topological
from ..ops import registry
from ..passes.quantize import Quantized, fold_norms, layers_of, quantize_layers, with_ranges
from ..runtime.handles import kinds
from ._calibration import CalibrationCollector, EntropyCollector, RangeCollector, batches_of, feeding

__all__ = [
    "CalibrationCollector",
    "calib_graph",
    "quantize_graph",
    "quantize_model",
    "quantize_model_mkldnn",
    "quantize_model_onednn",
    "quantize_net",
    "quantize_net_v2",
]

Values = dict[str, torch.Tensor]


def quantize_net(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    exclude_layers: Sequence[str] | None = None,
    exclude_layers_match: Sequence[str] | None = None,
    exclude_operators: Sequence[str] | None = None,
    calib_data: Any = None,
    data_shapes: Any = None,
    calib_mode: str = "none",
    num_calib_batches: int | None = None,
    device: Any = None,
    LayerOutputCollector: Any = None,
    logger: logging.Logger | None = None,
    *,
    num_calib_examples: int | None = None,
    ctx: Any = None,
) -> SymbolBlock:
    """Quantize a trained network for int8 inference.

    Parameters
    ----------
    network : HybridBlock
        It is not changed.
    quantized_dtype : {'auto', 'int8', 'uint8'}
        The type of data between layers; 'auto' takes uint8 where values are never negative. 'uint8' cuts
        negative values off. Weights are int8.
    quantize_mode : {'full', 'smart'}
        Accepted for programs written for MXNet; both quantize every layer that gains by it.
    quantize_granularity : {'tensor-wise', 'channel-wise'}
        Whether weights of dense layers have one range, or one for each output. Convolutions always have one
        for each filter.
    exclude_layers : list of str, optional
        Layers that stay float32: paths of blocks ('features.0', with all that is in it) or names of nodes.
    exclude_layers_match : list of str, optional
        Regular expressions, searched in the paths and names of layers.
    exclude_operators : list of str, optional
        Operators that stay float32: 'Convolution', 'FullyConnected'.
    calib_data : DataIter, DataLoader or iterable of batches, optional
        Typical inputs; the first items of a batch are the network's inputs.
    data_shapes : list, optional
        The shapes of the inputs, where there is no calib_data.
    calib_mode : {'none', 'naive', 'entropy', 'custom'}
        'naive' takes the lowest and highest value that occur, 'entropy' the range that keeps most
        information, 'custom' asks LayerOutputCollector; 'none' takes the range anew in each call: slow. So
        is done, with a warning, for a value that is zero in all of calib_data.
    num_calib_batches, num_calib_examples : int, optional
        How much of calib_data is used; all of it by default.
    device, ctx : Device, optional
        Where the parameters go; the CPU by default.
    LayerOutputCollector : CalibrationCollector, optional
        For 'custom'.
    logger : logging.Logger, optional
        Told which layers are quantized.

    Returns
    -------
    SymbolBlock
        Called like the network. ``export`` and ``save_parameters`` work.

    Raises
    ------
    ValueError
        For an unknown option, calibration without data, or an exclusion that matches nothing.
    """
    _check(quantized_dtype, quantize_mode, quantize_granularity, calib_mode, calib_data, LayerOutputCollector)
    if not isinstance(network, HybridBlock):
        raise ValueError(
            f"quantize_net takes a HybridBlock, which can be recorded as a graph; received "
            f"{type(network).__name__}"
        )
    device = ctx if device is None else device
    count = _input_count(network, data_shapes, calib_data)
    recorded = _recorded(network, _examples(data_shapes, calib_data, count))
    values = _values_of(recorded)
    entries, values = fold_norms(recorded.outputs, values)
    layers = layers_of(entries, values)
    paths = _paths_of(network, recorded)
    kept = _excluded(layers, paths, exclude_layers, exclude_layers_match, exclude_operators)
    quantized = _quantize(entries, values, layers, kept, quantize_granularity, logger)
    names = [node.name for node in recorded.inputs]
    collector = _collector(calib_mode, quantized_dtype, LayerOutputCollector)
    if collector is not None:
        batches = _limited(batches_of(calib_data, count), num_calib_batches, num_calib_examples)
        _collect(quantized.watched, values, names, batches, collector)
        quantized.entries = _calibrated(quantized.entries, collector, quantized_dtype)
    return _block(quantized, recorded, device)


def quantize_net_v2(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    exclude_layers: Sequence[str] | None = None,
    exclude_layers_match: Sequence[str] | None = None,
    exclude_operators: Sequence[str] | None = None,
    calib_data: Any = None,
    data_shapes: Any = None,
    calib_mode: str = "none",
    num_calib_examples: int | None = None,
    ctx: Any = None,
    LayerOutputCollector: Any = None,
    logger: logging.Logger | None = None,
) -> SymbolBlock:
    """`quantize_net` with the arguments of 1.9.1."""
    return quantize_net(
        network, quantized_dtype, quantize_mode, quantize_granularity, exclude_layers, exclude_layers_match,
        exclude_operators, calib_data, data_shapes, calib_mode, LayerOutputCollector=LayerOutputCollector,
        logger=logger, num_calib_examples=num_calib_examples, ctx=ctx,
    )  # fmt: skip


def quantize_model(
    sym: Any,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] = ("softmax_label",),
    ctx: Any = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: logging.Logger | None = None,
    *,
    device: Any = None,
    num_calib_batches: int | None = None,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Quantize a Symbol and its parameters: (symbol, arguments, auxiliary states).

    Arguments as in `quantize_net`; ``excluded_sym_names`` are names of nodes. Variables without a value in
    the parameters are inputs; ``label_names`` are not needed for calibration.
    """
    del label_names, ctx, device
    _check(quantized_dtype, quantize_mode, quantize_granularity, calib_mode, calib_data, True)
    quantized, values = _quantized_symbol(
        sym, arg_params, aux_params, excluded_sym_names, excluded_op_names, quantize_granularity, logger
    )
    collector = _collector(calib_mode, quantized_dtype, None)
    if collector is not None:
        batches = _limited(batches_of(calib_data, len(data_names)), num_calib_batches, num_calib_examples)
        _collect(quantized.watched, values, list(data_names), batches, collector)
        quantized.entries = _calibrated(quantized.entries, collector, quantized_dtype)
    return _as_model(sym, quantized)


quantize_model_mkldnn = quantize_model
quantize_model_onednn = quantize_model


def quantize_graph(
    sym: Any,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    device: Any = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str = "entropy",
    quantized_dtype: str = "int8",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    LayerOutputCollector: Any = None,
    logger: logging.Logger | None = None,
    *,
    ctx: Any = None,
) -> tuple[Any, dict[str, Any], dict[str, Any], Any]:
    """The first half of `quantize_model`: (symbol, arguments, auxiliary states, collector).

    Feed ``collector.collect(name, operator, array)`` with the outputs of the unquantized network, as an op
    hook gives them, and go on with `calib_graph`. The collector is None for calib_mode 'none'.
    """
    del device, ctx
    _check(quantized_dtype, quantize_mode, quantize_granularity, calib_mode, True, LayerOutputCollector)
    quantized, _ = _quantized_symbol(
        sym, arg_params, aux_params, excluded_sym_names, excluded_op_names, quantize_granularity, logger
    )
    collector = _collector(calib_mode, quantized_dtype, LayerOutputCollector)
    if collector is not None:
        collector.include_layers = list(quantized.watched)
    return (*_as_model(sym, quantized), collector)


def calib_graph(
    qsym: Any,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    collector: Any,
    calib_mode: str = "entropy",
    quantized_dtype: str = "int8",
    logger: logging.Logger | None = None,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The second half of `quantize_model`: fix the ranges that a collector found.

    Raises
    ------
    ValueError
        For an unknown calib_mode, or without a collector.
    """
    del logger
    if calib_mode not in ("naive", "entropy", "custom"):
        raise ValueError(
            f"unknown calibration mode {calib_mode} received, expected `naive`, `entropy` or `custom`"
        )
    if collector is None:
        raise ValueError(f"calib_graph needs the collector of quantize_graph(..., calib_mode={calib_mode!r})")
    entries = _calibrated(qsym._list(), collector, quantized_dtype)
    return _symbol(type(qsym), entries), arg_params, aux_params


# Checks ---------------------------------------------------------------------------------------------


def _check(dtype: str, mode: str, granularity: str, calib_mode: str, data: Any, collector: Any) -> None:
    for what, value, allowed in (
        ("quantized_dtype", dtype, ("int8", "uint8", "auto")),
        ("quantize_mode", mode, ("full", "smart")),
        ("quantize_granularity", granularity, ("tensor-wise", "channel-wise")),
        ("calibration mode", calib_mode, ("none", "naive", "entropy", "custom")),
    ):
        if value not in allowed:
            expected = ", ".join(f"`{each}`" for each in allowed[:-1])
            raise ValueError(f"unknown {what} {value} received, expected {expected} or `{allowed[-1]}`")
    if calib_mode != "none" and data is None:
        raise ValueError(f"calib_data must be provided when calib_mode={calib_mode}")
    if calib_mode == "custom" and not hasattr(collector, "collect"):
        raise ValueError(
            "calib_mode='custom' needs LayerOutputCollector, an object with collect(name, op_name, array) "
            f"and min_max_dict; received {collector!r}"
        )


def _excluded(
    layers: Sequence[Node],
    paths: dict[str, str],
    names: Sequence[str] | None,
    patterns: Sequence[str] | None,
    operators: Sequence[str] | None,
) -> set[int]:
    """The ids of the layers that stay as they are. ``paths`` are blocks' paths by their nodes' names."""
    excluded: set[int] = set()
    called = {id(node): [text for text in (node.name, paths.get(node.name)) if text] for node in layers}

    def leave_out(what: str, text: str, found: list[int]) -> None:
        if not found:
            known = ", ".join(dict.fromkeys(each[-1] for each in called.values())) or "none"
            raise ValueError(
                f"{what}: {text!r} matches none of the network's layers that can be quantized ({known})"
            )
        excluded.update(found)

    for name in names or ():
        path = f"{name}."
        found = [
            key
            for key, own in called.items()
            if name in own or any(f"{other}.".startswith(path) for other in own[1:])
        ]
        leave_out("exclude_layers", name, found)
    for pattern in patterns or ():
        found = [key for key, own in called.items() if any(re.search(pattern, each) for each in own)]
        leave_out("exclude_layers_match", pattern, found)
    for name in operators or ():
        if not registry.exists(name):
            raise ValueError(f"exclude_operators: no operator is called {name!r}")
        definition = registry.get(name)
        excluded.update(id(node) for node in layers if node.op is definition)
    return excluded


# The network as a graph -------------------------------------------------------------------------------


def _input_count(network: Any, shapes: Any, data: Any) -> int:
    if shapes is not None:
        return len(_shapes(shapes))
    described = getattr(data, "provide_data", None)
    if described:
        return len(described)
    nodes = getattr(network, "_input_nodes", None)
    if nodes is not None:
        return len(nodes)
    import inspect

    forward = network.hybrid_forward if network._is_symbolic_style() else network.forward
    parameters = list(inspect.signature(forward).parameters.values())
    if network._is_symbolic_style():
        parameters = parameters[1:]
    own = set(network._reg_params)
    return sum(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty and p.name not in own
        for p in parameters
    )


def _shapes(shapes: Any) -> list[tuple[Any, str]]:
    """(shape, type) of each input, from shapes, (name, shape) pairs or DataDescs."""
    if shapes and all(isinstance(size, int) for size in shapes):
        shapes = [shapes]
    found = []
    for each in shapes:
        if hasattr(each, "shape"):
            found.append((tuple(each.shape), getattr(each, "dtype", "float32")))
        elif len(each) > 1 and isinstance(each[0], str):
            found.append((tuple(each[1]), "float32"))
        else:
            found.append((tuple(each), "float32"))
    return found


def _examples(shapes: Any, data: Any, count: int) -> list[Any]:
    """One value for each input, to record the network with."""
    if data is not None:
        for batch in batches_of(data, count):
            return batch
        raise ValueError("calib_data is empty")
    if shapes is None:
        raise ValueError("quantize_net needs calib_data, or data_shapes to record the network with")
    kind = kinds.np if _np_mode() else kinds.nd
    from ..base import dtypes

    return [
        kind._wrap(torch.zeros(shape, dtype=dtypes.to_torch(dtype)), None) for shape, dtype in _shapes(shapes)
    ]


def _np_mode() -> bool:
    from ..util import is_np_array

    return bool(is_np_array())


def _recorded(network: Any, examples: list[Any]) -> Any:
    with autograd.pause(train_mode=False):
        return network._graph_cache().prepare(tuple(examples))


def _values_of(recorded: Any) -> Values:
    values = {}
    for node, parameter in recorded.parameters:
        values[node.name] = parameter.list_data()[0]._t.detach()
    for node, array in recorded.captured:
        values[node.name] = array._t.detach()
    return values


def _paths_of(network: Any, recorded: Any) -> dict[str, str]:
    """The path of the block that a layer's weight belongs to, by the layer's name."""
    owners: dict[int, str] = {}

    def visit(block: Any, path: str) -> None:
        for parameter in block._reg_params.values():
            owners.setdefault(id(parameter), path)
        for name, child in block._children.items():
            visit(child, f"{path}.{name}" if path else name)

    visit(network, "")
    by_name = {node.name: owners.get(id(parameter), "") for node, parameter in recorded.parameters}
    found = {}
    for node in topological(recorded.outputs):
        if node.op is not None and node.op.name in ("Convolution", "FullyConnected"):
            path = by_name.get(node.inputs[1].node.name)
            if path:
                found[node.name] = path
                for norm in topological(recorded.outputs):
                    if norm.op is not None and norm.inputs and norm.inputs[0].node is node:
                        # A folded BatchNorm gives the layer its name.
                        found.setdefault(norm.name, path)
    return found


def _quantize(
    entries: Sequence[Entry],
    values: Values,
    layers: Sequence[Node],
    kept: set[int],
    granularity: str,
    logger: logging.Logger | None,
) -> Quantized:
    chosen = [node for node in layers if id(node) not in kept]
    if logger is not None:
        logger.info("quantized to int8: %s", ", ".join(node.name for node in chosen) or "nothing")
        logger.info("left as they are: %s", ", ".join(n.name for n in layers if id(n) in kept) or "none")
    return quantize_layers(entries, values, chosen, granularity == "channel-wise")


# Calibration ---------------------------------------------------------------------------------------------


def _collector(mode: str, dtype: str, given: Any) -> Any:
    if mode == "none":
        return None
    if mode == "custom":
        return given
    return RangeCollector() if mode == "naive" else EntropyCollector(dtype)


def _limited(batches: Any, most_batches: int | None, most_examples: int | None) -> Any:
    examples = 0
    for place, batch in enumerate(batches):
        if (most_batches is not None and place >= most_batches) or (
            most_examples is not None and examples >= most_examples
        ):
            return
        yield batch
        examples += batch[0].shape[0]


def _collect(
    watched: dict[str, Entry], values: Values, inputs: Sequence[str], batches: Any, collector: Any
) -> None:
    """Run the real network on the batches and show the collector what is quantized."""
    collector.include_layers = list(watched)
    collect = feeding(collector)
    variables = [node for node in topological(watched.values()) if node.op is None]
    program = Program(variables, list(watched.values()), False, False)
    seen = False
    for batch in batches:
        seen = True
        given = dict(zip(inputs, (array._t for array in batch), strict=True))
        missing = [node.name for node in variables if node.name not in given and node.name not in values]
        if missing:
            raise ValueError(f"calibration: the graph's input {', '.join(missing)} has no value")
        with torch.no_grad():
            results = program(0, [given.get(n.name, values.get(n.name)) for n in variables])  # type: ignore[misc]
        for (name, entry), tensor in zip(watched.items(), results, strict=True):
            operator = "null" if entry.node.op is None else entry.node.op.name
            collect(name, operator, kinds.nd._wrap(tensor, cpu()))
    if not seen:
        raise ValueError("calib_data is empty")


def _calibrated(entries: Sequence[Entry], collector: Any, dtype: str) -> list[Entry]:
    finish = getattr(collector, "post_collect", None)
    found = finish() if finish is not None else None
    ranges = found if found is not None else collector.min_max_dict
    silent = []

    def range_of(name: str) -> tuple[float, float] | None:
        if name in ranges and not any(ranges[name]):
            silent.append(name)
            return None
        return ranges.get(name)

    result = with_ranges(entries, range_of, dtype)
    if silent:
        warnings.warn(
            f"calibration: all the data give {', '.join(silent)} nothing but zeros, which say nothing of the "
            "range: it is taken anew in each call, which is slow. Calibrate with typical inputs, or leave "
            "the layers that read it out (exclude_layers)",
            stacklevel=level_outside(),
        )
    return result


# Results -------------------------------------------------------------------------------------------------


def _symbol(cls: Any, entries: Sequence[Entry]) -> Any:
    return cls._of(list(entries))


def _block(quantized: Quantized, recorded: Any, device: Any) -> SymbolBlock:
    np_kind = bool(recorded.classes) and issubclass(recorded.classes[0], kinds.np)
    cls = kinds.np_symbol if np_kind else kinds.symbol
    parameters = {}
    for name, tensor in quantized.values.items():
        array = kinds.nd._wrap(tensor, cpu())
        parameter = Parameter(
            name, grad_req="null", shape=array.shape, dtype=array.dtype, differentiable=False
        )
        parameter._load_init(array, device if device is not None else cpu())
        parameters[name] = parameter
    outputs = [cls._of([entry]) for entry in quantized.entries]
    inputs = [cls._of([Entry(node, 0)]) for node in recorded.inputs]
    block = SymbolBlock(outputs if len(outputs) > 1 else outputs[0], inputs, parameters)
    block.__dict__["_in_structure"] = recorded.in_structure
    block.__dict__["_out_structure"] = recorded.out_structure
    return block


def _quantized_symbol(
    sym: Any,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    names: Sequence[str] | None,
    operators: Sequence[str] | None,
    granularity: str,
    logger: logging.Logger | None,
) -> tuple[Quantized, Values]:
    given = {**arg_params, **aux_params}
    values = {name: array._t.detach() for name, array in given.items()}
    entries, values = fold_norms(sym._list(), values)
    layers = layers_of(entries, values)
    kept = _excluded(layers, {}, names, None, operators)
    return _quantize(entries, values, layers, kept, granularity, logger), values


def _as_model(sym: Any, quantized: Quantized) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    arguments, auxiliary = arguments_of(topological(quantized.entries))
    parts = []
    for group in (arguments, auxiliary):
        names = [node.name for node in group if node.name in quantized.values]
        parts.append({name: kinds.nd._wrap(quantized.values[name], cpu()) for name in names})
    return _symbol(type(sym), quantized.entries), parts[0], parts[1]
