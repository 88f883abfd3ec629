"""Plans: compiled prediction equals the imperative one, and never uses an outdated weight."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

import regluon as mx
from regluon import exec as execution
from regluon.exec import kernels
from regluon.gluon import nn
from regluon.gluon.model_zoo import vision

CALLS = 3  # the first runs the general program, the second makes the plan


def small_net() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 3, padding=1, in_channels=3, use_bias=False),
        nn.BatchNorm(in_channels=8),
        nn.Activation("relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(64, activation="relu", in_units=128),
        nn.Dense(5, in_units=64),
    )
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    net[1].running_mean.set_data(mx.nd.random.normal(shape=(8,)))
    net[1].running_var.set_data(mx.nd.random.uniform(0.5, 2, shape=(8,)))
    return net


def data(*shape: int) -> mx.nd.NDArray:
    mx.random.seed(11)
    return mx.nd.random.normal(shape=shape)


def plan_of(net: mx.gluon.HybridBlock) -> execution.Plan:
    (call,) = [call for call in net._cached.exact.values() if isinstance(call.chosen, execution.Plan)]
    return call.chosen


def imperative(net: mx.gluon.HybridBlock, *inputs: mx.nd.NDArray) -> np.ndarray:
    net.hybridize(False)
    return net(*inputs).asnumpy()


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_plan_runs_from_the_second_call_and_equals_the_imperative_result() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    expected = imperative(net, x)
    net.hybridize()
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)
    names = [node.op.name for node in plan_of(net).program.nodes]
    assert "BatchNorm" not in names and "Activation" not in names


def test_static_shape_plans_at_once() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    net.hybridize(static_alloc=True, static_shape=True)
    net(x)
    assert plan_of(net) is not None


WRITES: dict[str, Callable[[nn.HybridSequential], None]] = {
    "set_data": lambda net: net[0].weight.set_data(net[0].weight.data() * 2),
    "in place": lambda net: net[0].weight.data().__imul__(2),
    "by index": lambda net: net[0].weight.data().__setitem__(slice(0, 1), 3.0),
    "bias by index": lambda net: net[5].bias.data().__setitem__(slice(0, 5), 3.0),
    "a view": lambda net: net[6].weight.data()[1:3].__setitem__(slice(None), 4.0),
    "statistics": lambda net: net[1].running_var.set_data(net[1].running_var.data() * 4),
    "initialize": lambda net: net.initialize(mx.init.Normal(0.3), force_reinit=True),
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_written_parameter_is_used_at_the_next_call(write: str, deep: bool) -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    if deep:
        # Many parameters are checked in a loop.
        net.add(*[nn.Dense(5) for _ in range(12)])
        net.initialize(mx.init.Xavier(magnitude=6), force_reinit=True)
    net.hybridize()
    before = [net(x).asnumpy() for _ in range(CALLS)][-1]
    WRITES[write](net)
    after = net(x).asnumpy()
    assert np.abs(after - before).max() > 1e-3
    close(after, imperative(net, x))


def test_an_optimizer_step_is_used_at_the_next_call() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    for _ in range(3):
        for _ in range(CALLS):
            predicted = net(x).asnumpy()
        with mx.autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(2)
        after = net(x).asnumpy()
        assert np.abs(after - predicted).max() > 1e-3
        net.hybridize(False)
        close(after, net(x).asnumpy())
        net.hybridize()


def test_loaded_parameters_are_used_at_the_next_call(tmp_path) -> None:
    other = small_net()
    for parameter in other.collect_params().values():
        parameter.set_data(parameter.data() * 1.5)
    other.save_parameters(str(tmp_path / "other.params"))
    net, x = small_net(), data(2, 3, 8, 8)
    net.hybridize()
    for _ in range(CALLS):
        net(x)
    net.load_parameters(str(tmp_path / "other.params"))
    close(net(x).asnumpy(), imperative(other, x))


def test_one_plan_for_each_shape_and_not_too_many() -> None:
    net = nn.Dense(4, in_units=3)
    net.initialize()
    net.hybridize()
    for rows in range(2, 20):
        x = data(rows, 3)
        expected = x.asnumpy() @ net.weight.data().asnumpy().T + net.bias.data().asnumpy()
        for _ in range(CALLS):
            close(net(x).asnumpy(), expected)
    chosen = [call.chosen for call in net._cached.exact.values()]
    assert 0 < sum(isinstance(each, execution.Plan) for each in chosen) <= 8


def test_outputs_are_new_memory_even_when_nothing_is_computed() -> None:
    class Ways(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.weight = mx.gluon.Parameter("weight", shape=(2, 2), init="ones")

        def hybrid_forward(self, F, x, weight):
            y = F.identity(x)
            return y, F.Dropout(x, p=0.5), weight * 1, F.identity(weight), y

    net, x = Ways(), data(2, 2)
    net.initialize()
    net.hybridize()
    for _ in range(CALLS):
        outputs = net(x)
    for output in outputs:
        output[:] = 9.0
    again = net(x)
    assert not (x.asnumpy() == 9).any() and (net.weight.data().asnumpy() == 1).all()
    close(again[0].asnumpy(), x.asnumpy())
    close(again[3].asnumpy(), np.ones((2, 2)))


def test_outputs_lie_rows_first_in_memory() -> None:
    net, x = nn.Conv2D(4, 3, in_channels=3), data(2, 3, 8, 8)
    net.initialize()
    net.hybridize()
    for _ in range(CALLS):
        output = net(x)
    assert output._t.is_contiguous()


def test_values_used_twice_are_not_overwritten() -> None:
    class Twice(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = x * 2
            z = F.relu(y)
            w = F.sigmoid(z.reshape((-1,)))
            return z + z, F.tanh(z), w, F.relu(z.reshape((-1,)) - 1), y

    net, x = Twice(), data(3, 4)
    expected = [value.asnumpy() for value in net(x)]
    net.hybridize()
    for _ in range(CALLS):
        for value, wanted in zip(net(x), expected, strict=True):
            close(value.asnumpy(), wanted)


class ResidualOfAView(nn.HybridBlock):
    """A convolution and its residual read the same value through two changes of layout."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2D(8, 1, activation="relu", in_channels=8)
        self.body = nn.Conv2D(8, 3, padding=1, in_channels=8)

    def forward(self, x):
        x = mx.np.pad(self.before(x), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
        return mx.npx.relu(x + self.body(x))


def test_a_residual_that_the_convolution_reads_too_is_not_overwritten() -> None:
    net = ResidualOfAView()
    mx.random.seed(4)
    net.initialize(mx.init.Xavier())
    x = mx.np.array(np.random.default_rng(4).normal(size=(2, 8, 9, 9)).astype("float32"))
    expected = imperative(net, x)
    net.hybridize()
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)


