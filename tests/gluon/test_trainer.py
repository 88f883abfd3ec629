"""Trainer: steps, stale gradients, several contexts, files, key-value stores."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import regluon as mx
from regluon import optimizer
from regluon.base import config
from regluon.gluon import DeferredInitializationError, Parameter, Trainer

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "serial"


def parameters(count=2, ctx=None, **options):
    made = {}
    for index in range(count):
        made[f"p{index}"] = Parameter(f"p{index}", shape=(2,), init="ones", **options)
        made[f"p{index}"].initialize(ctx=ctx)
    return made


def backward(params, factors=(1.0, 2.0), ctx=None):
    losses = []
    with mx.autograd.record():
        for position, context in enumerate(ctx or [mx.cpu()]):
            total = 0
            for one, factor in zip(params.values(), factors, strict=False):
                total = total + (one.data(context) * factor * (position + 1)).sum()
            losses.append(total)
    mx.autograd.backward(losses)


def test_step_divides_by_the_batch_size():
    params = parameters()
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "rescale_grad": 2.0})
    backward(params)
    trainer.step(4)
    assert [one.data().asnumpy().tolist() for one in params.values()] == [[0.75, 0.75], [0.5, 0.5]]
    assert trainer.optimizer.num_update == 1 and repr(trainer) == "Trainer(SGD, 2 parameters)"


def test_a_dictionary_is_taken_in_the_order_of_names():
    params = parameters(12)
    names = [one.name for one in Trainer(params, "sgd")._params]
    assert names == sorted(params)
    listed = list(params.values())
    assert Trainer(listed[::-1], "sgd")._params == listed[::-1]
    assert len(Trainer({"a": listed[0], "b": listed[0]}, "sgd")._params) == 1
    assert len(Trainer(params.values(), "sgd")._params) == 12


def test_learning_rate():
    trainer = Trainer(parameters(), "adam", {"learning_rate": 0.5})
    assert trainer.learning_rate == 0.5
    trainer.set_learning_rate(0.25)
    assert trainer.learning_rate == trainer.optimizer.lr == 0.25
    scheduler = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.4)
    params = parameters()
    trainer = Trainer(params, "sgd", {"lr_scheduler": scheduler, "learning_rate": 0.4})
    rates = []
    for _ in range(3):
        backward(params)
        trainer.step(1)
        rates.append(trainer.learning_rate)
    assert rates == [0.4, 0.2, 0.1]
    with pytest.raises(UserWarning, match="while an lr_scheduler decides it"):
        trainer.set_learning_rate(1.0)


def test_stale_gradients():
    params = parameters()
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5})
    backward(params, factors=(1.0,))
    with pytest.raises(UserWarning, match=r"The gradients of 1 parameters .*: 'p1' on cpu\(0\)"):
        trainer.step(1)
    assert params["p0"].data().asnumpy().tolist() == [1, 1]
    trainer.step(1, ignore_stale_grad=True)
    assert [one.data().asnumpy().tolist() for one in params.values()] == [[0.5, 0.5], [1, 1]]
    with pytest.raises(UserWarning, match="The gradients of 2 parameters"):
        trainer.step(1)


def test_frozen_parameters_are_left_alone():
    params = parameters()
    params["p1"].grad_req = "null"
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "wd": 0.5})
    backward(params, factors=(1.0,))
    trainer.step(1)
    assert params["p1"].data().asnumpy().tolist() == [1, 1]


def test_factors_of_parameters():
    params = parameters()
    params["p0"].lr_mult = 0.0
    params["p1"].wd_mult = 2.0
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "wd": 0.25})
    backward(params, factors=(1.0, 1.0))
    trainer.step(1)
    assert params["p0"].data().asnumpy().tolist() == [1, 1]
    assert params["p1"].data().asnumpy()[0] == pytest.approx(1 - 0.5 * (1 + 0.5))


@pytest.mark.parametrize("update_on_kvstore", [None, False])
def test_several_contexts_are_summed(update_on_kvstore):
    contexts = [mx.cpu(0), mx.cpu(1)]
    params = parameters(ctx=contexts)
    options = {"learning_rate": 0.1, "momentum": 0.5}
    trainer = Trainer(params, "sgd", options, update_on_kvstore=update_on_kvstore)
    for _ in range(2):
        backward(params, ctx=contexts)
        trainer.step(2)
    for one, factor in zip(params.values(), (1.0, 2.0), strict=True):
        first, second = (array.asnumpy() for array in one.list_data())
        np.testing.assert_array_equal(first, second)
        gradient = 3 * factor / 2
        np.testing.assert_allclose(first, 1 - 0.1 * gradient * 2.5, rtol=1e-6)
    assert trainer.optimizer.num_update == 2


def test_allreduce_and_update_apart():
    contexts = [mx.cpu(0), mx.cpu(1)]
    params = parameters(ctx=contexts)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, update_on_kvstore=False)
    backward(params, ctx=contexts)
    trainer.allreduce_grads()
    assert [array.asnumpy()[0] for array in params["p0"].list_grad()] == [3, 3]
    for one in params.values():
        for gradient in one.list_grad():
            gradient[:] = 1
    trainer.update(1)
    assert params["p1"].data(mx.cpu(1)).asnumpy().tolist() == [0.5, 0.5]
    refusing = Trainer(params, "sgd", update_on_kvstore=True)
    with pytest.raises(RuntimeError, match=r"allreduce_grads\(\) cannot be used .*update_on_kvstore=True"):
        refusing.allreduce_grads()
    with pytest.raises(RuntimeError, match=r"update\(\) cannot be used"):
        refusing.update(1)


def test_without_a_store_contexts_stay_apart():
    contexts = [mx.cpu(0), mx.cpu(1)]
    params = parameters(1, ctx=contexts)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, kvstore=None)
    backward(params, ctx=contexts)
    trainer.step(1)
    assert [array.asnumpy()[0] for array in params["p0"].list_data()] == [0.5, 0.0]


def test_uninitialized_parameters_are_named():
    params = parameters(1)
    params["head.weight"] = Parameter("weight", shape=(2, 0), allow_deferred_init=True)
    params["head.weight"].initialize()
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5})
    backward(params, factors=(1.0,))
    with pytest.raises(
        DeferredInitializationError, match=r"'head.weight' \(weight\).*never called by forward"
    ):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    assert params["p0"].data().asnumpy().tolist() == [0.5, 0.5]
    with pytest.raises(RuntimeError, match=r"Parameter 'w' has not been initialized. Call net.initialize"):
        Trainer({"w": Parameter("w", shape=(2,))}, "sgd").step(1)


def test_mistakes():
    params = parameters()
    with pytest.raises(ValueError, match="needs a dict or list of Parameters, such as"):
        Trainer(3, "sgd")
    with pytest.raises(ValueError, match="one of its elements is a <class 'int'>"):
        Trainer([1], "sgd")
    with pytest.raises(ValueError, match="optimizer_params must be left out"):
        Trainer(params, optimizer.SGD(), {"wd": 1})
    with pytest.raises(TypeError, match="kvstore must be a name"):
        Trainer(params, "sgd", kvstore=3)
    with pytest.raises(ValueError, match="There is no optimizer named 'sdg'"):
        Trainer(params, "sdg")
    params["p1"].reset_ctx(mx.cpu(1))
    with pytest.raises(ValueError, match=r"'p1' is on \[cpu\(1\)\], others are on \[cpu\(0\)\]"):
        Trainer(params, "sgd").step(1)


def test_moving_to_another_context():
    params = parameters()
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "momentum": 0.5})
    for context in (mx.cpu(0), mx.cpu(1)):
        for one in params.values():
            one.reset_ctx(context)
        backward(params, ctx=[context])
        trainer.step(1)
    assert params["p0"].data().asnumpy().tolist() == [1 - 0.5 - 0.75] * 2


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "adamw", "rmsprop", "lamb"])
def test_states_continue(tmp_path, name):
    path = str(tmp_path / "trainer.states")

    def run(reload):
        params = parameters()
        trainer = Trainer(params, name, {"learning_rate": 0.1})
        for step in range(6):
            if reload and step == 3:
                trainer.save_states(path)
                trainer = Trainer(params, name, {"learning_rate": 0.9})
                trainer.load_states(path)
                assert trainer.learning_rate == 0.1 and trainer.optimizer.num_update == 3
            backward(params, factors=(1.0, 0.5 * step))
            trainer.step(1)
        return [one.data().asnumpy().tolist() for one in params.values()]

    assert run(True) == run(False)


def test_states_are_not_tied_to_contexts(tmp_path):
    path = str(tmp_path / "trainer.states")
    params = parameters(1)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "momentum": 0.5})
    backward(params)
    trainer.step(1)
    trainer.save_states(path)
    contexts = [mx.cpu(0), mx.cpu(1)]
    params["p0"].reset_ctx(contexts)
    trainer = Trainer(params, "sgd", {"momentum": 0.5})
    trainer.load_states(path)
    backward(params, ctx=contexts)
    trainer.step(3)
    assert [array.asnumpy()[0] for array in params["p0"].list_data()] == [0.5 - 0.75] * 2


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1"])
def test_loads_the_states_of_the_originals(version):
    params = parameters(1)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.7, "momentum": 0.1})
    trainer.load_states(GOLDEN / version / "sgd.full.states")
    assert (trainer.learning_rate, trainer.optimizer.momentum) == (0.1, 0.9)
    backward(params)
    trainer.step(1)
    assert params["p0"].data().asnumpy() == pytest.approx(
        [1 - 0.1 - 0.9 * 0.271, 1 - 0.1 - 0.9 * 0.542], rel=1e-5
    )


def test_states_of_another_network(tmp_path):
    path = str(tmp_path / "trainer.states")
    params = parameters(3)
    trainer = Trainer(params, "sgd", {"momentum": 0.5})
    backward(params, factors=(1, 1, 1))
    trainer.step(1)
    trainer.save_states(path)
    with pytest.raises(ValueError, match="holds states of 3 parameters, this Trainer has 1"):
        Trainer(parameters(1), "sgd", {"momentum": 0.5}).load_states(path)


def test_own_store():
    calls = []

    @mx.kv.KVStoreBase.register
    class Doubling(mx.kv.KVStoreBase):
        """Sums gradients, twice."""

        def broadcast(self, key, value, out, priority=0):
            calls.append(("broadcast", key))

        def pushpull(self, key, value, out=None, priority=0):
            calls.append(("pushpull", key))
            for gradient in value:
                gradient[:] = gradient * 2

    try:
        params = parameters(1)
        trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, kvstore="doubling")
        backward(params)
        trainer.step(1)
        assert params["p0"].data().asnumpy().tolist() == [0, 0]
        assert calls == [("broadcast", 0), ("pushpull", 0)]
    finally:
        del mx.kv.KVStoreBase.kv_registry["doubling"]


def test_level_one_decays_everything_through_parameters():
    # Without param_idx2name there is no rule by name, so biases decay too, as in 1.9.1.
    config.set_api(1)
    params = {"d_bias": Parameter("d_bias", shape=(2,), init="ones")}
    params["d_bias"].initialize()
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0, "wd": 0.5})
    backward(params, factors=(0.0,))
    trainer.step(1)
    assert params["d_bias"].data().asnumpy().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("store", [None, "local", "device"])
@pytest.mark.parametrize("saved_by", [None, "local", "device"])
def test_states_of_two_contexts_go_on_in_one(saved_by, store, tmp_path):
    """Adam on two contexts for three steps, then on one: the parameters of 1.9.1 after the fourth.

    Without a store the contexts train apart, and the states are those of the first.
    """

    def net_on(contexts):
        net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
        net.initialize(mx.init.Constant(0.5), ctx=contexts)
        return net

    def step(net, trainer, contexts, number):
        values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], "float32") * (number + 1)
        parts = mx.gluon.utils.split_and_load(mx.np.array(values), contexts)
        with mx.autograd.record():
            losses = [net(part) * net(part) for part in parts]
        mx.autograd.backward(losses)
        trainer.step(4)

    def trainer_of(net, kind):
        return Trainer(net.collect_params(), "adam", {"learning_rate": 0.1}, kvstore=kind)

    two, file = [mx.cpu(0), mx.cpu(1)], str(tmp_path / "adam.states")
    net = net_on(two)
    trainer = trainer_of(net, saved_by)
    for number in range(3):
        step(net, trainer, two, number)
    weight = net.weight.data(two[0])
    np.testing.assert_allclose(weight.asnumpy(), [[0.217970, 0.217970]], rtol=5e-5)
    trainer.save_states(file)
    alone = net_on(mx.cpu(0))
    alone.weight.set_data(weight)
    other = trainer_of(alone, store)
    other.load_states(file)
    step(alone, other, [mx.cpu(0)], 3)
    apart = [[0.15129757, 0.14983653]]
    together = [[0.12463609, 0.12463608]]
    wanted = apart if saved_by is None else together
    np.testing.assert_allclose(alone.weight.data().asnumpy(), wanted, rtol=1e-4)
    assert other.optimizer.num_update == 4
