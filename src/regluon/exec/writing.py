"""The text of a program: straight-line Python on tensors, every value freed after its last use.

A value's name is given on: where a statement reads an input for the last time, its result takes the name.
Long programs are written in parts, one function each, which hand on the values that are still needed. Text
that was compiled before is not compiled again: in a network of repeated layers, and for other shapes of the
same network, most parts have the same text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ..base import rng
from ..base.device import torch_device
from ..graph.dims import dims_in, source_of
from ..graph.node import Entry, Node, dependencies, reads_sizes
from ..ops.internal import KEY, InternalOp, Slot
from ..runtime.gradient import kernel_outputs
from .memory import Memory

__all__ = ["LONGEST", "Part", "Text", "last_uses"]

# Nodes of a part: beyond some hundred the time that Python takes to compile a line grows.
LONGEST = 320


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<regluon program>", "exec")


def _generator(key: int, ctx: str, *tensors: Any) -> torch.Generator:
    device = next((t.device for t in tensors if t is not None), None) or torch_device(ctx or None)
    return rng.generator(key, device)


def last_uses(nodes: Sequence[Node], outputs: Iterable[Entry]) -> dict[int, list[Entry]]:
    """For each node's place, the values computed before, or by it, that nothing reads after it."""
    last: dict[Entry, int] = {}
    for place, node in enumerate(nodes):
        for entry in dependencies(node):
            last[entry] = place
        for index in range(node.outputs):
            last[Entry(node, index)] = place
    for entry in outputs:
        last.pop(entry, None)
    result: dict[int, list[Entry]] = {}
    for entry, place in last.items():
        if entry[0].op is not None:
            result.setdefault(place, []).append(entry)
    return result


def _is_literal(value: Any) -> bool:
    """Whether a constant is written out as it is: numbers, and tuples of integers."""
    kind = value.__class__
    if kind is float:
        return math.isfinite(value)
    if kind is tuple:
        return all([item.__class__ is int for item in value])
    return value is None or kind is int or kind is bool


class Part:
    """One function of a program: its lines, and what they refer to."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {"_generator": _generator, "_part": self}
        self.lines: list[str] = []
        # The place, among the nodes of the program, of the node that a line computes.
        self.places: dict[int, int] = {}
        self.names: dict[Node, str] = {}  # of the program's inputs
        self._known: dict[int, str] = {}

    def refer(self, value: Any, letter: str = "c") -> str:
        """How a line refers to an object."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"{letter}{len(self._known)}"
            self.scope[name] = value
        return name

    def constant(self, value: Any) -> str:
        """A constant as text."""
        return repr(value) if _is_literal(value) else self.refer(value)

    def note(self, line: str, place: int) -> None:
        """Add the line of a node."""
        self.lines.append(line)
        self.places[len(self.lines)] = place

    @property
    def text(self) -> str:
        """Its source."""
        return "\n".join(self.lines) + "\n"

    def function(self, name: str) -> Callable[..., Any]:
        """The compiled function of that name."""
        # The text is made from numbers only: nothing of a file gets into it.
        exec(_compiled(self.text), self.scope)
        return self.scope[name]  # type: ignore[no-any-return]

    def watched(self, name: str, outputs: Callable[[int], str], scope: dict[str, Any]) -> Callable[..., Any]:
        """The same function with a first argument that is called after each node; ``scope`` replaces some of
        what it refers to."""
        lines = [re.sub(r"((?:^def \w+|^    part\d+)\()key", r"\1_watch, key", line) for line in self.lines]
        for number, place in self.places.items():
            # On the same line, so that an error is still found by its line.
            lines[number - 1] += f"; _watch({place}, ({outputs(place)},))"
        scope = {**self.scope, **scope}
        exec(_compiled("\n".join(lines) + "\n"), scope)
        return scope[name]  # type: ignore[no-any-return]


