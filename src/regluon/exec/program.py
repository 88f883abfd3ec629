"""Programs: a graph as straight-line Python on tensors, every value freed after its last use.

A program has no state: it may run in many threads at once. `interpret` runs the same nodes one by one, for
those who want to look at every value, and for a program that may never run again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torch import Tensor

from ..base.errors import MXNetError
from ..base.limits import paused_collection
from ..graph.dims import evaluate
from ..graph.node import Entry, Node, reads_sizes, topological
from ..ops.failure import translated
from ..ops.internal import InternalOp
from ..ops.opdef import run
from ..runtime.gradient import kernel_outputs
from ..runtime.state import State
from .writing import Text, last_uses

__all__ = ["Program", "interpret"]

# Bytes of values that need not be freed one by one.
_LITTLE = 8 << 20


class Program:
    """A compiled graph.

    Parameters
    ----------
    inputs : sequence of Node
        The variables that tensors are given for, in order.
    outputs : sequence of Entry
        What is computed.
    training : bool
        The train mode the graph was recorded in.
    recording : bool
        Whether gradients are to flow: then every operator keeps its gradient rule.
    """

    def __init__(
        self, inputs: Sequence[Node], outputs: Sequence[Entry], training: bool, recording: bool
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.training = training
        self.recording = recording
        order = topological(outputs)
        self.nodes = [node for node in order if node.op is not None]
        self.uses_rng = any([node.op.uses_rng for node in self.nodes])  # type: ignore[union-attr]
        known = set(inputs)
        for node in order:
            if node.op is None and node not in known:
                raise MXNetError(
                    f"the variable {node.name} of this graph has no value: it is no input and no parameter"
                )
        self._text: Text | None = None
        # Whether the next run may do without the text: what fails is run again with it.
        self._may_interpret = not (recording or training) and all(map(_may_run_twice, self.nodes))
        self._watched: Callable[..., Any] | None = None

    @property
    def text(self) -> Text:
        """What is generated, when it is first needed: a program that has a plan often never runs."""
        if self._text is None:
            self._text = Text(self.nodes, self.inputs, self.outputs, self.training, self.recording)
        return self._text

    @property
    def function(self) -> Callable[..., Any]:
        """The generated function; its first argument is the key."""
        return self.text.function

    @property
    def source(self) -> str:
        """The generated Python."""
        return self.text.source

    def last_uses(self) -> dict[int, list[Entry]]:
        """For each node's place, the values that are free after it."""
        return last_uses(self.nodes, self.outputs)

    @property
    def recorded(self) -> list[str]:
        """The names of the recorded operators that this program computes."""
        return list(dict.fromkeys(name for node in self.nodes for name in node.recorded))

    def watched(self, watch: Callable[[int, tuple[Any, ...]], None]) -> Callable[..., Any]:
        """The same function, which calls ``watch(place, outputs)`` after each node.

        ``place`` is that of the node in ``nodes``.
        """
        if self._watched is None:
            self._watched = self.text.watched()
        return functools.partial(self._watched, watch)

    # Running ----------------------------------------------------------------------

    def __call__(self, key: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run on tensors in the order of ``inputs``; ``key`` is the key of the first random draw."""
        if State.profiler is not None:
            return State.profiler.program(self, key, tensors)  # type: ignore[no-any-return]
        return self.run(key, tensors)

    def run(self, key: int, tensors: Sequence[Tensor], function: Any = None) -> tuple[Tensor, ...]:
        """The same without a profiler; ``function`` is a `watched` one that stands for this program's."""
        if function is None and self._text is None and self._may_interpret:
            self._may_interpret = False
            try:
                with paused_collection():
                    return self._interpreted(key, tensors)
            except Exception:
                # The function fails as well, and says at which line of the user's code.
                pass
        try:
            return (function or self.function)(key, *tensors)  # type: ignore[no-any-return]
        except Exception as error:
            self.fail(error)

    def _interpreted(self, key: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results node by node: a program that runs once is not worth a function of its own."""
        values = {id(node): tensor for node, tensor in zip(self.inputs, tensors, strict=True)}
        # Where all values together are small, it takes longer to find the last use of each.
        frees = None if _are_small(self.nodes) else self.last_uses()
        return tuple(interpret(self.outputs, values, self.training, key, frees=frees))

    def fail(self, error: Exception) -> NoReturn:
        """Raise what `_located` gives for an error of the function; the causes of both are kept."""
        found = self._located(error)
        if found is error:
            raise error
        raise found from error

    def _located(self, error: Exception) -> Exception:
        """An operator's error as it is without compiling, with the node and the line that recorded it."""
        node, frame, part = None, None, None
        trace = error.__traceback__
        while trace is not None:
            found = self.text.part_of(trace.tb_frame.f_globals)
            if found is not None:
                place = found.places.get(trace.tb_lineno)
                node, frame, part = None if place is None else self.nodes[place], trace.tb_frame, found
            trace = trace.tb_next
        if node is None or node.op is None or frame is None or part is None:
            return MXNetError(str(error)) if type(error) is RuntimeError else error
        if node.op.name == "_CustomFunction" and not isinstance(error, RuntimeError):
            return error
        if node.op.name == "recomputed":
            # A program of its own, which has said it.
            return error
        values = [frame.f_locals.get(self.text.name_in(part, entry)) for entry in node.inputs]
        translation = translated(node.op, error, values)
        if not isinstance(translation, MXNetError):
            return translation
        where = f", recorded at {node.location}" if node.location else ""
        return type(translation)(f"{translation} (node {node.name}{where})")


def _are_small(nodes: Sequence[Node]) -> bool:
    """Whether all values that are computed take little memory."""
    total, known = 0, dict[int, int]()
    for node in nodes:
        if node.specs is None:
            return False
        for spec in node.specs:
            size = known.get(id(spec))
            if size is None:
                size = known[id(spec)] = math.prod(spec.shape) * spec.dtype.itemsize
            total += size
        if total > _LITTLE:
            return False
    return True


def _may_run_twice(node: Node) -> bool:
    """Whether an operator writes to nothing and runs no code of the user; of bodies it is not known."""
    op = node.op
    assert op is not None
    return not (isinstance(op, InternalOp) or op.mutates or op.opaque or "subgraphs" in node.attrs)


def interpret(
    outputs: Sequence[Entry],
    values: dict[int, Tensor],
    training: bool,
    key: int,
    recording: bool = False,
    watch: Callable[[Node, list[Tensor], tuple[Tensor, ...]], None] | None = None,
    memory: dict[int, tuple[Tensor, ...]] | None = None,
    before: Callable[[Node, list[Tensor]], list[Tensor]] | None = None,
    frees: dict[int, list[Entry]] | None = None,
) -> list[Tensor]:
    """Run a graph node by node. ``values`` maps variables' ids to tensors; ``watch`` sees every node's
    values.

    ``memory`` keeps results of nodes between calls; ``before`` may replace a node's inputs; ``frees`` are the
    values that are not needed any more after each operator, by its place among them.
    """
    results: dict[int, Any] = {} if memory is None else memory

    def tensor_of(entry: Any) -> Tensor:
        if entry.node.op is None:
            try:
                return values[id(entry.node)]
            except KeyError:
                raise MXNetError(f"the variable {entry.node.name} has no value") from None
        return results[id(entry.node)][entry.index]  # type: ignore[no-any-return]

    def shape_of(entry: Any) -> tuple[int, ...]:
        return tuple(tensor_of(entry).shape)

    def number_of(entry: Any) -> Any:
        return tensor_of(entry).item()

    place = 0
    for node in topological(outputs):
        if node.op is None or id(node) in results:
            continue
        tensors = [tensor_of(entry) for entry in node.inputs]
        if before is not None:
            tensors = before(node, tensors)
        attrs = node.full_attrs
        if reads_sizes(node):
            attrs = {key: evaluate(value, shape_of, number_of) for key, value in attrs.items()}
        draw = key + node.draw if node.op.uses_rng else None
        try:
            if recording:
                made = kernel_outputs(node.op, tensors, attrs, training, draw)
            else:
                made = run(node.op, tensors, attrs, training, draw)
                made = (made,) if isinstance(made, Tensor) else tuple(made)
        except Exception as error:
            if node.op.name == "_CustomFunction" and not isinstance(error, RuntimeError):
                raise
            found = translated(node.op, error, tensors)
            raise MXNetError(f"{found} (node {node.name})") from error
        results[id(node)] = made if frees is None else list(made)
        if watch is not None:
            watch(node, tensors, made)
        if frees is not None:
            del made, tensors
            for entry in frees.get(place, ()):
                results[id(entry.node)][entry.index] = None
            place += 1
    if outputs and outputs[0].index == -1:
        return list(results[id(outputs[0].node)])
    return [tensor_of(entry) for entry in outputs]
