"""Batches computed a few images at a time: the same values as the whole batch, with less memory."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import native, tuning
from regluon.exec.onednn import Region, interface, region_of, slices
from regluon.gluon import nn

pytestmark = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)


@pytest.fixture(autouse=True)
def threads():
    """Two threads, for which a slice has eight images."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Everything(mx.gluon.HybridBlock):
    """Every kind of layer that computes each image by itself, with results before and after a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2D(16, 3, padding=1), nn.Conv2D(16, 1, use_bias=False)
        self.norm, self.gate, self.out = nn.BatchNorm(), nn.Dense(16), nn.Dense(5)

    def hybrid_forward(self, F, x):
        a = F.Pooling(self.first(x), pool_type="max", kernel=(2, 2), stride=(2, 2))
        b = F.relu(self.second(a) + a)
        gate = F.sigmoid(self.gate(F.Pooling(b, global_pool=True, pool_type="avg", kernel=(1, 1))))
        c = F.concat(F.broadcast_mul(b, gate.reshape((0, -1, 1, 1))), F.tanh(self.norm(a)), dim=1)
        return self.out(c), a


def prepared(net: mx.gluon.HybridBlock, shape: tuple[int, ...]) -> tuple[mx.nd.NDArray, list[np.ndarray]]:
    mx.random.seed(7)
    net.initialize(mx.init.Uniform(0.3))
    x = mx.nd.random.normal(shape=shape)
    return x, values(net(x))


def values(results) -> list[np.ndarray]:
    several = results if isinstance(results, (list, tuple)) else [results]
    return [each.astype("float32").asnumpy() for each in several]


def check(net, x, expected: list[np.ndarray], tolerance: float = 1e-4, calls: int = 3) -> None:
    for _ in range(calls):
        for one, other in zip(values(net(x)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())


def sizes() -> list[tuple[int, int, int]]:
    """Of the regions that there are: images at a time, how often, and those that remain."""
    gc.collect()
    built = [next(iter(each._built.values())) for each in gc.get_objects() if type(each) is Region]
    return [(each.images, each.times, each.rest.images if each.rest else 0) for each in built]


@pytest.mark.parametrize(
    "count, expected", [(8, (0, 1, 0)), (15, (0, 1, 0)), (16, (8, 2, 0)), (19, (8, 2, 3)), (33, (8, 4, 1))]
)
@pytest.mark.parametrize("channels", [3, 8])
def test_batches_of_any_size(count: int, expected: tuple[int, int, int], channels: int) -> None:
    net = Everything()
    x, reference = prepared(net, (count, channels, 10, 8))
    net.hybridize()
    check(net, x, reference)
    assert expected in sizes()


@pytest.mark.parametrize("compiled", [True, False])
def test_with_native_code_and_without(compiled: bool, monkeypatch) -> None:
    if compiled:
        native.runtime()
        native.wait()
        if native.runtime() is None:
            pytest.skip("no C++ compiler")
    else:
        monkeypatch.setattr(native, "runtime", lambda: None)
    net = Everything()
    x, reference = prepared(net, (21, 3, 10, 8))
    net.hybridize()
    check(net, x, reference)


@pytest.mark.parametrize("order", ["channels last", "sliced"])
def test_inputs_in_another_order(order: str) -> None:
    net = Everything()
    x, reference = prepared(net, (19, 3, 10, 8))
    net.hybridize()
    given = torch.tensor(x.asnumpy())
    if order == "sliced":
        wide = torch.zeros(19, 3, 10, 20)
        wide[..., 5:13] = given
        given = wide[..., 5:13]
    else:
        given = given.contiguous(memory_format=torch.channels_last)
    check(net, mx.nd.NDArray._wrap(given, mx.cpu()), reference)


def test_other_numbers_of_threads_and_callers() -> None:
    net = Everything()
    x, reference = prepared(net, (19, 3, 10, 8))
    net.hybridize()
    check(net, x, reference)
    for count in (1, 3):
        torch.set_num_threads(count)
        check(net, x, reference)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            check(net, x, reference, calls=10)
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failed and not any(worker.is_alive() for worker in workers)


def test_a_written_weight_is_used_by_every_slice() -> None:
    net = Everything()
    x, _ = prepared(net, (19, 3, 10, 8))
    net.hybridize()
    net(x)
    before = values(net(x))
    net.first.weight.set_data(net.first.weight.data() * 2)
    after = values(net(x))
    net.hybridize(False)
    check(net, x, after, calls=1)
    for one, other in zip(before, after, strict=True):
        assert (np.abs(one - other).reshape(19, -1).max(1) > 1e-3).all()


@pytest.mark.parametrize("fastest", ["region", "8 images at a time", "4 images at a time"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_measured_faster_is_taken(fastest: str, dtype: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    measured: list[list[str]] = []

    def measure(runs, *more):
        for run in runs.values():
            run()
        measured.append(list(runs))
        return fastest if fastest in runs else next(iter(runs))

    monkeypatch.setattr(tuning, "_fastest_run", measure)
    net = Everything()
    x, reference = prepared(net, (19, 3, 10, 8))
    net.cast(dtype)
    net.hybridize(static_shape=True)
    check(net, x.astype(dtype), reference, 1e-4 if dtype == "float32" else 0.05)
    # The first is what is taken where nothing is measured.
    (ways,) = [names for names in measured if "4 images at a time" in names]
    assert ways[0] == ("8 images at a time" if dtype == "float32" else "region") and fastest in ways
    expected = {"region": (0, 1, 0), "8 images at a time": (8, 2, 3), "4 images at a time": (4, 4, 3)}
    assert expected[fastest] in sizes()


def test_large_values_are_not_measured_whole(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    monkeypatch.setattr(slices, "_LARGE", 1000)
    measured: list[str] = []
    monkeypatch.setattr(tuning, "_fastest_run", lambda runs, *more: measured.extend(runs) or next(iter(runs)))
    net = Everything()
    x, reference = prepared(net, (16, 3, 10, 8))
    net.hybridize(static_shape=True)
    check(net, x, reference)
    assert (8, 2, 0) in sizes() and not any("images at a time" in name for name in measured)


def test_a_refusal_of_slices_leaves_the_whole(monkeypatch) -> None:
    original = interface.Library.convolution

    def convolution(self, source, *arguments, **more):
        made = original(self, source, *arguments, **more)
        if made.source.size == 4 * 3 * 16 * 5 * 4:  # three images that remain
            raise interface.Unsupported("refused")
        return made

    monkeypatch.setattr(interface.Library, "convolution", convolution)
    net = Everything()
    x, reference = prepared(net, (19, 3, 10, 8))
    net.hybridize()
    check(net, x, reference)
    assert (0, 1, 0) in sizes()


def test_slices_take_less_memory() -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1), nn.MaxPool2D(2), nn.Conv2D(16, 3, padding=1), nn.Dense(4))
    x, reference = prepared(net, (64, 3, 32, 32))
    net.hybridize()
    check(net, x, reference)
    (call,) = net._cached.exact.values()
    (region,) = [found for node in call.chosen.program.nodes if (found := region_of(node)) is not None]
    one_image = 16 * 32 * 32 * 4
    assert 8 * one_image <= region.memory < 16 * one_image


class Repeated(mx.gluon.HybridBlock):
    """A product in which one image is repeated for all."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2D(8, 3, padding=1), nn.Conv2D(8, 3, padding=1)

    def hybrid_forward(self, F, x, y):
        return F.broadcast_mul(self.first(x), F.sigmoid(self.second(y)))


