"""What a fresh process imports to record and run a network."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import torch

HEAVY = {"sympy", "torch._refs", "torch._dynamo", "torch._inductor", "networkx", "matplotlib", "cv2", "onnx"}
HEAVY -= set(sys.modules)  # what torch imports by itself, which differs between its versions

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

already = HEAVY & set(sys.modules)
assert "sympy" in HEAVY and not already, f"imported by regluon itself: {already}"

class LeNet(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(6, kernel_size=5)
        self.conv2 = nn.Conv2D(16, kernel_size=5)
        self.norm = nn.BatchNorm()
        self.drop = nn.Dropout(0.5)
        self.fc1 = nn.Dense(32)
        self.fc2 = nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = F.Pooling(F.tanh(self.conv1(x)), pool_type="max", kernel=(2, 2), stride=(2, 2))
        x = F.Pooling(F.tanh(self.norm(self.conv2(x))), pool_type="max", kernel=(2, 2), stride=(2, 2))
        x = x.reshape((0, -1))
        return self.fc2(self.drop(F.relu(self.fc1(x))))

net, loss_of = LeNet(), gluon.loss.SoftmaxCrossEntropyLoss()
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
for flags in ({}, {"static_alloc": True, "static_shape": True}):
    net.hybridize(**flags)
    loss_of.hybridize(**flags)
    for _ in range(2):
        with autograd.record():
            loss = loss_of(net(mx.nd.random.normal(shape=(2, 1, 28, 28))), mx.nd.array([1, 2]))
        loss.backward()
        trainer.step(2)
        net(mx.nd.random.normal(shape=(2, 1, 28, 28)))
print(float(loss.mean().asscalar()) > 0, sorted(HEAVY & set(sys.modules)))
"""


def test_recording_and_running_lenet_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1) == ["True", "[]\n"]


LATER = """
import sys
import regluon as mx

assert not {"regluon.contrib", "regluon.visualization", "regluon.gluon.rnn"} & set(sys.modules)
assert {"viz", "visualization", "contrib"} <= set(dir(mx)) and "vision" in dir(mx.gluon.data)
assert mx.viz is mx.visualization is sys.modules["regluon.visualization"] and "viz" in vars(mx)
assert mx.contrib.sym is sys.modules["regluon.symbol.contrib"] and mx.contrib.amp is mx.amp
assert mx.gluon.rnn is sys.modules["regluon.gluon.rnn"]
for package in (mx, mx.contrib, mx.gluon, mx.gluon.data):
    try:
        package.absent
    except AttributeError as error:
        assert str(error) == f"module {package.__name__!r} has no attribute 'absent'"
    else:
        raise AssertionError(package)
"""


def test_what_few_programs_use_is_imported_when_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
