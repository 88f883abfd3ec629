"""Checks of whole networks: on several devices and types, hybridized or not, and of optimizers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from .. import autograd
from .. import ndarray as nd
from ..array import NDArray
from .comparing import assert_almost_equal, compare_ndarray_tuple
from .places import default_context
from .samples import rand_ndarray
from .tolerances import as_numpy, default_atols, default_rtols

__all__ = ["check_consistency", "check_gluon_hybridize_consistency", "check_speed", "compare_optimizer"]


def _executors(symbols: Sequence[Any], ctx_list: Sequence[Mapping[str, Any]], grad_req: Any) -> list[Any]:
    return [
        symbol.simple_bind(grad_req=grad_req, **settings)
        for symbol, settings in zip(symbols, ctx_list, strict=True)
    ]


def _fill(
    executors: Sequence[Any], arg_params: Any, aux_params: Any, scale: float, uniform: bool, rand_type: Any
) -> None:
    """The same values in all executors."""
    given = dict(arg_params or {})
    for name, array in executors[0].arg_dict.items():
        if name not in given:
            drawn = numpy.random.uniform if uniform else numpy.random.normal
            bounds = {"low": -0.92 * scale, "high": 0.92 * scale} if uniform else {"scale": scale}
            given[name] = drawn(size=array.shape, **bounds).astype(rand_type)
    for executor in executors:
        for name, array in executor.arg_dict.items():
            array[:] = as_numpy(given[name]).astype(as_numpy(array).dtype)
        for name, array in executor.aux_dict.items():
            array[:] = 0 if aux_params is None or name not in aux_params else as_numpy(aux_params[name])
        for array in executor.grad_dict.values():
            if array is not None:
                array[:] = 0


def _results(executor: Any, names: Sequence[str], with_gradients: bool) -> dict[str, NDArray]:
    """Outputs under the given names, and gradients."""
    found = dict(zip(names, executor.outputs, strict=True))
    if with_gradients:
        found.update((name, array) for name, array in executor.grad_dict.items() if array is not None)
    return found


def _compare(
    executors: Sequence[Any],
    best: int,
    names: Sequence[str],
    wanted: Mapping[str, Any],
    tolerances: tuple[Any, Any],
    with_gradients: bool,
    equal_nan: bool,
    raise_on_err: bool,
) -> None:
    for number, executor in enumerate(executors):
        if number == best:
            continue
        for name, array in _results(executor, names, with_gradients).items():
            value = as_numpy(wanted[name]).astype(as_numpy(array).dtype)
            labels = (f"executor {number}: {name}", f"executor {best}: {name}")
            try:
                assert_almost_equal(array, value, *tolerances, labels, equal_nan)
            except AssertionError as error:
                if raise_on_err:
                    raise
                print(error)


def check_consistency(
    sym: Any,
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: Any = None,
    aux_params: Any = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: Any = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = numpy.float64,
) -> dict[str, NDArray]:
    """Refuse a graph whose results differ between devices or types.

    Parameters
    ----------
    sym : Symbol or list of Symbol
        The graph, or one for each place, with the same arguments.
    ctx_list : list of dict
        For each place the arguments of `simple_bind`: ``ctx``, shapes by name, ``type_dict``.
    scale : float
        Of the random arguments.
    grad_req : str, list or dict
        Requests for gradients; "null" checks the outputs only.
    arg_params, aux_params : dict, optional
        Values that are not drawn.
    rtol, atol : float or dict, optional
        Tolerances; those of the less exact type by default.
    raise_on_err : bool
        Raise at a difference, or print it.
    ground_truth : dict, optional
        The right results; those of the most exact type by default.
    equal_nan : bool
        Whether NaN equals NaN.
    use_uniform : bool
        Draw uniform instead of normal numbers.
    rand_type : dtype
        Type that arguments are drawn in.

    Returns
    -------
    dict of NDArray
        The right results by name.

    Raises
    ------
    AssertionError
        At a difference.
    ValueError
        With fewer than two places.
    """
    if len(ctx_list) < 2:
        raise ValueError(f"check_consistency compares two places or more; received {len(ctx_list)}")
    symbols = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    executors = _executors(symbols, ctx_list, grad_req)
    _fill(executors, arg_params, aux_params, scale, use_uniform, rand_type)
    tolerances = (
        default_rtols() if rtol is None else rtol,
        default_atols() if atol is None else atol,
    )
    sizes = [numpy.dtype(as_numpy(executor.outputs[0]).dtype).itemsize for executor in executors]
    best, names = int(numpy.argmax(sizes)), symbols[0].list_outputs()
    for training in (False, True) if grad_req != "null" else (False,):
        for executor in executors:
            outputs = executor.forward(is_train=training)
            if training:
                executor.backward(outputs)
        wanted = _results(executors[best], names, training) if ground_truth is None else ground_truth
        _compare(executors, best, names, wanted, tolerances, training, equal_nan, raise_on_err)
    return dict(wanted)


def check_gluon_hybridize_consistency(
    net_builder: Callable[[], Any],
    data_l: Sequence[NDArray],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Refuse a network whose outputs or gradients change when it is hybridized.

    Parameters
    ----------
    net_builder : callable
        Makes the network, with the same parameters every time it is made.
    data_l : list of arrays
        The inputs.
    numpy_func : callable, optional
        The network in NumPy.
    test_grad : bool
        Whether gradients of the inputs and parameters are compared.
    rtol, atol : float
        Tolerances.

    Raises
    ------
    AssertionError
        At a difference.
    """
    first: dict[str, Any] = {}
    results: list[tuple[Any, list[Any]]] = []
    for hybridize in (False, True):
        net = net_builder()
        net.initialize()
        if hybridize:
            net.hybridize()
        inputs = [data.copy() for data in data_l]
        net(*inputs)
        for place, parameter in enumerate(net.collect_params().values()):
            parameter.set_data(first.setdefault(str(place), parameter.data().copy()))
        if not test_grad:
            results.append((net(*inputs), []))
            continue
        for array in inputs:
            array.attach_grad()
        with autograd.record():
            output = net(*inputs)
        output.backward()
        parameters = [p for p in net.collect_params().values() if p.grad_req != "null"]
        results.append((output, [array.grad for array in inputs] + [p.grad() for p in parameters]))
    (plain, plain_gradients), (hybrid, hybrid_gradients) = results
    assert_almost_equal(plain, hybrid, rtol, atol, ("imperative", "hybridized"))
    for number, pair in enumerate(zip(plain_gradients, hybrid_gradients, strict=True)):
        labels = (f"imperative gradient {number}", f"hybridized gradient {number}")
        assert_almost_equal(*pair, rtol, atol, labels)
    if numpy_func is not None:
        assert_almost_equal(plain, numpy_func(*[as_numpy(data) for data in data_l]), rtol, atol)