def test_a_value_of_one_image_keeps_the_batch_whole() -> None:
    net = Repeated()
    mx.random.seed(7)
    net.initialize(mx.init.Uniform(0.3))
    x, y = mx.nd.random.normal(shape=(16, 3, 8, 8)), mx.nd.random.normal(shape=(1, 3, 8, 8))
    expected = net(x, y).asnumpy()
    net.hybridize()
    for _ in range(3):
        np.testing.assert_allclose(net(x, y).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_explain_adds_the_times_of_the_slices() -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1), nn.MaxPool2D(2), nn.Conv2D(16, 3, padding=1), nn.Dense(4))
    x, reference = prepared(net, (16, 3, 32, 32))
    net.hybridize()
    check(net, x, reference)
    kernels = [kernel.kernel for kernel in net.explain(x).kernels]
    assert kernels.count("onednn_convolution") == 2 and kernels.count("onednn_pooling") == 1


# The first layers -----------------------------------------------------------------


class Large(mx.gluon.HybridBlock):
    """Layers whose first values are much larger than the last ones, with a sum over one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2D(64, 3, padding=1), nn.Conv2D(64, 3, padding=1)
        self.norm, self.third = nn.BatchNorm(), nn.Conv2D(32, 3, strides=2, padding=1)
        self.out = nn.Dense(2048)

    def hybrid_forward(self, F, x):
        a = F.relu(self.first(x))
        b = F.relu(self.norm(self.second(a)) + a)
        return self.out(F.Pooling(self.third(b), global_pool=True, pool_type="avg", kernel=(1, 1)))


def built() -> slices.Built:
    gc.collect()
    (region,) = [each for each in gc.get_objects() if type(each) is Region]
    return next(iter(region._built.values()))


@pytest.mark.parametrize("count", [16, 21])
def test_first_layers_run_on_fewer_images(count: int, monkeypatch) -> None:
    net = Large()
    x, reference = prepared(net, (count, 3, 64, 64))
    net.hybridize()
    check(net, x, reference)
    taken = built()
    assert (taken.images, {step.first for step in taken.steps}) == (8, {0, 2, 4, 6})
    # Another network, computed as a slice at a time all through.
    monkeypatch.setattr(slices, "_MUCH", 1 << 40)
    net.hybridize()
    check(net, x, reference)
    whole = built()
    assert {step.first for step in whole.steps} == {0} and taken.total < 0.8 * whole.total


def test_explain_has_first_layers_once() -> None:
    net = Large()
    x, reference = prepared(net, (16, 3, 64, 64))
    net.hybridize()
    check(net, x, reference)
    steps = built().steps
    parts = [step for step in steps if step.node is steps[0].node and step.kernel == steps[0].kernel]
    assert len(parts) > 1
    explained = net.explain(x)
    found = [(kernel.name, kernel.kernel, kernel.implementation) for kernel in explained.kernels]
    assert len(set(found)) == len(found)
    wanted = (parts[0].node.name, parts[0].kernel)
    first = next(kernel for kernel in explained.kernels if (kernel.name, kernel.kernel) == wanted)
    assert first.count == len(parts) and f"({len(parts)} times)" in str(explained)
    assert sum(kernel.share for kernel in explained.kernels) == pytest.approx(1)
    # The packed weights of a region lie in one block, which counts once.
    assert 0 < explained.memory["packed"] < 2 * explained.memory["parameters"]


def test_first_layers_stay_where_kernels_differ(monkeypatch) -> None:
    net = Large()
    x, reference = prepared(net, (16, 3, 64, 64))
    monkeypatch.setattr(slices, "_are_alike", lambda step, other: False)
    net.hybridize()
    check(net, x, reference)
    assert {step.first for step in built().steps} == {0}


def test_weights_that_are_read_as_they_are() -> None:
    net = Large()
    net.out = nn.Dense(16384)
    x, reference = prepared(net, (21, 3, 64, 64))
    net.hybridize()
    check(net, x, reference)
    regions = [each for each in gc.get_objects() if type(each) is Region]
    assert [len(each.packing) for each in regions if each.inputs[0].spec.shape == x.shape] == [3]
    torch.set_num_threads(1)
    check(net, x, reference)
    # Written in place, and in another order.
    weight = net.out.weight.data()
    weight[:] = weight * 2
    net.out.bias.data()[:] = net.out.bias.data() * 2
    check(net, x, [2 * each for each in reference])


def test_kernels_in_use_stay_when_the_others_are_forgotten() -> None:
    api = interface.library()
    assert api is not None
    net = nn.Conv2D(8, 3, in_channels=4)
    net.initialize()
    net.hybridize()
    x = mx.nd.random.normal(shape=(2, 4, 9, 9))
    for _ in range(2):
        expected = net(x).asnumpy()
    before, after = ctypes.c_int(), ctypes.c_int()
    api.get_primitive_cache_capacity(ctypes.byref(before))
    workers = [threading.Thread(target=lambda: [api.forget_unused() for _ in range(50)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    api.get_primitive_cache_capacity(ctypes.byref(after))
    assert before.value == after.value > 0
    assert np.array_equal(net(x).asnumpy(), expected)
    bias = net.bias.data()._t
    assert np.allclose(torch.conv2d(x._t, net.weight.data()._t, bias).numpy(), expected, atol=1e-5)
