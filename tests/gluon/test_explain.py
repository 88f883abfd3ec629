"""`net.explain`: what it says is what happened, and looking changes nothing."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy
import pytest
from rich.console import Console

import regluon as mx
from regluon import gluon, passes
from regluon.base import rng
from regluon.exec import Plan
from regluon.gluon import nn
from regluon.gluon.explanation import Explanation


class Doubling(gluon.HybridBlock):
    """Convolution, normalization, activation and dropout; what runs depends on the height of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(
            nn.Conv2D(4, 3, padding=1, use_bias=False, in_channels=3),
            nn.BatchNorm(in_channels=4),
            nn.Activation("relu"),
            nn.Dropout(0.5),
            nn.Dense(10, in_units=256),
        )

    def forward(self, x: Any) -> Any:
        if x.shape[2] > 3:
            x = x * 2
        return self.body(x)


@pytest.fixture
def net() -> Doubling:
    mx.random.seed(3)
    made = Doubling()
    made.initialize()
    made.hybridize()
    return made


@pytest.fixture
def image() -> Any:
    return mx.np.array(numpy.linspace(-1, 1, 384, dtype="float32").reshape(2, 3, 8, 8))


def operator_of(found: Explanation, name: str) -> Any:
    return next(operator for operator in found.operators if operator.operator == name)


def test_recorded_graph(net: Doubling, image: Any) -> None:
    found = net.explain(image)
    names = [operator.operator for operator in found.operators]
    assert names == [
        "_npi_multiply_scalar",
        "Convolution",
        "BatchNorm",
        "Activation",
        "Dropout",
        "FullyConnected",
    ]
    convolution = found.operators[1]
    assert convolution.inputs == [found.operators[0].name, "body.0.weight"]
    assert convolution.outputs[0].shape == (2, 4, 8, 8)
    assert convolution.outputs[0].dtype == "float32"
    assert convolution.location is not None and convolution.location.split(":")[0] == __file__
    assert [(array.name, array.shape, array.dtype) for array in found.inputs] == [
        ("data", (2, 3, 8, 8), "float32")
    ]
    assert [(array.shape, array.dtype) for array in found.outputs] == [((2, 10), "float32")]


def test_fusions_name_what_they_cover(net: Doubling, image: Any) -> None:
    found = net.explain(image)
    folded = [operator_of(found, name) for name in ("Convolution", "BatchNorm", "Activation")]
    assert len({operator.computed_by[-1] for operator in folded}) == 1
    kernel = next(k for k in found.kernels if k.name == folded[0].computed_by[-1])
    assert set(kernel.covers) == {operator.name for operator in folded}
    assert operator_of(found, "Dropout").fate == "removed"
    assert operator_of(found, "FullyConnected").fate == "runs"
    removal = next(report for report in found.passes if report.name == "remove_identities")
    assert (removal.before, removal.after, removal.gone, removal.came) == (6, 5, {"Dropout": 1}, {})


