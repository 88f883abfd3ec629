"""Engines: what runs a recorded graph at prediction in place of our own kernels, and the choice among them.

A backend that names an engine leaves the graph as it is (so that exports do not depend on it) and says who
compiles it. Training always runs our own programs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy
import torch
from torch import Tensor

from .plan import Plan
from .program import Program

__all__ = ["ENGINES", "Engine", "Report", "compile_with"]

# Results of two engines differ by rounding; beyond this one of them is wrong.
TOLERANCE = 1e-3


@dataclass
class Report:
    """What a backend did for calls of one set of shapes.

    Attributes
    ----------
    backend : str
        The backend that was asked for.
    shapes : list of tuple of int
        The inputs' shapes.
    chosen : str
        What runs: the name of an engine, or "default".
    seconds : dict
        With "auto": the median time of a call, by engine.
    prepare_seconds : dict
        How long making each took, by engine.
    left_out : dict
        Engines that were not used, and why.
    operators : tuple of int
        How many operators run in the engine, and how many there are (fused ones count as they were recorded).
    """

    backend: str
    shapes: list[tuple[int, ...]]
    chosen: str = "default"
    seconds: dict[str, float] = field(default_factory=dict)
    prepare_seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    operators: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        lines = [
            f"backend {self.backend!r} for inputs {', '.join(map(str, self.shapes))}: {self.chosen} runs"
        ]
        inside, whole = self.operators
        if self.chosen != "default" and inside < whole:
            lines.append(
                f"  {inside} of {whole} operators in {self.chosen}, the others in the default program"
            )
        for name, seconds in sorted(self.seconds.items(), key=lambda item: item[1]):
            made = self.prepare_seconds.get(name, 0.0)
            lines.append(f"  {name}: {seconds * 1e3:.3f} ms a call, made in {made:.2f} s")
        lines += [f"  {name}: not used, {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


Make = Callable[[Program, int, Sequence[Tensor], dict[str, Any]], Plan]


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes
    ----------
    name : str
        The backend's name.
    options : dict
        Names of the keywords that it takes, and what each is for.
    packages : tuple of str
        The packages that it needs; an extra of its name installs them.
    make : callable
        ``make(general, count, tensors, options)`` gives a plan; see `Plan`.
    trouble : callable
        Why it cannot run here although its packages are installed, or None.
    """

    name: str
    options: dict[str, str]
    packages: tuple[str, ...]
    make: Make
    trouble: Callable[[], str | None] = lambda: None

    def missing(self) -> str | None:
        """The packages that it needs and that are not installed, with the remedy; None where all are."""
        absent = [name for name in self.packages if find_spec(name) is None]
        if not absent:
            return None
        return (
            f"it needs the package(s) {' and '.join(absent)}, not installed here: pip install "
            f"'regluon[{self.name}]'"
        )

    def check(self, options: dict[str, Any]) -> None:
        """Refuse options that it does not have, and packages that are missing.

        Raises
        ------
        TypeError
            For an unknown option.
        ImportError
            For a missing package; the message says how to install it.
        """
        unknown = [name for name in options if name not in self.options]
        if unknown:
            there = ", ".join(f"{name} ({text})" for name, text in self.options.items()) or "none"
            raise TypeError(f"backend {self.name!r} has no option {', '.join(unknown)}; its options: {there}")
        missing = self.missing()
        if missing is not None:
            raise ImportError(f"backend {self.name!r}: {missing}")


def _make_onnxruntime(
    general: Program, count: int, tensors: Sequence[Tensor], options: dict[str, Any]
) -> Plan:
    from .onnxruntime import Session
    from .sessions import SessionPlan

    return SessionPlan(general, count, tensors, lambda model: Session(model, **options))


def _make_openvino(general: Program, count: int, tensors: Sequence[Tensor], options: dict[str, Any]) -> Plan:
    from .openvino import Session
    from .sessions import SessionPlan

    return SessionPlan(general, count, tensors, lambda model: Session(model, **options))


def _make_inductor(general: Program, count: int, tensors: Sequence[Tensor], options: dict[str, Any]) -> Plan:
    from .inductor import InductorPlan

    return InductorPlan(general, count, tensors)


def _no_compiler() -> str | None:
    from .inductor import missing_compiler

    return missing_compiler()


def _make_default(general: Program, count: int, tensors: Sequence[Tensor], options: dict[str, Any]) -> Plan:
    return Plan(general, count, tensors, bool(options.get("tune")))


_THREADS = "how many threads it uses, as many as torch by default"

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("inductor", {}, (), _make_inductor, _no_compiler),
        Engine("onnxruntime", {"threads": _THREADS}, ("onnx", "onnxruntime"), _make_onnxruntime),
        Engine(
            "openvino",
            {"threads": _THREADS, "precision": "'f32' (the default), 'bf16' or 'f16'"},
            ("onnx", "openvino"),
            _make_openvino,
        ),
        Engine(
            "auto",
            {
                "inductor": "whether to try inductor too, which compiles for seconds to minutes",
                "rounds": "how many timed calls decide, 5 by default",
            },
            (),
            _make_default,
        ),
    )
}


