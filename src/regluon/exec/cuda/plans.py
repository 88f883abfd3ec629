"""Plans that run as CUDA graphs: ``hybridize(static_alloc=True, static_shape=True)`` on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...passes import Watch
from ..draws import draws
from ..plan import Plan
from ..program import Program
from . import seam
from .graphs import Graphs

__all__ = ["GraphPlan", "plan_for"]


def plan_for(
    general: Program, count: int, tensors: Sequence[Tensor], tune: bool = False, fixed: bool = False
) -> Plan:
    """A plan for these tensors; with ``fixed``, memory and shapes stay, and a GPU replays a CUDA graph.

    The other parameters, and errors, are those of `Plan`.
    """
    kind = GraphPlan if fixed and seam.current().kind(tensors) == "cuda" else Plan
    return kind(general, count, tensors, tune)


class GraphPlan(Plan):
    """A plan whose program is captured as a CUDA graph at its second call; see `Graphs`.

    What is made of the parameters keeps its place in memory: after a write to a parameter, the new packed
    weights are copied to where the old ones lie, and the graph goes on with them.
    """

    def __init__(
        self,
        general: Program,
        count: int,
        tensors: Sequence[Tensor],
        tune: bool = False,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(general, count, tensors, tune, watch)
        reason = _why_not(general, self.program, tensors, count)
        self.graphs = Graphs(self.program.function, count, tune, reason)
        if reason is None:
            self._function = self.graphs

    @property
    def is_opaque(self) -> bool:
        """A CUDA graph is the generated program."""
        return False

    @property
    def remark(self) -> str:
        """Whether calls replay a graph, or why not."""
        return self.graphs.remark

    def values_from(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], Sequence[Tensor]]:
        """As that of `Plan`; what is made goes to where it was made before, if that is still right."""
        direct, made = super().values_from(parameters)
        before = self._prepared
        if before is None or not made:
            return direct, made
        foreign = {_memory(tensor) for tensor in (*before[0], *parameters)}
        old = before[2][len(direct) :]
        return direct, [_placed(a, b, foreign) for a, b in zip(old, made, strict=True)]


def _why_not(general: Program, program: Program, tensors: Sequence[Tensor], count: int) -> str | None:
    """Why a program cannot be captured, as far as that is known before it runs.

    ``count`` is the number of its inputs, which are the first of the tensors.
    """
    if not count:
        return "it has no inputs"
    if any("subgraphs" in node.attrs for node in general.nodes):
        # Their bodies pack weights of their own while they run, which a replay would not see.
        return "it has loops or branches"
    if draws(program.nodes, program.training):
        return "it draws random numbers"
    own = next((node for node in program.nodes if node.op is not None and node.op.opaque), None)
    if own is not None:
        return f"{own.name} runs Python code of its own"
    if any(tensor.device != tensors[0].device for tensor in tensors):
        # A kernel takes a single number in main memory as it is when the graph is captured.
        return "its inputs and parameters are on several devices"
    return None


def _placed(old: Tensor, new: Tensor, foreign: set[Any]) -> Tensor:
    """A new value in the memory of an old one, where that is alike and nobody else's."""
    if old.shape != new.shape or old.dtype is not new.dtype or old.stride() != new.stride():
        return new
    if old.data_ptr() == new.data_ptr() and old.device == new.device:
        return old
    if _memory(old) in foreign or old.device != new.device:
        return new
    with torch.no_grad():
        return old.copy_(new)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
