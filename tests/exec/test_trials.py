"""Ways that are timed step by step, and the memory of numbers for them and of packed weights afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import tuning
from regluon.exec.onednn import interface, packing, trials
from regluon.gluon import nn

needs_onednn = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)


class Timed(tuning.TimedRun):
    """A run whose time is known; the times of further runs follow one another."""

    def __init__(self, *times: float) -> None:
        self.times, self.runs = times, 0

    def __call__(self) -> None:
        self.runs += 1

    @property
    def seconds(self) -> float:
        return min(self.times[: max(self.runs, 1)])


def fastest(**runs: Timed) -> tuple[str, dict[str, int]]:
    return tuning._fastest_run(dict(runs), 0.96, 6), {name: run.runs for name, run in runs.items()}


def test_those_that_are_clearly_slower_run_twice() -> None:
    taken, runs = fastest(usual=Timed(1.0), slow=Timed(1.2))
    assert (taken, runs) == ("usual", {"usual": 2, "slow": 2})


def test_those_that_are_near_get_more_runs() -> None:
    taken, runs = fastest(usual=Timed(1.0), near=Timed(1.02, 1.02, 0.9))
    assert taken == "near" and runs["near"] == 3
    # Faster, but not by enough to be taken: it is run until that is certain.
    taken, runs = fastest(usual=Timed(1.0), near=Timed(0.97))
    assert taken == "usual" and runs["near"] == 6


def test_of_two_that_gain_the_faster_one_is_taken() -> None:
    taken, runs = fastest(usual=Timed(1.0), good=Timed(0.9), better=Timed(0.7))
    assert taken == "better" and runs["good"] < runs["better"]


def test_runs_of_other_kinds_are_timed_as_a_whole() -> None:
    calls: list[str] = []
    runs = {"usual": Timed(1.0), "whole": lambda: calls.append("whole")}
    assert tuning._fastest_run(runs, 0.96, 6) in runs and calls


# Regions joined of two ----------------------------------------------------------------------


class Parts:
    """Times of the nodes of a region, by node."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self._seconds = seconds

    def seconds_of(self, nodes: set[int]) -> float:
        return sum(self._seconds[node] for node in nodes)


def joined(first: list[float], last: list[float], make: Callable[[], Timed | None]) -> trials.Joined:
    nodes = [object() for _ in first]
    parts = [Parts({id(n): t for n, t in zip(nodes, each, strict=True)}) for each in (first, last)]
    return trials.Joined(*parts, nodes, 2, make)  # type: ignore[arg-type]


def test_a_region_that_cannot_gain_is_not_made() -> None:
    made: list[Timed] = []

    def make() -> Timed:
        made.append(Timed(0.1))
        return made[-1]

    mixed = joined([1.0, 1.0, 3.0], [1.0, 1.0, 1.0], make)
    assert tuning._fastest_run({"usual": Timed(3.0), "mixed": mixed}, 0.96, 6) == "usual"
    assert not made and mixed.seconds == pytest.approx(3.0 * trials._REORDERED)


@pytest.mark.parametrize(("really", "taken"), [(0.7, "mixed"), (1.5, "usual")])
def test_a_promising_region_is_made_and_measured_itself(really: float, taken: str) -> None:
    made: list[Timed] = []

    def make() -> Timed:
        made.append(Timed(really))
        return made[-1]

    mixed = joined([0.2, 0.2, 3.0], [1.0, 1.0, 0.3], make)
    assert mixed.seconds == pytest.approx(0.7 * trials._REORDERED)
    assert tuning._fastest_run({"usual": Timed(1.0), "mixed": mixed}, 0.96, 6) == taken
    assert len(made) == 1 and made[0].runs >= 3


def test_a_region_that_is_refused_is_not_taken() -> None:
    mixed = joined([0.1, 0.1, 0.1], [0.1, 0.1, 0.1], lambda: None)
    assert tuning._fastest_run({"usual": Timed(1.0), "mixed": mixed}, 0.96, 6) == "usual"
    assert mixed.seconds == math.inf


# Memory ----------------------------------------------------------------------


def test_memory_holds_numbers_until_it_is_given() -> None:
    memory = packing.Numbers()
    numbers = memory.numbers(1 << 12)
    assert bool((numbers == packing._BYTE).all())
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert bool(numbers.view(dtype).isfinite().all())
    first, second = packing.Together([64, 640]), packing.Together([128])
    memory.give(first)
    memory.give(second)
    # What comes next is no memory of theirs.
    others = memory.numbers(1 << 12)
    parts = [first.part(1, 640), second.part(0, 128), first.part(0, 64)]
    for number, part in enumerate(parts):
        part.fill_(number)
    assert [int(part.sum()) // part.numel() for part in parts] == [0, 1, 2]
    assert bool((others == packing._BYTE).all())


def test_too_little_memory_is_not_used() -> None:
    together, block = packing.Together([64, 64]), torch.zeros(100, dtype=torch.uint8)
    together.use(block)
    together.part(1, 64).fill_(1)
    assert not block.any()


def _network() -> nn.HybridSequential:
    net = nn.HybridSequential()
    # Filters of three channels are filled up with zeros where they are packed.
    net.add(nn.Conv2D(512, 3, padding=1, in_channels=3, activation="relu"))
    for _ in range(2):
        net.add(nn.Conv2D(512, 3, padding=1, in_channels=512, activation="relu"))
    net.add(nn.Dense(7, in_units=512 * 64))
    net.initialize(mx.init.Xavier())
    return net


@needs_onednn
def test_weights_are_packed_into_memory_that_was_measured_with(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    given: list[tuple[int, int]] = []
    use = packing.Together.use

    def used(self: packing.Together, block: torch.Tensor) -> None:
        given.append((block.data_ptr(), block.data_ptr() + block.numel()))
        use(self, block)

    monkeypatch.setattr(packing.Together, "use", used)
    prefers = tuning.Tuner.prefers

    def prefers_the_region(self: tuning.Tuner, group: object, ways: dict[str, object]) -> str:
        prefers(self, group, ways)  # type: ignore[arg-type]
        return next(iter(ways))

    monkeypatch.setattr(tuning.Tuner, "prefers", prefers_the_region)
    net, x = _network(), mx.nd.random.normal(shape=(1, 3, 8, 8))
    expected = net(x).asnumpy()
    net.hybridize(static_alloc=True, static_shape=True)
    for _ in range(3):
        np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-3, atol=1e-4)
    assert given
    net[1].weight.set_data(net[1].weight.data() * 0.5)
    after = net(x).asnumpy()
    net.hybridize(False)
    np.testing.assert_allclose(after, net(x).asnumpy(), rtol=1e-3, atol=1e-4)


@needs_onednn
def test_a_network_of_repeated_layers_has_few_kinds_of_steps(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    measured: list[trials.StepTimes] = []
    init = trials.StepTimes.__init__

    def noted(self: trials.StepTimes, *more: object) -> None:
        init(self, *more)  # type: ignore[arg-type]
        measured.append(self)

    monkeypatch.setattr(trials.StepTimes, "__init__", noted)
    net = nn.HybridSequential()
    for _ in range(12):
        net.add(nn.Conv2D(32, 3, padding=1, in_channels=32, activation="relu"))
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.normal(shape=(1, 32, 16, 16))
    expected = net(x).asnumpy()
    net.hybridize(static_alloc=True, static_shape=True)
    for _ in range(2):
        np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-3, atol=1e-4)
    for each in measured:
        assert sum(each._counts.values()) >= 12 > len(each._counts)
        assert 0 < each.seconds < math.inf
