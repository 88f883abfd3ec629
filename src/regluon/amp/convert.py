"""Graphs and blocks in mixed precision, as copies."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ..base import dtypes
from ..gluon import HybridBlock, Parameter, SymbolBlock
from ..gluon import files as block_files
from ..graph.node import Entry, Node, topological
from ..passes.amp import Policy, cast_parameters, insert_casts
from ..runtime.handles import kinds
from ..runtime.state import state
from ..symbol import Symbol
from ..symbol.convert import without_casts
from .policy import AMPError, policy_of

__all__ = ["convert_hybrid_block", "convert_model", "convert_symbol"]

Conditions = Iterable[tuple[str, str, Sequence[str]]]


def _converted(entries: Sequence[Entry], policy: Policy, given: Mapping[str, Any]) -> list[Entry]:
    """The graph with the casts of ``policy``, whatever casts it had."""
    names = {node.name for node in topological(entries)}
    unknown = sorted(policy.excluded - names)
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=3)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise AMPError(
            f"excluded_sym_names: no node of the graph is called {', '.join(unknown)}{hint}. "
            "sym.get_internals().list_outputs() lists them, with _output behind"
        )
    return insert_casts(without_casts(entries), policy, given)


def convert_symbol(
    sym: Any,
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    data_names: Iterable[str] | None = None,
    cast_optional_params: bool = False,
    cast_params_offline: bool | None = None,
) -> Any:
    """A Symbol that computes the same in mixed precision; inputs and outputs keep their types.

    Parameters
    ----------
    sym : Symbol
        The Symbol; it is not changed.
    target_dtype : {"float16", "bfloat16"}
        The low precision.
    target_dtype_ops, fp32_ops, conditional_fp32_ops : list, optional
        Operators in place of the default lists, as for `init`.
    excluded_sym_names : list of str, optional
        Names of nodes that compute in float32.
    data_names : list of str, optional
        The variables that are inputs. Without it, none is taken for a parameter.
    cast_optional_params, cast_params_offline : bool
        Whether parameters that are only used in the low precision are variables of that type, with no cast
        in the graph. (The second name is that of later versions.)

    Raises
    ------
    AMPError
        For an unknown type, operator or node, or an operator in two lists.
    """
    if not isinstance(sym, Symbol):
        raise TypeError(f"convert_symbol takes a Symbol; received {type(sym).__name__}")
    policy = policy_of(
        target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names or ()
    )
    entries = _converted(sym._list(), policy, {})
    if _offline(cast_optional_params, cast_params_offline) and data_names is not None:
        inputs = set(data_names)
        variables = {node.name for node in topological(entries) if node.op is None}
        entries, _ = cast_parameters(entries, variables - inputs, policy.target)
    return type(sym)._of(entries)


def _offline(old: bool, new: bool | None) -> bool:
    return bool(old if new is None else new)


def convert_model(
    sym: Any,
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    cast_optional_params: bool = False,
    cast_params_offline: bool | None = None,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A model (Symbol, arguments, auxiliary states) that computes in mixed precision; see `convert_symbol`.

    Returns new objects; arrays are cast where ``cast_optional_params`` says so, and copied otherwise.
    """
    if not isinstance(sym, Symbol):
        raise TypeError(f"convert_model takes a Symbol first; received {type(sym).__name__}")
    policy = policy_of(
        target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names or ()
    )
    values = {**arg_params, **aux_params}
    entries = _converted(sym._list(), policy, _types_of(values))
    chosen: set[str] = set()
    if _offline(cast_optional_params, cast_params_offline):
        entries, chosen = cast_parameters(entries, arg_params, policy.target)
    code = dtypes.to_name(policy.target)
    arguments = {n: a.astype(code) if n in chosen else a.copy() for n, a in arg_params.items()}
    return type(sym)._of(entries), arguments, {name: array.copy() for name, array in aux_params.items()}


def _types_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dtypes.to_torch(value.dtype) for name, value in values.items()}


class _Converted(SymbolBlock):
    """A SymbolBlock that writes its parameters in float32 where it writes a graph without casts."""

    def export(
        self, path: Any, epoch: int = 0, remove_amp_cast: bool = True, format: str | None = None
    ) -> Any:
        """Write the graph and the parameters; see `HybridBlock.export`.

        Without the casts the file is a float32 model, whatever type the parameters have here.
        """
        record = self._as_recorded()
        if remove_amp_cast:
            record.parameters = [
                (node, _twin(p, "float32") if node.name in self._cast else p) for node, p in record.parameters
            ]
        return block_files.write_export(record, path, epoch, remove_amp_cast, format)

    def __repr__(self) -> str:
        return super().__repr__()


