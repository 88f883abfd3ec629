"""Optimizer states: our format, the originals' pickles, and pickles that want to run something."""

from __future__ import annotations

import os
import pathlib
import pickle

import pytest
import torch

from regluon import lr_scheduler, optimizer
from regluon.array import NDArray
from regluon.serial import states
from regluon.serial.params import ParamsError

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "serial"


def array(values, dtype=torch.float32):
    return NDArray._wrap(torch.tensor(values, dtype=dtype), None)


def numbers(value):
    if isinstance(value, tuple):
        return tuple(numbers(part) for part in value)
    return None if value is None else pytest.approx(value.asnumpy().tolist(), rel=1e-4)


def trained(kind, **options):
    rule = optimizer.create(kind, **options)
    updater = optimizer.get_updater(rule)
    for _ in range(3):
        updater(0, array([1.0, 2.0]), array([1.0, -1.0]))
    return updater


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1"])
@pytest.mark.parametrize("dump", [False, True])
def test_reads_the_pickles_of_the_originals(version, dump):
    suffix = "full.states" if dump else "states"
    loaded, rule = states.loads((GOLDEN / version / f"sgd.{suffix}").read_bytes(), optimizer.SGD())
    ours = trained("sgd", momentum=0.9, learning_rate=0.1)
    assert ours.states[0].asnumpy().tolist() == numbers(loaded[0])
    assert (rule is not None) == dump
    if dump:
        assert (rule.momentum, rule.lr, rule.num_update) == (0.9, 0.1, 3)
        assert rule._index_update_count == {0: 3}


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1"])
def test_the_float32_copy_comes_first(version):
    raw = (GOLDEN / version / "sgd_half.full.states").read_bytes()
    loaded, rule = states.loads(raw, optimizer.SGD())
    master, momentum = loaded[0]
    assert rule.multi_precision
    assert master.asnumpy().tolist() == pytest.approx([0.439, -2.122], rel=1e-4)
    assert momentum.asnumpy().tolist() == pytest.approx([-0.271, -0.542], rel=1e-4)


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1"])
def test_reads_schedulers(version):
    loaded, rule = states.loads((GOLDEN / version / "adam.full.states").read_bytes(), optimizer.SGD())
    assert type(rule) is optimizer.Adam
    assert isinstance(rule.lr_scheduler, lr_scheduler.FactorScheduler)
    assert (rule.lr_scheduler.step, rule.lr_scheduler.factor) == (2, 0.5)
    ours = trained("adam", learning_rate=0.05)
    assert tuple(part.asnumpy().tolist() for part in ours.states[0]) == numbers(loaded[0])


def test_round_trip():
    scheduler = lr_scheduler.PolyScheduler(10, base_lr=0.05)
    updater = trained("adam", learning_rate=0.05, lr_scheduler=scheduler, wd=0.25)
    updater.states["word"] = None
    loaded, rule = states.loads(updater.get_states(dump_optimizer=True), None)
    assert set(loaded) == {0, "word"} and loaded["word"] is None
    assert numbers(loaded[0]) == tuple(part.asnumpy().tolist() for part in updater.states[0])
    assert (type(rule), rule.wd, rule.num_update, rule._index_update_count) == (
        optimizer.Adam,
        0.25,
        3,
        {0: 3},
    )
    assert rule.lr_scheduler.__dict__ == scheduler.__dict__
    assert states.loads(updater.get_states(), None)[1] is None


def test_continuing_from_a_file_is_the_same_as_going_on():
    def run(reload):
        updater = optimizer.get_updater(optimizer.create("nadam", learning_rate=0.1))
        weight = array([1.0, -1.0])
        for step in range(6):
            if reload and step == 3:
                fresh = optimizer.get_updater(optimizer.create("nadam", learning_rate=0.7))
                fresh.set_states(updater.get_states(dump_optimizer=True))
                updater = fresh
            updater(0, array([0.5, step / 4]), weight)
        return weight.asnumpy().tolist()

    assert run(True) == run(False)


class Evil:
    def __reduce__(self):
        return (os.mkdir, (self.path,))


class Sized:
    def __reduce__(self):
        return (bytearray, (10**13,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_runs(tmp_path, protocol):
    evil = Evil()
    evil.path = str(tmp_path / "made")
    with pytest.raises(ParamsError, match=r"ask for '(posix|nt)\.mkdir'"):
        states.loads(pickle.dumps({0: evil}, protocol), optimizer.SGD())
    assert not os.path.exists(evil.path)
    with pytest.raises(ParamsError, match="not the states of an optimizer"):
        states.loads(pickle.dumps({0: Sized()}, protocol), optimizer.SGD())


def test_other_bytes():
    with pytest.raises(ParamsError, match="not the states of an optimizer"):
        states.loads(b"garbage", optimizer.SGD())
    with pytest.raises(ParamsError, match="the pickle holds list"):
        states.loads(pickle.dumps([1, 2]), optimizer.SGD())
    with pytest.raises(ParamsError, match="there is no entry '__states__'"):
        states.loads((GOLDEN / "1.9.1" / "dict.params").read_bytes(), optimizer.SGD())
    with pytest.raises(TypeError, match="expected as bytes"):
        states.loads("text", optimizer.SGD())
    raw = trained("sgd").get_states()
    with pytest.raises(ParamsError, match=r"damaged|cut off"):
        states.loads(raw[:-3], optimizer.SGD())


def test_numpy_numbers_and_text_states():
    import numpy as np

    loaded, _ = states.loads(pickle.dumps({0: (np.float32(2.5), "note", b"xy", {1: 2})}), optimizer.SGD())
    assert loaded[0][0] == 2.5 and loaded[0][1] == "note"
    with pytest.raises(TypeError, match="states are arrays, numbers"):
        states.dumps({0: object()})