def test_a_part_of_parameters_only_is_prepared() -> None:
    class Scaled(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.weight = gluon.Parameter("weight", shape=(3,))

        def forward(self, x: Any) -> Any:
            return x + mx.np.exp(self.weight.data())

    net = Scaled()
    net.initialize()
    net.hybridize()
    found = net.explain(mx.np.ones((2, 3)))
    assert operator_of(found, "_npi_exp").fate == "prepared"
    assert found.prepared == {"_npi_exp": 1}
    assert found.memory["packed"] == 12 and found.memory["parameters"] == 12


def test_passes_that_are_switched_off_are_named(image: Any) -> None:
    net = Doubling()
    net.initialize()
    with passes.skip("fold_batch_norm", "fuse_activations"):
        found = net.explain(image)
    assert found.skipped == ["fold_batch_norm", "fuse_activations"]
    assert not {"fold_batch_norm", "fuse_activations"} & {report.name for report in found.passes}
    assert operator_of(found, "Activation").computed_by != operator_of(found, "Convolution").computed_by


def test_times_and_memory(net: Doubling, image: Any) -> None:
    found = net.explain(image)
    assert all(kernel.seconds > 0 for kernel in found.kernels)
    assert sum(kernel.share for kernel in found.kernels) == pytest.approx(1)
    assert 0 < found.seconds < 10
    # The doubled image and the convolution's result are alive together.
    assert found.memory["peak"] >= (2 * 3 * 8 * 8 + 2 * 4 * 8 * 8) * 4
    assert found.memory["peak"] < 10 * 2 * 4 * 8 * 8 * 4
    counted = sum(numpy.prod(p.shape) for p in net.collect_params().values()) * 4
    assert found.memory["parameters"] == counted


def test_guards_have_file_and_line(net: Doubling, image: Any) -> None:
    (guard,) = net.explain(image).guards
    assert guard.text == "data.shape[2] > 3"
    file, line = str(guard.location).rsplit(":", 1)
    assert file == __file__
    with open(__file__) as source:
        assert "if x.shape[2] > 3" in source.read().splitlines()[int(line) - 1]


def test_plan_or_program(net: Doubling, image: Any) -> None:
    assert net.explain(image).why == "compiled for these shapes from the second call with these shapes on"
    for _ in range(3):
        net(image)
    found = net.explain(image)
    assert (found.runs, found.why, found.traces) == ("plan", "compiled for these shapes", 1)
    assert "def program(" in found.source
    shared = numpy.from_dlpack(net.body[4].bias.data())
    found = net.explain(image)
    assert found.runs == "program" and "shared with NumPy" in found.why
    del shared


def test_training_graph(net: Doubling, image: Any) -> None:
    found = net.explain(image, train=True)
    assert (found.mode, found.runs) == ("train", "program")
    normalized = operator_of(found, "BatchNorm")
    assert operator_of(found, "Activation").computed_by == normalized.computed_by
    assert operator_of(found, "Dropout").fate == "runs"
    kernel = next(k for k in found.kernels if k.name == normalized.computed_by[0])
    assert kernel.backward_seconds > 0
    assert 0 < sum(k.backward_seconds for k in found.kernels) <= 5 * found.backward_seconds


@pytest.mark.parametrize("train", [False, True])
def test_nothing_changes(net: Doubling, image: Any, train: bool) -> None:
    with mx.autograd.record():
        net(image).sum().backward()
    net(image)
    cached: Any = net._cached
    parameters = net.collect_params()
    values = {name: p.data().asnumpy().copy() for name, p in parameters.items()}
    gradients = {name: p.grad().asnumpy().copy() for name, p in parameters.items() if p.grad_req != "null"}
    before = (
        rng.state(),
        cached.traces,
        cached.plans,
        list(cached.graphs),
        {key: (call.count, call.chosen) for key, call in cached.exact.items()},
        list(cached.reasons),
        net._active,
    )
    net.explain(image, train=train)
    net.explain(mx.np.ones((3, 3, 8, 8)), train=train)
    after = (
        rng.state(),
        cached.traces,
        cached.plans,
        list(cached.graphs),
        {key: (call.count, call.chosen) for key, call in cached.exact.items()},
        list(cached.reasons),
        net._active,
    )
    assert before == after and net._cached is cached
    for name, p in parameters.items():
        assert numpy.array_equal(p.data().asnumpy(), values[name]), name
        if name in gradients:
            assert numpy.array_equal(p.grad().asnumpy(), gradients[name]), name


def test_inputs_are_not_written() -> None:
    class Writes(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            x[:] = x + 1
            return x * 2

    net = Writes()
    net.hybridize()
    x = mx.np.zeros((2, 2))
    net.explain(x)
    assert float(x.sum()) == 0


class Reading(gluon.HybridBlock):
    def forward(self, x: Any) -> Any:
        return x * int(x.shape[0])


def test_reasons_of_retraces() -> None:
    net = Reading()
    net.hybridize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in range(2, 12):
            net(mx.np.ones((size, 2)))
    found = net.explain(mx.np.ones((4, 2)))
    assert found.traces == 10 and len(found.retraces) == 9
    pattern = r"a size or number was read: data\.shape\[0\] = 2, at .*test_explain\.py:\d+; now it is 3"
    assert re.fullmatch(pattern, found.retraces[0])
    (warning,) = [str(each.message) for each in caught]
    assert "recorded more than 8 times" in warning
    assert "data.shape[0] = 9, at" in warning and "now it is 10" in warning


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda net, x: net(x.astype("float64")), "the arrays have other types, devices"),
        (lambda net, x: [setattr(net, "scale", 3), net(x)], "an attribute, a child or a parameter changed"),
    ],
)
def test_other_reasons(change: Any, reason: str) -> None:
    net = Reading()
    net.scale = 2
    net.hybridize()
    x = mx.np.ones((2, 2))
    net(x)
    change(net, x)
    (found,) = net.explain(x).retraces
    assert found.startswith(reason)


def test_train_mode_is_a_reason(image: Any, net: Doubling) -> None:
    net(image)
    with mx.autograd.record():
        net(image)
    assert net.explain(image).retraces == [
        "in train mode, under record(), and was recorded outside train mode, not under record()"
    ]


def test_hooks_make_a_block_run_op_by_op() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = mx.np.ones((2, 3))
    net[1].register_forward_hook(lambda block, args, out: None)
    net(x)
    found = net.explain(x)
    assert found.runs == "operators" and f"forward hooks of {net[1].name}" in found.why
    assert len(found.parts) == 2 and all(part.operators for part in found.parts)
    assert found.parts[1].outputs[0].shape == (2, 2)