def check_speed(
    sym: Any,
    location: Any = None,
    ctx: Any = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Seconds that a graph takes for a run, on average over ``N``.

    Parameters
    ----------
    location : dict of arrays, optional
        The arguments; random ones of the shapes given as keywords by default.
    grad_req : str, optional
        "write" by default.
    typ : {"whole", "forward"}
        With gradients or without.

    Raises
    ------
    ValueError
        For another ``typ``.
    """
    if typ not in ("whole", "forward"):
        raise ValueError(f"typ can only be 'whole' or 'forward'; received {typ!r}")
    ctx = default_context() if ctx is None else ctx
    if location is not None:
        kwargs = {name: value.shape for name, value in location.items()}
    executor = sym.simple_bind(ctx=ctx, grad_req=grad_req or "write", **kwargs)
    for name, array in executor.arg_dict.items():
        array[:] = numpy.random.normal(size=array.shape) if location is None else as_numpy(location[name])
    whole = typ == "whole"

    def once() -> None:
        outputs = executor.forward(is_train=whole)
        if whole:
            executor.backward(outputs)
        nd.waitall()

    once()
    begin = time.perf_counter()
    for _ in range(N):
        once()
    return (time.perf_counter() - begin) / N


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shapes: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Refuse two optimizers that change weights, or their states, in different ways.

    Parameters
    ----------
    opt1, opt2 : Optimizer
        The optimizers.
    shapes : tuple of int or list of tuples
        Shapes of the weights; one shape makes ``ntensors`` of them.
    dtype : dtype
        Their type.
    w_stype, g_stype : str
        Storages of weights and gradients.
    rtol, atol : float
        Tolerances.
    compare_states : bool
        Whether states are compared too.

    Raises
    ------
    AssertionError
        At a difference.
    """
    if not isinstance(shapes, list):
        shapes = [shapes] * ntensors
    drawn = [
        tuple(rand_ndarray(shape, stype, density=1, dtype=dtype) for stype in (w_stype, g_stype))
        for shape in shapes
    ]
    after = []
    for optimizer in (opt1, opt2):
        weights = [weight.copy() for weight, _ in drawn]
        states = [optimizer.create_state_multi_precision(i, w) for i, w in enumerate(weights)]
        for place, (weight, (_, gradient)) in enumerate(zip(weights, drawn, strict=True)):
            optimizer.update_multi_precision(place, weight, gradient.copy(), states[place])
        after.append((weights, states))
    (weights1, states1), (weights2, states2) = after
    for one, other in zip(weights1, weights2, strict=True):
        assert_almost_equal(one, other, rtol, atol)
    if compare_states:
        compare_ndarray_tuple(states1, states2, rtol, atol)
