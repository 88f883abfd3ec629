"""The interfaces of both generations: registry, counts, rates, states, classes of the user's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from regluon import lr_scheduler, optimizer
from regluon.array import NDArray
from regluon.base import config
from regluon.optimizer import adam


@pytest.fixture
def level_one():
    config.set_api(1)


def array(values, dtype=torch.float32):
    return NDArray._wrap(torch.tensor(values, dtype=dtype), None)


def test_create_and_register():
    assert type(optimizer.create("SGD", learning_rate=0.5)) is optimizer.SGD
    with pytest.raises(ValueError, match=r"There is no optimizer named 'nope'. Known are .*adam.*sgd"):
        optimizer.create("nope")

    @optimizer.register
    class Halving(optimizer.Optimizer):
        """Registered by its name."""

    assert type(optimizer.create("halving")) is Halving
    assert optimizer.Optimizer.create_optimizer("halving").lr == 0.01
    del optimizer.Optimizer.opt_registry["halving"]


def test_defaults_follow_the_level(level_one):
    assert optimizer.SGD().lr == 0.01 and optimizer.NAG().momentum == 0.0 and optimizer.SGD().lazy_update
    config.set_api(2)
    assert optimizer.SGD().lr == 0.1 and optimizer.NAG().momentum == 0.9 and not optimizer.SGD().lazy_update
    assert optimizer.RMSProp(gamma1=0.8).rho == 0.8 and optimizer.RMSProp(rho=0.7).gamma1 == 0.7


def test_weight_decay_by_name(level_one):
    names = {0: "a_weight", 1: "a_bias", 2: "a_gamma", 3: "other"}
    assert optimizer.SGD(wd=0.1, param_idx2name=names)._get_wds(range(5)) == [0.1, 0, 0.1, 0, 0.1]
    config.set_api(2)
    assert optimizer.SGD(wd=0.1, param_idx2name=names)._get_wds(range(5)) == [0.1] * 5


def test_multipliers():
    rule = optimizer.SGD(learning_rate=0.5, wd=0.2, param_idx2name={0: "w", 1: "b"})
    rule.set_lr_mult({"w": 2.0, 1: 3.0})
    rule.set_wd_mult({"b": 0.0})
    assert rule._get_lrs([0, 1, 2]) == [1.0, 1.5, 0.5]
    assert rule._get_wds([0, 1, 2]) == [0.2, 0.0, 0.2]

    class Stand:
        lr_mult, wd_mult = 4.0, 0.5

    rule.param_dict = {0: Stand()}
    assert (rule._get_lr(0), rule._get_wd(0)) == (2.0, 0.1)


def test_learning_rate_and_scheduler():
    rule = optimizer.SGD(learning_rate=0.3)
    rule.set_learning_rate(0.2)
    assert rule.learning_rate == 0.2
    scheduled = optimizer.Adam(
        learning_rate=0.3, lr_scheduler=lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.3)
    )
    with pytest.raises(UserWarning, match="while an lr_scheduler decides it"):
        scheduled.set_learning_rate(1.0)
    rates = []
    for _ in range(6):
        scheduled.update(0, array([1.0]), array([1.0]), scheduled.create_state(0, array([1.0])))
        rates.append(scheduled.learning_rate)
    assert rates == [0.3, 0.3, 0.15, 0.15, 0.075, 0.075]
    with pytest.warns(UserWarning, match="replaces the scheduler's base_lr"):
        optimizer.SGD(learning_rate=0.7, lr_scheduler=lr_scheduler.FactorScheduler(2))


def test_counts_are_kept_for_each_device():
    rule = optimizer.SGD(begin_num_update=10)
    for device in (0, 1):
        rule._set_current_context(device)
        rule._update_count([0, 1])
    assert rule.num_update == 11
    assert rule._all_index_update_counts == {0: {0: 11, 1: 11}, 1: {0: 11, 1: 11}}


def test_the_class_of_a_user_in_the_style_of_1_x():
    class Plain(optimizer.Optimizer):
        def create_state(self, index, weight):
            return array([0.0])

        def update(self, index, weight, grad, state):
            assert isinstance(index, int)
            self._update_count(index)
            weight[:] = weight.asnumpy() - self._get_lr(index) * grad.asnumpy()
            state[:] = state.asnumpy() + 1

    updater = optimizer.get_updater(Plain(learning_rate=0.5))
    weights = [array([1.0]), array([2.0])]
    updater([0, 1], [array([1.0]), array([1.0])], weights)
    assert [weight.asnumpy().tolist() for weight in weights] == [[0.5], [1.5]]
    assert updater.states[1].asnumpy().tolist() == [1.0]


def test_the_class_of_a_user_in_the_style_of_2_0():
    class Plain(optimizer.Optimizer):
        def create_state(self, index, weight):
            return None

        def step(self, indices, weights, grads, states):
            assert isinstance(indices, list)
            self._update_count(indices)
            for weight, grad, lr in zip(weights, grads, self._get_lrs(indices), strict=True):
                weight[:] = weight.asnumpy() - lr * grad.asnumpy()

    updater = optimizer.get_updater(Plain(learning_rate=0.5))
    weights = [array([1.0]), array([2.0])]
    updater([0, 1], [array([1.0]), array([1.0])], weights)
    updater(0, array([1.0]), weights[0])
    assert [weight.asnumpy().tolist() for weight in weights] == [[0.0], [1.5]]
    with pytest.raises(NotImplementedError, match="must define step"):
        optimizer.Optimizer().update(0, weights[0], weights[0], None)


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="momentumm"):
        optimizer.SGD(momentumm=0.9)
    with pytest.raises(TypeError, match="param_idx2name must be a dict"):
        optimizer.SGD(param_idx2name=["w"])


def test_low_precision():
    with pytest.warns(UserWarning, match="Pass multi_precision=True"):
        optimizer.SGD(momentum=0.9).create_state_multi_precision(0, array([1.0], torch.float16))
    updater = optimizer.get_updater(optimizer.Adam(learning_rate=1e-4, multi_precision=True))
    weight = array([1.0], torch.bfloat16)
    for _ in range(40):
        updater(0, array([1.0], torch.bfloat16), weight)
    master, (mean, _) = updater.states[0]
    assert master._t.dtype == mean._t.dtype == torch.float32
    assert master.asnumpy()[0] == pytest.approx(1 - 40e-4, abs=1e-5)
    assert weight._t.dtype == torch.bfloat16 and float(weight._t) < 1.0


def test_langevin_noise_has_the_right_size():
    import regluon as mx

    mx.random.seed(3)
    weight = array([0.0] * 20000)
    optimizer.get_updater(optimizer.SGLD(learning_rate=0.04))(0, array([0.0] * 20000), weight)
    values = weight.asnumpy()
    assert abs(values.mean()) < 0.01 and values.std() == pytest.approx(0.2, rel=0.03)


def test_large_batch_sgd_sums_gradients():
    rule = optimizer.LBSGD(learning_rate=0.1, batch_scale=2, warmup_epochs=1, updates_per_epoch=4)
    updater = optimizer.get_updater(rule)
    weight = array([1.0])
    updater(0, array([1.0]), weight)
    assert weight.asnumpy().tolist() == [1.0]
    updater(0, array([3.0]), weight)
    assert weight.asnumpy()[0] == pytest.approx(1.0 - 0.1 * 1.5 * 2.0)


def test_copies_leave_parameters_behind():
    rule = optimizer.Adam(learning_rate=0.25, param_dict={0: lambda: None})
    for twin in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert twin.lr == 0.25 and twin.param_dict == {}
        twin._update_count(0)
        assert twin._all_index_update_counts[0] == {0: 1}


def test_group_adagrad_refuses_decay_and_vectors():
    with pytest.raises(ValueError, match="does not support weight decay"):
        optimizer.get_updater(optimizer.contrib.GroupAdaGrad(wd=0.1))(0, array([[1.0]]), array([[1.0]]))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        optimizer.GroupAdaGrad().create_state(0, array([1.0]))


def test_results_do_not_depend_on_grouping():
    shapes = [(3, 4), (5,), (2, 2)]
    draw = np.random.RandomState(0)
    starts = [draw.normal(0, 1, shape).astype("float32") for shape in shapes]
    for kind in ("sgd", "adam", "adamw", "nag"):
        results = []
        for together in (True, False):
            updater = optimizer.get_updater(
                optimizer.create(kind, learning_rate=0.1, wd=0.01, rescale_grad=0.5)
            )
            weights = [NDArray._wrap(torch.from_numpy(start.copy()), None) for start in starts]
            grads = [NDArray._wrap(torch.from_numpy(start[::-1].copy()), None) for start in starts]
            for _ in range(3):
                if together:
                    updater([0, 1, 2], grads, weights)
                else:
                    for index in range(3):
                        updater(index, grads[index], weights[index])
            results.append([weight.asnumpy() for weight in weights])
        for first, second in zip(*results, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"wd": 0.1}, {"clip_gradient": 0.2, "wd": 0.01}, {"epsilon": 0.5}])
def test_adam_in_one_kernel_equals_the_list_kernels(options, monkeypatch) -> None:
    generator = np.random.default_rng(1)
    starts = [generator.normal(size=shape).astype("float32") for shape in ((3, 4), (5,))]
    changes = [[generator.normal(size=s.shape).astype("float32") for s in starts] for _ in range(5)]
    results = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(adam, "_FUSED", None)
        rule = optimizer.create("adam", learning_rate=0.1, rescale_grad=0.5, **options)
        updater = optimizer.get_updater(rule)
        weights = [NDArray._wrap(torch.from_numpy(start.copy()), None) for start in starts]
        for step in changes:
            updater([0, 1], [NDArray._wrap(torch.from_numpy(g), None) for g in step], weights)
        results.append([weight.asnumpy() for weight in weights])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
