"""Checks of a Symbol's outputs and gradients, against given values and finite differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from .. import ndarray as nd
from ..array import NDArray
from .comparing import assert_almost_equal
from .places import default_context
from .tolerances import as_numpy, default_numeric_eps

__all__ = [
    "check_numeric_gradient",
    "check_symbolic_backward",
    "check_symbolic_forward",
    "numeric_grad",
    "same_symbol_structure",
    "simple_forward",
]


def _arrays(what: str, names: Sequence[str], values: Any, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    """Values in the order of names, or by name, as arrays by name."""
    if isinstance(values, Mapping):
        missing, extra = set(names) - set(values), set(values) - set(names)
        if missing or extra:
            raise ValueError(
                f"{what} needs a value for each of {', '.join(names)}; received {', '.join(map(str, values))}"
            )
        named = {name: values[name] for name in names}
    else:
        if len(values) != len(names):
            raise ValueError(f"{what} needs {len(names)} values ({', '.join(names)}); received {len(values)}")
        named = dict(zip(names, values, strict=True))
    return {
        name: value.as_in_context(ctx)
        if isinstance(value, NDArray)
        else nd.array(value, ctx=ctx, dtype=dtype)
        for name, value in named.items()
    }


def _auxiliary(sym: Any, values: Any, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    return _arrays("aux_states", sym.list_auxiliary_states(), {} if values is None else values, ctx, dtype)


def simple_forward(sym: Any, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """Outputs for inputs given by name, as NumPy arrays; one alone is no list."""
    ctx = default_context() if ctx is None else ctx
    arrays = {name: nd.array(value, ctx=ctx) for name, value in inputs.items()}
    executor = sym.bind(ctx, args=arrays)
    outputs = [output.asnumpy() for output in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(
    sym: Any,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = numpy.float32,
) -> list[NDArray]:
    """Refuse outputs that are not the expected ones, in predict mode.

    Parameters
    ----------
    sym : Symbol
        The graph.
    location : list or dict of arrays
        The arguments, in order or by name.
    expected : list or dict of arrays
        The outputs, in order or by name.
    rtol, atol, equal_nan
        See `assert_almost_equal`.
    aux_states : list or dict of arrays, optional
        The auxiliary states.
    ctx : Context, optional
        Where the graph runs.
    dtype : dtype
        Type of arguments that are given as NumPy arrays.

    Returns
    -------
    list of NDArray
        The outputs.

    Raises
    ------
    AssertionError
        When an output differs.
    ValueError
        When arguments are missing.
    """
    ctx = default_context() if ctx is None else ctx
    names = sym.list_outputs()
    wanted = [expected[name] for name in names] if isinstance(expected, Mapping) else expected
    executor = sym.bind(
        ctx,
        args=_arrays("location", sym.list_arguments(), location, ctx, dtype),
        aux_states=_auxiliary(sym, aux_states, ctx, dtype),
    )
    outputs: list[NDArray] = executor.forward(is_train=False)
    for name, value, output in zip(names, wanted, outputs, strict=True):
        assert_almost_equal(value, output, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan)
    return outputs


def _requests(grad_req: Any, names: Sequence[str]) -> dict[str, str]:
    if isinstance(grad_req, str):
        return dict.fromkeys(names, grad_req)
    if isinstance(grad_req, Mapping):
        return {name: grad_req.get(name, "null") for name in names}
    return dict(zip(names, grad_req, strict=True))


def check_symbolic_backward(
    sym: Any,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Any = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: Any = numpy.float32,
) -> dict[str, NDArray]:
    """Refuse gradients that are not the expected ones, for each of the requests write, add and null.

    Parameters
    ----------
    out_grads : list or dict of arrays, or None
        Gradients of the outputs.
    expected : list or dict of arrays
        Gradients of the arguments.
    grad_req : str, list or dict
        The requests.
    grad_stypes : dict, optional
        Accepted: gradients of graphs are dense.
    sym, location, rtol, atol, aux_states, ctx, equal_nan, dtype
        See `check_symbolic_forward`.

    Returns
    -------
    dict of NDArray
        The gradients by name.

    Raises
    ------
    AssertionError
        When a gradient differs.
    """
    ctx = default_context() if ctx is None else ctx
    names = sym.list_arguments()
    arguments = _arrays("location", names, location, ctx, dtype)
    wanted = dict(expected) if isinstance(expected, Mapping) else dict(zip(names, expected, strict=True))
    requests = _requests(grad_req, names)
    before = {name: numpy.random.normal(size=arguments[name].shape) for name in wanted}
    gradients = {name: nd.array(before[name], ctx=ctx, dtype=arguments[name].dtype) for name in wanted}
    executor = sym.bind(ctx, arguments, gradients, requests, _auxiliary(sym, aux_states, ctx, dtype))
    outputs = executor.forward(is_train=True)
    if isinstance(out_grads, Mapping):
        out_grads = [out_grads[name] for name in sym.list_outputs()]
    heads = [
        head if isinstance(head, NDArray) or head is None else nd.array(head, ctx=ctx, dtype=output.dtype)
        for head, output in zip(out_grads or [None] * len(outputs), outputs, strict=True)
    ]
    executor.backward(heads)
    for name, value in wanted.items():
        found, kept = gradients[name].asnumpy(), before[name].astype(gradients[name].asnumpy().dtype)
        labels = (f"EXPECTED_{name}", f"BACKWARD_{name}")
        if requests[name] == "null":
            assert_almost_equal(kept, found, rtol, atol, labels, equal_nan)
        elif requests[name] == "add":
            assert_almost_equal(as_numpy(value), found - kept, rtol, atol, labels, equal_nan)
        else:
            assert_almost_equal(value, found, rtol, atol, labels, equal_nan)
    return gradients


# Finite differences ------------------------------------------------------------------------------


def numeric_grad(
    executor: Any,
    location: Mapping[str, Any],
    aux_states: Mapping[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = numpy.float32,
) -> dict[str, numpy.ndarray[Any, Any]]:
    """Gradients of the sum of all outputs by central differences.

    Parameters
    ----------
    executor : Executor
        The bound graph; its arguments are as before afterwards.
    location : dict
        The arguments for which gradients are wanted, with the values where.
    aux_states : dict, optional
        Auxiliary states, which every forward begins with.
    eps : float
        The whole step.
    use_forward_train : bool
        Whether the graph runs in train mode.
    dtype : dtype
        Type of the results.
    """
    states = {name: as_numpy(value).copy() for name, value in (aux_states or {}).items()}

    def value() -> float:
        for name, state in states.items():
            executor.aux_dict[name][:] = state
        outputs = executor.forward(is_train=use_forward_train)
        return float(sum(output.asnumpy().astype("float64").sum() for output in outputs))

    result = {}
    for name, start in location.items():
        bound, flat = executor.arg_dict[name], as_numpy(start).reshape(-1)
        found = numpy.zeros(flat.shape, dtype="float64")
        for place in range(flat.size if flat.dtype.kind == "f" else 0):
            sides = []
            for step in (eps / 2, -eps / 2):
                moved = flat.copy()
                moved[place] += step
                bound[:] = moved.reshape(bound.shape)
                sides.append((value(), float(moved[place])))
            (above, right), (below, left) = sides
            found[place] = (above - below) / (right - left)
        bound[:] = flat.reshape(bound.shape)
        result[name] = found.reshape(bound.shape).astype(dtype)
    return result


def check_numeric_gradient(
    sym: Any,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Any = None,
    grad_stype_dict: Any = None,
    dtype: Any = numpy.float32,
) -> None:
    """Refuse gradients that differ from central differences, on a random projection of the outputs.

    Parameters
    ----------
    location : list or dict of arrays
        The arguments.
    numeric_eps : float, optional
        The step; that of the type by default.
    grad_nodes : list or dict, optional
        The arguments that are checked, or their requests by name; all by default.
    use_forward_train : bool
        Whether differences are taken in train mode.
    grad_stype_dict : dict, optional
        Accepted: gradients of graphs are dense.
    sym, aux_states, rtol, atol, ctx, dtype
        See `check_symbolic_forward`.

    Raises
    ------
    AssertionError
        When a gradient differs.
    ValueError
        When arguments are missing.
    """
    from .. import symbol

    ctx = default_context() if ctx is None else ctx
    names = sym.list_arguments()
    arguments = _arrays("location", names, location, ctx, dtype)
    states = _auxiliary(sym, aux_states, ctx, dtype)
    requests = _requests("write" if grad_nodes is None else _nodes(grad_nodes), names)
    eps = default_numeric_eps()[numpy.dtype(dtype)] if numeric_eps is None else numeric_eps
    # The sum of all outputs, each element with a weight of its own.
    shapes = sym.infer_shape(**{name: value.shape for name, value in arguments.items()})[1]
    weights = {f"__random_proj{i}": numpy.random.rand(*shape) + 0.1 for i, shape in enumerate(shapes)}
    parts = [
        symbol.sum(symbol.elemwise_mul(output, symbol.var(name)))
        for output, name in zip(list(sym), weights, strict=True)
    ]
    projected = symbol.Group([symbol.MakeLoss(part) for part in parts])
    bound = {
        **{name: value.copy() for name, value in arguments.items()},
        **{name: nd.array(value, ctx=ctx, dtype=dtype) for name, value in weights.items()},
    }
    checked = [name for name in names if requests[name] != "null"]
    before = {name: numpy.random.normal(size=arguments[name].shape).astype(dtype) for name in checked}
    gradients = {name: nd.array(before[name], ctx=ctx, dtype=dtype) for name in checked}
    own = {name: value.copy() for name, value in states.items()}
    executor = projected.bind(ctx, bound, gradients, {n: requests.get(n, "null") for n in bound}, own)
    executor.forward(is_train=True)
    executor.backward()
    found = {name: gradients[name].asnumpy() for name in checked}
    where = {name: arguments[name].asnumpy() for name in checked}
    numeric = numeric_grad(executor, where, states, eps, use_forward_train, dtype)
    for name in checked:
        value = found[name] - before[name] if requests[name] == "add" else found[name]
        labels = (f"NUMERICAL_{name}", f"BACKWARD_{name}")
        assert_almost_equal(numeric[name], value, rtol, atol, labels)


def _nodes(grad_nodes: Any) -> dict[str, str]:
    return dict(grad_nodes) if isinstance(grad_nodes, Mapping) else dict.fromkeys(grad_nodes, "write")


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Whether two graphs have the same operators, joined in the same way; names do not matter."""
    graphs = [json.loads(sym.tojson()) for sym in (sym1, sym2)]
    first, second = [
        ([(node["op"], [entry[:2] for entry in node["inputs"]]) for node in graph["nodes"]], graph["heads"])
        for graph in graphs
    ]
    return first == second
