"""Images with their channels in blocks: every place to change the format, joins without copies, fallbacks."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import tuning
from regluon.exec.onednn import Region, builder, interface, regions
from regluon.exec.onednn.blocks import block_of
from regluon.gluon import nn

pytestmark = pytest.mark.skipif(
    interface.library() is None or not block_of(interface.library()),
    reason="oneDNN's interface cannot be had on this platform",
)


def prepared(net: mx.gluon.HybridBlock, shape: tuple[int, ...]) -> tuple[mx.nd.NDArray, list[np.ndarray]]:
    """An input, and what the network gives for it when its operators are called one by one."""
    mx.random.seed(7)
    net.initialize(mx.init.Uniform(0.3))
    x = mx.nd.random.normal(shape=shape)
    net(x)
    for name, parameter in net.collect_params().items():
        if name.endswith(("gamma", "running_var")):
            parameter.set_data(mx.nd.random.uniform(0.5, 2, shape=parameter.shape))
        elif name.endswith(("beta", "running_mean")):
            parameter.set_data(mx.nd.random.normal(shape=parameter.shape))
    return x, values(net(x))


def values(results) -> list[np.ndarray]:
    several = results if isinstance(results, (list, tuple)) else [results]
    return [each.astype("float32").asnumpy() for each in several]


def check(net: mx.gluon.HybridBlock, x: mx.nd.NDArray, expected: list[np.ndarray], tolerance=1e-4) -> None:
    net(x)
    for _ in range(2):
        actual = values(net(x))
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())


def kernels_of(net: mx.gluon.HybridBlock, x: mx.nd.NDArray) -> list[str]:
    return [kernel.kernel for kernel in net.explain(x).kernels]


def live_regions() -> list[Region]:
    return [each for each in gc.get_objects() if type(each) is Region]


class DenseBlock(mx.gluon.HybridBlock):
    """Layers that each read all channels before them, behind a normalization that cannot be folded."""

    def __init__(self, first: int, growth: int, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2D(first, 3, 2, 1)
        self.layers = nn.HybridSequential()
        for _ in range(layers):
            layer = nn.HybridSequential()
            layer.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(2 * growth, 1, use_bias=False))
            layer.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(growth, 3, padding=1))
            self.layers.add(layer)
        self.norm, self.out = nn.BatchNorm(), nn.Dense(5)

    def hybrid_forward(self, F, x):
        x = self.stem(x)
        for layer in self.layers:
            x = F.concat(x, layer(x), dim=1)
        return self.out(F.Pooling(F.relu(self.norm(x)), global_pool=True, pool_type="avg", kernel=(1, 1)))


@pytest.mark.parametrize("first, growth", [(32, 16), (64, 32), (48, 48), (16, 8), (20, 12)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_dense_blocks(first: int, growth: int, count: int) -> None:
    net = DenseBlock(first, growth, 4)
    x, expected = prepared(net, (count, 3, 17, 14))
    net.hybridize()
    check(net, x, expected)
    whole_blocks = not (first % 16 or growth % 16)
    assert ("onednn_concat" not in kernels_of(net, x)) == (count == 1 and whole_blocks)


def test_dense_blocks_in_mixed_precision() -> None:
    net = DenseBlock(32, 16, 3)
    x, expected = prepared(net, (1, 3, 17, 14))
    net.cast("bfloat16")
    net.hybridize()
    check(net, x.astype("bfloat16"), expected, 0.05)


class Everything(mx.gluon.HybridBlock):
    """Values that are joined twice, joined to themselves, overwritten, gated, flattened and given out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2D(32, 3, 2, 1, activation="relu"), nn.Conv2D(16, 1)
        self.c, self.d = nn.Conv2D(32, 3, padding=1, groups=2), nn.Conv2D(24, 1)
        self.e, self.norm = nn.Conv2D(112, 1), nn.BatchNorm()
        self.gate, self.out = nn.Dense(32), nn.Dense(7)

    def hybrid_forward(self, F, x):
        a = self.a(x)
        b = self.b(a)
        first = F.concat(a, b, b, dim=1)
        second = F.concat(a, F.relu(b), self.c(a), dim=1)
        third = F.concat(first, self.d(first), dim=1)
        changed = F.relu(F.tanh(third))
        summed = self.e(second) + F.concat(
            F.Pooling(a, kernel=(3, 3), pad=(1, 1), pool_type="avg"), second, dim=1
        )
        gate = F.sigmoid(self.gate(F.Pooling(a, global_pool=True, pool_type="avg", kernel=(1, 1))))
        gated = F.broadcast_mul(a, gate.reshape((0, -1, 1, 1)))
        flat = self.out(F.concat(gated, self.norm(first), dim=1))
        return changed, summed, flat, first, third


