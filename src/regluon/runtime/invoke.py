"""The single way an operator runs: eagerly on tensors, recorded for autograd, or as a node of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes, rng
from ..base.errors import MXNetError
from ..ops.failure import reraise
from ..ops.opdef import OpDef, run
from .casting import cast_arrays
from .gradient import owned, run_recorded
from .handles import kinds
from .state import State, state
from .steps import note

__all__ = ["invoke", "result_class"]


def result_class(arrays: Sequence[Any]) -> Any:
    """The class of an operator's result: Symbol if an input is one, np kind if an input is of np kind."""
    symbolic = np_kind = False
    for array in arrays:
        cls = type(array)
        if cls is kinds.np:
            np_kind = True
        elif cls is kinds.symbol:
            symbolic = True
        elif cls is kinds.np_symbol:
            symbolic = np_kind = True
    if symbolic:
        return kinds.np_symbol if np_kind else kinds.symbol
    return kinds.np if np_kind else kinds.nd


def _as_array(value: Any, like: Any, definition: OpDef) -> Any:
    """An array for an input that is none: a NumPy array, a torch tensor, a number or a nested list."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
    else:
        try:
            host = numpy.asarray(value)
            if isinstance(value, (list, tuple)) or host.ndim == 0:
                wanted = dtypes.to_numpy(like.dtype) if like is not None else numpy.float32
                host = host.astype(wanted if host.dtype.kind != "b" else host.dtype)
            tensor = dtypes.from_numpy(host)
        except (TypeError, ValueError, MXNetError) as error:
            raise TypeError(
                f"operator {definition.name}: an input must be an array; received {type(value).__name__}"
            ) from error
    return kinds.nd._wrap(tensor, None if like is None else like._ctx)


def _inputs(definition: OpDef, arrays: Sequence[Any]) -> list[Any] | None:
    """The inputs as arrays or Symbols; None if one of them is sparse."""
    result = []
    like = None
    known = (kinds.nd, kinds.np, kinds.symbol, kinds.np_symbol, type(None))
    for array in arrays:
        if type(array) in (kinds.nd, kinds.np):
            like = array
            break
    for array in arrays:
        if type(array) in known:
            result.append(array)
        elif isinstance(array, kinds.sparse):
            return None
        else:
            result.append(_as_array(array, like, definition))
    return result


def invoke(
    definition: OpDef,
    arrays: Sequence[Any],
    attrs: dict[str, Any],
    out: Any = None,
    name: str | None = None,
    cls: Any = None,
    user: dict[str, str] | None = None,
    hint: str | None = None,
) -> Any:
    """Run ``definition``; ``cls`` forces the class of the results (for namespaces of one kind).

    ``hint`` is what a node of a Symbol is called that has no ``name``; by default after the operator.

    Returns one value, or a list where the operator shows several outputs.
    """
    prepared = _inputs(definition, arrays)
    if prepared is None:
        return kinds.sparse_dispatch(definition, arrays, attrs, out, cls, name)
    given, arrays = arrays, prepared
    if cls is None:
        cls = result_class(arrays)
    elif cls is kinds.np:
        found = result_class(arrays)
        if found is kinds.symbol or found is kinds.np_symbol:
            cls = kinds.np_symbol
    counted = definition.num_args_key
    if counted is not None and counted in definition.parameters and counted not in attrs:
        attrs = {**attrs, counted: len(arrays)}
    if state.tracer is not None:
        return state.tracer.invoke(
            definition, arrays, definition_attrs(definition, attrs), cls, name, user, out, hint
        )
    if cls is kinds.symbol or cls is kinds.np_symbol:
        _refuse_values(definition, given, arrays)
        return cls._compose(definition, arrays, attrs, name, user, hint)
    full = definition.parse(attrs)
    _check_count(definition, arrays, full)
    if state.amp is not None:
        arrays = cast_arrays(definition, arrays, full, _run)
    outputs = _run(definition, arrays, full, cls)
    if out is not None:
        return _write_out(definition, outputs, out)
    return outputs[0] if len(outputs) == 1 else outputs


def _refuse_values(definition: OpDef, given: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Refuse numbers and lists where an operator wants Symbols."""
    for place, (value, array) in enumerate(zip(given, arrays, strict=True)):
        if value is not array:
            fixed = place < len(definition.inputs) and not definition.variadic
            label = definition.inputs[place] if fixed else f"arg{place}"
            raise TypeError(
                f"operator {definition.name}: argument {label} must be a Symbol; received {value!r} of type "
                f"{type(value).__name__}. Write a number with Python's operators (symbol + 1), or make it a "
                "Symbol with mx.sym.full(shape, value)."
            )


def definition_attrs(definition: OpDef, attrs: dict[str, Any]) -> dict[str, Any]:
    """The given attributes, typed and checked, without the defaults."""
    if not attrs and not definition.required:
        return {}
    full = definition.parse(attrs)
    return {key: full[key] for key in attrs if key in full}


def _check_count(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> None:
    if definition.variadic:
        return
    least = len(definition.inputs) - len(definition.optional)
    if definition.active is not None:
        least = min(least, len(definition.input_names(attrs)))
    present = sum(array is not None for array in arrays)
    if len(arrays) > len(definition.inputs) or present < least:
        raise MXNetError(
            f"operator {definition.name} takes the inputs {', '.join(definition.inputs) or 'none'}; "
            f"received {present} array(s)"
        )


def _context(arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    for array in arrays:
        if array is not None:
            return array._ctx
    text = attrs.get("ctx")
    if text is None and "ctx" not in attrs:
        return None
    from ..base.device import device

    return device(text or None)


def _run(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any], cls: Any) -> list[Any]:
    context = _context(arrays, attrs)
    profiler = State.profiler
    begin = 0 if profiler is None else profiler.now()
    key = rng.draw() if definition.uses_rng else None
    results: Any
    if state.recording:
        results = run_recorded(definition, arrays, attrs, state.training, key)
    else:
        tensors = [None if array is None else array._t for array in arrays]
        try:
            results = run(definition, tensors, attrs, state.training, key)
        except Exception as error:
            _check_values(arrays)
            reraise(definition, error, tensors)
        if type(results) is not tuple and not isinstance(results, list):
            results = (results,)
        if not definition.mutates:
            results = [owned(tensor, tensors) for tensor in results]
        results = [(tensor, None) for tensor in results]
    visible = definition.number_visible(attrs)
    made = []
    for value, gradient in results[:visible]:
        array = cls._wrap(value, context)
        if gradient is not None:
            array._g = gradient
        made.append(array)
    if state.recording:
        note(definition, attrs, arrays, made)
    if profiler is not None:
        profiler.operator(definition.name, begin, arrays, made)
    return made


def _check_values(arrays: Sequence[Any]) -> None:
    """Refuse arrays that stood for values while a block was recorded."""
    for array in arrays:
        if array is not None and array._t is None:
            array._value("an operator")


def _write_out(definition: OpDef, outputs: list[Any], out: Any) -> Any:
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) > len(outputs) and len(targets) == 1:
        raise MXNetError(f"operator {definition.name} gives no output to write to out=")
    for target, value in zip(targets, outputs, strict=False):
        target._assign_result(value)
    return out
