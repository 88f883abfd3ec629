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


def plans_of(net: mx.gluon.HybridBlock) -> list[execution.Plan]:
    chosen = [call.chosen for call in net._cached.exact.values()]
    return [plan for plan in chosen if isinstance(plan, execution.Plan)]


def plan_of(net: mx.gluon.HybridBlock) -> execution.Plan:
    (plan,) = plans_of(net)
    return plan


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


def test_with_static_shape_too_the_second_call_makes_the_plan() -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    expected = imperative(net, x)
    net.hybridize(static_alloc=True, static_shape=True)
    close(net(x).asnumpy(), expected)
    assert not plans_of(net)
    assert net.explain(x).why == "compiled for these shapes from the second call with these shapes on"
    close(net(x).asnumpy(), expected)
    assert len(plans_of(net)) == 1


def test_large_values_are_planned_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = small_net(), data(2, 3, 8, 8)
    expected = imperative(net, x)
    # Bytes of the largest value, the first layer's result.
    largest = 4 * int(net[0](x).size)
    for size, at_once in ((largest, False), (largest - 1, True)):
        monkeypatch.setattr("regluon.exec.onednn.slices._LARGE", size)
        net.hybridize(static_shape=True)
        assert net.explain(x).why.endswith("at the first call" if at_once else "with these shapes on")
        close(net(x).asnumpy(), expected)
        assert len(plans_of(net)) == at_once
    # Without the flag nobody waits for a plan of shapes that may come once.
    net.hybridize()
    net(x)
    assert not plans_of(net)


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


# Blocks whose results are views of their input, of another result, or of fewer numbers than they have.
VIEWS: dict[str, Callable[[mx.np.ndarray], object]] = {
    "broadcast_to": lambda x: mx.np.broadcast_to(x, (3, 4, 4)),
    "broadcast_to of a computed row": lambda x: mx.np.broadcast_to(mx.npx.relu(x[:1]), (4, 4)),
    "broadcast_to of a sum": lambda x: mx.np.broadcast_to(x.sum(0, keepdims=True), (4, 4)),
    "broadcast_arrays": lambda x: mx.np.broadcast_arrays(x, mx.np.zeros((3, 4, 4)))[0],
    "broadcast_like": lambda x: mx.npx.broadcast_like(x[:1], mx.np.zeros((3, 4))),
    "meshgrid": lambda x: mx.np.meshgrid(x[0], x[0])[0],
    "split": lambda x: mx.np.split(x, 2, axis=1)[0],
    "diag": mx.np.diag,
    "diagonal": mx.np.diagonal,
    "atleast_3d": mx.np.atleast_3d,
    "reshape_like": lambda x: mx.npx.reshape_like(x, x),
    "slice_like": lambda x: mx.npx.slice_like(x, x),
    "transposed": lambda x: x.T,
    "a result, then a view of it": lambda x: (x * 2, mx.np.reshape(x * 2, (-1,))),
    "a view of a result, then it": lambda x: (mx.np.reshape(x * 2, (-1,)), x * 2),
    "a result, then its diagonal": lambda x: (x * 2, mx.np.diagonal(x * 2)),
}


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
@pytest.mark.parametrize("name", VIEWS)
def test_writing_to_a_result_changes_nothing_else(name: str, flags: dict[str, bool]) -> None:
    class Block(mx.gluon.HybridBlock):
        def forward(self, x):
            return VIEWS[name](x)

    def sums(net: Block) -> list[list[float]]:
        found = []
        for _ in range(CALLS + 1):
            x = mx.np.zeros((4, 4))
            made = net(x)
            results = made if isinstance(made, tuple) else (made,)
            results[0][(0,) * results[0].ndim] = 7
            found.append([float(array.sum()) for array in (x, *results)])
        return found

    with mx.util.np_array(True), mx.util.np_shape(True):
        net = Block()
        expected = sums(net)
        assert expected[0][1] == 7
        net.hybridize(**flags)
        assert sums(net) == expected


def test_a_parameter_that_is_a_result_stays_as_it_is() -> None:
    class Block(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.weight = mx.gluon.Parameter("weight", shape=(1, 4))

        def forward(self, x):
            return mx.npx.broadcast_like(self.weight.data(), x)

    with mx.util.np_array(True), mx.util.np_shape(True):
        net = Block()
        net.initialize(mx.init.One())
        net.hybridize()
        for _ in range(CALLS + 1):
            net(mx.np.zeros((3, 4)))[0, 0] = 7
        np.testing.assert_array_equal(net.weight.data().asnumpy(), np.ones((1, 4)))
