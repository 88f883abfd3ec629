"""Backends that run predictions elsewhere: what they refuse, how they fall back, and how "auto" chooses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.demo.info import describe
from regluon.exec import backends, engines, inductor
from regluon.exec.engines import ENGINES, Engine
from regluon.exec.plan import Plan
from regluon.gluon import nn

NO_COMPILER = inductor.missing_compiler()


def network() -> tuple[Any, Any, numpy.ndarray]:
    """Dense, ReLU, Dense with known weights: network, input, expected result."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=3), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Uniform(1))
    x = numpy.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    return net, mx.nd.array(x), computed(net, x)


def computed(net: Any, x: numpy.ndarray) -> numpy.ndarray:
    w0, b0, w1, b1 = (p.data().asnumpy() for p in net.collect_params().values())
    return numpy.maximum(x @ w0.T + b0, 0) @ w1.T + b1


def use_engine(monkeypatch: pytest.MonkeyPatch, name: str, make: Any, **options: Any) -> None:
    """Let an engine's plans come from ``make``, here and whatever is installed."""
    engine = Engine(name, dict.fromkeys(options, "for the test"), (), make)
    monkeypatch.setitem(ENGINES, name, engine)
    monkeypatch.setitem(backends._BACKENDS, name, backends.Backend(name, backends._same, engine=engine))


def only(monkeypatch: pytest.MonkeyPatch, **makes: Any) -> None:
    """Let "auto" find these engines, and no others."""
    for name in list(ENGINES):
        if name not in ("auto", *makes):
            monkeypatch.delitem(ENGINES, name)
    for name, make in makes.items():
        use_engine(monkeypatch, name, make)


class Changed(Plan):
    """Our own plan, slowed down, or with other results."""

    def __init__(self, *args: Any, wait: float = 0.0, add: float = 0.0) -> None:
        super().__init__(*args)
        self.wait, self.add = wait, add

    def __call__(self, key: int, tensors: Sequence[torch.Tensor], function: Any = None) -> Any:
        time.sleep(self.wait)
        return tuple(tensor + self.add for tensor in super().__call__(key, tensors, function))


def changed(**how: float) -> Any:
    return lambda general, count, tensors, options: Changed(general, count, tensors, **how)


# What is refused ----------------------------------------------------------------------


def test_unknown_backends_and_options_are_refused_with_what_there_is() -> None:
    net, x, _ = network()
    with pytest.raises(ValueError, match="'tensorrt' is not registered; there are: auto, default, inductor"):
        net.hybridize(backend="tensorrt")
    with pytest.raises(TypeError, match=r"'auto' has no option fast; its options: inductor .*rounds"):
        net.hybridize(backend="auto", backend_opts={"fast": True})
    with pytest.raises(TypeError, match="'inductor' has no option mode; its options: none"):
        net.optimize_for(x, backend="inductor", mode="max")
    with pytest.raises(ValueError, match="built in"):
        backends.register("auto")(lambda entries, options: entries)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_missing_package_is_named_with_the_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, _ = network()
    monkeypatch.setattr(engines, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=rf"needs the package\(s\) onnx and {name}.*'regluon\[{name}\]'"):
        net.hybridize(backend=name)
    with pytest.raises(ImportError, match="pip install"):
        net.optimize_for(x, backend=name)
    assert "(not available here)" in describe()["backends"][name]


# Falling back ----------------------------------------------------------------------


def test_without_a_compiler_the_default_runs_and_a_warning_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, expected = network()
    monkeypatch.setenv("CXX", "no-such-compiler")
    net.hybridize(backend="inductor")
    with pytest.warns(
        UserWarning, match=r"needs a C\+\+ compiler, and 'no-such-compiler'.*CXX.*default runs"
    ):
        numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    (report,) = net.backend_reports
    assert (report.backend, report.chosen, report.shapes) == ("inductor", "default", [(2, 3)])


def test_an_engine_that_fails_is_replaced_by_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise MXNetError("no room left")

    use_engine(monkeypatch, "openvino", fail)
    net, x, expected = network()
    net.hybridize(backend="openvino")
    with pytest.warns(UserWarning, match="'openvino' does not run this network: no room left") as caught:
        result = net(x)
    assert Path(caught[0].filename) == Path(__file__)
    numpy.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5)