def compile_with(
    name: str,
    options: dict[str, Any],
    general: Program,
    count: int,
    tensors: Sequence[Tensor],
    tune: bool = False,
) -> tuple[Plan, Report]:
    """A plan made by an engine, or our own where that engine cannot run the graph, with a warning.

    Parameters
    ----------
    name : str
        An engine.
    options : dict
        Its options.
    general, count, tensors, tune
        As for `Plan`.

    Raises
    ------
    MXNetError
        If the graph cannot be planned at all.
    """
    report = Report(name, [tuple(tensor.shape) for tensor in tensors[:count]])
    if name == "auto":
        return _fastest(report, options, general, count, tensors, tune), report
    plan = _tried(report, ENGINES[name], options, general, count, tensors)
    if plan is None:
        # Graphs that no engine plans, not even our own, raise here and run as they were recorded.
        plan = Plan(general, count, tensors, tune)
        warnings.warn(
            f"backend {name!r} does not run this network: {report.left_out[name]}. The default runs instead",
            stacklevel=_outside(),
        )
        return plan, report
    report.chosen = name
    report.operators = _operators(plan, general)
    return plan, report


def _outside() -> int:
    """How many frames up the user's code is."""
    import sys

    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("regluon."):
        frame, level = frame.f_back, level + 1
    return level


def _operators(plan: Plan, general: Program) -> tuple[int, int]:
    found = getattr(plan, "operators", None)
    return found if found is not None else (len(general.nodes), len(general.nodes))


def _tried(
    report: Report,
    engine: Engine,
    options: dict[str, Any],
    general: Program,
    count: int,
    tensors: Sequence[Tensor],
) -> Plan | None:
    """A plan of an engine, None where it makes none; the report says why."""
    reason = engine.missing() or engine.trouble()
    if reason is not None:
        report.left_out[engine.name] = reason
        return None
    begin = time.perf_counter()
    try:
        plan = engine.make(general, count, tensors, options)
    except Exception as error:
        # Engines raise errors of their own for networks that they do not take.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        report.left_out[engine.name] = lines[0]
        return None
    report.prepare_seconds[engine.name] = time.perf_counter() - begin
    return plan


def _fastest(
    report: Report,
    options: dict[str, Any],
    general: Program,
    count: int,
    tensors: Sequence[Tensor],
    tune: bool,
) -> Plan:
    begin = time.perf_counter()
    plans: dict[str, Plan] = {"default": Plan(general, count, tensors, tune)}
    report.prepare_seconds["default"] = time.perf_counter() - begin
    expected = plans["default"](0, tensors)
    for name, engine in ENGINES.items():
        if name == "auto":
            continue
        if name == "inductor" and not options.get("inductor"):
            report.left_out[name] = "it is tried where inductor=True is given"
            continue
        plan = _tried(report, engine, {}, general, count, tensors)
        if plan is None:
            continue
        wrong = _differs(plan, expected, tensors)
        if wrong is None:
            plans[name] = plan
        else:
            report.left_out[name] = wrong
    report.seconds = _times(plans, tensors, int(options.get("rounds") or 5))
    report.chosen = min(report.seconds, key=report.seconds.__getitem__)
    chosen = plans[report.chosen]
    report.operators = (0, 0) if report.chosen == "default" else _operators(chosen, general)
    return chosen


def _differs(plan: Plan, expected: Sequence[Tensor], tensors: Sequence[Tensor]) -> str | None:
    """Why a plan is not right for these inputs: it fails, or its results are not those expected."""
    try:
        made = plan(0, tensors)
    except Exception as error:
        return f"it fails: {error}"
    for result, wanted in zip(made, expected, strict=True):
        if result.shape != wanted.shape or result.dtype is not wanted.dtype:
            return f"it gives {tuple(result.shape)} {result.dtype}, not {tuple(wanted.shape)} {wanted.dtype}"
        a, b = result.to(torch.float64), wanted.to(torch.float64)
        bound = TOLERANCE * max(1.0, float(b[b.isfinite()].abs().max()) if b.isfinite().any() else 1.0)
        if not torch.allclose(a, b, TOLERANCE, bound, equal_nan=True):
            return f"its results differ by up to {float((a - b).abs().max()):.3g}"
    return None


def _times(plans: dict[str, Plan], tensors: Sequence[Tensor], rounds: int) -> dict[str, float]:
    """The median time of a call of each plan, taken in turns."""
    repeats = {}
    for name, plan in plans.items():
        plan(0, tensors)
        begin = time.perf_counter()
        plan(0, tensors)
        # Short calls are timed several at once: the clock and the first use of caches would count else.
        repeats[name] = max(1, min(100, int(0.002 / max(time.perf_counter() - begin, 1e-7))))
    taken: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, plan in plans.items():
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                plan(0, tensors)
            taken[name].append((time.perf_counter() - begin) / repeats[name])
    return {name: float(numpy.median(times)) for name, times in taken.items()}