def test_a_value_that_is_read_breaks_the_graph() -> None:
    class Branching(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return x if float(x.sum()) > 0 else -x

    net = Branching()
    net.hybridize(on_value_read="break")
    x = mx.np.ones((2,))
    for _ in range(2):
        found = net.explain(x)
        assert found.runs == "operators" and "reads a value: float(), at" in found.why
        assert "test_explain.py:" in found.op_by_op[0]
        net(x)


def test_operators_of_unknown_shape_are_named() -> None:
    class Unique(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return mx.np.unique(x) + 1

    net = Unique()
    net.hybridize()
    found = net.explain(mx.np.array([1.0, 1.0, 2.0]))
    assert found.runs == "program"
    assert any("the output shape of _npi_unique depends on values" in text for text in found.op_by_op)
    assert found.outputs[0].shape == (2,)


def test_symbol_block(tmp_path: Any, net: Doubling, image: Any) -> None:
    net = net.body
    net.hybridize()
    net(image)
    net.export(str(tmp_path / "model"))
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "model-symbol.json"), ["data"], str(tmp_path / "model-0000.params")
    )
    found = again.explain(image)
    assert found.hybridized and found.runs == "plan"
    expected = [kernel.kernel for kernel in net.explain(image).kernels]
    assert [kernel.kernel for kernel in found.kernels] == expected


class Foreign(Plan):
    """A plan that runs a function of another compiler."""


def test_a_backend_that_chooses_reports_why(net: Doubling, image: Any) -> None:
    net.hybridize(backend="auto")
    net(image)
    found = net.explain(image)
    assert found.runs == "plan" and found.why.startswith("backend 'auto' for inputs (2, 3, 8, 8): ")
    assert found.kernels


def test_a_function_of_another_compiler_is_one_kernel(net: Doubling, image: Any) -> None:
    for _ in range(2):
        net(image)
    (call,) = net._cached.exact.values()
    function = call.chosen._function
    call.chosen.__class__ = Foreign
    call.chosen._function = lambda *given: function(*given)
    found = net.explain(image)
    (kernel,) = found.kernels
    assert kernel.kernel == "Foreign" and kernel.share == 1 and kernel.seconds > 0
    assert operator_of(found, "FullyConnected").computed_by == ["Foreign"]
    assert found.outputs[0].shape == (2, 10)


def test_several_inputs_and_keywords() -> None:
    class Two(gluon.HybridBlock):
        def forward(self, x: Any, pair: Any, scale: float = 1.0) -> Any:
            return x + pair[0] * scale, pair[1]

    x = mx.np.ones((2, 3))
    found = Two().explain(x, [x, mx.np.ones((4,))], scale=2.0)
    assert [array.name for array in found.inputs] == ["data0", "data1", "data2"]
    assert [array.shape for array in found.outputs] == [(2, 3), (4,)]
    assert not found.hybridized and "not hybridized" in str(found)


def test_without_arrays() -> None:
    with pytest.raises(TypeError, match="explain takes the arrays of a call, at least one; received int"):
        nn.Dense(2).explain(3)


def test_what_is_printed(net: Doubling, image: Any) -> None:
    net(image)
    found = net.explain(image)
    text = str(found)
    for part in ("runs       plan", "Convolution", "kernels:", "share", "data.shape[2] > 3", "peak"):
        assert part in text
    assert repr(found) == text
    assert max(map(len, text.splitlines())) < 250
    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    with console.file:
        console.print(found)
    assert "data.shape[2] > 3" in console.export_text()


def test_as_a_dict(net: Doubling, image: Any) -> None:
    values = json.loads(json.dumps(net.explain(image).to_dict()))
    assert values["inputs"] == [{"name": "data", "shape": [2, 3, 8, 8], "dtype": "float32"}]
    assert values["kernels"][0]["seconds"] > 0
    assert values["parts"] == []


def test_as_a_drawing(net: Doubling, image: Any) -> None:
    found = net.explain(image)
    text = found.to_dot()
    assert text.startswith("digraph ") and text.count("{") == text.count("}")
    for operator in found.operators:
        assert f'"{operator.name}" [label=' in text
    first, second = found.operators[0].name, found.operators[1].name
    assert f'"data" -> "{first}";' in text and f'"{first}" -> "{second}";' in text
    (frame,) = [part for part in text.split("subgraph") if "nConvolution" in part]
    assert "nBatchNorm" in frame and "nActivation" in frame


class _Loop(mx.gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.norm = mx.gluon.nn.BatchNorm(in_channels=3)

    def forward(self, x: Any) -> Any:
        def body(data: Any, state: Any) -> Any:
            result = self.norm(data + state)
            return result, result * 0.5

        return mx.npx.foreach(body, x, x[0])[0]


def test_looking_at_the_training_of_a_loop_moves_no_statistics() -> None:
    net = _Loop()
    net.initialize()
    net.hybridize()
    x = mx.np.random.normal(1.0, 2.0, size=(4, 5, 3))
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    before = net.norm.running_mean.data().asnumpy()
    assert abs(before).max() > 0
    str(net.explain(x, train=True))
    numpy.testing.assert_array_equal(net.norm.running_mean.data().asnumpy(), before)
