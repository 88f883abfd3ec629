"""Native code: small networks as one function, regions in one call, and what happens without a compiler."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import native, tuning
from regluon.exec.cache import cache_folder
from regluon.exec.native import background, compiler, fragment, loader
from regluon.exec.native.fragment import NativePlan
from regluon.exec.onednn import interface
from regluon.gluon import nn

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def idle():
    """Nothing is left of the tests before, and nothing is left to those after."""
    assert native.wait()
    yield
    assert native.wait()


@pytest.fixture
def always(monkeypatch):
    """The native function wins every measurement, which is done all the same."""

    def measure(runs, *settings):
        for run in filter(None, runs.values()):
            run()
        return "native" if "native" in runs else next(iter(runs))

    monkeypatch.setattr(tuning, "_fastest_run", measure)


def build(*blocks, shape: tuple[int, ...]) -> tuple[mx.gluon.HybridBlock, mx.nd.NDArray]:
    net = nn.HybridSequential()
    net.add(*blocks)
    mx.random.seed(7)
    net.initialize(mx.init.Uniform(0.4))
    x = mx.nd.random.normal(shape=shape)
    net(x)
    return net, x


def plan_of(net: mx.gluon.HybridBlock) -> object:
    (call,) = net._cached.exact.values()
    return call.chosen


def compiled(net: mx.gluon.HybridBlock, *inputs: mx.nd.NDArray) -> object:
    """The plan that runs once nothing is left to do in the background."""
    net.hybridize(static_shape=True)
    for _ in range(2):
        net(*inputs)
    assert native.wait()
    net(*inputs)
    return plan_of(net)


def check(net: mx.gluon.HybridBlock, *inputs: mx.nd.NDArray) -> None:
    net.hybridize(False)
    expected = net(*inputs)
    plan = compiled(net, *inputs)
    assert type(plan) is NativePlan
    found = net(*inputs)
    many = isinstance(expected, (list, tuple))
    for one, other in zip(found if many else [found], expected if many else [expected], strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


class Op(mx.gluon.HybridBlock):
    """A block of one function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


# The same values -----------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("batch", [1, 3, 17])
def test_dense_layers(batch: int, always) -> None:
    check(*build(nn.Dense(20, "relu"), nn.Dense(37, "tanh"), nn.Dense(3, use_bias=False), shape=(batch, 10)))


