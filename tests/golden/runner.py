"""Replay of golden cases on regluon: ``run_case`` gives the list of differences, empty when a case passes.

A case runs in one of three modes: ``eager`` (the call itself), ``program`` (the call is the body of a
hybridized block) and ``json`` (the call is composed into a Symbol, written as JSON, read back and run).
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from load_cases import Case, Statistic, decode

import regluon as mx
from regluon import autograd, ops
from regluon.gluon import HybridBlock, SymbolBlock

MODES = ("eager", "program", "json")
REFUSALS = (mx.base.MXNetError, TypeError, ValueError, IndexError)
# Functions that NumPy computes, as in the originals: no graph can hold them.
ON_HOST = ("i0",)
# Sampled moments of two seeds differ by chance: allow this many standard errors.
STANDARD_ERRORS = 6.0


def missing(case: Case) -> str | None:
    """The operator or function that ``case`` calls and that does not exist here, or None."""
    call = case.call
    if any(kind != "default" for kind in case.input_kinds) and not exists("cast_storage"):
        return "cast_storage"
    if call["api"] == "op":
        return None if exists(call["name"]) else call["name"]
    if call["api"] == "sym_src":
        name = call["expr"].split("(")[0].removeprefix("F.")
        return None if exists(f"mx.nd.{name}") else f"mx.nd.{name}"
    if call["module"] == "method":
        name = f"mx.np.ndarray.{call['func']}"
    elif call["module"] in ("operator", "py"):
        return None
    else:
        name = f"{call['module']}.{call['func']}"
    return None if exists(name) else name


@cache
def exists(name: str) -> bool:
    """Whether an operator name, or a dotted ``mx...`` function name, is there."""
    if not name.startswith("mx."):
        return name in ops.list()
    target: Any = mx
    for part in name.split(".")[1:]:
        target = getattr(target, part, None)
        if target is None:
            return False
    return True


def applies(case: Case, mode: str) -> bool:
    """Whether ``mode`` can hold ``case`` at all."""
    if mode == "eager":
        return True
    if any(kind != "default" for kind in case.input_kinds):
        return False
    if case.kind == "value" and not case.outputs:
        return False  # What gives nothing is no node of a graph.
    if case.call.get("func") in ON_HOST:
        return False
    if any(not isinstance(value, np.ndarray) for value in case.outputs):
        return False  # The call gives Python values: it reads arrays, which no graph can.
    if "out_inputs" in case.call and mode == "json":
        return False  # A graph has no place for out=.
    if case.kind == "error" and case.call["api"] == "py":
        return mode == "program"
    if case.call.get("func", "").endswith("_indices_from"):
        return mode == "program"  # The result depends on the shape alone: the graph has no inputs.
    if case.call.get("func") in ("getitem", "setitem") and any(array.dtype == bool for array in case.inputs):
        return mode == "program"  # An index needs shapes; the shape of a mask's result is data.
    return bool(case.inputs) or mode == "program"


def run_case(case: Case, mode: str = "eager") -> list[str]:
    """Run ``case`` in ``mode``; every difference from the original is one line of the result."""
    if case.seed is not None:
        mx.random.seed(case.seed % 2**31)
    inputs = [_array(case, index) for index in range(len(case.inputs))]
    if case.kind == "error":
        return _expect_refusal(case, mode, inputs)
    asked = [] if "grad_error" in case.raw else [i for i, g in enumerate(case.gradients) if g is not None]
    recording = any(head is not None for head in case.heads) and "grad_error" not in case.raw
    for index in asked:
        inputs[index].attach_grad()
    scope = autograd.record(train_mode=case.training) if recording else _mode_scope(case.training)
    with scope:
        results = _call(case, mode, inputs)
    outputs = _flatten(results)
    # A graph has a list of outputs and no other structure.
    problems = _compare_structure(case, results) if mode != "json" else []
    if case.kind == "distribution":
        return problems + _compare_statistics(case, outputs)
    problems += _compare_outputs(case, outputs)
    if recording and not problems:
        chosen = [(out, head) for out, head in zip(outputs, case.heads, strict=False) if head is not None]
        autograd.backward([out for out, _ in chosen], [_like(case, head) for _, head in chosen])
        for index in asked:
            problems += _compare(case, f"gradient {index}", inputs[index].grad, case.gradients[index])
    if mode != "json":
        for index, value in case.mutated:
            problems += _compare(case, f"input {index} after the call", inputs[index], value)
    return problems


def _mode_scope(training: bool) -> Any:
    return autograd.train_mode() if training else autograd.predict_mode()


def _like(case: Case, value: np.ndarray) -> Any:
    namespace = mx.np if case.array_kind == "np" else mx.nd
    return namespace.array(value, dtype=value.dtype)


def _array(case: Case, index: int) -> Any:
    array = _like(case, case.inputs[index])
    kind = case.input_kinds[index]
    return array if kind == "default" else array.tostype(kind)


def _flatten(results: Any) -> list[Any]:
    if isinstance(results, (list, tuple)):
        return [leaf for item in results for leaf in _flatten(item)]
    return [results]


def _call(case: Case, mode: str, inputs: list[Any]) -> Any:
    body = _body(case)
    if mode == "eager":
        return body(inputs)
    net = _Call(body)
    if mode == "program":
        net.hybridize()
        return net(*inputs)
    # Python code over shapes and types (np.vander, an index array) needs to know them.
    variables = [
        mx.sym.var(f"in{index}", shape=array.shape, dtype=array.dtype) for index, array in enumerate(inputs)
    ]
    if case.array_kind == "np":
        variables = [variable.as_np_ndarray() for variable in variables]
    symbol = net(*variables)
    if isinstance(symbol, (list, tuple)):
        symbol = mx.sym.Group(_flatten(symbol))
    again = mx.sym.fromjson(symbol.tojson(remove_amp_cast=False))
    with warnings.catch_warnings():
        # An input that the call does not use is no node of the graph.
        warnings.simplefilter("ignore")
        used = [index for index in range(len(inputs)) if f"in{index}" in again.list_inputs()]
        if not used:
            return again.eval()
        loaded = SymbolBlock(again, [variables[index] for index in used])
        loaded.hybridize()
        return loaded(*(inputs[index] for index in used))


class _Call(HybridBlock):
    """A block whose forward is one call."""

    def __init__(self, body: Callable[[Sequence[Any]], Any]) -> None:
        super().__init__()
        self._body = body

    def forward(self, *inputs: Any) -> Any:
        return self._body(inputs)


def _body(case: Case) -> Callable[[Sequence[Any]], Any]:
    call = case.call
    if call["api"] == "op":

        def run_operator(inputs: Sequence[Any]) -> Any:
            written = call.get("out_inputs")
            out = None if written is None else [inputs[index] for index in written]
            if out is not None and len(out) == 1:
                out = out[0]
            return ops.invoke(call["name"], list(inputs), dict(case.attributes), out=out)

        return run_operator
    if call["api"] == "sym_src":

        def run_source(inputs: Sequence[Any]) -> Any:
            space = mx.sym if inputs and isinstance(inputs[0], mx.sym.Symbol) else mx.nd
            names = {f"in{index}": array for index, array in enumerate(inputs)}
            return eval(call["expr"], {"F": space, **names})

        return run_source

    def run_function(inputs: Sequence[Any]) -> Any:
        arguments = decode(call["args"], inputs, _dtype)
        keywords = decode(call["kwargs"], inputs, _dtype)
        if call["module"] == "operator":
            return getattr(operator, call["func"])(*arguments, **keywords)
        if call["module"] == "method":
            return getattr(arguments[0], call["func"])(*arguments[1:], **keywords)
        if call["module"] == "py":
            arguments[0][arguments[1]] = arguments[2]
            return arguments[0]
        target: Any = mx
        for part in [*call["module"].split(".")[1:], call["func"]]:
            target = getattr(target, part)
        return target(*arguments, **keywords)

    return run_function


def _dtype(name: str) -> Any:
    return getattr(np, name)


def _expect_refusal(case: Case, mode: str, inputs: list[Any]) -> list[str]:
    try:
        with _mode_scope(case.training):
            for result in _flatten(_call(case, mode, inputs)):
                if hasattr(result, "asnumpy"):
                    result.asnumpy()
    except REFUSALS as error:
        return [] if str(error) else ["the refusal has no text"]
    expected = case.raw["error"]
    return [f"no error, the original raises {expected['type']}: {expected['message'][:100]}"]


def _compare_structure(case: Case, results: Any) -> list[str]:
    if case.structure is None:
        return []
    single = not isinstance(results, (list, tuple))
    if single != (case.structure == "single"):
        return [f"gives {type(results).__name__}, the original a {case.structure}"]
    return []


def _compare_outputs(case: Case, outputs: list[Any]) -> list[str]:
    if len(outputs) != len(case.outputs):
        return [f"{len(outputs)} outputs, the original gives {len(case.outputs)}"]
    problems = []
    for index, (ours, theirs) in enumerate(zip(outputs, case.outputs, strict=True)):
        if theirs is not None:
            problems += _compare(case, f"output {index}", ours, theirs)
    return problems


def _compare(case: Case, what: str, ours: Any, theirs: Any) -> list[str]:
    if not isinstance(theirs, np.ndarray):
        ours = ours.item() if hasattr(ours, "asnumpy") else ours
        return [] if _python_equal(ours, theirs) else [f"{what}: {ours!r} instead of {theirs!r}"]
    if not hasattr(ours, "asnumpy"):
        return [f"{what}: {type(ours).__name__} instead of an array"]
    ours = ours.asnumpy()
    if ours.dtype != theirs.dtype:
        return [f"{what}: dtype {ours.dtype} instead of {theirs.dtype}"]
    if ours.shape != theirs.shape:
        return [f"{what}: shape {ours.shape} instead of {theirs.shape}"]
    wide = np.float64 if theirs.dtype.kind == "f" else theirs.dtype
    left, right = ours.astype(wide), theirs.astype(wide)
    if theirs.dtype.kind == "f":
        near = np.isclose(left, right, case.rtol, case.atol, equal_nan=True)
    else:
        near = left == right
    if near.all():
        return []
    place = tuple(int(i) for i in np.argwhere(~near)[0])
    count = int((~near).sum())
    return [f"{what}: {count} of {near.size} differ, at {place} {left[place]!r} for {right[place]!r}"]


def _python_equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(_python_equal, ours, theirs))
    if isinstance(theirs, (bool, int, float)) and isinstance(ours, (bool, int, float, np.generic)):
        return bool(np.isclose(float(ours), float(theirs), equal_nan=True))
    if isinstance(theirs, str) and isinstance(ours, type) and issubclass(ours, np.generic):
        return np.dtype(ours).name == theirs
    return bool(ours == theirs)


def _compare_statistics(case: Case, outputs: list[Any]) -> list[str]:
    if len(outputs) != len(case.statistics):
        return [f"{len(outputs)} outputs, the original gives {len(case.statistics)}"]
    problems = []
    for index, (ours, expected) in enumerate(zip(outputs, case.statistics, strict=True)):
        problems += _compare_moments(case, f"output {index}", ours.asnumpy(), expected)
    return problems


def _compare_moments(case: Case, what: str, ours: np.ndarray, expected: Statistic) -> list[str]:
    if str(ours.dtype) != expected.dtype:
        return [f"{what}: dtype {ours.dtype} instead of {expected.dtype}"]
    if ours.shape != expected.shape:
        return [f"{what}: shape {ours.shape} instead of {expected.shape}"]
    values = ours.astype(np.float64)
    mean, variance = values.mean(expected.axes), values.var(expected.axes)
    error = STANDARD_ERRORS * np.sqrt(2 * np.maximum(expected.variance, 0) / expected.samples)
    problems = []
    allowed = np.maximum(error, case.rtol * np.abs(expected.mean)) + 1e-6
    if not (np.abs(mean - expected.mean) <= allowed).all():
        problems.append(f"{what}: mean {_short(mean)} instead of {_short(expected.mean)}")
    # The error of a sampled variance comes from the fourth moment.
    fourth = ((values - values.mean(expected.axes, keepdims=True)) ** 4).mean(expected.axes)
    spread = STANDARD_ERRORS * np.sqrt(2 * np.maximum(fourth - variance**2, 0) / expected.samples)
    allowed = np.maximum(spread, case.rtol * expected.variance) + 1e-6
    if not (np.abs(variance - expected.variance) <= allowed).all():
        problems.append(f"{what}: variance {_short(variance)} instead of {_short(expected.variance)}")
    width = expected.maximum.astype(np.float64) - expected.minimum
    low, high = expected.minimum - 2 * width - 1e-6, expected.maximum + 2 * width + 1e-6
    if not ((values.min(expected.axes) >= low) & (values.max(expected.axes) <= high)).all():
        problems.append(f"{what}: values outside of the range of the original")
    return problems


def _short(values: np.ndarray) -> str:
    return np.array2string(np.ravel(values)[:4], precision=4)
