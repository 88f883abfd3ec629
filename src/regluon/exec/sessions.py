"""Plans that run parts of a graph in another engine, which is given them as ONNX models.

The graph is cut into connected groups of operators that ONNX can express, one session each, and the rest,
which stays in a program of ours. A session holds its parameters as constants, so that the engine can fold
and pack them; it belongs to one version of them and is made again when they were written.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MXNetError
from ..base.sharing import is_shared
from ..graph.node import Entry, Node, topological
from ..ops.internal import InternalOp
from ..passes import Settings, protect_outputs
from .partition import Subgraph, partition
from .plan import Plan, _cannot_plan, specialise
from .program import Program

__all__ = ["OpenSession", "SessionPlan"]

# From a serialised ONNX model to something that runs it on tensors.
OpenSession = Callable[[bytes], Callable[..., Any]]
# A group of fewer operators is left to our own program, unless it is all there is.
SMALLEST = 3
_KINDS = frozenset({torch.float32, torch.int32, torch.int64, torch.bool})
_LARGEST = 2**31 - 2**20
_version = operator.attrgetter("_version")


def _run(session: Callable[..., Any], *tensors: Tensor) -> Any:
    return session(*tensors)


class _Part:
    """A group of operators that becomes a session."""

    def __init__(self, number: int, subgraph: Subgraph, constants: set[int]) -> None:
        self.subgraph = subgraph
        self.variable = Node(None, f"session{number}")
        held = [entry.node.op is None and id(entry.node) in constants for entry in subgraph.inputs]
        self.given = [entry for entry, is_held in zip(subgraph.inputs, held, strict=True) if not is_held]
        self.held = [entry for entry, is_held in zip(subgraph.inputs, held, strict=True) if is_held]

    def entries(self) -> list[Entry]:
        """What takes the place of the group's outputs."""
        outputs = self.subgraph.outputs
        op = InternalOp("session", _run, outputs=len(outputs))
        node = Node(op, self.variable.name, [Entry(self.variable, 0), *self.given])
        specs = [entry.spec for entry in outputs]
        node.specs = specs  # type: ignore[assignment]
        return [Entry(node, index) for index in range(len(outputs))]

    def model(self, values: dict[int, Tensor]) -> bytes:
        """The group as a serialised ONNX model that holds these parameters."""
        from ..onnx.convert import convert

        size = sum(values[id(e.node)].nbytes for e in self.held)
        if size > _LARGEST:
            raise MXNetError(
                f"{self.subgraph} has {size / 2**30:.1f} GiB of parameters; one model holds 2 GiB"
            )
        model = convert(
            self.variable.name,
            [(entry, f"input{place}") for place, entry in enumerate(self.given)],
            [(entry, values[id(entry.node)]) for entry in self.held],
            [(entry, f"output{place}") for place, entry in enumerate(self.subgraph.outputs)],
        )
        return bytes(model.SerializeToString())


def _selected(entries: Sequence[Entry]) -> set[int]:
    """The ids of the nodes that a session may take."""
    from ..onnx.convert import find_unmapped

    found = set()
    for node in topological(entries):
        if node.op is None or (node.op.uses_rng and node.op.name not in ("Dropout", "LeakyReLU", "RNN")):
            continue
        specs = [entry.spec for entry in node.inputs]
        specs += [Entry(node, index).spec for index in range(node.visible)]
        if all(spec is not None and spec.dtype in _KINDS for spec in specs) and not find_unmapped([node]):
            found.add(id(node))
    return found


