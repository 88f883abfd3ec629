"""Blocks as torch modules and torch modules as blocks: shared memory, gradients, modes, checks."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.testing import assert_close

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn


def convolutional() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Flatten(), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


@pytest.fixture(params=[1, 2])
def level(request: pytest.FixtureRequest) -> int:
    mx.set_api(request.param)
    return int(request.param)


def as_torch(array: Any) -> torch.Tensor:
    return torch.from_numpy(array.asnumpy())


# Blocks as modules ----------------------------------------------------------------------


@pytest.mark.parametrize("hybridized", [False, True])
def test_module_computes_what_the_block_does_and_has_its_gradients(level: int, hybridized: bool) -> None:
    net = convolutional()
    if hybridized:
        net.hybridize()
    x = mx.nd.random.normal(shape=(2, 3, 8, 8))
    net(x)
    module = net.to_torch()
    names = ["0.weight", "0.bias", "1.gamma", "1.beta", "1.running_mean", "1.running_var"]
    assert list(module.state_dict()) == [*names, "3.weight", "3.bias"]
    x.attach_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    source = as_torch(x).requires_grad_()
    module(source).square().sum().backward()
    assert_close(source.grad, as_torch(x.grad))
    for path, parameter in module.named_parameters():
        block = net[int(path[0])]
        assert_close(parameter.grad, as_torch(getattr(block, path[2:]).grad()))
    assert_close(module.eval()(source).detach(), as_torch(net(x)))


def test_memory_is_shared_in_both_directions() -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize()
    module = net.to_torch()
    with torch.no_grad():
        module.weight.fill_(2)
    assert net.weight.data().asnumpy().tolist() == [[2.0] * 3] * 2
    net.weight.set_data(mx.nd.ones((2, 3)))
    assert module.weight.tolist() == [[1.0] * 3] * 2
    module.load_state_dict({"weight": torch.zeros(2, 3), "bias": torch.ones(2)})
    assert net(mx.nd.ones((1, 3))).asnumpy().tolist() == [[1.0, 1.0]]


def test_train_and_eval_choose_the_mode() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.BatchNorm(in_channels=4))
    net.initialize()
    module = net.to_torch()
    x = torch.ones(64, 4)
    assert_close(module.eval()(x), x / (1 + 1e-5) ** 0.5)
    before = module.state_dict()["1.running_mean"].clone()
    out = module.train()(x)
    assert len(out.unique()) > 1
    out.sum().backward()
    # The mean of dropped ones scaled by two is near 1, and a tenth of it is taken.
    moved = module.state_dict()["1.running_mean"] - before
    assert (moved > 0.05).all() and (moved < 0.15).all()
    assert_close(as_torch(net[1].running_mean.data()), module.state_dict()["1.running_mean"])


def test_a_torch_optimizer_and_a_gluon_trainer_train_the_same_parameters() -> None:
    net = nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    module = net.to_torch()
    module(torch.tensor([[3.0, 5.0]])).sum().backward()
    assert net.weight.grad().asnumpy().tolist() == [[3.0, 5.0]]
    gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}).step(1)
    assert module.weight.tolist() == [[-0.5, -1.5]]
    torch.optim.SGD(module.parameters(), lr=0.5).step()
    assert net.weight.data().asnumpy().tolist() == [[-2.0, -4.0]]


def test_a_parameter_frozen_on_either_side() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.Dense(1, in_units=2))
    net.initialize()
    net[0].weight.grad_req = "null"
    module = net.to_torch()
    assert not module.get_parameter("0.weight").requires_grad
    module.get_parameter("1.weight").requires_grad_(False)
    module(torch.ones(1, 2)).sum().backward()
    assert module.get_parameter("1.weight").grad is None and module.get_parameter("0.weight").grad is None
    assert module.get_parameter("0.bias").grad is not None
    # A frozen torch parameter leaves the block trainable by itself.
    with autograd.record():
        loss = net(mx.nd.ones((1, 2))).sum()
    loss.backward()
    assert abs(net[1].weight.grad().asnumpy()).sum() > 0


def test_conversion_of_types_reaches_the_block() -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize()
    module = net.to_torch().double()
    assert net(mx.nd.ones((1, 3), dtype="float64")).dtype is numpy.float64
    assert module(torch.ones(1, 3, dtype=torch.float64)).dtype is torch.float64
    net.cast("float32")
    assert module(torch.ones(1, 3)).dtype is torch.float32 and module.weight.dtype is torch.float32


def test_torch_func_sees_the_parameters() -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize()
    module = net.to_torch()
    x = torch.tensor([[1.0, 2.0, 3.0]])

    def loss(values: Any) -> torch.Tensor:
        return torch.func.functional_call(module, values, (x,)).sum()

    gradients = torch.func.grad(loss)({name: p.detach() for name, p in module.named_parameters()})
    assert_close(gradients["weight"], x.expand(2, 3))
    zeros = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    assert float(loss(zeros).detach()) == 0.0
    assert float(module(x).detach().abs().sum()) > 0.0


def test_second_derivatives() -> None:
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    net.hybridize()
    module = net.to_torch()
    x = torch.tensor([[2.0]], requires_grad=True)
    (first,) = torch.autograd.grad(module(x).pow(3).sum(), x, create_graph=True)
    first.sum().backward()
    assert x.grad is not None and x.grad.item() == 12.0


class Nested(gluon.HybridBlock):
    """Takes and gives nested arguments; holds a constant and a shared child."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Dense(2, in_units=2, flatten=False)
        self.other = nn.Dense(2, in_units=2, flatten=False)
        self.other.share_parameters(self.one.collect_params())
        self.scale = gluon.Constant(mx.nd.array([2.0]))

    def forward(self, pair: Any, offset: Any) -> Any:
        first, second = pair
        return {"sum": self.one(first) + offset, "rest": [self.other(second) * self.scale.data()]}