@pytest.mark.parametrize("shape", [(1, 3, 12, 10), (1, 2, 7, 9), (1, 20, 8, 8), (2, 3, 9, 8)])
def test_every_place_to_change_the_format(shape: tuple[int, ...], monkeypatch) -> None:
    net = Everything()
    x, expected = prepared(net, shape)
    counted: list[int] = []

    def counts(nodes, api):
        counted.append(len(nodes))
        return {"blocks": min(wanted, len(nodes))}

    monkeypatch.setattr(regions, "counts_in_blocks", counts)
    monkeypatch.setattr(regions, "gains_by_blocks", lambda nodes: True)
    built: list[int] = []
    usual = regions.build

    def noted(region, api, in_blocks=0):
        result = usual(region, api, in_blocks)
        built.append(in_blocks)
        return result

    monkeypatch.setattr(regions, "build", noted)
    wanted = 1
    while not counted or wanted <= max(counted):
        net.hybridize()
        check(net, x, expected)
        wanted += 1
    # Few of them are refused.
    assert max(counted) > 10 and len(set(built) - {0}) > max(counted) // 2


@pytest.mark.parametrize("way", ["region", "blocks", "blocks first"])
def test_measured_formats(way: str, monkeypatch, tmp_path) -> None:
    net = nn.HybridSequential()
    for stride in (1, 2, 2, 1):
        net.add(nn.Conv2D(32, 3, stride, 1, activation="relu"), nn.Conv2D(32, 1))
    x, expected = prepared(net, (1, 3, 48, 40))
    offered: list[set[str]] = []

    def fastest(runs, *rest):
        offered.append(set(runs))
        for run in runs.values():
            run()
        return way if way in runs else next(iter(runs))

    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "_fastest_run", fastest)
    net.hybridize(static_shape=True)
    check(net, x, expected)
    assert {"region", "blocks", "blocks first"} < offered[-1]
    times = len(offered)
    net.hybridize(static_shape=True)
    check(net, x, expected)
    assert len(offered) == times


@pytest.mark.parametrize("where", ["no format", "a refusal"])
def test_without_blocks(where: str, monkeypatch) -> None:
    net = DenseBlock(32, 16, 4)
    x, expected = prepared(net, (1, 3, 17, 14))
    if where == "no format":
        monkeypatch.setattr("regluon.exec.onednn.blocks.block_of", lambda api: 0)
    else:

        def refuse(*arguments):
            raise interface.Unsupported("refused")

        monkeypatch.setattr(builder, "blocked", refuse)
    net.hybridize()
    check(net, x, expected)
    assert "onednn_concat" in kernels_of(net, x)


def test_another_number_of_threads_in_blocks() -> None:
    net = DenseBlock(32, 16, 4)
    x, expected = prepared(net, (1, 3, 17, 14))
    net.hybridize()
    count = torch.get_num_threads()
    try:
        for threads in (count, 1, 3):
            torch.set_num_threads(threads)
            check(net, x, expected)
    finally:
        torch.set_num_threads(count)


def test_parts_lie_in_their_wholes_and_nothing_else_does() -> None:
    gc.collect()
    before = {id(region) for region in live_regions()}
    net = DenseBlock(32, 16, 4)
    x, expected = prepared(net, (1, 3, 17, 14))
    net.hybridize()
    check(net, x, expected)
    builts = [b for r in live_regions() if id(r) not in before for b in r._built.values() if b.inside]
    assert builts
    for built in builts:
        for part, (whole, start) in built.inside.items():
            assert built.offsets[part] == built.offsets[whole] + start
            assert start + built.sizes[part] <= built.sizes[whole]


@pytest.mark.parametrize("channels", [1, 5, 16, 33])
@pytest.mark.parametrize("size", [(1, 1), (1, 3), (5, 4)])
@pytest.mark.parametrize("count", [1, 4])
def test_factors_and_offsets_by_channel(channels: int, size: tuple[int, int], count: int) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(channels, 1), nn.MaxPool2D(1), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.MaxPool2D(1), nn.BatchNorm(), nn.MaxPool2D(1))
    x, expected = prepared(net, (count, 3, *size))
    net.hybridize()
    check(net, x, expected)
