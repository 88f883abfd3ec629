"""What `HybridBlock.explain` gives: a record of one call's compilation that prints as tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Array", "Explanation", "Guard", "Kernel", "Operator", "PassReport"]


@dataclass
class Array:
    """Name, shape and data type of an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {_shape_text(self.shape)} {self.dtype}"


@dataclass
class Operator:
    """One recorded operator.

    Attributes
    ----------
    name, operator : str
        The node and what it applies.
    inputs : list of str
        The nodes and variables that it reads.
    outputs : list of Array
        What it gives, as far as known without running it.
    location : str or None
        File and line that recorded it.
    computed_by : list of str
        The kernel nodes that compute it in a call. Empty where ``fate`` is not ``"runs"``.
    fate : {"runs", "prepared", "removed"}
        ``"prepared"``: it depends on parameters only, and is computed once for their values;
        ``"removed"``: nothing of it is left.
    """

    name: str
    operator: str
    inputs: list[str]
    outputs: list[Array]
    location: str | None
    computed_by: list[str] = field(default_factory=list)
    fate: str = "runs"


@dataclass
class PassReport:
    """What one pass did: how many operators there were before and after, which kinds went and which came.

    A pass may have changed the graph (``changed``) with the same kinds of operators before and after.
    """

    name: str
    before: int
    after: int
    gone: dict[str, int]
    came: dict[str, int]
    changed: bool


@dataclass
class Kernel:
    """One node of what runs.

    Attributes
    ----------
    name, kernel : str
        The node and what is called for it.
    covers : list of str
        The recorded operators that it computes, or helps to compute.
    outputs : list of Array
        What it gives.
    seconds, backward_seconds : float
        Median of several runs.
    share : float
        Its part of the time of all kernels, forward and backward.
    implementation : str
        What oneDNN calls the kernel that it chose; empty for others.
    count : int
        How many times it runs in a call, as once for each slice of a batch; ``seconds`` are of all of them.
    """

    name: str
    kernel: str
    covers: list[str]
    outputs: list[Array]
    seconds: float
    backward_seconds: float
    share: float
    implementation: str = ""
    count: int = 1


@dataclass
class Guard:
    """A size or number that Python code asked for while the block was recorded.

    The graph serves the inputs for which the answer is the same.
    """

    text: str
    location: str | None