def test_structures_shared_parameters_and_constants() -> None:
    net = Nested()
    net.initialize()
    module = net.to_torch((mx.nd.ones((1, 2)), mx.nd.ones((1, 2))), mx.nd.zeros((1, 2)))
    assert module.one.weight is module.other.weight
    assert len(list(module.parameters())) == 2 and "scale" in dict(module.named_buffers())
    x = torch.tensor([[1.0, -1.0]])
    out = module((x, x), offset=torch.ones(1, 2))
    assert_close(out["rest"][0], 2 * (out["sum"] - 1))


def test_copies_and_pickles_of_a_module_are_independent(tmp_path: Path) -> None:
    module = nn.Dense(2, in_units=3)
    module.initialize()
    module = module.to_torch().eval()
    x = torch.ones(1, 3)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_close(twin(x), module(x))
        assert not twin.training
        with torch.no_grad():
            twin.weight.zero_()
            twin.bias.zero_()
        assert float(twin(x).detach().abs().sum()) == 0.0
    assert float(module(x).detach().abs().sum()) > 0.0
    torch.save(module.state_dict(), tmp_path / "state.pt")
    assert set(torch.load(tmp_path / "state.pt")) == {"weight", "bias"}


def test_deferred_shapes_need_example_inputs() -> None:
    net = nn.Dense(2)
    net.initialize()
    with pytest.raises(gluon.DeferredInitializationError, match="has not been initialized yet"):
        net.to_torch()
    module = net.to_torch(torch.ones(4, 7))
    assert tuple(module.weight.shape) == (2, 7)


class Unlike(gluon.HybridBlock):
    """Computes something else while gradients are recorded: no module can stand for it."""

    def forward(self, x: Any) -> Any:
        return x * 3 if autograd.is_recording() else x


def test_a_disagreement_is_found_when_the_module_is_made() -> None:
    with pytest.raises(MXNetError, match=r"to_torch of Unlike: .* differs by up to \d"):
        Unlike().to_torch(torch.ones(2, 2))
    late = Unlike().to_torch()
    with pytest.raises(MXNetError, match="differs by up to"):
        late(torch.ones(2, 2))
    assert Unlike().to_torch(torch.ones(2), check=False)(torch.ones(2)).tolist() == [3.0, 3.0]


def test_parameters_on_several_contexts_are_refused() -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with pytest.raises(MXNetError, match="one copy of each parameter"):
        net.to_torch()


def test_exported_program_needs_torch_only() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4, activation="relu"), nn.BatchNorm(in_channels=3))
    net.initialize(mx.init.Xavier())
    module = net.to_torch().eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        program = torch.export.export(module, (x,), strict=False)
        assert_close(program.module()(x), module(x))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert targets and all(target.startswith("aten.") for target in targets)


# Modules as blocks ----------------------------------------------------------------------


def torch_net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 2)
    )


def test_block_computes_what_the_module_does_and_has_its_gradients(level: int) -> None:
    module, reference = torch_net(), torch_net()
    block = gluon.from_torch(module)
    x = mx.nd.random.normal(shape=(6, 4))
    x.attach_grad()
    with autograd.record():
        loss = (block(x) ** 2).sum()
    loss.backward()
    source = as_torch(x).requires_grad_()
    reference(source).square().sum().backward()
    assert source.grad is not None
    assert_close(as_torch(x.grad), source.grad)
    found = {path: p for path, p in block._collect_with_prefix().items() if p.grad_req != "null"}
    assert list(found) == [name for name, _ in reference.named_parameters()]
    for name, parameter in reference.named_parameters():
        assert_close(as_torch(found[name].grad()), parameter.grad)
    assert_close(module[1].running_mean, reference[1].running_mean)
    assert_close(as_torch(block(x)), reference.eval()(as_torch(x)))
    expected = "torchblock" in next(iter(block.collect_params())) if level == 1 else True
    assert expected and (level == 1 or "0.weight" in block.collect_params())


