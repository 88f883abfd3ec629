"""The little that is asked of ``torch.cuda``, in one object that a test can replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Cuda", "Graph", "Run", "current", "use"]

Run = Callable[[], Sequence[Tensor]]
# Runs before a capture: libraries choose algorithms and allocate their own memory in the first ones.
_WARM_UPS = 2


class Graph(Protocol):
    """A captured run."""

    def replay(self) -> None:
        """Run all captured kernels again, on the same memory."""


class Cuda:
    """``torch.cuda`` for plans."""

    def kind(self, tensors: Sequence[Tensor]) -> str:
        """For which kind of device to compile a graph with these inputs: ``"cpu"`` or ``"cuda"``."""
        return tensors[0].device.type if tensors else "cpu"

    def prefers_channels_last(self, dtype: torch.dtype, device: torch.device | None = None) -> bool:
        """Whether convolutions of this type are faster with the channels last.

        That is where tensor cores compute them: float16 from compute capability 7.0 (Volta) on, bfloat16 and,
        as TF32, float32 from 8.0 (Ampere) on.
        """
        if torch.version.cuda is None:
            return False
        capability = torch.cuda.get_device_capability(device)
        if dtype is torch.float16:
            return capability >= (7, 0)
        return capability >= (8, 0) and (dtype is torch.bfloat16 or (dtype is torch.float32 and _has_tf32()))

    def warm_up(self, run: Run, device: torch.device, measure: bool) -> None:
        """Run on a stream of its own before a capture; ``measure`` lets cuDNN time its algorithms."""
        with torch.cuda.device(device):
            here, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(here)
            with torch.cuda.stream(side), _measuring(measure):
                for _ in range(_WARM_UPS):
                    run()
            here.wait_stream(side)

    def capture(self, run: Run, device: torch.device) -> tuple[Graph, Sequence[Tensor]]:
        """Capture a run; its outputs are memory of the graph, which every replay writes again."""
        with torch.cuda.device(device):
            graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # The outer scope goes back to the stream of before, which torch does not after a failed capture.
            with torch.cuda.stream(side):
                # Only what this thread does can spoil it, and only this thread is refused anything.
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    outputs = run()
            return graph, outputs


def _has_tf32() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        # torch refuses to say where a program mixed its old and its new settings.
        return False


@contextmanager
def _measuring(measure: bool) -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or measure
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


_current: Any = Cuda()


def current() -> Cuda:
    """What stands for ``torch.cuda``."""
    return _current  # type: ignore[no-any-return]


@contextmanager
def use(other: Cuda) -> Iterator[None]:
    """Put another object in the place of ``torch.cuda``, for tests."""
    global _current
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before
