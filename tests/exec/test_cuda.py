"""The paths of compiled programs on a GPU.

The first part needs no GPU: in the place of ``torch.cuda`` stands an object that treats tensors in main
memory as a GPU's. Its graphs hold what CUDA's hold, calls of kernels on fixed memory, so that a replay sees
what changed in that memory and nothing else. The second part runs where there is a GPU.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regluon as mx
from regluon.exec import Plan, for_training, inductor
from regluon.exec.cuda import graphs, plans, seam
from regluon.exec.cuda.plans import GraphPlan
from regluon.gluon import nn, rnn
from regluon.gluon.model_zoo import vision
from regluon.passes.attention import ATTENTION_BY_ROWS

HAS_GPU = torch.cuda.is_available()
FIXED = {"static_alloc": True, "static_shape": True}


class Recorder(TorchDispatchMode):
    """Notes calls of kernels, and refuses to read a value, as a stream that is being captured does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in function.tags:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, result))
        return result


class FakeGraph:
    """Runs the same kernels on the same memory again."""

    def __init__(self, calls: list[Any], owner: FakeCuda) -> None:
        self.calls, self.owner = calls, owner

    def replay(self) -> None:
        self.owner.replays += 1
        for function, args, kwargs, result in self.calls:
            again = function(*args, **kwargs)
            for old, new in zip(graphs._tensors(result), graphs._tensors(again), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class FakeCuda(seam.Cuda):
    """Tensors in main memory are a GPU's."""

    def __init__(self) -> None:
        self.warm_ups = self.captures = self.replays = 0
        self.refuses: str | None = None
        self.prefers = True

    def kind(self, tensors: Sequence[torch.Tensor]) -> str:
        return "cuda"

    def prefers_channels_last(self, dtype: torch.dtype, device: torch.device | None = None) -> bool:
        return self.prefers

    def warm_up(self, run: seam.Run, device: torch.device, measure: bool) -> None:
        self.warm_ups += 1
        run()

    def capture(self, run: seam.Run, device: torch.device) -> tuple[FakeGraph, Sequence[torch.Tensor]]:
        if self.refuses is not None:
            raise RuntimeError(self.refuses)
        self.captures += 1
        with Recorder() as recorder:
            outputs = run()
        return FakeGraph(recorder.calls, self), outputs


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    fake = FakeCuda()
    with seam.use(fake):
        yield fake


# Networks ----------------------------------------------------------------------


class Attention(mx.gluon.HybridBlock):
    """Two heads of attention, written as products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Dense(24, in_units=8, flatten=False)
        self.out = nn.Dense(8, in_units=8, flatten=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        parts = [
            F.reshape(F.transpose(F.reshape(part, (0, 0, 2, 4)), (0, 2, 1, 3)), (-3, 0, 0))
            for part in F.split(self.joined(x), num_outputs=3, axis=2)
        ]
        scores = F.batch_dot(parts[0], parts[1], transpose_b=True) * 0.5
        mixed = F.batch_dot(F.softmax(scores, axis=-1), parts[2])
        mixed = F.transpose(F.reshape(mixed, (-4, -1, 2, 0, 0)), (0, 2, 1, 3))
        return self.out(F.reshape(mixed, (0, 0, -3)))


def mlp() -> mx.gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu", in_units=6), nn.Dropout(0.5), nn.Dense(3, in_units=16))
    return net


def lenet() -> mx.gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, 5, activation="tanh", in_channels=1),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(8, 3, padding=1, use_bias=False, in_channels=6),
        nn.BatchNorm(in_channels=8),
        nn.Activation("relu"),
        nn.Conv2D(8, 1, in_channels=8),
        nn.GlobalAvgPool2D(),
        nn.Flatten(),
        nn.Dense(10, in_units=8),
    )
    return net


class Residual(mx.gluon.HybridBlock):
    """A residual block that returns images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(4, 3, padding=1, in_channels=4)
        self.norm = nn.BatchNorm(in_channels=4)
        self.up = nn.Conv2DTranspose(4, 2, strides=2, in_channels=4)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.relu(self.norm(self.first(x)) + x)
        return self.up(y), y


NETS: dict[str, tuple[Callable[[], mx.gluon.HybridBlock], tuple[int, ...]]] = {
    "mlp": (mlp, (4, 6)),
    "lenet": (lenet, (2, 1, 16, 16)),
    "residual": (Residual, (2, 4, 6, 6)),
    "lstm": (lambda: rnn.LSTM(5, 2, dropout=0.5, input_size=6), (7, 3, 6)),
    "attention": (Attention, (2, 5, 8)),
}


def build(name: str, dtype: str = "float32", context: Any = None) -> tuple[Any, list[mx.nd.NDArray]]:
    """A network with parameters, and inputs for four calls."""
    make, shape = NETS[name]
    mx.random.seed(5)
    net = make()
    net.initialize(mx.init.Xavier(), ctx=context)
    for key, parameter in net.collect_params().items():
        if "running_var" in key or "gamma" in key:
            parameter.set_data(mx.nd.random.uniform(0.5, 2.0, shape=parameter.shape))
        elif "running_mean" in key or "bias" in key or "beta" in key:
            parameter.set_data(mx.nd.random.normal(shape=parameter.shape) * 0.3)
    net.cast(dtype)
    inputs = [mx.nd.random.normal(shape=shape, ctx=context).astype(dtype) for _ in range(4)]
    return net, inputs


def values(result: Any) -> list[np.ndarray]:
    flat = result if isinstance(result, (list, tuple)) else [result]
    return [array.astype("float32").asnumpy() for array in flat]


def close(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    for one, other in zip(values(actual), values(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, np.abs(other).max()))


def expected_of(net: Any, inputs: Sequence[Any]) -> list[Any]:
    net.hybridize(False)
    return [net(x) for x in inputs]


def plan_of(net: Any) -> Any:
    (call,) = [call for call in net._cached.exact.values() if isinstance(call.chosen, Plan)]
    return call.chosen


TOLERANCES = {"float32": 1e-4, "bfloat16": 4e-2, "float16": 5e-3}


# Operators of a plan ----------------------------------------------------------------------


def is_public(function: Any) -> bool:
    name = str(getattr(function, "namespace", "")) or str(getattr(function, "__module__", ""))
    return not any(word in name for word in ("mkldnn", "mkl", "onednn", "quantized"))


@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("name", list(NETS))
def test_a_plan_for_a_gpu_uses_public_operators_only_and_is_right(
    cuda: FakeCuda, name: str, dtype: str
) -> None:
    net, inputs = build(name, dtype)
    expected = expected_of(net, inputs)
    net.hybridize(static_shape=True)
    for x, wanted in zip(inputs, expected, strict=True):
        close(net(x), wanted, TOLERANCES[dtype])
    plan = plan_of(net)
    assert type(plan) is Plan
    nodes = [*plan.program.nodes, *(plan.first.nodes if plan.first is not None else [])]
    assert all(is_public(node.op.function) for node in nodes)
    assert not any(node.op.name.startswith(("onednn", "mkl", "quantized", "pack_linear")) for node in nodes)


def test_a_private_operator_would_be_noticed() -> None:
    assert not is_public(torch.ops.mkldnn._linear_pointwise.default)
    net, inputs = build("lenet")
    net.optimize_for(inputs[0], static_shape=True)
    names = {node.op.name for node in plan_of(net).program.nodes}
    assert "convolution_channels_last" not in names, "a processor's plan is not a GPU's"


def test_images_lie_channels_last_and_weights_are_packed_so(cuda: FakeCuda) -> None:
    net, inputs = build("residual")
    net.hybridize(static_shape=True)
    outputs = net(inputs[0])
    plan = plan_of(net)
    names = [node.op.name for node in plan.program.nodes]
    assert names.count("convolution_channels_last") == 2
    assert "BatchNorm" not in names and "affine" not in names and "relu" not in names
    _, made = plan.values_from([p.data()._t for p in (*net.collect_params().values(),)])
    assert any(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in made)
    assert all(output._t.is_contiguous() for output in outputs), "outputs lie as they do without compiling"


def test_images_stay_as_they_are_where_the_gpu_does_not_like_them_so(cuda: FakeCuda) -> None:
    cuda.prefers = False
    net, inputs = build("residual")
    expected = expected_of(net, inputs[:1])
    net.hybridize(static_shape=True)
    close(net(inputs[0]), expected[0])
    names = [node.op.name for node in plan_of(net).program.nodes]
    assert "convolution" in names and not any("channels_last" in name for name in names)


def test_attention_is_torchs_own_on_a_gpu(cuda: FakeCuda) -> None:
    net, inputs = build("attention")
    net.hybridize(static_shape=True)
    net(inputs[0])
    assert ATTENTION_BY_ROWS in [node.op for node in plan_of(net).program.nodes]


# CUDA graphs ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", list(NETS))
def test_a_graph_is_captured_once_and_replayed_with_new_inputs(cuda: FakeCuda, name: str, dtype: str) -> None:
    net, inputs = build(name, dtype)
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    for x, wanted in zip(inputs, expected, strict=True):
        close(net(x), wanted, TOLERANCES[dtype])
    assert type(plan_of(net)) is GraphPlan
    assert (cuda.warm_ups, cuda.captures, cuda.replays) == (1, 1, 3), plan_of(net).remark
    assert plan_of(net).remark == "replayed as a CUDA graph"


def test_a_graph_is_captured_ahead_when_asked_to(cuda: FakeCuda) -> None:
    net, inputs = build("lenet")
    (expected,) = expected_of(net, inputs[:1])
    net.optimize_for(inputs[1], **FIXED)
    assert cuda.captures == 1
    replays = cuda.replays
    close(net(inputs[0]), expected)
    assert (cuda.captures, cuda.replays) == (1, replays + 1)


def test_inputs_in_another_memory_order_are_copied_in(cuda: FakeCuda) -> None:
    net, inputs = build("mlp")
    (expected,) = expected_of(net, inputs[:1])
    net.hybridize(**FIXED)
    net(inputs[1])
    net(inputs[1])
    turned = inputs[0].copy()
    turned._t = turned._t.t().contiguous().t()
    assert not turned._t.is_contiguous()
    close(net(turned), expected)
    assert cuda.captures == 1


def test_results_of_earlier_calls_stay_and_may_be_written_to(cuda: FakeCuda) -> None:
    net, inputs = build("residual")
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    results = [net(x) for x in inputs]
    for result, wanted in zip(results, expected, strict=True):
        close(result, wanted)
    for result in results:
        for array in result:
            array[:] = 7.0
    close(net(inputs[0]), expected[0])
    assert cuda.captures == 1


@pytest.mark.parametrize("flags", [{"static_alloc": True}, {"static_shape": True}, {}])
def test_only_both_flags_together_ask_for_a_graph(cuda: FakeCuda, flags: dict[str, bool]) -> None:
    net, inputs = build("mlp")
    net.hybridize(**flags)
    for x in inputs:
        net(x)
    assert type(plan_of(net)) is Plan
    assert cuda.captures == 0


def test_without_a_gpu_nothing_is_captured() -> None:
    net, inputs = build("mlp")
    net.hybridize(**FIXED)
    for x in inputs:
        net(x)
    assert type(plan_of(net)) is Plan


def test_each_shape_has_a_graph_of_its_own_and_not_too_many(cuda: FakeCuda) -> None:
    net, _ = build("mlp")
    inputs = [mx.nd.random.normal(shape=(rows, 6)) for rows in range(1, 10)]
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    for x, wanted in zip(inputs[:8], expected, strict=False):
        for _ in range(3):
            close(net(x), wanted)
    assert cuda.captures == 8
    with pytest.warns(UserWarning, match="was recorded more than 8 times"):
        close(net(inputs[8]), expected[8])
    for _ in range(3):
        close(net(inputs[8]), expected[8])
    assert cuda.captures == 8


# Weights ----------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], None]] = {
    "set_data": lambda net: net[0].weight.set_data(net[0].weight.data() * 2),
    "in place": lambda net: net[2].weight.data().__imul__(2),
    "by index": lambda net: net[5].weight.data().__setitem__(slice(0, 4), 3.0),
    "a bias": lambda net: net[8].bias.data().__setitem__(slice(0, 5), 3.0),
    "statistics": lambda net: net[3].running_var.set_data(net[3].running_var.data() * 9),
    "everything": lambda net: [p.set_data(p.data() * 1.5) for p in net.collect_params().values()],  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("write", WRITES)
def test_the_same_graph_reads_written_weights(cuda: FakeCuda, write: str) -> None:
    net, inputs = build("lenet")
    net.hybridize(**FIXED)
    before = [net(inputs[0]) for _ in range(3)][-1]
    WRITES[write](net)
    after = net(inputs[0])
    assert np.abs(values(after)[0] - values(before)[0]).max() > 1e-4
    assert cuda.captures == 1, "new packed weights go where the old ones were"
    replays = cuda.replays
    net(inputs[1])
    assert cuda.replays == replays + 1
    close(after, expected_of(net, inputs[:1])[0])


def test_optimizer_steps_between_replays(cuda: FakeCuda) -> None:
    net, inputs = build("lenet")
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    net.hybridize(**FIXED)
    for step in range(4):
        for x in inputs[:3]:
            predicted = net(x)
        net.hybridize(True, clear=False, **FIXED)
        with mx.autograd.record():
            loss = (net(inputs[2]) ** 2).sum()
        loss.backward()
        trainer.step(2)
        after = net(inputs[2])
        assert np.abs(values(after)[0] - values(predicted)[0]).max() > 1e-4
        twin, _ = build("lenet")
        for own, other in zip(twin.collect_params().values(), net.collect_params().values(), strict=True):
            own.set_data(other.data())
        close(after, twin(inputs[2]))
        assert cuda.captures == 1, step


def test_weights_elsewhere_in_memory_are_captured_anew(cuda: FakeCuda) -> None:
    net, inputs = build("lenet")
    net.hybridize(**FIXED)
    for x in inputs:
        net(x)
    old = net[5].weight.data()._t.clone(), net[5].weight.data()._t
    net.initialize(mx.init.Normal(0.3), force_reinit=True)
    after = [net(x) for x in inputs]
    for result, wanted in zip(after, expected_of(net, inputs), strict=True):
        close(result, wanted)
    if net[5].weight.data()._t is not old[1]:
        assert torch.equal(*old), "memory that is no longer the network's is not written to"


def test_a_convolution_of_one_pixel_may_share_its_parameters_memory(cuda: FakeCuda) -> None:
    net = nn.Conv2D(4, 1, in_channels=3, use_bias=False)
    net.initialize(mx.init.Normal(1.0))
    x = mx.nd.random.normal(shape=(2, 3, 4, 4))
    net.hybridize(**FIXED)
    for _ in range(3):
        net(x)
    parameter = net.weight.data()
    first = parameter._t.clone()
    # Another array takes the parameter's place; the old memory is the user's.
    own = parameter._t
    parameter._rebind(mx.nd.random.normal(shape=(4, 3, 1, 1))._t)
    for _ in range(3):
        result = net(x)
    wanted = torch.conv2d(x._t, parameter._t)
    np.testing.assert_allclose(result.asnumpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert torch.equal(own, first)
    assert cuda.captures == 2


def runner(**options: Any) -> tuple[graphs.Graphs, list[int]]:
    """The graphs of a function of one input and one weight, and how often the function ran."""
    runs: list[int] = []

    def function(key: int, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        runs.append(key)
        return x * weight, x + weight

    return graphs.Graphs(function, 1, **options), runs


def test_captures_are_bounded(cuda: FakeCuda) -> None:
    run, _ = runner()
    x = torch.arange(4.0)
    for step in range(graphs.MOST_CAPTURES + 5):
        weight = torch.full((4,), float(step))
        product, total = run(0, x, weight)
        assert torch.equal(product, x * step) and torch.equal(total, x + step)
    assert cuda.captures == graphs.MOST_CAPTURES
    assert "were captured" in run.remark


def test_a_replay_runs_no_python(cuda: FakeCuda) -> None:
    run, runs = runner()
    weight = torch.ones(4)
    for step in range(6):
        assert torch.equal(run(0, torch.full((4,), float(step)), weight)[1], torch.full((4,), step + 1.0))
    assert len(runs) == 3, "one run to look, one to warm up, one to capture"


# Without a graph ----------------------------------------------------------------------


def test_random_operators_run_without_a_graph(cuda: FakeCuda) -> None:
    class Noisy(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return x + F.random.normal(shape=(3, 4))

    net, x = Noisy(), mx.nd.zeros((3, 4))
    net.hybridize(**FIXED)
    found = [net(x).asnumpy() for _ in range(4)]
    assert np.abs(found[2] - found[3]).max() > 0.01
    assert cuda.captures == 0
    assert plan_of(net).remark == "runs without a CUDA graph: it draws random numbers"


def test_dropout_in_train_mode_runs_without_a_graph(cuda: FakeCuda) -> None:
    net, inputs = build("mlp")
    net.hybridize(**FIXED)
    with mx.autograd.train_mode():
        found = [net(inputs[0]).asnumpy() for _ in range(4)]
    assert np.abs(found[2] - found[3]).max() > 1e-3
    assert cuda.captures == 0


def test_a_loop_that_draws_runs_without_a_graph(cuda: FakeCuda) -> None:
    class Loop(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            def step(row: Any, total: Any) -> Any:
                total = total + row + F.random.normal(shape=(1, 4))
                return total, total

            return F.contrib.foreach(step, x, F.zeros((1, 4)))[0]

    net, x = Loop(), mx.nd.zeros((3, 1, 4))
    net.hybridize(**FIXED)
    found = [net(x).asnumpy() for _ in range(4)]
    assert np.abs(found[2] - found[3]).max() > 0.01
    assert cuda.captures == 0


def test_values_that_the_processor_waits_for_are_no_part_of_a_graph(cuda: FakeCuda) -> None:
    net = rnn.LSTM(5, 1, input_size=6, use_sequence_length=True)
    net.initialize()
    x = mx.nd.random.normal(shape=(7, 3, 6))
    lengths = [mx.nd.array(row) for row in ([1, 5, 7], [2, 2, 3], [7, 7, 7])]
    expected = [net(x, sequence_length=each) for each in lengths]
    net.hybridize(**FIXED)
    for each, wanted in zip(lengths, expected, strict=True):
        close(net(x, sequence_length=each), wanted)
    assert cuda.captures == 0


class Twice(mx.operator.CustomOp):
    """Twice its input, in Python."""

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0] * 2)


@mx.operator.register("twice_for_cuda")
class TwiceProperty(mx.operator.CustomOpProp):
    """Says what `Twice` takes and gives."""

    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Twice:
        return Twice()


def test_python_operators_run_without_a_graph(cuda: FakeCuda) -> None:
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return F.Custom(x, op_type="twice_for_cuda") + 1

    net = Net()
    net.hybridize(**FIXED)
    for step in range(4):
        close(net(mx.nd.ones((2, 2)) * step), mx.nd.ones((2, 2)) * (2 * step + 1))
    assert cuda.captures == 0


def test_a_refused_capture_falls_back_and_says_so(cuda: FakeCuda) -> None:
    cuda.refuses = "CUDA error: operation not permitted when stream is capturing\nmore"
    net, inputs = build("lenet")
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    for x, wanted in zip(inputs, expected, strict=True):
        close(net(x), wanted)
    assert cuda.warm_ups == 1, "it is not tried again"
    text = (
        "runs without a CUDA graph: a CUDA graph could not be captured: CUDA error: operation not permitted "
        "when stream is capturing"
    )
    assert plan_of(net).remark == text
    assert text in net.explain(inputs[0]).why


def test_explain_tells_of_the_graph_and_of_the_kernels_in_it(cuda: FakeCuda) -> None:
    net, inputs = build("lenet")
    net.hybridize(**FIXED)
    for x in inputs:
        net(x)
    found = net.explain(inputs[0])
    assert found.why == "compiled for these shapes; replayed as a CUDA graph"
    assert "convolution_channels_last" in {kernel.kernel for kernel in found.kernels}
    replays = cuda.replays
    close(net(inputs[1]), expected_of(net, inputs[1:2])[0])
    assert cuda.replays == replays + 1


@pytest.mark.parametrize("place", [1, 2])
def test_a_number_in_main_memory_would_not_be_read_again(cuda: FakeCuda, place: int) -> None:
    net, inputs = build("mlp")
    net.hybridize(**FIXED)
    for x in inputs:
        net(x)
    plan = plan_of(net)
    tensors = [torch.ones(2), torch.ones(2), torch.ones(())]
    assert plans._why_not(plan.general, plan.program, tensors, 2) is None
    tensors[place] = tensors[place].to("meta")
    reason = plans._why_not(plan.general, plan.program, tensors, 2)
    assert reason == "its inputs and parameters are on several devices"


def refused(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> str | None:
    with graphs.Inspector(x.device) as inspector:
        function(x)
    return inspector.reason


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.sum().item(), "a value is read from the GPU"),
        (lambda x: bool((x > 0).any()), "a value is read from the GPU"),
        (lambda x: torch.linalg.inv(torch.eye(4) + x[0]), "a value is read from the GPU"),
        (lambda x: torch.nonzero(x), "the output shape of nonzero depends on values"),
        (lambda x: x[x > 0], "the shape of what index does depends on values"),
        (lambda x: x.clone().index_put_((x > 0,), torch.zeros(())), "the shape of what index_put_ does"),
        (lambda x: x.to("meta"), "_to_copy moves values between devices"),
        (lambda x: torch.tensor([1.0, 2.0]) + x[:2], "an array is made from numbers of Python"),
        (lambda x: torch.ones(4, device="meta") * 2, "moves values between devices"),
    ],
)
def test_an_inspector_finds_what_a_graph_cannot_hold(
    function: Callable[[torch.Tensor], Any], reason: str
) -> None:
    assert reason in str(refused(function, torch.arange(4.0)))


def test_an_inspector_lets_pass_what_a_graph_can_hold() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
        return torch.relu(y[0] @ x + 2.0)[torch.arange(2)].to(torch.bfloat16).sum() * 0.5

    assert refused(function, torch.rand(4, 4)) is None


# Threads ----------------------------------------------------------------------


def test_each_thread_has_a_graph_of_its_own_and_further_ones_none(cuda: FakeCuda) -> None:
    net, inputs = build("lenet")
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    net(inputs[0])
    failures: list[BaseException] = []
    count = graphs.MOST_GRAPHS + 3
    ready = threading.Barrier(count)

    def work(place: int) -> None:
        try:
            for step in range(8):
                ready.wait(60)
                close(net(inputs[(place + step) % 4]), expected[(place + step) % 4])
            ready.wait(60)
        except BaseException as error:
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert 1 < cuda.captures <= graphs.MOST_GRAPHS
    assert not plan_of(net).graphs._live, "a graph goes with its thread"


# Training ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lenet", "residual", "mlp"])
def test_a_training_step_fused_for_a_gpu_equals_the_imperative_one(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from regluon.gluon import recording

    kinds: list[str] = []

    def fused(entries: Any, training: bool, device: str, watch: Any = None) -> Any:
        kinds.append(device)
        return for_training(entries, training, "cuda", watch)

    monkeypatch.setattr(recording, "for_training", fused)
    found = []
    for hybridize in (False, True):
        net, inputs = build(name)
        inputs[0].attach_grad()
        if hybridize:
            net.hybridize(**FIXED)
        for step in range(2):
            mx.random.seed(step)
            with mx.autograd.record():
                results = net(inputs[0])
                flat = results if isinstance(results, (list, tuple)) else [results]
                loss = sum((each**2).sum() for each in flat)
            loss.backward()
        state = {"x": inputs[0].grad, "loss": loss}
        for key, parameter in net._collect_params_with_prefix().items():
            state[key] = parameter.data()
            if parameter.grad_req != "null":
                state[f"{key} gradient"] = parameter.grad()
        found.append({key: array.asnumpy() for key, array in state.items()})
    assert kinds == ["cpu"]
    for key, wanted in found[0].items():
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found[1][key], wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=key)
    names = [node.op.name for each in net._cached.graphs.values() for node in each.program.nodes]
    assert name == "mlp" or "convolution_channels_last" in names
    assert name == "mlp" or "batch_norm" in names


# What is asked of torch.cuda ---------------------------------------------------------------------


class Streams:
    """The functions of ``torch.cuda`` that a capture calls, where a stream is a name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = "main"
        self.waits: list[tuple[Any, Any]] = []
        self.modes: list[str] = []
        self.fails = False
        streams = self

        class Stream:
            def wait_stream(self, other: Any) -> None:
                streams.waits.append((self, other))

        class Scope:
            # One that is not left changes nothing, as torch's.
            def __init__(self, stream: Any) -> None:
                self.stream = stream

            def __enter__(self) -> None:
                self.before, streams.current = streams.current, self.stream

            def __exit__(self, *error: object) -> None:
                streams.current = self.before

        class CapturedGraph:
            def capture_begin(self, *pool: Any, capture_error_mode: str, **settings: Any) -> None:
                assert isinstance(streams.current, Stream) and streams.current is not streams.main
                streams.modes.append(capture_error_mode)

            def capture_end(self) -> None:
                if streams.fails:
                    raise RuntimeError("operation failed due to a previous error during capture")

        self.main: Any = Stream()
        self.current = self.main
        nothing = {"synchronize": lambda: None, "empty_cache": lambda: None}
        replaced = {
            **nothing,
            "device": lambda device: contextlib.nullcontext(),
            "current_stream": lambda: self.current,
            "stream": Scope,
            "Stream": Stream,
            "CUDAGraph": CapturedGraph,
        }
        for name, value in replaced.items():
            assert hasattr(torch.cuda, name)
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)


CPU = torch.device("cpu")


def test_a_capture_runs_once_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    seen: list[Any] = []
    _, outputs = seam.Cuda().capture(lambda: seen.append(streams.current) or [torch.ones(2)], CPU)
    assert torch.equal(outputs[0], torch.ones(2))
    assert len(seen) == 1 and seen[0] is not streams.main and streams.current is streams.main
    assert streams.modes == ["thread_local"]


@pytest.mark.parametrize("place", ["in the run", "at the end"])
def test_after_a_failed_capture_the_stream_is_that_of_before(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Streams(monkeypatch)
    streams.fails = True

    def run() -> list[torch.Tensor]:
        if place == "in the run":
            raise RuntimeError("operation not permitted when stream is capturing")
        return []

    with pytest.raises(RuntimeError, match="capture"):
        seam.Cuda().capture(run, CPU)
    assert streams.current is streams.main


@pytest.mark.parametrize("measure", [False, True])
def test_a_warm_up_waits_for_what_was_begun_and_is_waited_for(
    measure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Streams(monkeypatch)
    before = torch.backends.cudnn.benchmark
    seen: list[Any] = []
    run: Any = lambda: seen.append((streams.current, torch.backends.cudnn.benchmark))  # noqa: E731
    seam.Cuda().warm_up(run, CPU, measure)
    side = seen[0][0]
    assert seen == [(side, before or measure)] * 2 and side is not streams.main
    assert streams.waits == [(side, streams.main), (streams.main, side)]
    assert streams.current is streams.main and torch.backends.cudnn.benchmark == before


# The page ----------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gpu.md").read_text()


def test_the_code_of_the_page_replays_a_graph(cuda: FakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/gpu.md", "exec"), names)
    if not HAS_GPU:
        assert capsys.readouterr().out == "compiled for these shapes; replayed as a CUDA graph\n"
        assert (cuda.captures, cuda.replays) == (1, 2)


def test_the_names_on_the_page_exist() -> None:
    found = re.findall(r"`((?:mx|torch)(?:\.\w+)+)", PAGE)
    assert len(found) > 3
    for name in found:
        value: Any = {"mx": mx, "torch": torch}[name.split(".")[0]]
        for part in name.split(".")[1:]:
            value = getattr(value, part)
    assert mx.nd.waitall and mx.nd.NDArray.wait_to_read


# Elsewhere ----------------------------------------------------------------------


def test_what_inductor_needs_for_a_gpu_is_not_what_it_needs_for_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inductor, "find_spec", lambda name: None)
    assert "pip install triton" in str(inductor.missing_compiler("cuda"))
    monkeypatch.setattr(inductor, "find_spec", lambda name: object())
    monkeypatch.setattr(inductor.shutil, "which", lambda name: name if name == "clang" else None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    assert inductor.missing_compiler("cuda") is None
    assert "g++" in str(inductor.missing_compiler("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert inductor.missing_compiler() is None, "one of the two is enough"
    monkeypatch.setenv("CC", "cc1")
    assert "'cc1' was not found" in str(inductor.missing_compiler("cuda"))
    assert inductor.missing_compiler() is not None


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_clear_error() -> None:
    assert mx.num_gpus() == mx.context.num_gpus() == 0
    text = r"gpu\(0\) is not there: this machine has 0 usable GPU\(s\)\. Use mx\.cpu\(\)"
    for call in (
        lambda: mx.nd.ones((2,), ctx=mx.gpu(0)),
        lambda: mx.np.ones((2,), ctx=mx.gpu(0)),
        lambda: mx.context.gpu_memory_info(0),
        lambda: nn.Dense(3, in_units=2).initialize(ctx=mx.gpu(0)),
    ):
        with pytest.raises(mx.MXNetError, match=text):
            call()


# With a GPU ----------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")


def resnet() -> mx.gluon.HybridBlock:
    return vision.resnet18_v1(classes=10)


GPU_NETS = {**NETS, "resnet18": (resnet, (2, 3, 64, 64))}


@on_a_gpu
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("name", list(GPU_NETS))
def test_gpu_programs_and_graphs_equal_imperative_calls(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETS, "resnet18", GPU_NETS["resnet18"])
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    net, inputs = build(name, dtype, mx.gpu(0))
    expected = expected_of(net, inputs)
    for flags in ({}, {"static_shape": True}, FIXED):
        net.hybridize(**flags)
        kept = [net(x) for x in inputs]
        for result, wanted in zip(kept, expected, strict=True):
            close(result, wanted, TOLERANCES[dtype])
    assert plan_of(net).remark == "replayed as a CUDA graph"
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data(mx.gpu(0)) * 1.25)
    after = net(inputs[0])
    close(after, expected_of(net, inputs[:1])[0], TOLERANCES[dtype])


@on_a_gpu
@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet18", "lstm", "attention"])
def test_gpu_training_steps_equal_imperative_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETS, "resnet18", GPU_NETS["resnet18"])
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    found = []
    for hybridize in (False, True):
        net, inputs = build(name, context=mx.gpu(0))
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        if hybridize:
            net.hybridize()
        for step in range(3):
            mx.random.seed(step)
            with mx.autograd.record():
                loss = (net(inputs[step]) ** 2).mean()
            loss.backward()
            trainer.step(1)
        parameters = net._collect_params_with_prefix()
        found.append({key: p.data(mx.gpu(0)).asnumpy() for key, p in parameters.items()})
    for key, wanted in found[0].items():
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found[1][key], wanted, rtol=1e-2, atol=1e-3 * scale, err_msg=key)


@on_a_gpu
@pytest.mark.parametrize("target", ["bfloat16", "float16"])
def test_gpu_mixed_precision_is_near_single_precision(target: str) -> None:
    net, inputs = build("lenet", context=mx.gpu(0))
    expected = expected_of(net, inputs)
    low = mx.amp.convert_hybrid_block(net, mx.nd.zeros((2, 1, 16, 16), ctx=mx.gpu(0)), target_dtype=target)
    low.hybridize(**FIXED)
    for x, wanted in zip(inputs, expected, strict=True):
        close(low(x), wanted, 0.05)


@on_a_gpu
def test_gpu_threads_replay_graphs_of_their_own() -> None:
    net, inputs = build("lenet", context=mx.gpu(0))
    expected = expected_of(net, inputs)
    net.hybridize(**FIXED)
    net(inputs[0])
    failures: list[BaseException] = []

    def work(place: int) -> None:
        try:
            for step in range(50):
                close(net(inputs[(place + step) % 4]), expected[(place + step) % 4], 1e-3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@on_a_gpu
@pytest.mark.skipif(inductor.missing_compiler("cuda") is not None, reason="there is no Triton")
def test_gpu_inductor_gives_the_same_results() -> None:
    net, inputs = build("lenet", context=mx.gpu(0))
    expected = expected_of(net, inputs)
    net.hybridize(backend="inductor")
    for x, wanted in zip(inputs, expected, strict=True):
        close(net(x), wanted, 1e-3)
    assert net.backend_reports[0].chosen == "inductor", net.backend_reports[0]


@on_a_gpu
def test_gpu_memory_info_gives_free_and_total_bytes() -> None:
    free, total = mx.context.gpu_memory_info(0)
    assert 0 < free <= total
