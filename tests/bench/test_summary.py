"""Medians, ratios and verdicts, on numbers whose answers are known."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bench import summary, works
from bench.summary import judge, quartiles, ratio
from bench.works import WORKS, Bar, Work

WORK = Work("w", "a work", "mlp", bars=(Bar(1.0, ("torch", "jax")),))
times = some.lists(some.floats(1e-6, 1e3), min_size=1, max_size=9)


@given(times)
def test_quartiles_are_those_of_numpy(values: list[float]) -> None:
    numpy.testing.assert_allclose(quartiles(values), numpy.quantile(values, [0.25, 0.75]), rtol=1e-12)


@given(some.lists(some.tuples(some.floats(1e-3, 1.0), some.floats(1e-3, 1.0)), min_size=1, max_size=9))
def test_ratio_is_that_of_medians(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = numpy.array(pairs).T
    found = ratio(list(ours), list(theirs))
    assert found.value == pytest.approx(numpy.median(ours) / numpy.median(theirs))
    assert (found.low, found.high) == pytest.approx(tuple(numpy.quantile(ours / theirs, [0.25, 0.75])))


def test_quartiles_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        quartiles([])


def test_best_peer_is_the_one_with_the_lowest_median() -> None:
    samples = {"regluon": [2.0], "torch": [1.0, 4.0, 5.0], "jax": [3.0, 3.0, 3.0], "openvino": [0.1]}
    verdict = judge(WORK, WORK.bars[0], samples)
    assert (verdict.against, verdict.reached) == ("jax", True)
    assert verdict.ratio is not None
    assert verdict.ratio.value == pytest.approx(2 / 3)


@pytest.mark.parametrize(("ours", "reached"), [(1.0, True), (1.0001, False), (0.5, True), (3.0, False)])
def test_a_bar_is_reached_up_to_its_limit(ours: float, reached: bool) -> None:
    assert judge(WORK, WORK.bars[0], {"regluon": [ours], "torch": [1.0]}).reached is reached


def test_bars_in_seconds_and_beside_another_work() -> None:
    samples, half = {"regluon": [2.0, 3.0, 2.5]}, {"half": {"regluon": [1.0]}}
    assert judge(WORK, Bar(2.5, absolute=True), samples).reached is True
    assert judge(WORK, Bar(2.4, absolute=True), samples).reached is False
    assert judge(WORK, Bar(2.5, work="half"), samples, half).reached is True
    assert judge(WORK, Bar(2.4, work="half"), samples, half).reached is False


def test_what_cannot_be_compared_is_no_success() -> None:
    missing = judge(WORK, WORK.bars[0], {"torch": [1.0]})
    assert (missing.reached, missing.reason) == (None, "regluon has no result")
    alone = judge(WORK, WORK.bars[0], {"regluon": [1.0], "openvino": [1.0]})
    assert (alone.reached, alone.reason) == (None, "no result of torch or jax")


def test_every_row_has_the_bar_of_both_originals() -> None:
    for work in WORKS.values():
        limits = {bar.against: bar.limit for bar in works.bars_of(work) if bar not in work.bars}
        assert limits == {("mxnet-1.9.1",): 1.02, ("mxnet-2.0.0b1",): 1.02}
        assert set(work.peers) <= set(works.PEERS) == set(works.RUNS_IN)
        assert all(peer in work.peers for bar in work.bars for peer in bar.against)


def test_works_are_chosen_by_name_or_a_part_of_it() -> None:
    assert [work.name for work in works.chosen(["mlp-b1"])] == ["mlp-b1"]
    assert {work.name for work in works.chosen(["lenet"])} == {"lenet-b16", "lenet-training-b64"}
    assert len(works.chosen([])) == len(WORKS)
    with pytest.raises(ValueError, match="No work is called like 'alexnet'"):
        works.chosen(["alexnet"])


def test_verdicts_cover_all_bars() -> None:
    work = WORKS["mlp-b1"]
    samples = {peer: [1.0, 1.0] for peer in work.peers}
    assert [verdict.reached for verdict in summary.verdicts(work, samples)] == [False, True, True, True]
