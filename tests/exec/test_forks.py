"""Processes made by fork: networks, operators and workers run in them, whatever their parent did before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# A network and operators whose work is shared out between threads.
COMMON = """
import os, signal, sys
import torch
torch.set_num_threads(2)
import regluon as mx
from regluon.gluon import data, nn

def network():
    mx.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1, activation="relu"), nn.Conv2D(16, 3), nn.Flatten(), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net

def large():
    return (mx.nd.ones((1000, 1000)) * 2 + 1).sum().asscalar()

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, work

x = mx.nd.ones((4, 3, 48, 48))
"""
NETWORKS = """
net = network()
net.hybridize(**eval(sys.argv[1]))
for _ in range(3):
    expected = net(x).asnumpy()

def close(found):
    assert abs(found.asnumpy() - expected).max() < 1e-4 * abs(expected).max()

def train():
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(4)
    net(x).wait_to_read()

in_child(lambda: close(net(x)))
in_child(lambda: close(network()(x)))
in_child(large)
in_child(train)
close(net(x))
assert torch.get_num_threads() == 2
"""
WORKERS = """
import multiprocessing

def transform(image):
    return (image.astype("float32") * 2 + 1).sum()

net = network()
net.hybridize()
for _ in range(2):
    net(x).wait_to_read()
large()
images = data.SimpleDataset([mx.nd.ones((300, 300, 3), dtype="uint8")] * 4).transform(transform)
loader = data.DataLoader(images, batch_size=2, num_workers=2, timeout=100)
assert [batch.asnumpy().tolist() for batch in loader] == [[[810000]] * 2] * 2
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(transform, [mx.nd.ones((300, 300, 3))]).get(100)[0] == 810000
"""
UNTOUCHED = """
def single():
    assert torch.get_num_threads() == 1
    large()

def several():
    assert torch.get_num_threads() == 2
    large()
    in_child(single)

in_child(several)
large()
in_child(single)
"""

RAISED = """
import warnings

import numpy

def raised():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_num_threads(2)
        torch.set_num_threads(numpy.int64(2))
    assert [each.category for each in caught] == [RuntimeWarning] * 2
    assert "set_num_threads(2) has no effect in a process made by fork" in str(caught[0].message)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(1)
    large()
    in_child(large)

large()
in_child(raised)
torch.set_num_threads(3)
assert torch.get_num_threads() == 3
"""


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", COMMON + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
def test_networks_in_children_after_their_parent_ran_one(flags: dict[str, bool]) -> None:
    run(NETWORKS, repr(flags))


def test_workers_that_compute_after_their_parent_did() -> None:
    run(WORKERS)


def test_a_child_keeps_its_threads_where_none_ran_before() -> None:
    run(UNTOUCHED)


def test_a_child_that_asks_for_more_threads_is_told_and_does_not_hang() -> None:
    run(RAISED)
