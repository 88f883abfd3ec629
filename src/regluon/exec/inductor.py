"""Inductor, torch's compiler, as an engine for whole graphs: C++ on CPUs, Triton on GPUs.

The graph after our own passes runs once on fake tensors, which records the torch calls that it consists of;
Inductor compiles those. Parameters stay arguments of the compiled function, so that a write to one is seen
by the next call; what is made of parameters alone (folded weights) is made once per version, as in `Plan`.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MXNetError
from ..graph.node import Entry
from ..passes import Settings
from .cuda import seam
from .draws import draws
from .plan import Plan
from .program import Program
from .tuning import Tuner

__all__ = ["InductorPlan", "missing_compiler"]


def missing_compiler(kind: str | None = None) -> str | None:
    """Why code cannot be compiled here, with the remedy; None where it can.

    ``kind`` is ``"cpu"`` or ``"cuda"``; without it, one of the kinds that this machine has must do.
    """
    if kind is None:
        return _missing_for_cuda() and _missing_for_cpu() if torch.cuda.is_available() else _missing_for_cpu()
    return _missing_for_cuda() if kind == "cuda" else _missing_for_cpu()


def _missing_for_cpu() -> str | None:
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler.split()[0]) is None:
        return (
            f"it needs a C++ compiler, and {compiler!r} was not found: install g++ (Debian, Ubuntu: apt "
            "install g++) or clang, or name one in the environment variable CXX"
        )
    return None


def _missing_for_cuda() -> str | None:
    """Triton compiles the kernels, and builds what launches them with a C compiler."""
    if find_spec("triton") is None:
        return (
            "it needs the package triton, not installed here: pip install triton (PyTorch's builds for CUDA "
            "on Linux bring it)"
        )
    named = os.environ.get("CC")
    if not any(shutil.which(name.split()[0]) for name in ([named] if named else ["gcc", "clang"])):
        return (
            f"it needs a C compiler, and {named or 'gcc'!r} was not found: install gcc (Debian, Ubuntu: apt "
            "install gcc) or clang, or name one in the environment variable CC"
        )
    return None


class InductorPlan(Plan):
    """A graph compiled by Inductor for one set of input shapes.

    Parameters
    ----------
    general, count, tensors
        As for `Plan`.

    Raises
    ------
    MXNetError
        If the graph draws random numbers, or depends on values, or does not compile, or there is no compiler
        for the device of the inputs.
    """

    def __init__(self, general: Program, count: int, tensors: Sequence[Tensor]) -> None:
        if draws(general.nodes, general.training):
            raise MXNetError("this graph draws random numbers")
        if any(node.op is not None and node.op.opaque for node in general.nodes):
            raise MXNetError("this graph runs Python code of its own")
        missing = missing_compiler(seam.current().kind(tensors))
        if missing is not None:
            raise MXNetError(missing)
        super().__init__(general, count, tensors)
        prepared = self._prepare(list(tensors[count:]))
        self._compiled = self._compile([*tensors[:count], *prepared[2]])
        self._function = self._call

    def _kernels(self, entries: list[Entry], settings: Settings, tuner: Tuner | None) -> list[Entry]:
        return entries

    def _prepare(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[int], list[Tensor]]:
        made = super()._prepare(parameters)
        # The code is compiled for the memory order of these.
        prepared = (made[0], made[1], [tensor.contiguous() for tensor in made[2]])
        self._prepared = prepared
        return prepared

    def _call(self, key: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        del key
        given = [tensor.contiguous() for tensor in tensors[: self.count]]
        with torch.no_grad():
            return tuple(self._compiled(*given, *tensors[self.count :]))

    def _compile(self, tensors: Sequence[Tensor]) -> Any:
        function = self.program.function
        given = [tensor.contiguous() for tensor in tensors]
        try:
            with torch.no_grad(), warnings.catch_warnings():
                # Warnings of the compiler about itself are of no use to who calls a network.
                warnings.simplefilter("ignore")
                from torch._inductor import config
                from torch._inductor.compile_fx import compile_fx
                from torch.fx.experimental.proxy_tensor import make_fx

                graph = make_fx(lambda *values: function(0, *values), tracing_mode="fake")(*given)
                # In this process: a pool of compiling processes would outlive the one graph.
                with config.patch({"compile_threads": 1}):
                    compiled: Any = compile_fx(graph, given)
                    # The compiler does its work at the first call at the latest.
                    compiled(*given)
        except Exception as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise MXNetError(f"it does not compile: {text[0]}") from error
        return compiled