class Text:
    """The functions of a program, written and compiled.

    ``function`` runs it, and ``source`` is what it looks like.

    Parameters
    ----------
    nodes : sequence of Node
        The operators, every one after its inputs.
    inputs, outputs, training, recording
        As for `Program`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Node],
        outputs: Sequence[Entry],
        training: bool,
        recording: bool,
    ) -> None:
        self.nodes, self.inputs, self.outputs = nodes, inputs, outputs
        self.training, self.recording = training, recording
        self.names: dict[Entry, str] = {}
        self._memory: Memory | None = None
        self._spare: list[int] = []
        self._alive: dict[str, int] = {}
        self._count = 0
        self._last = last_uses(nodes, outputs)
        self.parts: list[Part] = []
        if len(nodes) <= LONGEST:
            self._write_whole()
        else:
            self._write_parts()
        del self._memory, self._last, self._spare, self._alive
        main = self.parts[-1]
        for number, part in enumerate(self.parts[:-1]):
            main.scope[f"part{number}"] = part.function("part")
        self.function = main.function("program")

    @property
    def source(self) -> str:
        """The whole text."""
        numbered = enumerate(part.text for part in self.parts)
        return "\n".join([text.replace("def part(", f"def part{i}(", 1) for i, text in numbered])

    def watched(self) -> Callable[..., Any]:
        """The same function with a first argument, ``watch(place, outputs)``, called after each node."""

        def outputs(place: int) -> str:
            node = self.nodes[place]
            return ", ".join([self.names[Entry(node, index)] for index in range(node.outputs)])

        *parts, main = self.parts
        made = {f"part{number}": part.watched("part", outputs, {}) for number, part in enumerate(parts)}
        return main.watched("program", outputs, made)

    def part_of(self, scope: dict[str, Any]) -> Part | None:
        """The part with a function whose globals these are."""
        found = scope.get("_part")
        return next((part for part in self.parts if part is found), None)

    def name_in(self, part: Part, entry: Any) -> str:
        """What a value that a part reads is called there."""
        name = part.names.get(entry[0])
        return self.names[entry] if name is None else name

    # The functions ----------------------------------------------------------------------

    def _new_part(self) -> Part:
        self._part = Part()
        self.parts.append(self._part)
        return self._part

    def _write_whole(self) -> None:
        part = self._new_part()
        arguments = [f"v{place}" for place in range(len(self.inputs))]
        part.names.update(zip(self.inputs, arguments, strict=True))
        part.lines.append(f"def program({', '.join(['key', *arguments])}):")
        self._write(0, len(self.nodes))
        results = [self._name(entry) for entry in self.outputs]
        part.lines.append(f"    return ({', '.join(results)}{',' if results else ''})")

    def _write_parts(self) -> None:
        """Parts that find the values of those before them in a list, and leave there what is still needed."""
        arguments = [f"v{place}" for place in range(len(self.inputs))]
        names = dict(zip(self.inputs, arguments, strict=True))
        lines = [f"def program({', '.join(['key', *arguments])}):", "    s = []"]
        for first in range(0, len(self.nodes), LONGEST):
            part = self._new_part()
            given = sorted(self._alive, key=self._alive.__getitem__)
            part.lines.append("")
            if given:
                part.lines += [f"    {', '.join(given)}, = s", "    s.clear()"]
            self._write(first, min(first + LONGEST, len(self.nodes)))
            if first + LONGEST < len(self.nodes):
                results = sorted(self._alive, key=self._alive.__getitem__)
            else:
                results = [self._name(entry) for entry in self.outputs]
            if results:
                part.lines.append(f"    s += {', '.join(results)},")
            part.lines[0] = f"def part({', '.join(['key', 's', *part.names.values()])}):"
            sent = ", ".join(["key", "s", *(names[node] for node in part.names)])
            lines.append(f"    part{len(self.parts) - 1}({sent})")
        self._new_part().lines = [*lines, "    return tuple(s)"]

    # The lines ----------------------------------------------------------------------

    def _name(self, entry: Any) -> str:
        node = entry[0]
        if node.op is not None:
            return self.names[entry]
        names = self._part.names
        name = names.get(node)
        if name is None:
            name = names[node] = f"v{len(names)}"
        return name

    def _write(self, first: int, end: int) -> None:
        part, last = self._part, self._last
        for place in range(first, end):
            node = self.nodes[place]
            call = self._call(node, part)
            results, ended = self._results(node, last.get(place, ()))
            part.note(f"    {results} = {call}", place)
            if ended:
                part.lines.append(f"    del {', '.join(ended)}")

    def _results(self, node: Node, dead: Sequence[Entry]) -> tuple[str, list[str]]:
        """The names of a node's outputs, and the names that end with it and are not given on."""
        names, alive = self.names, self._alive
        if len(dead) == 1 and dead[0][0] is not node and node.outputs == 1:
            name = names[Entry(node, 0)] = names[dead[0]]
            return name, []
        ended = [names[entry] for entry in dead if entry[0] is not node]
        made = []
        for index in range(node.outputs):
            if ended:
                name = ended.pop(0)
            else:
                number = self._spare.pop() if self._spare else self._count
                self._count = max(self._count, number + 1)
                name = f"t{number}"
                alive[name] = number
            names[Entry(node, index)] = name
            made.append(name)
        ended += [names[entry] for entry in dead if entry[0] is node]
        for name in ended:
            self._spare.append(alive.pop(name))
        return ", ".join(made), ended

    def _call(self, node: Node, part: Part) -> str:
        definition = node.op
        assert definition is not None
        if isinstance(definition, InternalOp) and definition.arguments is not None:
            return self._kernel_call(node, definition, part)
        tensors = [self._name(entry) for entry in node.inputs]
        policy = self.recording and (
            definition.gradient != "torch" or (definition.commit is not None and self.training)
        )
        if not policy:
            keywords = self._keywords(node, part, tensors)
            single = definition.name == "_CustomFunction" and node.outputs == 1
            function = part.refer(definition.function, "f")
            return f"{function}({', '.join([*tensors, *keywords])}){'[0]' if single else ''}"
        keywords = [f"_key=key + {node.draw}"] if definition.uses_rng else []
        keywords += [f"{k}={source_of(v, self._name)}" for k, v in node.attrs.items() if dims_in(v)]
        function = part.refer(_with_policy(node, self.training), "f")
        return f"{function}({', '.join([*tensors, *keywords])}){'' if node.outputs > 1 else '[0]'}"

    def _keywords(self, node: Node, part: Part, tensors: Sequence[str]) -> list[str]:
        """The keyword arguments of an operator's function."""
        definition = node.op
        assert definition is not None
        keywords = []
        sizes = reads_sizes(node)
        for key, value in node.attrs.items():
            if key not in definition.parameters:
                continue
            dynamic = sizes and dims_in(value)
            keywords.append(f"{key}={source_of(value, self._name) if dynamic else part.constant(value)}")
        if definition.uses_training:
            keywords.append(f"_training={self.training}")
        if definition.uses_rng:
            where = repr(node.attrs.get("ctx") or "")
            keywords.append(f"_rng=_generator({', '.join([f'key + {node.draw}', where, *tensors])})")
        return keywords

    def _kernel_call(self, node: Node, definition: InternalOp, part: Part) -> str:
        """A kernel of torch called without a Python function around it, in place where that is safe."""
        function, arguments = definition.function, definition.arguments
        if definition.in_place is not None and self._may_overwrite(node, definition.in_place[2]):
            function, arguments, _ = definition.in_place  # type: ignore[assignment]
        texts = []
        for value in arguments or ():
            if value.__class__ is Slot:
                texts.append(self._name(node.inputs[value.index]))
            else:
                texts.append("key" if value is KEY else part.constant(value))
        return f"{part.refer(function, 'f')}({', '.join(texts)})"

    def _may_overwrite(self, node: Node, place: int) -> bool:
        """Whether an input's memory is new, and nothing reads it after this node."""
        if self._memory is None:
            self._memory = Memory(self.nodes, self.outputs)
        return self._memory.ends_at(node.inputs[place], node)


def _with_policy(node: Node, training: bool) -> Callable[..., tuple[Tensor, ...]]:
    definition, attrs = node.op, node.full_attrs
    assert definition is not None

    def kernel(*tensors: Tensor, _key: int | None = None, **sizes: Any) -> tuple[Tensor, ...]:
        return kernel_outputs(definition, tensors, {**attrs, **sizes} if sizes else attrs, training, _key)

    return kernel
