"""CUDA graphs: a program's kernels captured once and launched together at every later call.

A graph works on fixed memory. Inputs are copied into buffers of its own and results are copied out of it, so
that what a call returned stays as it is. Weights are read where they lie; where they lie elsewhere now, the
graph is captured anew.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import seam

__all__ = ["MOST_CAPTURES", "MOST_GRAPHS", "Graphs", "Inspector"]

# As many threads may hold a graph of one plan; more of them run its program.
MOST_GRAPHS = 4
# More captures are not made for one plan: something makes them useless again and again.
MOST_CAPTURES = 16

# A capture waits for the whole device, which another capture at that moment would forbid.
_capturing = threading.Lock()

_COPIES = frozenset({"_to_copy", "copy_", "_copy_from", "to_copy"})
_INDEXED = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"})
_MASKS = (torch.bool, torch.uint8)
# These read a value too, inside of the operator.
_WAITING = frozenset({"_linalg_check_errors"})


class Inspector(TorchDispatchMode):
    """Watches a run for what no CUDA graph can hold; ``reason`` says what was found.

    That is what makes the processor wait for values or decide by them, and what moves values between it and
    the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.reason: str | None = None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if self.reason is None:
            self.reason = self._reason(function, args, result)
        return result

    def _reason(self, function: Any, args: tuple[Any, ...], result: Any) -> str | None:
        name = function.name().split("::")[-1].split(".")[0]
        if name in _INDEXED:
            masked = any(tensor.dtype in _MASKS for tensor in _tensors(args[1]))
            return f"the shape of what {name} does depends on values" if masked else None
        if torch.Tag.dynamic_output_shape in function.tags:
            return f"the output shape of {name} depends on values"
        if torch.Tag.data_dependent_output in function.tags or name in _WAITING:
            return "a value is read from the GPU"
        if name == "lift_fresh":
            return "an array is made from numbers of Python"
        moved = list(_tensors(result)) if name in _COPIES else []
        moved += [tensor for tensor in _tensors(args) if tensor.dim() and tensor.numel()]
        if any(tensor.device != self.device for tensor in moved):
            return f"{name} moves values between devices"
        return None


def _tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


class Captured:
    """One captured run of a function on given tensors, of which the first ``count`` change at each call."""

    def __init__(
        self, function: Callable[..., Any], count: int, values: Sequence[Tensor], measure: bool
    ) -> None:
        device = values[0].device
        self.inputs = [t.clone(memory_format=torch.contiguous_format) for t in values[:count]]
        # Kept, so that this memory is given to nothing else.
        self.weights = list(values[count:])

        def run() -> Sequence[Tensor]:
            return function(0, *self.inputs, *self.weights)  # type: ignore[no-any-return]

        seam.current().warm_up(run, device, measure)
        self.graph, self.outputs = seam.current().capture(run, device)

    def reads(self, weights: Sequence[Tensor]) -> bool:
        """Whether these are the weights that the graph reads."""
        return all(map(is_, self.weights, weights))

    def replay(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run on new inputs; the results are new memory."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return tuple([t.clone(memory_format=torch.contiguous_format) for t in self.outputs])


class Graphs:
    """Runs a program as a CUDA graph where that is possible, with one graph for each thread.

    The first call runs the program and looks for what a graph cannot hold; a thread's second call captures.

    Parameters
    ----------
    function : callable
        ``function(key, *inputs, *weights)``, of a program that draws no random numbers.
    count : int
        How many of its arguments after the key are inputs of a call; the rest are weights.
    measure : bool
        Let cuDNN time its algorithms before a capture.
    reason : str, optional
        Why there can be no graph, where that is known already.
    """

    def __init__(
        self, function: Callable[..., Any], count: int, measure: bool = False, reason: str | None = None
    ) -> None:
        self.reason = reason
        self.captures = 0
        self._function, self._count, self._measure = function, count, measure
        self._inspected = False
        self._local = threading.local()
        self._live: weakref.WeakSet[Captured] = weakref.WeakSet()

    def __call__(self, key: int, *values: Tensor) -> tuple[Tensor, ...]:
        captured: Captured | None = getattr(self._local, "captured", None)
        if captured is None or not captured.reads(values[self._count :]):
            # One that reads outdated weights goes first, with its memory.
            captured = self._local.captured = None
            if self.reason is None and not self._inspected:
                return self._inspect(key, values)
            # A thread that calls once, as some servers' do, gets no graph.
            known, self._local.known = getattr(self._local, "known", False), True
            captured = self._capture(values) if known and self.reason is None else None
        if captured is None:
            return self._function(key, *values)  # type: ignore[no-any-return]
        return captured.replay(values[: self._count])

    def _inspect(self, key: int, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with Inspector(values[0].device) as inspector:
            results = self._function(key, *values)
        self.reason = self.reason or inspector.reason
        self._inspected = self._local.known = True
        return results  # type: ignore[no-any-return]

    def _capture(self, values: tuple[Tensor, ...]) -> Captured | None:
        """A graph for this thread, or None where it cannot have one."""
        with _capturing:
            if self.reason is not None or len(self._live) >= MOST_GRAPHS:
                return None
            try:
                captured = Captured(self._function, self._count, values, self._measure)
            except Exception as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self.reason = f"a CUDA graph could not be captured: {lines[0]}"
                return None
            self._live.add(captured)
            self.captures += 1
            if self.captures >= MOST_CAPTURES:
                self.reason = f"{MOST_CAPTURES} were captured, for threads that ended or weights that moved"
        self._local.captured = captured
        return captured

    @property
    def remark(self) -> str:
        """What the calls do, in words."""
        if self._live:
            return "replayed as a CUDA graph"
        if self.reason is not None:
            return f"runs without a CUDA graph: {self.reason}"
        return "a CUDA graph is captured at the second call"
