"""ONNX Runtime and OpenVINO as backends: results of the default program, and never a stale weight."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn, rnn
from regluon.gluon.model_zoo import vision

PACKAGES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@pytest.fixture(params=sorted(PACKAGES))
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for package in ("onnx", name):
        pytest.importorskip(
            package, reason=f"{PACKAGES[name]} is not installed here: pip install 'regluon[{name}]'"
        )
    return name


def lenet() -> tuple[Any, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, 5, activation="tanh"),
        nn.AvgPool2D(2, 2),
        nn.Conv2D(16, 5, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Dense(30, activation="sigmoid"),
        nn.Dense(10),
    )
    return net, (3, 1, 28, 28)


class Mixer(gluon.HybridBlock):
    """LayerNorm, GELU, softmax, and products of arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Dense(12, flatten=False),
            nn.LayerNorm(),
            nn.Dense(5, flatten=False),
        )
        self.gelu = nn.GELU()

    def forward(self, x: Any) -> Any:
        y = self.norm(self.gelu(self.first(x)))
        weights = mx.npx.softmax(mx.npx.batch_dot(y, y, transpose_b=True) / 3.5)
        return self.last(mx.npx.batch_dot(weights, y)), y.mean(axis=1)


class Recurrent(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = rnn.LSTM(5, 2, bidirectional=True, input_size=6), rnn.GRU(4, input_size=10)

    def forward(self, x: Any) -> Any:
        return self.gru(self.lstm(x))


NETWORKS = {
    "lenet": lenet,
    "mixer": lambda: (Mixer(), (2, 4, 7)),
    "recurrent": lambda: (Recurrent(), (3, 2, 6)),
    "resnet18_v1": lambda: (vision.resnet18_v1(classes=10), (1, 3, 32, 32)),
    "mobilenet": lambda: (vision.get_model("mobilenetv2_0.25", classes=10), (2, 3, 32, 32)),
}


def as_list(result: Any) -> list[numpy.ndarray]:
    return [part.asnumpy() for part in (result if isinstance(result, (tuple, list)) else [result])]


def close(made: Any, expected: list[numpy.ndarray]) -> None:
    for one, wanted in zip(as_list(made), expected, strict=True):
        numpy.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_the_default(engine: str, name: str) -> None:
    net, shape = NETWORKS[name]()
    net.initialize(mx.init.Xavier())
    make = mx.nd.array if name != "mixer" else mx.np.array
    x = make(numpy.random.uniform(-1, 1, shape).astype("float32"))
    expected = as_list(net(x))
    net.hybridize(backend=engine)
    for _ in range(3):
        close(net(x), expected)
    (report,) = net.backend_reports
    assert report.chosen == engine and report.operators[0] == report.operators[1] > 0


class Interrupted(gluon.HybridBlock):
    """A sort, which has no counterpart in ONNX, between two parts that have; the input is an output too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dense(8, activation="relu", in_units=6), nn.Dense(3, in_units=8)
        self.scale = gluon.Parameter("scale", shape=(3,), init="ones")

    def forward(self, x: Any) -> Any:
        y = mx.np.sort(self.first(x) * 2, axis=-1)
        y = mx.npx.softmax(self.last(y) * self.scale.data())
        return y, x, y


def interrupted() -> tuple[Any, Any]:
    net = Interrupted()
    net.initialize(mx.init.Uniform(1))
    return net, mx.np.array(numpy.random.uniform(-1, 1, (4, 6)).astype("float32"))


def test_an_operator_without_a_counterpart_stays_in_our_program(engine: str) -> None:
    net, x = interrupted()
    expected = as_list(net(x))
    net.hybridize(backend=engine)
    result = net(x)
    close(result, expected)
    (report,) = net.backend_reports
    inside, whole = report.operators
    assert report.chosen == engine and 0 < inside < whole
    assert f"{inside} of {whole} operators in {engine}" in str(report)
    # The results belong to the caller.
    for part in result:
        part[:] = 7.0
    assert x.asnumpy().max() < 1.0
    close(net(x), expected)


def test_a_graph_without_any_counterpart_runs_by_default(engine: str) -> None:
    class Sorted(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return mx.np.sort(x, axis=-1)

    net = Sorted()
    net.hybridize(backend=engine)
    x = mx.np.array([[2.0, 1.0]])
    with pytest.warns(UserWarning, match="no part of the graph can run in it: sort"):
        assert net(x).asnumpy().tolist() == [[1.0, 2.0]]


def test_other_types_than_float32_stay_in_our_program(engine: str) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize(mx.init.Uniform(1))
    net.cast("float64")
    x = mx.nd.array(numpy.random.uniform(size=(2, 3)), dtype="float64")
    expected = net(x).asnumpy()
    net.hybridize(backend=engine)
    with pytest.warns(UserWarning, match="no part of the graph can run in it"):
        result = net(x)
    assert result.dtype == numpy.float64
    numpy.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-12)


def test_weights_are_never_stale(engine: str) -> None:
    net, x = interrupted()
    net.hybridize(backend=engine)
    net(x)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3})

    def step() -> None:
        with autograd.record():
            loss = (net(x)[0] ** 2).sum()
        loss.backward()
        trainer.step(1)

    def write() -> None:
        net.first.weight.data()[1:3] = 0.5

    changes = [
        step,
        write,
        lambda: net.scale.set_data(mx.np.array([1.0, 2.0, 3.0])),
        lambda: net.last.bias.set_data(mx.np.array([3.0, 0.0, 1.0])),
    ]
    before = net(x)[0].asnumpy()
    for change in changes:
        change()
        with mx.autograd.record():
            expected = net(x)[0].asnumpy()
        assert abs(before - expected).max() > 1e-4
        # At first a program of ours runs, then a session for the new weights.
        for _ in range(3):
            numpy.testing.assert_allclose(net(x)[0].asnumpy(), expected, rtol=1e-4, atol=1e-6)
        before = expected


def test_weights_that_another_library_writes_are_read_at_every_call(engine: str) -> None:
    net, x = interrupted()
    net.hybridize(backend=engine)
    net(x)
    outside = torch.from_dlpack(net.first.weight.data())
    for value in (0.25, -0.5, 1.0):
        outside.detach().numpy()[:] = value  # no new version
        with autograd.record():
            expected = net(x)[0].asnumpy()
        for _ in range(3):
            numpy.testing.assert_allclose(net(x)[0].asnumpy(), expected, rtol=1e-5)


def test_threads_share_one_network(engine: str) -> None:
    net, shape = lenet()
    net.initialize(mx.init.Xavier())
    inputs = [mx.nd.array(numpy.random.uniform(-1, 1, shape)) for _ in range(4)]
    expected = [net(x).asnumpy() for x in inputs]
    net.hybridize(backend=engine)
    net(inputs[0])
    wrong: list[Any] = []

    def run(number: int) -> None:
        for _ in range(10):
            made = net(inputs[number]).asnumpy()
            if abs(made - expected[number]).max() > 1e-4:
                wrong.append((number, abs(made - expected[number]).max()))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_options_reach_the_engine(engine: str) -> None:
    net, shape = lenet()
    net.initialize(mx.init.Xavier())
    x = mx.nd.array(numpy.random.uniform(-1, 1, shape))
    expected = net(x).asnumpy()
    net.optimize_for(x, backend=engine, threads=1)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="no option cores; its options: threads"):
        net.optimize_for(x, backend=engine, cores=1)


def test_auto_times_it(engine: str) -> None:
    net, shape = lenet()
    net.initialize(mx.init.Xavier())
    x = mx.nd.array(numpy.random.uniform(-1, 1, shape))
    expected = net(x).asnumpy()
    net.hybridize(backend="auto", backend_opts={"rounds": 2})
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    (report,) = net.backend_reports
    assert report.seconds[engine] > 0 and report.chosen == min(report.seconds, key=report.seconds.get)


def test_dropout_and_moving_statistics_follow_the_mode(engine: str) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=4), nn.BatchNorm(in_channels=8), nn.Dropout(0.5), nn.Dense(2, in_units=8))
    net.initialize(mx.init.Uniform(1))
    x = mx.nd.array(numpy.random.uniform(-1, 1, (5, 4)))
    net.hybridize(backend=engine)
    first = net(x).asnumpy()
    with autograd.record():
        net(x).backward()
    mean = net[1].running_mean.data().asnumpy()
    assert abs(mean).max() > 0
    made = [net(x).asnumpy() for _ in range(3)]
    hidden = net[0](x).asnumpy()
    deviation = numpy.sqrt(net[1].running_var.data().asnumpy() + 1e-5)
    expected = net[3](mx.nd.array((hidden - mean) / deviation)).asnumpy()
    assert abs(first - expected).max() > 1e-4
    for result in made:
        numpy.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_another_device_is_left_to_the_default(engine: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU: arrays on another device than the CPU need one")
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=mx.gpu())
    net.hybridize(backend=engine)
    with pytest.warns(UserWarning, match="runs on the CPU"):
        net(mx.nd.ones((1, 3), ctx=mx.gpu()))
