"""Twins have the layers of the Gluon networks: with the same weights they give the same results."""

from __future__ import annotations

import json

import numpy
import pytest
import torch

import regluon as mx
from bench.networks.describe import Step, steps_of
from bench.networks.gluon_networks import build
from bench.networks.torch_networks import BertLayer, from_steps
from regluon.gluon import nn


def described(net: nn.HybridSequential, x: mx.np.ndarray) -> list[Step]:
    net(x)
    shapes = {name: parameter.shape for name, parameter in net.collect_params().items()}
    return steps_of(json.loads(net(mx.sym.var("data")).tojson()), shapes)


def copied(net: nn.HybridSequential, module: torch.nn.Module) -> None:
    """Give a twin the network's weights, which both hold in the order of the layers."""
    names = {"gamma": "weight", "beta": "bias"}
    state = {}
    for name, parameter in net.collect_params().items():
        path, word = name.rsplit(".", 1)
        layer = f"layer_{path.replace('.', '_')}_fwd"
        state[f"{layer}.{names.get(word, word)}"] = parameter.data().handle.clone()
    missing, unexpected = module.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)


def test_a_description_has_operators_and_shapes() -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Dense(3, activation="relu"))
    net.initialize()
    steps = described(net, mx.np.ones((1, 2, 5, 5)))
    assert [step.op for step in steps] == ["Convolution", "BatchNorm", "FullyConnected", "Activation"]
    assert steps[0].shapes == {"weight": [4, 2, 3, 3]}
    assert steps[1].shapes == {name: [4] for name in ("gamma", "beta", "running_mean", "running_var")}
    assert steps[2].shapes == {"weight": [3, 100], "bias": [3]}
    assert [step.inputs for step in steps] == [["data"], *([step.name] for step in steps[:-1])]


@pytest.mark.parametrize("network", ["lenet", "mlp"])
def test_a_torch_twin_gives_the_same_result(network: str) -> None:
    net = build(mx, network, {})
    net.initialize(mx.init.Xavier())
    x = numpy.random.default_rng(0).normal(size=(2, 1, 28, 28) if network == "lenet" else (2, 10))
    array = mx.np.array(x, dtype="float32")
    twin = from_steps(described(net, array)).eval()
    copied(net, twin)
    with torch.no_grad():
        theirs = twin(torch.tensor(x, dtype=torch.float32)).numpy()
    numpy.testing.assert_allclose(net(array).asnumpy(), theirs, rtol=1e-4, atol=1e-5)


def test_pooling_normalisation_and_sums() -> None:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, strides=2, groups=2, in_channels=2),
        nn.BatchNorm(epsilon=1e-3),
        nn.Activation("relu"),
        nn.AvgPool2D(3, 2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.MaxPool2D(2, 2),
        nn.GlobalAvgPool2D(),
        nn.Flatten(),
    )
    net.initialize(mx.init.Normal(0.5))
    x = numpy.random.default_rng(0).normal(size=(2, 2, 20, 20)).astype(numpy.float32)
    twin = from_steps(described(net, mx.np.array(x))).eval()
    copied(net, twin)
    with torch.no_grad():
        numpy.testing.assert_allclose(
            net(mx.np.array(x)).asnumpy(), twin(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5
        )


def test_an_operator_that_twins_lack() -> None:
    with pytest.raises(ValueError, match="an operator LRN, which the torch twin lacks"):
        from_steps([Step("a", "LRN", ["data"], {}, {})])


def test_encoders_are_the_same() -> None:
    net = build(mx, "bert_layer", {})
    net.initialize(mx.init.Normal(0.05))
    twin = BertLayer().eval()
    names = {"gamma": "weight", "beta": "bias"}
    state = {}
    for name, parameter in net.collect_params().items():
        path, word = name.removeprefix("0.").removeprefix("attention.").rsplit(".", 1)
        state[f"{path}.{names.get(word, word)}"] = parameter.data().handle.clone()
    twin.load_state_dict(state)
    x = numpy.random.default_rng(0).normal(size=(1, 9, 768)).astype(numpy.float32)
    with torch.no_grad():
        theirs = twin(torch.from_numpy(x)).numpy()
    numpy.testing.assert_allclose(net(mx.np.array(x)).asnumpy(), theirs, rtol=1e-3, atol=1e-4)
