"""A small network as one native function: compiled in the background, checked, measured, and only then used.

Plans of ``static_shape=True`` are offered here. The function takes the place of the plan's second program, so
that weights are packed, once for each version of the parameters, as for any plan.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import MXNetError
from ...graph.node import Entry
from ...ops.internal import InternalOp, Slot, constant_op
from ...ops.opdef import Spec
from ...passes import Settings, skipped
from ...passes.rewrite import make
from ..plan import Plan
from ..tuning import Tuner
from . import background, compiler
from .loader import MOST_ADDRESSES, Run, runtime_now
from .outputs import maker
from .source import Generated, Piece, Unsuited, generate

__all__ = ["NativePlan", "offer"]

# Graphs with more nodes or numbers of parameters are no small networks, and not looked at.
_MOST_NODES, _MOST_NUMBERS = 100, 2_000_000
# With more multiplications than this, other threads of Python may run meanwhile.
_LONG_WORK = 20_000
# Calls in one run of a measurement, and seconds that are enough for one: calls of the program wait meanwhile.
_CALLS, _ENOUGH = 10, 2e-4
# How much a value may differ: of itself, and of the largest one.
_RELATIVE, _OF_LARGEST = 1e-4, 1e-5
# What is added to parameters for a check, at most.
_AWAY_FROM_ZERO = 0.05
_NATIVE, _OTHER = "native", "kernels"


def _pack(*constants: Tensor, pieces: tuple[Piece, ...], size: int) -> Tensor:
    """All weights of a function in one piece of memory."""
    # Neither type nor device is left to what the program made torch's default.
    packed = torch.zeros(size, dtype=torch.float32, device="cpu")
    for piece, constant in zip(pieces, constants, strict=True):
        piece.pack(constant, packed)
    return packed


PACK = constant_op("pack_native", _pack, "pieces", "size")


class NativePlan(Plan):
    """A plan whose second program is one native function.

    Raises
    ------
    MXNetError
        If the graph is not suited, no compiler can be had, or other kernels are known to be faster.
    """

    def _kernels(self, entries: list[Entry], settings: Settings, tuner: Tuner | None) -> list[Entry]:
        threads = torch.get_num_threads()
        try:
            generated = generate(entries, settings, threads)
        except Unsuited as error:
            raise MXNetError(str(error)) from error
        digest = hashlib.sha256(generated.source.encode()).hexdigest()[:24]
        self.key = f"small network of {len(entries)} outputs, {digest}"
        known = Tuner().known(self.key)
        addresses = len(generated.inputs) + 1 + len(entries)
        runtime = runtime_now()
        if known == _OTHER or runtime is None or addresses > MOST_ADDRESSES:
            raise MXNetError("other kernels are faster, or native code cannot be had")
        self.library = compiler.library(generated.source)
        if self.library is None:
            raise MXNetError("the native function was not compiled")
        function = ctypes.cast(self.library.regluon_run, ctypes.c_void_p).value
        assert function is not None
        sizes = (addresses, generated.batch, generated.block, generated.work > _LONG_WORK)
        return _node_of(generated, entries, runtime.generated(function, *sizes))


def _node_of(generated: Generated, entries: Sequence[Entry], run: Run) -> list[Entry]:
    """The function as a node of the graph, with its weights."""
    like = entries[0].node
    attrs = {"pieces": generated.pieces, "size": generated.weights}
    specs = [Spec((generated.weights,), torch.float32)]
    operands = list(generated.inputs)
    if generated.constants:
        operands.append(make(PACK, like, generated.constants, attrs, specs, f"{like.name}_weights"))
    outputs = [maker(tuple(e.spec.shape), e.spec.dtype) for e in entries if e.spec is not None]
    several = generated.batch > generated.block
    function = _caller(run, len(generated.inputs), bool(generated.constants), outputs, several)
    slots = [Slot(i) for i in range(len(operands))]
    op = InternalOp("native", function, arguments=slots, outputs=len(entries))
    made = make(op, like, operands, {}, [entry.spec for entry in entries])  # type: ignore[misc]
    made.node.covers = tuple(name for node in generated.nodes for name in node.recorded)
    return [Entry(made.node, index) for index in range(len(entries))]


def _caller(
    run: Run, inputs: int, weighted: bool, outputs: list[Callable[[], Tensor]], several: bool
) -> Callable[..., Any]:
    """The function of tensors: inputs, then the packed weights if there are any."""
    threads = torch.get_num_threads if several else _one
    if (inputs, weighted, len(outputs)) == (1, True, 1):
        (output,) = outputs

        def one(x: Tensor, weights: Tensor) -> Tensor:
            x, y = x.contiguous(), output()
            run(threads(), x.data_ptr(), weights.data_ptr(), y.data_ptr())
            return y

        return one

    def call(*tensors: Tensor) -> Any:
        held, made = [tensor.contiguous() for tensor in tensors], [output() for output in outputs]
        addresses = [tensor.data_ptr() for tensor in held]
        run(threads(), *addresses, *(() if weighted else (0,)), *(tensor.data_ptr() for tensor in made))
        return made[0] if len(made) == 1 else tuple(made)

    return call


def _one() -> int:
    return 1


# Offering ----------------------------------------------------------------------


def offer(plan: Any, tensors: Sequence[Tensor], owner: Any, take: Callable[[Any, Plan, Plan], None]) -> None:
    """Try, in the background, whether a plan is faster as a native function.

    ``take(owner, plan, better)`` is called with one that is; nothing happens once ``owner`` is gone.
    """
    if type(plan) is not Plan or compiler.compiler() is None or not _is_small(plan, tensors) or skipped():
        return
    alive = weakref.ref(owner)
    threads = torch.get_num_threads()
    given = [tensor.detach() for tensor in tensors]

    def job() -> None:
        if alive() is None or torch.get_num_threads() != threads:
            return
        with torch.no_grad():
            better = _better(plan, given)
        owner = alive()
        if better is not None and owner is not None:
            take(owner, plan, better)

    background.submit(job)


def _is_small(plan: Plan, tensors: Sequence[Tensor]) -> bool:
    if plan.general.training or plan.general.recording or len(plan.general.nodes) > _MOST_NODES:
        return False
    if any(tensor.dtype is not torch.float32 or tensor.device.type != "cpu" for tensor in tensors):
        return False
    return sum(tensor.numel() for tensor in tensors) <= _MOST_NUMBERS


def _better(plan: Plan, tensors: list[Tensor]) -> Plan | None:
    """A native plan that gives the same values as ``plan``, and sooner."""
    try:
        native = NativePlan(plan.general, plan.count, tensors)
    except MXNetError:
        return None
    # Draws of its own: those of the program stay as they are.
    generator = torch.Generator().manual_seed(0)
    # Parameters of its own, which nobody writes to meanwhile, and of which none is zero, as new biases are.
    parameters = [
        tensor + _random(torch.rand, tensor, generator) * _AWAY_FROM_ZERO for tensor in tensors[plan.count :]
    ]
    old, new = _Copy(plan, parameters), _Copy(native, parameters)
    inputs = [_random(torch.randn, tensor, generator) for tensor in tensors[: plan.count]]
    for scaled in (inputs, [10.0 * tensor for tensor in inputs]):
        if not all(map(_is_close, new(scaled), old(scaled))):
            return None
    calls = max(1, min(_CALLS, int(_ENOUGH / _seconds(old, inputs))))
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        _OTHER: lambda: functools.partial(_repeat, old, inputs, calls),
        _NATIVE: lambda: functools.partial(_repeat, new, inputs, calls),
    }
    tuner = Tuner()
    fastest = tuner.choose(native.key, ways)
    tuner.save()
    return native if fastest == _NATIVE else None


class _Copy:
    """A plan's second program with parameters of its own: the plan itself remembers nothing of them."""

    def __init__(self, plan: Plan, parameters: Sequence[Tensor]) -> None:
        direct, made = plan.values_from(parameters)
        self._function, self._rest = plan.program.function, (*direct, *made)

    def __call__(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self._function(0, *inputs, *self._rest)  # type: ignore[no-any-return]


def _random(draw: Callable[..., Tensor], like: Tensor, generator: torch.Generator) -> Tensor:
    return draw(like.shape, generator=generator, dtype=torch.float32, device="cpu")


def _seconds(plan: _Copy, inputs: Sequence[Tensor]) -> float:
    begin = time.perf_counter()
    plan(inputs)
    return time.perf_counter() - begin


def _repeat(plan: _Copy, inputs: Sequence[Tensor], calls: int) -> None:
    for _ in range(calls):
        plan(inputs)


def _is_close(found: Tensor, expected: Tensor) -> bool:
    largest = float(expected.abs().max())
    same = found.shape == expected.shape and found.stride() == expected.stride()
    # Everything would be close to an infinite value.
    return (
        same
        and math.isfinite(largest)
        and torch.allclose(found, expected, rtol=_RELATIVE, atol=_OF_LARGEST * largest)
    )
