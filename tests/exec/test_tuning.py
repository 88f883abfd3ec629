"""Kernels chosen by measuring: the fastest wins, is remembered, and every candidate computes the same."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

import regluon as mx
from regluon.exec import kernels, tuning
from regluon.exec.onednn import interface
from regluon.gluon import nn


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    # One node after the other, as where oneDNN's interface cannot be had.
    monkeypatch.setattr(interface, "library", lambda: None)
    return tmp_path


def network() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 3, in_channels=3, activation="relu"), nn.Dense(6, activation="tanh", in_units=8 * 36)
    )
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    return net


def names_of(net: mx.gluon.HybridBlock) -> list[str]:
    (call,) = net._cached.exact.values()
    return [node.op.name for node in call.chosen.program.nodes]


def run(monkeypatch, fastest: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    measured = []

    def measure(node, inputs, names, channels_last):
        measured.extend(names)
        return fastest if fastest in names else names[0]

    monkeypatch.setattr(tuning, "_fastest", measure)
    net, x = network(), mx.nd.random.normal(shape=(2, 3, 8, 8))
    expected = net(x).asnumpy()
    net.optimize_for(x, static_shape=True)
    return measured, net(x).asnumpy(), expected


@pytest.mark.parametrize("fastest", ["onednn", "plain", "small", "packed"])
def test_every_candidate_gives_the_same_values(fastest: str, folder, monkeypatch) -> None:
    _, actual, expected = run(monkeypatch, fastest)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_fastest_is_taken_and_remembered(folder, monkeypatch) -> None:
    measured, _, _ = run(monkeypatch, "plain")
    assert measured
    remembered = json.loads((folder / "kernels.json").read_text())
    # Besides, all of it may be measured as native code.
    assert {way for text, way in remembered.items() if "small network" not in text} == {"plain"}
    measured, _, _ = run(monkeypatch, "onednn")
    assert not measured, "what was measured before is not measured again"


def test_a_damaged_file_only_costs_measuring_again(folder, monkeypatch) -> None:
    (folder / "kernels.json").write_text("{not json")
    measured, _, _ = run(monkeypatch, "plain")
    assert measured and json.loads((folder / "kernels.json").read_text())


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path / "file"))
    _, actual, expected = run(monkeypatch, "plain")
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_really_measured(folder) -> None:
    if "convolution" not in kernels.available():
        pytest.skip("this torch has no oneDNN kernels to choose between")
    net, x = network(), mx.nd.random.normal(shape=(2, 3, 8, 8))
    expected = net(x).asnumpy()
    net.optimize_for(x, static_shape=True)
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    # Besides, all of it may be measured as native code.
    texts = json.loads((folder / "kernels.json").read_text())
    assert len([text for text in texts if "small network" not in text]) == 2
    assert set(names_of(net)) & {"onednn_convolution", "convolution"}


@pytest.mark.skipif(interface.library() is None, reason="oneDNN's interface cannot be had on this platform")
@pytest.mark.parametrize("fastest", ["region", "single kernels"])
def test_groups_of_layers_are_measured_too(fastest: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    measured = []

    def measure(runs, *more):
        for run in runs.values():
            run()
        # What is compiled in the background is measured at any time.
        if "native" not in runs:
            measured.append(list(runs))
        return fastest if fastest in runs else next(iter(runs))

    monkeypatch.setattr(tuning, "_fastest_run", measure)
    net, x = network(), mx.nd.random.normal(shape=(2, 3, 8, 8))
    expected = net(x).asnumpy()
    net.optimize_for(x, static_shape=True)
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert ["region", "single kernels"] in measured
    assert ("onednn" in names_of(net)) == (fastest == "region")
    count = len(measured)
    again = network()
    again.optimize_for(x, static_shape=True)
    assert len(measured) == count, "what was measured before is not measured again"


@pytest.mark.skipif(interface.library() is None, reason="oneDNN's interface cannot be had on this platform")
def test_groups_really_measured(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    net, x = network(), mx.nd.random.normal(shape=(2, 3, 8, 8))
    expected = net(x).asnumpy()
    net.optimize_for(x, static_shape=True)
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    (text,) = [t for t in json.loads((tmp_path / "kernels.json").read_text()) if "group of 2 operators" in t]
    assert text


def timed(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, list[float]]) -> tuple[str, dict[str, int]]:
    """Which of some ways is taken, whose runs take so long one after another, and how often each ran."""
    now, runs = [0.0], dict.fromkeys(seconds, 0)
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: now[0])

    def run(name: str) -> None:
        times = seconds[name]
        now[0] += times[min(runs[name], len(times) - 1)]
        runs[name] += 1

    taken = tuning._fastest_run({name: partial(run, name) for name in seconds}, 0.96, 6)
    return taken, runs


def test_long_runs_that_do_not_gain_are_given_up(monkeypatch) -> None:
    # The first run of each prepares it, and does not count.
    taken, runs = timed(monkeypatch, {"usual": [9, 1.0], "like": [9, 0.99], "slow": [9, 2.0]})
    assert taken == "usual" and runs == {"usual": 4, "like": 4, "slow": 4}
    taken, runs = timed(monkeypatch, {"usual": [9, 1.0], "fast": [9, 0.8], "less fast": [9, 0.9]})
    assert taken == "fast" and runs["fast"] > runs["less fast"] == 4


def test_one_that_may_still_gain_goes_on(monkeypatch) -> None:
    taken, runs = timed(monkeypatch, {"usual": [9, 1.0], "fast": [9, 0.97, 0.97, 0.97, 0.97, 0.95]})
    assert taken == "fast" and runs["fast"] > 4


def test_short_runs_are_not_judged_early(monkeypatch) -> None:
    times = [1.0, 0.0101, 0.0101, 0.0101, 0.0101, 0.0090]
    taken, runs = timed(monkeypatch, {"usual": [1.0, 0.01], "fast": times})
    assert taken == "fast" and runs["fast"] > 5


def test_one_way_alone_is_taken(monkeypatch) -> None:
    assert timed(monkeypatch, {"usual": [1.0]})[0] == "usual"
