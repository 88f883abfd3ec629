"""Programs: a graph as straight-line Python on tensors, every value freed after its last use.

A program has no state: it may run in many threads at once. `interpret` runs the same nodes one by one for
those who
want to look at every value.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..base import rng
from ..base.device import torch_device
from ..base.errors import MXNetError
from ..graph.dims import dims_in, evaluate, source_of, sources_of
from ..graph.node import Entry, Node, topological
from ..ops.failure import translated
from ..ops.internal import InternalOp, Slot
from ..ops.opdef import run
from ..runtime.gradient import kernel_outputs
from ..runtime.state import State

__all__ = ["Program", "interpret"]

_NUMBER = itertools.count()


def _generator(key: int, ctx: str, *tensors: Any) -> torch.Generator:
    device = next((t.device for t in tensors if t is not None), None) or torch_device(ctx or None)
    return rng.generator(key, device)


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
        self.nodes = [node for node in topological(outputs) if node.op is not None]
        self.uses_rng = any(node.op is not None and node.op.uses_rng for node in self.nodes)
        self._owners: _Memory | None = None
        self.file = f"<regluon program {next(_NUMBER)}>"
        self._lines: dict[int, Node] = {}
        self._watched: Callable[..., Any] | None = None
        self.source = ""
        self.function = self._generate()

    # Generation ----------------------------------------------------------------------

    def _generate(self) -> Callable[..., Any]:
        names: dict[int, str] = {}
        for index, node in enumerate(self.inputs):
            names[id(node)] = f"v{index}"
        for index, node in enumerate(self.nodes):
            names[id(node)] = f"t{index}"
        self._names = names
        last = self.last_uses()
        arguments = ", ".join(names[id(node)] for node in self.inputs)
        lines = [f"def program(key{', ' if arguments else ''}{arguments}):"]
        scope: dict[str, Any] = {"_generator": _generator}
        lines += self._free(last.get(-1, []))
        for index, node in enumerate(self.nodes):
            lines.append("    " + self._statement(node, scope))
            self._lines[len(lines)] = node
            lines += self._free(last.get(index, []))
        results = ", ".join(self._name(entry) for entry in self.outputs)
        lines.append(f"    return ({results}{',' if self.outputs else ''})")
        self.source = "\n".join(lines) + "\n"
        # The text is made here from node numbers and literal numbers only: nothing of a file gets into it.
        exec(compile(self.source, self.file, "exec"), scope)
        function: Callable[..., Any] = scope["program"]
        return function

    def _name(self, entry: Any) -> str:
        node = entry.node
        name = self._names.get(id(node))
        if name is None:
            raise MXNetError(
                f"the variable {node.name} of this graph has no value: it is no input and no parameter"
            )
        return name if node.op is None or node.outputs == 1 else f"{name}_{entry.index}"

    def _statement(self, node: Node, scope: dict[str, Any]) -> str:
        definition = node.op
        assert definition is not None
        if isinstance(definition, InternalOp) and definition.arguments is not None:
            return self._kernel_call(node, definition, scope)
        number = len(scope)
        function = f"f{number}"
        tensors = [self._name(entry) for entry in node.inputs]
        policy = self.recording and (
            definition.gradient != "torch" or (definition.commit is not None and self.training)
        )
        if policy:
            scope[function] = _with_policy(node, self.training)
            keywords = [f"_key=key + {node.draw}"] if definition.uses_rng else []
            keywords += [f"{k}={source_of(v, self._name)}" for k, v in node.attrs.items() if dims_in(v)]
        else:
            scope[function] = definition.function
            keywords = []
            for key, value in node.attrs.items():
                if key not in definition.parameters:
                    continue
                if dims_in(value):
                    keywords.append(f"{key}={source_of(value, self._name)}")
                else:
                    constant = f"c{len(scope)}"
                    scope[constant] = value
                    keywords.append(f"{key}={constant}")
            if definition.uses_training:
                keywords.append(f"_training={self.training}")
            if definition.uses_rng:
                where = repr(node.attrs.get("ctx") or "")
                keywords.append(f"_rng=_generator({', '.join([f'key + {node.draw}', where, *tensors])})")
        call = f"{function}({', '.join([*tensors, *keywords])})"
        name = self._names[id(node)]
        count = node.outputs
        if policy:
            call += "" if count > 1 else "[0]"
        if count > 1:
            targets = ", ".join(f"{name}_{i}" for i in range(count))
            return f"{targets} = {call}"
        if definition.name == "_CustomFunction" and not policy:
            return f"{name} = {call}[0]"
        return f"{name} = {call}"

    def _kernel_call(self, node: Node, definition: InternalOp, scope: dict[str, Any]) -> str:
        """A kernel of torch called without a Python function around it, in place where that is safe."""
        function, arguments = definition.function, definition.arguments
        assert arguments is not None
        if definition.in_place is not None and self._may_overwrite(node, definition.in_place[2]):
            function, arguments, _ = definition.in_place  # type: ignore[assignment]
        place = f"f{len(scope)}"
        scope[place] = function
        texts = []
        for value in arguments:
            if isinstance(value, Slot):
                texts.append(self._name(node.inputs[value.index]))
            elif value is None or isinstance(value, (bool, int)):
                texts.append(repr(value))
            else:
                constant = f"c{len(scope)}"
                scope[constant] = value
                texts.append(constant)
        name = self._names[id(node)]
        if node.outputs > 1:
            name = ", ".join(f"{name}_{i}" for i in range(node.outputs))
        return f"{name} = {place}({', '.join(texts)})"

    def _may_overwrite(self, node: Node, place: int) -> bool:
        """Whether an input's memory is new, and nothing reads it after this node."""
        if self._owners is None:
            self._owners = _Memory(self.nodes, self.outputs)
        return self._owners.ends_at(node.inputs[place], node)

    def last_uses(self) -> dict[int, list[str]]:
        """For each node's place, the names of `names_of` that are free after it; -1 is the start."""
        kept = {self._name(entry) for entry in self.outputs}
        last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            count = node.outputs
            name = self._names[id(node)]
            for produced in [name] if count == 1 else [f"{name}_{i}" for i in range(count)]:
                last[produced] = index
            for entry in node.inputs:
                last[self._name(entry)] = index
            for value in node.attrs.values():
                for entry in sources_of(dims_in(value)):
                    last[self._name(entry)] = index
        result: dict[int, list[str]] = {}
        for name, index in last.items():
            if name not in kept:
                result.setdefault(index, []).append(name)
        return result

    @property
    def recorded(self) -> list[str]:
        """The names of the recorded operators that this program computes."""
        return list(dict.fromkeys(name for node in self.nodes for name in node.recorded))

    def names_of(self, node: Node) -> list[str]:
        """What the generated text calls the outputs of a node."""
        name = self._names[id(node)]
        return [name] if node.outputs == 1 else [f"{name}_{i}" for i in range(node.outputs)]

    def watched(self, watch: Callable[[int, tuple[Any, ...]], None]) -> Callable[..., Any]:
        """The same function, which calls ``watch(place, outputs)`` after each node, before it frees anything.

        ``place`` is that of the node in ``nodes``.
        """
        if self._watched is None:
            places = {id(node): place for place, node in enumerate(self.nodes)}
            lines = self.source.splitlines()
            lines[0] = lines[0].replace("(key", "(_watch, key", 1)
            for number, node in self._lines.items():
                # On the same line, so that an error is still found by its line.
                lines[number - 1] += f"; _watch({places[id(node)]}, ({', '.join(self.names_of(node))},))"
            scope = dict(self.function.__globals__)
            exec(compile("\n".join(lines), self.file, "exec"), scope)
            self._watched = scope["program"]
        return functools.partial(self._watched, watch)

    @staticmethod
    def _free(names: list[str]) -> list[str]:
        return [f"    del {', '.join(names)}"] if names else []

    # Running ----------------------------------------------------------------------

    def __call__(self, key: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run on tensors in the order of ``inputs``; ``key`` is the key of the first random draw."""
        if State.profiler is not None:
            return State.profiler.program(self, key, tensors)  # type: ignore[no-any-return]
        return self.run(key, tensors)

    def run(self, key: int, tensors: Sequence[Tensor], function: Any = None) -> tuple[Tensor, ...]:
        """The same without a profiler; ``function`` is a `watched` one that stands for this program's."""
        try:
            return (function or self.function)(key, *tensors)  # type: ignore[no-any-return]
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> NoReturn:
        """Raise what `_located` gives for an error of the function; the causes of both are kept."""
        found = self._located(error)
        if found is error:
            raise error
        raise found from error

    def _located(self, error: Exception) -> Exception:
        """An operator's error as it is without compiling, with the node and the line that recorded it."""
        node, frame = None, None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                node, frame = self._lines.get(trace.tb_lineno), trace.tb_frame
            trace = trace.tb_next
        if node is None or node.op is None or frame is None:
            return MXNetError(str(error)) if type(error) is RuntimeError else error
        if node.op.name == "_CustomFunction" and not isinstance(error, RuntimeError):
            return error
        values = [frame.f_locals.get(self._name(entry)) for entry in node.inputs]
        found = translated(node.op, error, values)
        if not isinstance(found, MXNetError):
            return found
        place = f", recorded at {node.location}" if node.location else ""
        return type(found)(f"{found} (node {node.name}{place})")


class _Memory:
    """Which values share memory, and the last node that reads each piece of memory."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Entry]) -> None:
        self._parent: dict[int, int] = {}
        self._borrowed: set[int] = set()
        self._last: dict[int, int] = {}
        for node in nodes:
            if not _is_fresh(node):
                for entry in node.inputs:
                    self._parent[self._root(id(entry.node))] = self._root(id(node))
        for index, node in enumerate(nodes):
            for entry in node.inputs:
                self._last[self._root(id(entry.node))] = index
                if entry.node.op is None:
                    self._borrowed.add(self._root(id(entry.node)))
        for entry in outputs:
            self._borrowed.add(self._root(id(entry.node)))
        self._index = {id(node): index for index, node in enumerate(nodes)}

    def _root(self, key: int) -> int:
        while key in self._parent and self._parent[key] != key:
            key = self._parent[key]
        return key

    def ends_at(self, entry: Any, node: Node) -> bool:
        root = self._root(id(entry.node))
        if root in self._borrowed or entry.node.outputs != 1:
            return False
        # Another input may be a view of the same memory.
        used_twice = sum(self._root(id(e.node)) == root for e in node.inputs) > 1
        return not used_twice and self._last[root] == self._index[id(node)]


# Operators whose result is always new memory.
_FRESH = frozenset({"Pooling", "Concat", "FullyConnected", "Convolution", "dot", "batch_dot"})


def _is_fresh(node: Node) -> bool:
    op = node.op
    return op is not None and (op.fresh if isinstance(op, InternalOp) else op.name in _FRESH)


def _with_policy(node: Node, training: bool) -> Callable[..., tuple[Tensor, ...]]:
    definition, attrs = node.op, node.full_attrs
    assert definition is not None

    def kernel(*tensors: Tensor, _key: int | None = None, **sizes: Any) -> tuple[Tensor, ...]:
        return kernel_outputs(definition, tensors, {**attrs, **sizes} if sizes else attrs, training, _key)

    return kernel


def interpret(
    outputs: Sequence[Entry],
    values: dict[int, Tensor],
    training: bool,
    key: int,
    recording: bool = False,
    watch: Callable[[Node, list[Tensor], tuple[Tensor, ...]], None] | None = None,
    memory: dict[int, tuple[Tensor, ...]] | None = None,
    before: Callable[[Node, list[Tensor]], list[Tensor]] | None = None,
) -> list[Tensor]:
    """Run a graph node by node. ``values`` maps variables' ids to tensors; ``watch`` sees every node's
    values.

    ``memory`` keeps results of nodes between calls; ``before`` may replace a node's inputs.
    """
    results: dict[int, tuple[Tensor, ...]] = {} if memory is None else memory

    def tensor_of(entry: Any) -> Tensor:
        if entry.node.op is None:
            try:
                return values[id(entry.node)]
            except KeyError:
                raise MXNetError(f"the variable {entry.node.name} has no value") from None
        return results[id(entry.node)][entry.index]  # type: ignore[no-any-return]

    for node in topological(outputs):
        if node.op is None or id(node) in results:
            continue
        tensors = [tensor_of(entry) for entry in node.inputs]
        if before is not None:
            tensors = before(node, tensors)
        attrs = {
            k: evaluate(v, lambda entry: tuple(tensor_of(entry).shape), lambda entry: tensor_of(entry).item())
            for k, v in node.full_attrs.items()
        }
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
        results[id(node)] = made
        if watch is not None:
            watch(node, tensors, made)
    if outputs and outputs[0].index == -1:
        return list(results[id(outputs[0].node)])
    return [tensor_of(entry) for entry in outputs]
