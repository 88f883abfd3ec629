"""Convolution and BatchNorm of training programs by oneDNN, beside torch in double precision."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import training as programs
from regluon.exec.onednn import interface, norms, training

pytestmark = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def _case(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    groups = draw.choice([1, 1, 2, 4])
    window, dilate, pad = draw.choice([1, 3, 5]), draw.choice([1, 2]), draw.choice([0, 1, 2])
    channels, filters = draw.choice([1, 3, 8, 17]) * groups, draw.choice([1, 4, 19]) * groups
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16])
    return {
        "data": (draw.choice([1, 3]), channels, draw.choice([9, 12]), 11),
        "weight": (filters, channels // groups, window, window),
        "bias": draw.random() < 0.5,
        "stride": (draw.choice([1, 2]), draw.choice([1, 2])),
        "pad": (pad, pad),
        "dilate": (dilate, dilate),
        "groups": groups,
        "dtype": dtype,
        "weight_dtype": draw.choice([dtype, torch.float32]),
    }


def _close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    found, expected = found.detach(), expected.detach()
    scale = float(expected.abs().max()) + 1e-12
    assert float((found.double() - expected).abs().max()) <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("seed", range(40))
def test_convolution(seed: int) -> None:
    torch.manual_seed(seed)
    case = _case(seed)
    dtype = case["dtype"]
    leaves = [torch.randn(case["data"]).to(dtype), torch.randn(case["weight"]).to(case["weight_dtype"])]
    if case["bias"]:
        leaves.append(torch.randn(case["weight"][0]).to(dtype))
    for leaf in leaves:
        leaf.requires_grad_()
    window = (case["stride"], case["pad"], case["dilate"], case["groups"])
    data, weight, bias = (*leaves, None)[:3]
    result = training.convolution(data, weight, bias, *window)
    assert result is not None
    assert result.is_contiguous(memory_format=torch.channels_last)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    if case["weight_dtype"] is not dtype:
        with torch.no_grad():
            exact[1].copy_(exact[1].to(dtype))
    expected = torch.conv2d(exact[0], exact[1], (*exact, None)[2], *window)
    _close(result, expected, dtype)
    gradient = torch.randn(result.shape).to(dtype)
    wanted = torch.autograd.grad(expected, exact, gradient.double())
    for create_graph in (False, True):
        found = torch.autograd.grad(result, leaves, gradient, retain_graph=True, create_graph=create_graph)
        for one, other, leaf in zip(found, wanted, leaves, strict=True):
            assert one.dtype is leaf.dtype
            _close(one, other, dtype)


def test_gradient_of_a_convolutions_gradient() -> None:
    torch.manual_seed(1)
    leaves = [torch.randn(2, 3, 6, 6, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)]
    window = ((1, 1), (1, 1), (1, 1), 1)

    def second(function: Any) -> list[torch.Tensor]:
        result = function(leaves[0], leaves[1], None, *window)
        first = torch.autograd.grad((result**2).sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum((part**2).sum() for part in first), leaves))

    for one, other in zip(second(training.convolution), second(torch.conv2d), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


def test_weights_changed_after_the_forward_are_an_error() -> None:
    data, weight = torch.randn(1, 3, 6, 6), torch.randn(4, 3, 3, 3, requires_grad=True)
    result = training.convolution(data.requires_grad_(), weight, None, (1, 1), (1, 1), (1, 1), 1)
    assert result is not None
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_several_threads_share_the_kernels() -> None:
    torch.manual_seed(2)
    weight = torch.randn(8, 8, 3, 3)
    inputs = [torch.randn(2, 8, 9, 9) for _ in range(4)]
    window = ((1, 1), (1, 1), (1, 1), 1)
    failures: list[str] = []

    def work(data: torch.Tensor) -> None:
        leaf = weight.clone().requires_grad_()
        twin = weight.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(torch.conv2d(data, twin, None, *window).sin().sum(), twin)
        for _ in range(30):
            result = training.convolution(data, leaf, None, *window)
            assert result is not None
            (found,) = torch.autograd.grad(result.sin().sum(), leaf)
            if float((found.detach() - wanted).abs().max()) > 1e-2:
                failures.append("another thread's numbers")

    threads = [threading.Thread(target=work, args=(data,)) for data in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (2, 32, 8, 8), (1, 5, 1, 9)])
def test_batch_norm(shape: tuple[int, ...], dtype: torch.dtype, relu: bool) -> None:
    torch.manual_seed(3)
    kernels = norms.norm_kernels_for(norms.NormForm(shape, dtype, 1e-3, relu, torch.get_num_threads()))
    assert kernels is not None
    data = torch.randn(shape).to(dtype).contiguous(memory_format=torch.channels_last)
    gamma, beta = torch.rand(shape[1]) + 0.5, torch.randn(shape[1])
    found = kernels.run(data, gamma, beta)
    assert found is not None
    exact = [t.detach().double().requires_grad_() for t in (data, gamma, beta)]
    expected = torch.nn.functional.batch_norm(exact[0], None, None, exact[1], exact[2], True, 0.1, 1e-3)
    expected = expected.relu() if relu else expected
    _close(found.result, expected, dtype)
    _close(found.mean, exact[0].mean((0, 2, 3)), torch.float32)
    gradient = torch.randn(shape).to(dtype).contiguous(memory_format=torch.channels_last)
    parts = kernels.gradients(gradient, data, gamma, found.mean, found.variance, found.mask)
    wanted = torch.autograd.grad(expected, exact, gradient.double())
    for one, other in zip(parts, wanted, strict=True):
        scale = max(float(other.abs().max()), 0.1)
        assert float((one.double() - other).abs().max()) <= 2 * TOLERANCE[dtype] * scale


class Layers(mx.gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = mx.gluon.nn.Conv2D(8, 3, padding=1, in_channels=3)
            self.norm = mx.gluon.nn.BatchNorm(in_channels=8)
            self.second = mx.gluon.nn.Conv2D(8, 3, padding=1, in_channels=8, use_bias=False)
            self.last = mx.gluon.nn.BatchNorm(in_channels=8)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.relu(self.norm(self.first(x)))
        return F.relu(self.last(self.second(x)) + x)


def _step(hybridize: bool, values: np.ndarray) -> dict[str, np.ndarray]:
    mx.random.seed(5)
    net = Layers()
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    x = mx.nd.array(values)
    x.attach_grad()
    with mx.autograd.record():
        out = net(x)
    out.backward()
    found = {"out": out.asnumpy(), "x": x.grad.asnumpy()}
    for name, parameter in net._collect_params_with_prefix().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name} gradient"] = parameter.grad().asnumpy()
    return found


@pytest.mark.parametrize("missing", ["nothing", "library", "rectified sum"])
def test_a_step_with_and_without_the_library(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype("float32")
    calls: list[str] = []
    if missing == "library":
        monkeypatch.setattr(programs.onednn, "convolution", lambda *given: None)
        monkeypatch.setattr(programs, "norm_kernels_for", lambda form: None)
    else:
        if missing != "nothing":
            monkeypatch.setattr(programs, "_ADD_AND_RECTIFY", None)
        real = norms.NormKernels.run
        monkeypatch.setattr(norms.NormKernels, "run", lambda *given: calls.append("run") or real(*given))
    found, expected = _step(True, values), _step(False, values)
    assert len(calls) == (0 if missing == "library" else 2)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_not_hidden(value: float) -> None:
    values = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype("float32")
    values[1, 2, 3, 4] = value
    found, expected = _step(True, values), _step(False, values)
    assert np.isnan(expected["out"]).any()
    for name in ("out", "norm.running_mean", "norm.gamma gradient"):
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(expected[name]), err_msg=name)


@pytest.mark.parametrize("which", [0, 1])
def test_parameters_that_are_not_finite_are_not_hidden(which: int) -> None:
    form = norms.NormForm((2, 3, 4, 4), torch.float32, 1e-3, True, torch.get_num_threads())
    kernels = norms.norm_kernels_for(form)
    assert kernels is not None
    data = torch.randn(form.data).contiguous(memory_format=torch.channels_last)
    parameters = [torch.ones(3), torch.zeros(3)]
    assert kernels.run(data, *parameters) is not None
    parameters[which][1] = float("nan")
    assert kernels.run(data, *parameters) is None