@dataclass
class Explanation:
    """What happens in one call of a block.

    Attributes
    ----------
    block : str
        The block's name.
    mode : {"predict", "train"}
        Which call is explained.
    hybridized : bool
        Whether the block is; if not, this is what it would do.
    runs : {"plan", "program", "operators"}
        A plan for the given shapes; the general program, for any shapes; or operator by operator.
    why : str
        The reason.
    inputs, outputs : list of Array
        Of the call.
    operators : list of Operator
        The recorded graph, in the order of its nodes.
    passes : list of PassReport
        In the order they ran. ``skipped`` names those that are switched off.
    kernels : list of Kernel
        What runs in every call.
    prepared : dict of str to int
        Kernels that run once for each version of the parameters (folding and packing), and how many.
    source : str
        The generated Python.
    seconds, backward_seconds : float
        Median times of a whole call, without the block's Python.
    memory : dict of str to int
        Bytes: ``peak`` of values made during a call, ``packed`` for folded and packed weights that are kept,
        ``parameters``.
    guards : list of Guard
        What the graph depends on besides types, devices and numbers of axes.
    traces : int
        How often the block was recorded so far.
    retraces : list of str
        Why, for the recordings after the first.
    op_by_op : list of str
        What is not compiled, and why.
    parts : list of Explanation
        Of the blocks below, where the block itself is not compiled.
    """

    block: str
    mode: str
    hybridized: bool
    runs: str = "operators"
    why: str = ""
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    passes: list[PassReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    prepared: dict[str, int] = field(default_factory=dict)
    source: str = ""
    seconds: float = 0.0
    backward_seconds: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    traces: int = 0
    retraces: list[str] = field(default_factory=list)
    op_by_op: list[str] = field(default_factory=list)
    parts: list[Explanation] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers, ready for JSON."""
        return _plain(asdict(self))  # type: ignore[no-any-return]

    def to_dot(self) -> str:
        """The recorded graph in Graphviz's language: a frame around what one kernel computes.

        ``dot -Tsvg`` draws it; nothing has to be installed to make the text.
        """
        return "\n".join(_dot_lines(self)) + "\n"

    def __str__(self) -> str:
        if sys.stdout.isatty():
            return _styled(self)
        return "\n".join(_text_lines(self))

    def __repr__(self) -> str:
        return str(self)

    def __rich__(self) -> Any:
        return _renderable(self)


# The tables ----------------------------------------------------------------------

Table = tuple[str, Sequence[str], list[Sequence[str]]]


def _shape_text(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _time_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _bytes_text(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _number_text(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _facts(found: Explanation) -> list[tuple[str, str]]:
    """The lines above the tables."""
    facts = [("runs", f"{found.runs}: {found.why}")]
    if found.inputs:
        facts.append(("inputs", "; ".join(map(str, found.inputs))))
    if found.outputs:
        facts.append(("outputs", "; ".join(map(str, found.outputs))))
    if found.operators:
        kinds: dict[str, int] = {}
        for operator in found.operators:
            kinds[operator.operator] = kinds.get(operator.operator, 0) + 1
        facts.append(("recorded", f"{_number_text(len(found.operators), 'operator')}: {_counts_text(kinds)}"))
    if found.kernels:
        text = _time_text(found.seconds)
        if found.mode == "train":
            text = f"forward {text}, backward {_time_text(found.backward_seconds)}"
        facts.append(("time", f"{text} (median), {_number_text(len(found.kernels), 'kernel node')}"))
    if found.prepared:
        facts.append(("prepared", f"once for the parameters' values: {_counts_text(found.prepared)}"))
    if found.memory:
        shown = ", ".join(f"{name} {_bytes_text(count)}" for name, count in found.memory.items())
        facts.append(("memory", shown))
    busy = {report.name for report in found.passes if report.changed}
    idle = dict.fromkeys(report.name for report in found.passes if report.name not in busy)
    if idle:
        facts.append(("no effect", f"passes: {', '.join(idle)}"))
    if found.skipped:
        facts.append(("skipped", f"passes that are switched off: {', '.join(found.skipped)}"))
    facts.append(("traces", str(found.traces)))
    return facts


def _tables(found: Explanation) -> Iterator[Table]:
    changes: list[Sequence[str]] = [
        (
            p.name,
            f"{p.before} -> {p.after}",
            _counts_text(p.gone),
            _counts_text(p.came) or ("" if p.gone else "the same operators in another order"),
        )
        for p in found.passes
        if p.changed
    ]
    if changes:
        yield "passes", ("pass", "operators", "gone", "new"), changes
    if found.kernels:
        yield _kernel_table(found)
    if found.guards:
        rows: list[Sequence[str]] = [(guard.text, guard.location or "") for guard in found.guards]
        yield "guards", ("the graph holds while", "asked at"), rows
    if found.retraces:
        yield "re-traces", ("#", "reason"), [(str(i), text) for i, text in enumerate(found.retraces, 2)]
    if found.op_by_op:
        yield "operator by operator", ("what, and why",), [(text,) for text in found.op_by_op]


def _kernel_table(found: Explanation) -> Table:
    train = found.mode == "train"
    header = ["kernel", "computes", "output", "time", *(["backward"] if train else []), "share"]
    named = any(kernel.implementation for kernel in found.kernels)
    rows: list[Sequence[str]] = []
    for kernel in found.kernels:
        row = [
            kernel.kernel if kernel.count == 1 else f"{kernel.kernel} ({kernel.count} times)",
            _covers_text(kernel.covers),
            ", ".join(_shape_text(array.shape) for array in kernel.outputs[:1]),
            _time_text(kernel.seconds),
        ]
        if train:
            row.append(_time_text(kernel.backward_seconds))
        rows.append([*row, f"{kernel.share:.1%}", *([kernel.implementation] if named else [])])
    return "kernels", [*header, *(["implementation"] if named else [])], rows


# More names than this are not shown for one kernel; `Kernel.covers` has them all.
_MOST_NAMES = 6


def _covers_text(names: Sequence[str]) -> str:
    """Names with what they have in common written once: ``body_(0_fwd, 1_fwd)``."""
    if len(names) > _MOST_NAMES:
        return f"{_covers_text(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    if len(names) < 2:
        return "".join(names)
    common = names[0]
    for name in names[1:]:
        while not name.startswith(common):
            common = common[:-1]
    common = common[: common.rfind("_") + 1]
    if not common:
        return ", ".join(names)
    return f"{common}({', '.join(name[len(common) :] for name in names)})"


def _text_lines(found: Explanation) -> Iterator[str]:
    title = _title(found)
    yield title
    yield "=" * len(title)
    for name, text in _facts(found):
        yield f"{name:<10} {text}".replace("\n", f"\n{'':<11}")
    for heading, header, rows in _tables(found):
        yield ""
        yield f"{heading}:"
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        for row in [header, ["-" * width for width in widths], *rows]:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            yield f"  {'  '.join(cells)}".rstrip()
    for part in found.parts:
        yield ""
        yield from _text_lines(part)


def _title(found: Explanation) -> str:
    state = "" if found.hybridized else " (not hybridized: this is what it would do)"
    return f"{found.block}, {found.mode}{state}"


def _renderable(found: Explanation) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    parts: list[Any] = [Text(_title(found), style="bold")]
    facts = RichTable.grid(padding=(0, 2))
    for name, text in _facts(found):
        facts.add_row(Text(name, style="cyan"), Text(text))
    parts.append(facts)
    for heading, header, rows in _tables(found):
        table = RichTable(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
        for name in header:
            right = name in ("time", "backward", "share")
            table.add_column(name, justify="right" if right else "left", no_wrap=right)
        for row in rows:
            table.add_row(*map(Text, row))
        parts.append(table)
    parts += [_renderable(part) for part in found.parts]
    return Group(*parts)


def _styled(found: Explanation) -> str:
    """The tables with the terminal's colours and width."""
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    console = Console(file=text, force_terminal=True, width=shutil.get_terminal_size().columns)
    console.print(_renderable(found))
    return text.getvalue().rstrip("\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


# The drawing ----------------------------------------------------------------------


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _dot_lines(found: Explanation) -> Iterator[str]:
    yield f"digraph {_quoted(found.block)} {{"
    yield "  rankdir=TB; node [shape=box, fontname=Helvetica]; edge [color=gray40];"
    yield f"  label={_quoted(_title(found))}; labelloc=t; fontname=Helvetica;"
    for array in found.inputs:
        yield f"  {_quoted(array.name)} [shape=ellipse, label={_quoted(str(array))}];"
    groups: dict[str, list[Operator]] = {}
    for operator in found.operators:
        group = operator.computed_by[-1] if operator.computed_by else ""
        groups.setdefault(group, []).append(operator)
    kernels = {kernel.name: kernel for kernel in found.kernels}
    for place, (group, members) in enumerate(groups.items()):
        if group:
            kernel = kernels[group]
            text = f"{kernel.kernel}, {_time_text(kernel.seconds)}"
            yield f"  subgraph cluster_{place} {{ style=rounded; color=steelblue; label={_quoted(text)};"
        for operator in members:
            style = "" if group else ", style=dashed"
            label = _quoted(f"{operator.name}\n{operator.operator}")
            yield f"  {_quoted(operator.name)} [label={label}{style}];"
        if group:
            yield "  }"
    known = {operator.name for operator in found.operators} | {array.name for array in found.inputs}
    for operator in found.operators:
        for source in dict.fromkeys(operator.inputs):
            if source in known:
                yield f"  {_quoted(source)} -> {_quoted(operator.name)};"
    yield "}"