@needs_compiler
@pytest.mark.parametrize("batch", [1, 5, 16])
def test_lenet(batch: int, always) -> None:
    layers = (
        nn.Conv2D(6, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(16, 5, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Dense(120, activation="relu"),
        nn.Dense(10),
    )
    check(*build(*layers, shape=(batch, 1, 28, 28)))


CONVOLUTIONS = {
    "stride": nn.Conv2D(19, 3, (2, 1), (1, 0), in_channels=3),
    "dilated": nn.Conv2D(5, (3, 2), 1, (2, 1), (2, 3), in_channels=3, use_bias=False),
    "one pixel": nn.Conv2D(33, 1, in_channels=3, activation="sigmoid"),
    "wide": nn.Conv2D(2, 3, padding=1, in_channels=3),
}


@needs_compiler
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str, always) -> None:
    check(*build(CONVOLUTIONS[kind], nn.Conv2D(4, 2), shape=(3, 3, 11, 21)))


POOLINGS = {
    "max": nn.MaxPool2D(3, 2, 1),
    "full": nn.MaxPool2D(2, 2, ceil_mode=True),
    "average": nn.AvgPool2D(3, 2, 1),
    "no border": nn.AvgPool2D(3, 2, 1, count_include_pad=False),
    "all": nn.GlobalAvgPool2D(),
}


@needs_compiler
@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize("filters", [2, 16])
def test_pooling(kind: str, filters: int, always) -> None:
    check(*build(nn.Conv2D(filters, 3), POOLINGS[kind], nn.Flatten(), nn.Dense(4), shape=(2, 3, 15, 15)))


@needs_compiler
@pytest.mark.parametrize("stride", [(3, 3), (3, 1), (1, 3)])
def test_the_largest_of_padding_only(stride: tuple[int, int], always) -> None:
    pooling = nn.MaxPool2D(2, stride, 1, ceil_mode=True)
    net, x = build(nn.Conv2D(4, 1), pooling, nn.Flatten(), shape=(2, 3, 4, 4))
    assert net(x).min().asscalar() == np.finfo(np.float32).min
    check(net, x)


@needs_compiler
@pytest.mark.parametrize(
    ("pooling", "smallest"),
    [
        (nn.MaxPool2D(3, 2, 1), -np.inf),
        (nn.MaxPool2D(2, 2, ceil_mode=True), np.finfo(np.float32).min),
        (nn.MaxPool2D(3, 2, 2), np.finfo(np.float32).min),
    ],
)
def test_the_largest_of_infinities_at_the_border(pooling: nn.MaxPool2D, smallest: float, always) -> None:
    net, x = build(pooling, nn.Flatten(), shape=(1, 2, 5, 5))
    x[:, :, -2:] = -np.inf
    assert net(x).min().asscalar() == smallest
    check(net, x)


ACTIVATIONS = {
    "sigmoid": lambda F, x: F.sigmoid(x),
    "leaky": lambda F, x: F.LeakyReLU(x, act_type="leaky", slope=0.3),
    "gelu": lambda F, x: F.LeakyReLU(x, act_type="gelu"),
    "clip": lambda F, x: F.clip(x, -0.25, 0.75),
    "softmax": lambda F, x: F.softmax(x),
    "log_softmax": lambda F, x: F.log_softmax(x, axis=1),
    "product": lambda F, x: F.relu(x) * F.tanh(x),
    "sum": lambda F, x: F.relu(x) + F.tanh(x) + x,
    "reshape": lambda F, x: F.reshape(x, (0, 4, -1)),
}


@needs_compiler
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_functions(kind: str, always) -> None:
    check(*build(nn.Dense(24), Op(ACTIVATIONS[kind]), nn.Dense(5), shape=(4, 9)))


@needs_compiler
@pytest.mark.parametrize("filters", [3, 16])
def test_batch_norm_that_cannot_be_folded(filters: int, always) -> None:
    norms = [nn.BatchNorm(in_channels=filters), nn.BatchNorm(in_channels=5)]
    layers = (nn.Conv2D(filters, 3, activation="tanh"), nn.MaxPool2D(2), norms[0], nn.Activation("relu"))
    net, x = build(*layers, nn.Dense(5, "sigmoid"), norms[1], shape=(3, 2, 12, 12))
    for norm in norms:
        norm.running_mean.set_data(mx.nd.random.normal(shape=norm.running_mean.shape))
        norm.running_var.set_data(mx.nd.random.uniform(1, 2, shape=norm.running_var.shape))
    check(net, x)


class Several(mx.gluon.HybridBlock):
    """Two inputs, residuals, images that leave in two orders, a normalization, and one value given twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2D(3, 3, padding=1), nn.Conv2D(16, 1)
        self.third, self.norm = nn.Conv2D(16, 3, padding=1), nn.LayerNorm(in_channels=6)
        self.dense = nn.Dense(6, flatten=False)

    def hybrid_forward(self, F, x, y):
        image = F.relu(self.first(x) + x)
        wide = self.second(image)
        deep = F.relu(self.third(wide) + wide)
        rows = self.norm(self.dense(y) + y)
        return deep, image, rows, rows, self.dense(rows)


@needs_compiler
@pytest.mark.parametrize("batch", [1, 9])
def test_several_inputs_and_outputs(batch: int, always) -> None:
    net = Several()
    mx.random.seed(1)
    net.initialize(mx.init.Uniform(0.4))
    x, y = mx.nd.random.normal(shape=(batch, 3, 8, 17)), mx.nd.random.normal(shape=(batch, 5, 6))
    net(x, y)
    check(net, x, y)


@needs_compiler
def test_inputs_in_any_memory_order(always) -> None:
    net, x = build(nn.Dense(6, "relu"), nn.Dense(2), shape=(4, 8))
    check(net, x)
    expected = net(x).asnumpy()
    turned = mx.nd.NDArray._wrap(x._t.t().contiguous().t(), mx.cpu())
    np.testing.assert_allclose(net(turned).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    assert type(plan_of(net)) is NativePlan


@needs_compiler
def test_not_a_number_is_kept(always) -> None:
    net, x = build(nn.Dense(6, "relu"), nn.Dense(2), shape=(2, 8))
    check(net, x)
    x[0, 3] = float("nan")
    assert np.isnan(net(x).asnumpy()[0]).all() and not np.isnan(net(x).asnumpy()[1]).any()


@needs_compiler
def test_results_of_calls_are_kept_apart(always) -> None:
    net, x = build(nn.Dense(6, "relu"), nn.Dense(2), shape=(2, 8))
    check(net, x)
    one = net(x)
    kept = one.asnumpy().copy()
    net(x * 2)
    np.testing.assert_array_equal(one.asnumpy(), kept)


# Weights that change -------------------------------------------------------------------


def write_in_place(net, x) -> None:
    net[0].bias.data()[:] += 1


def set_data(net, x) -> None:
    net[1].weight.set_data(net[1].weight.data() * 3)


def step(net, x) -> None:
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    with mx.autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trainer.step(1)


def another_tensor(net, x) -> None:
    net.collect_params().reset_ctx([mx.cpu()])
    net[0].weight.set_data(net[0].weight.data() * 2)


@needs_compiler
@pytest.mark.parametrize("write", [write_in_place, set_data, step, another_tensor], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["native", "kernels"])
def test_a_written_weight_is_used_at_the_next_call(write, kind: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path / kind))
    monkeypatch.setattr(tuning, "_fastest_run", lambda runs, *_: kind if kind in runs else next(iter(runs)))
    net, x = build(nn.Dense(11, "relu", in_units=8), nn.Dense(3, in_units=11), shape=(2, 8))
    plan = compiled(net, x)
    assert (type(plan) is NativePlan) == (kind == "native")
    before = net(x).asnumpy()
    write(net, x)
    after = [net(x).asnumpy() for _ in range(2)]
    net.hybridize(False)
    expected = net(x).asnumpy()
    assert np.abs(expected - before).max() > 1e-3
    for each in after:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-5)


def test_parameters_that_are_initialized_anew() -> None:
    net, x = build(nn.Dense(6, "relu", in_units=8), nn.Dense(2, in_units=6), shape=(2, 8))
    net.hybridize()
    for _ in range(3):
        before = net(x).asnumpy()
    net.initialize(mx.init.Uniform(0.7), force_reinit=True)
    after = [net(x).asnumpy() for _ in range(2)]
    net.hybridize(False)
    expected = net(x).asnumpy()
    assert np.abs(before - expected).max() > 1e-3
    for each in after:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_parameters_in_memory_of_numpy_are_read_every_time(always) -> None:
    net, x = build(nn.Dense(3, in_units=8), shape=(2, 8))
    check(net, x)
    outside = net[0].weight.data()._t.numpy()
    from regluon.base.sharing import mark_shared

    mark_shared(net[0].weight.data()._t)
    net(x)
    outside += 1
    found = net(x).asnumpy()
    net.hybridize(False)
    np.testing.assert_allclose(found, net(x).asnumpy(), rtol=1e-4, atol=1e-5)


# Only if faster, only if right ---------------------------------------------------------


@needs_compiler
def test_what_is_slower_is_not_kept_nor_compiled_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "_fastest_run", lambda runs, *settings: next(iter(runs)))
    net, x = build(nn.Dense(13), shape=(1, 4))
    assert type(compiled(net, x)) is not NativePlan
    sources: list[str] = []
    original = compiler.library
    monkeypatch.setattr(compiler, "library", lambda source: sources.append(source) or original(source))
    again, x = build(nn.Dense(13), shape=(1, 4))
    compiled(again, x)
    assert not any("regluon_run" in source for source in sources)


@needs_compiler
def test_really_measured(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    net, x = build(nn.Dense(20, "relu"), nn.Dense(20), shape=(1, 10))
    expected = net(x).asnumpy()
    plan = compiled(net, x)
    kept = "native" in (tmp_path / "kernels.json").read_text()
    assert kept and (type(plan) is NativePlan) == ('"native"' in (tmp_path / "kernels.json").read_text())
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_wrong_values_are_not_used(always, monkeypatch) -> None:
    original = fragment.generate

    def wrong(*arguments):
        generated = original(*arguments)
        generated.source = generated.source.replace("return x < 0 ? 0 : x;", "return x < 0 ? 0.01f * x : x;")
        return generated

    monkeypatch.setattr(fragment, "generate", wrong)
    net, x = build(nn.Dense(12, "relu"), nn.Dense(4), shape=(3, 10))
    expected = net(x).asnumpy()
    assert type(compiled(net, x)) is not NativePlan
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_a_forgotten_bias_is_noticed_though_new_biases_are_zero(always, monkeypatch) -> None:
    original = fragment.generate

    def wrong(*arguments):
        generated = original(*arguments)
        assert "load<L>(bias + start(Outputs" in generated.source
        generated.source = generated.source.replace(
            "bias != nullptr ? load<L>(bias + start(Outputs", "0 ? load<L>(bias + start(Outputs"
        )
        return generated

    monkeypatch.setattr(fragment, "generate", wrong)
    net, x = build(nn.Dense(12, "relu"), nn.Dense(4), shape=(3, 10))
    assert not net[0].bias.data().asnumpy().any()
    assert type(compiled(net, x)) is not NativePlan


def test_an_infinite_value_is_close_to_nothing() -> None:
    fine, infinite = torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("inf")])
    assert fragment._is_close(fine, fine.clone())
    assert not fragment._is_close(torch.tensor([7.0, float("inf")]), infinite)


@needs_compiler
def test_defaults_of_torch_do_not_matter(always) -> None:
    net, x = build(nn.Dense(12, "relu"), nn.Dense(4), shape=(3, 10))
    expected = net(x).asnumpy()
    assert type(compiled(net, x)) is NativePlan
    torch.set_default_dtype(torch.float64)
    try:
        # A write to a weight, after which all of them are packed again.
        net[1].weight.set_data(net[1].weight.data() * 2)
        found = net(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == np.float32 and type(plan_of(net)) is NativePlan
    np.testing.assert_allclose(found.asnumpy(), 2 * expected, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_large_logarithms_keep_their_digits(always) -> None:
    net, x = build(nn.Dense(4, in_units=4), Op(lambda F, x: F.log_softmax(x)), shape=(2, 4))
    net[0].weight.set_data(mx.nd.array(np.eye(4, dtype="float32")))
    check(net, x)
    y = mx.nd.array(np.array([[40000.0, 40000.5, 39999.0, 40001.0]] * 2, dtype="float32"))
    wanted = torch.log_softmax(y._t.double(), 1).float().numpy()
    np.testing.assert_allclose(net(y).asnumpy(), wanted, rtol=1e-5)


@needs_compiler
def test_a_graph_that_is_not_suited_keeps_its_plan(always) -> None:
    net, x = build(nn.Dense(12), Op(lambda F, x: F.sort(x)), shape=(3, 10))
    expected = net(x).asnumpy()
    assert type(compiled(net, x)) is not NativePlan
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)


LONG_ROWS = {
    "units": ((nn.Dense(5000),), (1, 3)),
    "filters": ((nn.Conv2D(5000, 1),), (1, 3, 2, 2)),
    "pixels": ((nn.Conv2D(2, 1),), (1, 3, 2, 5000)),
}


@needs_compiler
@pytest.mark.parametrize("kind", LONG_ROWS)
def test_long_rows_are_not_given_to_the_compiler(kind: str, always, monkeypatch) -> None:
    original, sources = compiler.library, []
    monkeypatch.setattr(compiler, "library", lambda source: sources.append(source) or original(source))
    layers, shape = LONG_ROWS[kind]
    net, x = build(*layers, shape=shape)
    assert type(compiled(net, x)) is not NativePlan
    assert not any("regluon_run" in source for source in sources)


@needs_compiler
def test_passes_that_are_switched_off_stay_so(always) -> None:
    net, x = build(nn.Dense(12, "relu"), shape=(3, 10))
    with mx.passes.skip("fuse_activations"):
        assert type(compiled(net, x)) is not NativePlan


@needs_compiler
def test_without_static_shape_nothing_is_compiled(always) -> None:
    net, x = build(nn.Dense(12, "relu"), shape=(3, 10))
    net.hybridize()
    for _ in range(3):
        net(x)
    assert native.wait() and type(plan_of(net)) is not NativePlan


@needs_compiler
def test_a_network_that_is_gone_is_not_compiled(always, monkeypatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(fragment, "_better", lambda plan, tensors: begun.append(plan))
    hold = threading.Event()
    background.submit(hold.wait)
    net, x = build(nn.Dense(12, "relu"), shape=(3, 10))
    net.hybridize(static_shape=True)
    for _ in range(2):
        net(x)
    del net
    gc.collect()
    hold.set()
    assert native.wait() and not begun


@needs_compiler
def test_random_draws_stay_as_they_are(always) -> None:
    net, x = build(nn.Dense(12, "relu"), shape=(3, 10))
    before = torch.get_rng_state()
    assert type(compiled(net, x)) is NativePlan
    assert torch.equal(before, torch.get_rng_state())


# Without a compiler --------------------------------------------------------------------


def no_path(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def switched_off(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("REGLUON_NATIVE", "0")


def fails(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "echo broken >&2; exit 1"))


def makes_nothing(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "exit 0"))


def makes_rubbish(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, 'for a; do case "$a" in *.so) echo no > "$a";; esac; done'))


def writable_by_others(monkeypatch, tmp_path) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "native").chmod(0o777)


def no_folder(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path / "file"))


def script(folder, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def a_missing_quotation_mark(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", "g++ '-O2")


TROUBLES = [
    a_missing_quotation_mark,
    no_path,
    switched_off,
    fails,
    makes_nothing,
    makes_rubbish,
    writable_by_others,
    no_folder,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda f: f.__name__)
def test_results_are_right_without_native_code(trouble, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    trouble(monkeypatch, tmp_path)
    monkeypatch.setattr(loader._Shared, "found", None)
    monkeypatch.setattr(loader._Shared, "asked", False)
    nets = [
        build(nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(2), nn.Dense(5), shape=(2, 3, 9, 9)),
        build(nn.Dense(6, "relu"), nn.Dense(2), shape=(1, 4)),
    ]
    for net, x in nets:
        expected = net(x).asnumpy()
        assert type(compiled(net, x)) is not NativePlan
        np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert loader._Shared.found is None
    assert capfd.readouterr() == ("", "")


# Libraries on disk ---------------------------------------------------------------------

SOURCE = 'extern "C" int answer() { return 42; }'


def answer(library) -> int:
    return library.answer()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of libraries of an empty cache, which is named by a relative path with a space in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGLUON_CACHE", "a folder/é")
    monkeypatch.setattr(compiler, "_failed", set())
    return tmp_path / "a folder" / "é" / "native"


@needs_compiler
def test_a_relative_folder_with_a_space(cache) -> None:
    assert answer(compiler.library(SOURCE)) == 42
    (path,) = cache.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@needs_compiler
@pytest.mark.parametrize("kept", [0, 10, 5000, -1])
def test_a_half_written_library_is_compiled_again(kept: int, cache) -> None:
    text = SOURCE.replace("42", str(100 + kept))
    # It is not loaded by this process, which would keep the memory of the file.
    more = f"assert compiler.library({text!r}).answer() == {100 + kept}"
    done = run_python(f"from regluon.exec.native import compiler\n{more}")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    assert answer(compiler.library(text)) == 100 + kept
    assert [path] == list(cache.iterdir()) and compiler._is_whole(path)


@needs_compiler
def test_a_read_only_folder_is_read(cache, monkeypatch) -> None:
    assert answer(compiler.library(SOURCE)) == 42

    def refuse(*arguments, **settings):
        raise PermissionError("read only")

    monkeypatch.setattr(compiler.tempfile, "TemporaryDirectory", refuse)
    assert answer(compiler.library(SOURCE)) == 42
    assert compiler.library(SOURCE + "// another") is None


@needs_compiler
def test_folders_that_were_left_are_removed(cache) -> None:
    old, young = cache / "compilingold", cache / "compilingyoung"
    for each in (old, young):
        each.mkdir(mode=0o700, parents=True)
        (each / "source.cpp").write_text("")
    cache.chmod(0o700)
    os.utime(old, (1, 1))
    assert answer(compiler.library(SOURCE)) == 42
    assert not old.exists() and young.exists()


@needs_compiler
def test_a_compiler_named_by_a_relative_path(cache, tmp_path, monkeypatch) -> None:
    script(tmp_path, f'exec {compiler.compiler()[0]} "$@"')
    monkeypatch.setenv("CXX", "./compiler")
    assert compiler.compiler() == (str(tmp_path / "compiler"),)
    assert answer(compiler.library(SOURCE)) == 42


def test_a_compiler_that_hangs_is_asked_once(cache, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, f"echo >> '{tmp_path}/asked'; sleep 100"))
    monkeypatch.setattr(background, "_LONGEST_COMMAND", 0.3)
    monkeypatch.setattr(compiler, "_hanging", set())
    assert compiler.library(SOURCE) is None and compiler.library(SOURCE) is None
    assert (tmp_path / "asked").read_text() == "\n"


@pytest.mark.skipif(sys.platform != "linux", reason="native code is for Linux")
def test_a_compiler_and_what_it_starts_give_way(tmp_path) -> None:
    path = script(
        tmp_path, 'sh -c \'sleep 0.3; cut -d" " -f19 /proc/$$/stat; cut -d" " -f6 /proc/$$/stat\'\n:'
    )
    nice, session = background.run_command([path], str(tmp_path)).split()
    assert int(nice) == min(os.nice(0) + background._NICENESS, 19)
    # The priorities of different sessions are not compared.
    assert sys.version_info < (3, 11) or int(session) == os.getsid(0)


@needs_compiler
def test_several_processes_compile_the_same(cache) -> None:
    more = f"from regluon.exec.native import compiler\nassert compiler.library({SOURCE!r}).answer() == 42"
    running = [
        subprocess.Popen([sys.executable, "-c", more], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for each in running:
        assert (each.communicate(timeout=300)[1], each.returncode) == ("", 0)
    assert len(list(cache.iterdir())) == 1


def test_a_user_without_a_home(tmp_path, monkeypatch) -> None:
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("REGLUON_CACHE", raising=False)
    monkeypatch.setattr(compiler.Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / f"regluon-{os.getuid()}"


# Regions -------------------------------------------------------------------------------

needs_region = pytest.mark.skipif(
    compiler.compiler() is None or interface.library() is None, reason="no compiler or no oneDNN"
)


def convnet() -> tuple[mx.gluon.HybridBlock, mx.nd.NDArray]:
    layers = (nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(2), nn.Conv2D(16, 3), nn.Dense(10))
    return build(*layers, shape=(2, 3, 16, 16))


def runs_of(net: mx.gluon.HybridBlock) -> list[object]:
    plan = plan_of(net)
    regions = [node.op.function for node in plan.program.nodes if node.op.name == "onednn"]
    return [run for region in regions for run in region._local.runs.values()]


@needs_region
def test_a_region_is_one_call_and_gives_the_same() -> None:
    native.runtime()
    assert native.wait() and native.runtime() is not None
    net, x = convnet()
    expected = net(x).asnumpy()
    net.hybridize()
    for _ in range(3):
        found = net(x).asnumpy()
    (run,) = runs_of(net)
    assert run._native is not None
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    net[0].weight.set_data(net[0].weight.data() * 2)
    after = net(x).asnumpy()
    # The same region step by step.
    run._native, run._made_native = None, lambda: None
    np.testing.assert_array_equal(net(x).asnumpy(), after)
    net.hybridize(False)
    np.testing.assert_allclose(after, net(x).asnumpy(), rtol=1e-4, atol=1e-4)


@needs_region
def test_a_primitive_that_fails_is_an_error_of_the_region() -> None:
    native.runtime()
    assert native.wait() and native.runtime() is not None
    net, x = convnet()
    expected = net(x).asnumpy()
    net.hybridize()
    for _ in range(3):
        net(x)
    (run,) = runs_of(net)
    fine = run._native
    run._native = lambda *addresses: 2
    with pytest.raises(RuntimeError, match="a primitive of oneDNN failed"):
        run((x._t, *plan_of(net)._prepared[2]))
    # In a call, the general program runs instead.
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="another number of addresses"):
        fine(1)


@needs_compiler
@pytest.mark.parametrize("kind", ["fragment", "region"])
def test_many_threads_at_once(kind: str, always) -> None:
    net, x = convnet()
    images = [x * (1 + place) for place in range(6)]
    expected = [net(each).asnumpy() for each in images]
    if kind == "fragment":
        assert type(compiled(net, x)) is NativePlan
    else:
        net.hybridize()
        net(x)
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(60):
            if not np.allclose(net(images[place]).asnumpy(), expected[place], rtol=1e-4, atol=1e-4):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


# Processes -----------------------------------------------------------------------------

SCRIPT = """
import regluon as mx
from regluon.gluon import nn
net = nn.Dense(8, in_units=4)
net.initialize()
net.hybridize(static_shape=True)
for _ in range(2):
    net(mx.nd.ones((2, 4)))
{more}
"""


def run_script(more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python(SCRIPT.format(more=more), **environment)


def run_python(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_waiting_while_jobs_come_and_go() -> None:
    failures: list[BaseException] = []

    def submit() -> None:
        for _ in range(300):
            background.submit(lambda: None)

    def wait() -> None:
        try:
            for _ in range(300):
                background.wait(1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=target) for target in (submit, wait, wait)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="native code is for Linux")
def test_the_end_of_the_interpreter_ends_the_compiler(tmp_path) -> None:
    note = f"echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; sleep 100"
    text = f'case "$*" in *--version*) echo 1;; *) {note};; esac'
    more = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.01)"
    done = run_script(more, CXX=script(tmp_path, text), REGLUON_CACHE=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 30
    while is_there(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_there(pid)
    assert not list((tmp_path / "cache" / "native").glob("*"))


@needs_compiler
def test_another_process_takes_what_was_compiled(tmp_path) -> None:
    more = "from regluon.exec import native\nassert native.wait() and native.runtime() is not None"
    seen = []
    for _ in range(2):
        done = run_script(more, REGLUON_CACHE=str(tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        seen.append([(path.name, path.stat().st_mtime_ns) for path in (tmp_path / "native").iterdir()])
    first, second = map(sorted, seen)
    assert first == second and len(first) == 2


@needs_compiler
def test_a_child_made_by_fork(always) -> None:
    net, x = build(nn.Dense(6, "relu"), nn.Dense(2), shape=(1, 4))
    expected = net(x).asnumpy()
    assert type(compiled(net, x)) is NativePlan
    hold = threading.Event()
    background.submit(hold.wait)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        right = np.allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
        os._exit(0 if right and background._worker.thread is None else 1)
    hold.set()
    assert os.waitpid(child, 0)[1] == 0