def test_a_graph_that_nobody_plans_runs_as_it_was_recorded() -> None:
    class Chosen(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return mx.np.unique(x)

    net = Chosen()
    net.hybridize(backend="auto")
    x = mx.np.array([2.0, 1.0, 2.0])
    for _ in range(3):
        assert net(x).asnumpy().tolist() == [1.0, 2.0]
    assert net.backend_reports == []


# The choice ----------------------------------------------------------------------


def test_auto_keeps_the_fastest_and_tells_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, onnxruntime=changed(), openvino=changed(wait=0.01))
    monkeypatch.setattr(engines, "Plan", lambda *args: Changed(*args[:3], wait=0.02))
    net, x, expected = network()
    net.hybridize(backend="auto", backend_opts={"rounds": 2})
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    (report,) = net.backend_reports
    assert report.chosen == "onnxruntime"
    assert report.seconds["onnxruntime"] < 0.01 <= report.seconds["openvino"] < report.seconds["default"]
    assert str(report).startswith("backend 'auto' for inputs (2, 3): onnxruntime runs")
    net(x)
    assert len(net.backend_reports) == 1, "the choice is remembered"
    net(mx.nd.zeros((5, 3)))
    assert [report.shapes for report in net.backend_reports] == [[(2, 3)], [(5, 3)]]


def test_auto_drops_engines_that_are_wrong_or_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise OSError("no such library\nsecond line")

    only(monkeypatch, onnxruntime=changed(add=0.5), openvino=fail)
    net, x, expected = network()
    net.hybridize(backend="auto")
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    (report,) = net.backend_reports
    assert report.chosen == "default" and list(report.seconds) == ["default"]
    assert report.left_out == {
        "onnxruntime": "its results differ by up to 0.5",
        "openvino": "no such library",
    }
    assert "openvino: not used, no such library" in str(report)


def test_auto_tries_inductor_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, inductor=changed())
    net, x, _ = network()
    net.hybridize(backend="auto")
    net(x)
    assert "inductor=True" in net.backend_reports[0].left_out["inductor"]
    net.hybridize(backend="auto", backend_opts={"inductor": True})
    net(x)
    assert set(net.backend_reports[0].seconds) == {"default", "inductor"}


def test_training_and_exports_do_not_depend_on_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_engine(monkeypatch, "openvino", changed(add=100.0))
    net, x, expected = network()
    net.optimize_for(x, backend="openvino")
    assert abs(net(x).asnumpy() - expected - 100).max() < 1e-4
    with autograd.record():
        trained = net(x)
    numpy.testing.assert_allclose(trained.asnumpy(), expected, rtol=1e-5)
    with autograd.train_mode():
        numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


def test_a_later_backend_of_a_chain_decides() -> None:
    chain: list[tuple[str, dict[str, Any]]] = [("inductor", {}), ("mine", {}), ("auto", {"rounds": 3})]
    assert backends.engine_of(chain) == ("auto", {"rounds": 3})
    assert backends.engine_of(chain[:2]) == ("inductor", {})
    assert backends.engine_of([*chain, ("default", {})]) is None
    assert backends.engine_of([]) is None


# Inductor ----------------------------------------------------------------------


@pytest.mark.skipif(NO_COMPILER is not None, reason=f"inductor: {NO_COMPILER}")
def test_inductor_gives_the_same_results_and_never_uses_stale_weights() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=6), nn.BatchNorm(axis=1, in_channels=8), nn.GELU(), nn.Dense(3, in_units=8))
    net.initialize(mx.init.Uniform(1))
    x = mx.nd.array(numpy.random.uniform(-1, 1, (4, 6)))
    expected = net(x).asnumpy()
    net.hybridize(backend="inductor")
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert net.backend_reports[0].chosen == "inductor", net.backend_reports[0]
    weight = net[0].weight
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

    def step() -> None:
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(1)

    def write() -> None:
        weight.data()[:] = 0.25

    changes = [
        step,
        write,
        lambda: weight.set_data(weight.data() * 3),
        lambda: net[3].bias.set_data([1, 2, 3]),
    ]
    for change in changes:
        change()
        made = net(x).asnumpy()
        assert abs(made - expected).max() > 1e-3
        expected = imperative(net, x)
        numpy.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
    # Another memory order of the same shape.
    turned = mx.nd.array(x.asnumpy().T.copy()).transpose()
    numpy.testing.assert_allclose(net(turned).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def imperative(net: Any, x: Any) -> numpy.ndarray:
    """The result of the layers, one after the other."""
    for layer in net:
        x = layer._imperative((x,))
    return x.asnumpy()


def test_inductor_leaves_random_graphs_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noisy(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return x + mx.np.random.uniform(size=(2, 2))

    monkeypatch.setitem(ENGINES, "inductor", replace(ENGINES["inductor"], trouble=lambda: None))
    net = Noisy()
    net.hybridize(backend="inductor")
    x = mx.np.zeros((2, 2))
    with pytest.warns(UserWarning, match="draws random numbers"):
        first = net(x)
    assert abs(net(x) - first).max() > 0