def test_train_mode_without_recording_uses_the_batch() -> None:
    net, x = small_net(), data(4, 3, 8, 8)
    with mx.autograd.train_mode():
        expected = net(x).asnumpy()
        net.hybridize()
        for _ in range(CALLS):
            close(net(x).asnumpy(), expected)


@pytest.mark.parametrize(
    "missing", [("convolution",), ("linear",), ("addmm",), ("convolution", "linear", "addmm")]
)
def test_results_are_right_without_private_kernels(missing: tuple[str, ...], monkeypatch) -> None:
    there = {name: kernel for name, kernel in kernels.available().items() if name not in missing}
    monkeypatch.setattr(kernels, "available", lambda: there)
    net, x = small_net(), data(2, 3, 8, 8)
    expected = imperative(net, x)
    net.hybridize()
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)
    plan_of(net)


@pytest.mark.parametrize(
    "name", ["resnet18_v1", "resnet18_v2", "mobilenetv2_0.25", "squeezenet1.1", "densenet121"]
)
def test_networks_with_random_statistics_equal_the_imperative_result(name: str) -> None:
    net = vision.get_model(name, classes=10)
    mx.random.seed(5)
    net.initialize(mx.init.Xavier())
    x = data(2, 3, 64, 64) if "net1" not in name else data(1, 3, 224, 224)
    net(x)
    for key, parameter in net.collect_params().items():
        if "running" in key:
            low, high = (-0.3, 0.3) if key.endswith("mean") else (0.5, 1.5)
            parameter.set_data(mx.nd.random.uniform(low, high, shape=parameter.shape))
    expected = imperative(net, x)
    net.hybridize()
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)
    plan_of(net)


def test_many_threads_while_weights_change() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    net.hybridize()
    for _ in range(CALLS):
        net(x)
    failures: list[BaseException] = []

    def predict() -> None:
        try:
            for _ in range(50):
                assert np.isfinite(net(x).asnumpy()).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=predict) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(20):
        net[0].weight.set_data(net[0].weight.data() * (1 + 0.01 * step))
    for thread in threads:
        thread.join()
    assert not failures
    close(net(x).asnumpy(), imperative(net, x))


def test_memory_shared_with_another_library_is_never_packed() -> None:
    net, x = nn.Dense(64, in_units=128), data(2, 128)
    net.initialize()
    net.hybridize()
    for _ in range(CALLS):
        net(x)
    outside = torch.from_dlpack(net.weight.data())
    outside.detach().numpy()[:] = 1.0  # no new version: NumPy writes behind torch's back
    expected = x.asnumpy() @ np.ones((128, 64), "float32") + net.bias.data().asnumpy()
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)
        outside.numpy()[:] = outside.numpy() * 2
        expected = x.asnumpy() @ outside.numpy().T + net.bias.data().asnumpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_networks_in_sixteen_bits(dtype: str) -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    wanted = imperative(net, x)
    net.cast(dtype)
    low = x.astype(dtype)
    plain = net(low).asnumpy()
    net.hybridize()
    for _ in range(CALLS):
        output = net(low)
        assert output._t.dtype is getattr(torch, dtype)
        # Rounding differs between kernels; it stays of the size that the type has.
        np.testing.assert_allclose(output.asnumpy(), wanted, atol=0.03 * np.abs(wanted).max())
        np.testing.assert_allclose(output.asnumpy(), plain, atol=0.03 * np.abs(wanted).max())
    plan_of(net)


def test_keeping_freed_memory_changes_no_result() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    expected = imperative(net, x)
    net.hybridize(static_alloc=True)
    for _ in range(CALLS):
        close(net(x).asnumpy(), expected)