def test_a_module_inside_a_hybridized_network_trains(tmp_path: Path) -> None:
    module = torch_net()
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), gluon.from_torch(module), nn.Dense(1, in_units=2))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    x, y = mx.nd.random.normal(shape=(32, 3)), mx.nd.random.normal(shape=(32, 1))
    before, losses = module[0].weight.detach().clone(), []
    for _ in range(60):
        with autograd.record():
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    assert losses[-1] < 0.7 * losses[0]
    assert not torch.equal(before, module[0].weight)
    net.save_parameters(tmp_path / "net.params")
    kept = net(x).asnumpy()
    with torch.no_grad():
        module[0].weight.zero_()
    net.load_parameters(tmp_path / "net.params")
    numpy.testing.assert_allclose(net(x).asnumpy(), kept, rtol=1e-6)
    with pytest.raises(MXNetError, match="wraps the torch module Sequential"):
        net.export(tmp_path / "net")


def test_block_and_module_share_memory_types_and_freezing() -> None:
    module = torch_net()
    block = gluon.from_torch(module, torch.zeros(3, 4))
    weight = block.collect_params()["0.weight"]
    weight.set_data(mx.nd.zeros((5, 4)))
    assert float(module[0].weight.detach().abs().sum()) == 0.0
    block.initialize(mx.init.One())
    assert float(module[0].weight.detach().abs().sum()) == 0.0
    block.initialize(mx.init.One(), force_reinit=True)
    assert float(module[0].weight.detach().min()) == 1.0
    block.cast("float64")
    assert module[0].weight.dtype is torch.float64
    module.float()
    assert block(mx.nd.zeros((1, 4))).dtype is numpy.float32
    module[0].requires_grad_(False)
    with autograd.record():
        loss = block(mx.nd.ones((2, 4))).sum()
    loss.backward()
    assert weight.grad_req == "null"


def test_dropout_in_a_module_follows_the_seed_and_the_mode() -> None:
    block = gluon.from_torch(torch.nn.Dropout(0.5), check=False)
    x = mx.nd.ones((8, 8))
    assert block(x).asnumpy().min() == 1.0
    drawn = []
    for _ in range(2):
        mx.random.seed(7)
        with autograd.train_mode():
            drawn += [block(x).asnumpy(), block(x).asnumpy()]
    numpy.testing.assert_array_equal(drawn[0], drawn[2])
    assert not numpy.array_equal(drawn[0], drawn[1])


def test_a_module_in_both_modes_from_many_threads() -> None:
    block = gluon.from_torch(torch.nn.Sequential(torch.nn.Dropout(0.5)), check=False)
    x, wrong = mx.nd.ones((32,)), []

    def call(training: bool) -> None:
        for _ in range(50):
            with autograd.train_mode() if training else autograd.predict_mode():
                dropped = block(x).asnumpy().min() == 0.0
            if dropped is not training and bool(dropped) is not training:
                wrong.append(training)

    threads = [threading.Thread(target=call, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_round_trips_give_the_original() -> None:
    module, net = torch_net(), nn.Dense(2, in_units=2)
    net.initialize()
    assert gluon.from_torch(module).to_torch() is module
    assert gluon.Block.from_torch(net.to_torch()) is net
    outer = nn.HybridSequential()
    outer.add(gluon.from_torch(module))
    outer.initialize()
    assert outer.to_torch().get_submodule("0") is module


def test_copies_and_pickles_of_a_wrapped_module() -> None:
    block = gluon.from_torch(torch_net())
    x = mx.nd.ones((2, 4))
    with autograd.record():
        block(x).sum().backward()
    block.collect_params()["0.weight"].grad_req = "null"
    for twin in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        numpy.testing.assert_allclose(twin(x).asnumpy(), block(x).asnumpy(), rtol=1e-6)
        assert twin.collect_params()["0.weight"].grad_req == "null"
        assert twin.module is not block.module


def test_what_from_torch_refuses() -> None:
    with pytest.raises(TypeError, match=r"expects a torch.nn.Module; received int"):
        gluon.from_torch(3)  # type: ignore[arg-type]
    with pytest.raises(MXNetError, match="lazy modules"):
        gluon.from_torch(torch.nn.LazyLinear(2))


class Drifting(torch.nn.Module):
    """Gives something else at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def test_a_module_that_disagrees_with_itself_is_found() -> None:
    with pytest.raises(MXNetError, match=r"from_torch of Drifting: .* differs by up to 1 "):
        gluon.from_torch(Drifting(), torch.zeros(2))


def test_a_block_that_became_a_module_is_freed_with_its_parameters() -> None:
    net = mx.gluon.nn.Dense(3, in_units=2)
    net.initialize()
    module = net.to_torch(mx.nd.ones((1, 2)))
    module(torch.ones(1, 2)).sum().backward()
    alive = [weakref.ref(each) for each in (net, net.weight, net.weight.data())]
    del net, module
    gc.collect()
    assert [reference() for reference in alive] == [None] * 3
