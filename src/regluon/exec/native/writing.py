"""The text of a generated function: where its values lie, and in which loops its steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["MOST_MEMORY", "Buffer", "Step", "TooLarge", "write"]

# A block of samples may need so many numbers of memory.
MOST_MEMORY = 250_000
_ALIGNMENT = 16


class TooLarge(RuntimeError):
    """The values of one block need too much memory."""


@dataclass(eq=False)
class Buffer:
    """Where a value lies.

    Attributes
    ----------
    size : int
        Numbers of one sample.
    place : str
        What it is in C++ if it lies outside, with all samples of the call: an input or an output.
    """

    size: int
    place: str = ""
    # Of one sample only: it is used up before the next sample.
    single: bool = False
    offset: int = 0


@dataclass
class Step:
    """A call of a template.

    Attributes
    ----------
    single : bool
        Whether it is for one sample, instead of for all of a block.
    read : list of Buffer
        What it reads.
    made : Buffer
        What it writes.
    text : str
        The call, with ``{}`` for each address, that of the result last.
    """

    single: bool
    read: list[Buffer]
    made: Buffer
    text: str
    loop: int = field(default=0)


def write(steps: Sequence[Step], inputs: int, outputs: int, block: int) -> str:
    """The source of ``regluon_run(addresses, first, end)``.

    Raises
    ------
    TooLarge
        If the values need more memory than a small network does.
    """
    _into_loops(steps)
    memory = _place(steps, block)
    lines = [Path(__file__).with_name("kernels.hpp").read_text(encoding="utf-8")]
    lines.append('extern "C" void regluon_run(void **addresses, int64_t first, int64_t end) {')
    lines += [f"    const float *x{i} = static_cast<const float *>(addresses[{i}]);" for i in range(inputs)]
    lines.append(f"    const float *weights = static_cast<const float *>(addresses[{inputs}]);")
    lines += [f"    float *y{i} = static_cast<float *>(addresses[{inputs + 1 + i}]);" for i in range(outputs)]
    lines.append("    const int64_t count = end - first;")
    lines.append("    (void)weights;")
    if memory:
        lines.append(f"    alignas(64) static thread_local float memory[{memory}];")
    loop = 0
    for step in steps:
        if loop and step.loop != loop:
            lines.append("    }")
        if step.loop and step.loop != loop:
            lines.append("    for (int64_t n = 0; n < count; n++) {")
        loop = step.loop
        addresses = [_address(buffer, bool(loop)) for buffer in (*step.read, step.made)]
        lines.append(f"    {'    ' if loop else ''}{step.text.format(*addresses)}")
    lines += ["    }"] * bool(loop)
    return "\n".join([*lines, "}", ""])


def _into_loops(steps: Sequence[Step]) -> None:
    """Steps for one sample that follow one another are one loop over the samples."""
    loop = 0
    for before, step in zip([None, *steps], steps, strict=False):
        if step.single:
            if before is None or not before.single:
                loop += 1
            step.loop = loop
    used: dict[Buffer, set[int]] = {}
    for step in steps:
        for buffer in (*step.read, step.made):
            used.setdefault(buffer, set()).add(step.loop)
    for buffer, loops in used.items():
        buffer.single = len(loops) == 1 and 0 not in loops


def _place(steps: Sequence[Step], block: int) -> int:
    """An offset for each value of the function's own; gives the numbers of memory in all."""
    end = 0
    for step in steps:
        if not step.made.place:
            step.made.offset = end
            size = step.made.size * (1 if step.made.single else block)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
    if end > MOST_MEMORY:
        raise TooLarge("the values need too much memory")
    return end


def _address(buffer: Buffer, looped: bool) -> str:
    if buffer.place:
        return f"{buffer.place} + (first{' + n' if looped else ''}) * {buffer.size}"
    here = f"memory + {buffer.offset}"
    return f"{here} + n * {buffer.size}" if looped and not buffer.single else here