def convert_hybrid_block(
    block: Any,
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    ctx: Any = None,
    cast_optional_params: bool = False,
    device: Any = None,
    cast_params_offline: bool | None = None,
) -> SymbolBlock:
    """A copy of a hybridized network that computes in mixed precision.

    Parameters
    ----------
    block : HybridBlock
        Hybridized, and called once; it is not changed, and shares no parameters with the copy.
    target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
        As for `convert_symbol`.
    ctx, device : Context or list of Context, optional
        Where the copy is; by default where the block is.
    cast_optional_params, cast_params_offline : bool
        Whether parameters that are only used in the low precision are kept in it: half the memory, and no
        casts in a call. To train the copy, leave it False.

    Returns
    -------
    SymbolBlock
        Inputs and outputs have the types they had. ``export`` writes a float32 model unless it is called
        with ``remove_amp_cast=False``.

    Raises
    ------
    RuntimeError
        If the block was not called yet.
    AMPError
        For an unknown type, operator or node, or an operator in two lists.
    """
    if not isinstance(block, HybridBlock):
        raise TypeError(f"convert_hybrid_block takes a HybridBlock; received {type(block).__name__}")
    policy = policy_of(
        target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names or ()
    )
    record = _record_of(block)
    parameters = {node.name: parameter for node, parameter in record.parameters}
    constants = {node.name: array for node, array in record.captured}
    entries = _converted(record.outputs, policy, _types_of({**parameters, **constants}))
    chosen: set[str] = set()
    if _offline(cast_optional_params, cast_params_offline):
        entries, chosen = cast_parameters(entries, parameters, policy.target)
    context = ctx if ctx is not None else device
    name = dtypes.to_name(policy.target)
    values = {key: _twin(p, name if key in chosen else None, context) for key, p in parameters.items()}
    for key, array in constants.items():
        values[key] = Parameter(key, "null", array.shape, array.dtype, differentiable=False)
        values[key]._load_init(array, context if context is not None else array.context)
    return _assembled(record, entries, values, chosen, block)


def _assembled(
    record: Any, entries: list[Entry], values: dict[str, Any], chosen: set[str], block: Any
) -> SymbolBlock:
    cls = kinds.np_symbol if record.classes and record.classes[0] is kinds.np else kinds.symbol
    by_name = {node.name: node for node in topological(entries) if node.op is None}
    names = [node.name for node in record.inputs]
    inputs = [cls._of([Entry(by_name.get(name) or Node(None, name), 0)]) for name in names]
    converted = _Converted([cls._of([entry]) for entry in entries], inputs, values)
    converted.__dict__["_in_structure"] = record.in_structure
    converted.__dict__["_out_structure"] = record.out_structure
    converted.__dict__["_cast"] = frozenset(chosen)
    if block._active:
        converted.hybridize()
    return converted


def _record_of(block: Any) -> Any:
    """The block's graph in predict mode, in the types that it has without mixed precision."""
    if isinstance(block, SymbolBlock) and not block._flags.get("backend_chain"):
        found = block._as_recorded()
        return SimpleNamespace(**vars(found), inputs=block._input_nodes)
    with _full_precision():
        return block._graph_cache().for_export()


@contextmanager
def _full_precision() -> Iterator[None]:
    before, state.amp = state.amp, None
    state.update()
    try:
        yield
    finally:
        state.amp = before
        state.update()


def _twin(parameter: Any, dtype: str | None = None, ctx: Any = None) -> Parameter:
    """A parameter with the same value and settings, of another type if one is given."""
    twin = Parameter(
        parameter.name,
        parameter.grad_req,
        parameter.shape,
        dtype or parameter.dtype,
        parameter.lr_mult,
        parameter.wd_mult,
        parameter.init,
        differentiable=parameter._differentiable,
    )
    twin._structural_name = parameter._structural_name
    value = block_files._reduced(parameter)
    twin._load_init(value.astype(dtype) if dtype else value, ctx or parameter.list_ctx())
    return twin