class SessionPlan(Plan):
    """A graph compiled for one set of input shapes, as sessions of another engine.

    Parameters
    ----------
    general, count, tensors
        As for `Plan`.
    open_session : callable
        Makes a session of a serialised ONNX model.

    Raises
    ------
    MXNetError
        If no part of the graph can run in the engine.
    """

    def __init__(
        self, general: Program, count: int, tensors: Sequence[Tensor], open_session: OpenSession
    ) -> None:
        if _cannot_plan(general.outputs):
            raise MXNetError("this graph has operators whose shapes or effects depend on values")
        if any(tensor.device.type != "cpu" for tensor in tensors):
            raise MXNetError("it runs on the CPU, and these arrays are elsewhere")
        self.general, self.count, self._open = general, count, open_session
        twins, entries = specialise(general.inputs, general.outputs, tensors, general.training)
        constants = {id(node) for node in twins[count:]}
        entries = self._cut(entries, constants)
        settings = Settings(constants, general.training, "cpu")
        entries = protect_outputs(entries, settings)
        used = {id(node) for node in topological(entries)}
        self._places = {id(node): place - count for place, node in enumerate(twins) if place >= count}
        self._direct = [i for i, node in enumerate(twins) if i >= count and id(node) in used]
        self.first = None
        self.program = Program(
            [*twins[:count], *(twins[i] for i in self._direct), *(part.variable for part in self.parts)],
            entries,
            general.training,
            False,
        )
        self._function = self.program.function
        self._prepared = None
        self._sessions: dict[int, tuple[list[Tensor], list[int], Callable[..., Any]]] = {}
        self._seen: list[int] | None = None
        self._lock = threading.Lock()
        if not any(map(is_shared, tensors[count:])):
            self._prepare(list(tensors[count:]))

    def _cut(self, entries: Sequence[Entry], constants: set[int]) -> list[Entry]:
        chosen = _selected(entries)
        whole = sum(node.op is not None for node in topological(entries))
        names = {node.name for node in topological(entries) if id(node) in chosen}
        self.parts: list[_Part] = []
        self.operators = (0, whole)

        def replace(subgraph: Subgraph) -> list[Entry] | None:
            if len(subgraph.nodes) < min(SMALLEST, whole):
                return None
            part = _Part(len(self.parts), subgraph, constants)
            if not part.given:
                return None
            self.parts.append(part)
            self.operators = (self.operators[0] + len(subgraph.nodes), whole)
            return part.entries()

        result = partition(entries, lambda node: id(node) in chosen, replace)
        if not self.parts:
            found = {n.op.name for n in topological(entries) if n.op is not None and n.name not in names}
            raise MXNetError(
                "no part of the graph can run in it" + (f": {', '.join(sorted(found))}" if found else "")
            )
        return result

    def __call__(
        self, key: int, tensors: Sequence[Tensor], function: Callable[..., Any] | None = None
    ) -> tuple[Tensor, ...]:
        """Run on tensors in the order of ``variables``; ``key`` is the key of the first random draw."""
        parameters = tensors[self.count :]
        prepared = self._prepared
        versions = list(map(_version, parameters))
        if prepared is None or prepared[1] != versions or not all(map(operator.is_, prepared[0], parameters)):
            # A new session costs more than a call. Parameters that were written wait for a second call with
            # the same values, so that a loop which writes them every time stays with the general program.
            if self._seen != versions or any(map(is_shared, parameters)):
                self._seen = versions
                return self.general(key, tensors)
            prepared = self._prepare(list(parameters))
        try:
            run = function or self._function
            return run(key, *tensors[: self.count], *prepared[2])  # type: ignore[no-any-return]
        except RuntimeError as error:
            raise self.program._located(error) from error

    def _prepare(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[int], list[Tensor]]:
        with self._lock:
            # Versions are read first: a write that comes in between makes this result outdated, not wrong.
            versions = list(map(_version, parameters))
            sessions = [
                self._session(number, part, parameters, versions) for number, part in enumerate(self.parts)
            ]
            direct: list[Any] = [parameters[place - self.count] for place in self._direct]
            prepared = (parameters, versions, [*direct, *sessions])
            self._prepared = prepared
            return prepared

    def _session(
        self, number: int, part: _Part, parameters: list[Tensor], versions: list[int]
    ) -> Callable[..., Any]:
        """The session of a part: the one there is, where none of its parameters was written."""
        places = [self._places[id(entry.node)] for entry in part.held]
        tensors, mine = [parameters[place] for place in places], [versions[place] for place in places]
        known = self._sessions.get(number)
        if known is not None and known[1] == mine and all(map(operator.is_, known[0], tensors)):
            return known[2]
        values = {id(entry.node): tensor for entry, tensor in zip(part.held, tensors, strict=True)}
        session = self._open(part.model(values))
        self._sessions[number] = (tensors, mine, session)
        return session
