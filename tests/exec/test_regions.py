"""Regions that oneDNN runs as one: every kind of layer against torch, threads, weights, memory, fallbacks."""

from __future__ import annotations

import platform
import threading
from time import sleep

import numpy as np
import pytest
import torch
from torch.nn import functional

import regluon as mx
from regluon.exec.onednn import Region, builder, forms, interface, products
from regluon.gluon import nn

needs_onednn = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)


def kernels_of(net: mx.gluon.HybridBlock, *inputs: mx.nd.NDArray) -> list[str]:
    return [kernel.kernel for kernel in net.explain(*inputs).kernels]


def run(net: mx.gluon.HybridBlock, *inputs: mx.nd.NDArray) -> np.ndarray:
    """The second call, which a plan serves."""
    net(*inputs)
    return net(*inputs).asnumpy()


def tensor(array: mx.nd.NDArray) -> torch.Tensor:
    return torch.tensor(array.asnumpy())


def build(*blocks: mx.gluon.HybridBlock) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(*blocks)
    mx.random.seed(3)
    net.initialize(mx.init.Uniform(0.5))
    net.hybridize()
    return net


class Op(mx.gluon.HybridBlock):
    """A block of one function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


def test_the_interface_is_found_where_it_is_known_to_be() -> None:
    known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    if not known or not torch.__version__.startswith("2.13"):
        pytest.skip("another platform or version of torch, where torch's own operators run")
    assert interface.library() is not None


@needs_onednn
@pytest.mark.parametrize(
    "stride, pad, dilate, groups, bias",
    [
        ((1, 1), (0, 0), (1, 1), 1, True),
        ((2, 1), (1, 2), (1, 1), 1, False),
        ((1, 1), (2, 2), (2, 2), 1, True),
        ((1, 1), (1, 1), (1, 1), 4, True),
        ((2, 2), (1, 1), (1, 1), 8, False),
    ],
)
def test_convolutions(stride, pad, dilate, groups, bias) -> None:
    net = build(nn.Conv2D(16, 3, stride, pad, dilate, groups, in_channels=8, use_bias=bias))
    x = mx.nd.random.normal(shape=(2, 8, 11, 9))
    offset = tensor(net[0].bias.data()) if bias else None
    expected = functional.conv2d(tensor(x), tensor(net[0].weight.data()), offset, stride, pad, dilate, groups)
    np.testing.assert_allclose(run(net, x), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert "onednn_convolution" in kernels_of(net, x)


ACTIVATIONS = {
    "relu": (lambda F, x: F.relu(x), torch.relu),
    "sigmoid": (lambda F, x: F.sigmoid(x), torch.sigmoid),
    "tanh": (lambda F, x: F.tanh(x), torch.tanh),
    "leaky": (
        lambda F, x: F.LeakyReLU(x, act_type="leaky", slope=0.3),
        lambda t: functional.leaky_relu(t, 0.3),
    ),
    "gelu": (lambda F, x: F.LeakyReLU(x, act_type="gelu"), functional.gelu),
    "clip": (lambda F, x: F.clip(x, -0.25, 0.75), lambda t: t.clamp(-0.25, 0.75)),
}


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilate"), [(1, 2, 1, 2), (2, 2, 3, 2), (2, 4, 3, 2), (1, 2, 1, 1)]
)
def test_outputs_that_all_read_padding(kernel: int, stride: int, pad: int, dilate: int) -> None:
    """oneDNN's kernels for some of these end the process."""
    layer = nn.Conv1D(2, kernel, strides=stride, padding=pad, dilation=dilate, in_channels=5)
    net = build(layer)
    layer.bias.set_data(mx.nd.array([1, 2]))
    x = mx.nd.random.normal(shape=(3, 5, 1))
    net.hybridize(static_alloc=True, static_shape=True)
    expected = functional.conv1d(tensor(x), tensor(layer.weight.data()), None, stride, pad, dilate)
    assert not expected.any()
    np.testing.assert_array_equal(run(net, x)[:, :, 0], [[1, 2]] * 3)


@needs_onednn
@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("place", ["fused", "alone"])
def test_activations(kind: str, place: str) -> None:
    function, reference = ACTIVATIONS[kind]
    pool = [nn.MaxPool2D(2)] if place == "alone" else []
    net = build(nn.Conv2D(8, 3, in_channels=4), *pool, Op(function))
    x = mx.nd.random.normal(shape=(2, 4, 8, 8))
    hidden = functional.conv2d(tensor(x), tensor(net[0].weight.data()), tensor(net[0].bias.data()))
    hidden = functional.max_pool2d(hidden, 2) if pool else hidden
    np.testing.assert_allclose(run(net, x), reference(hidden).numpy(), rtol=1e-4, atol=1e-5)
    assert ("onednn_eltwise" in kernels_of(net, x)) == (place == "alone")


POOLINGS = {
    "max": (nn.MaxPool2D(3, 2, 1), lambda t: functional.max_pool2d(t, 3, 2, 1)),
    "full": (nn.MaxPool2D(2, 2, ceil_mode=True), lambda t: functional.max_pool2d(t, 2, 2, 0, ceil_mode=True)),
    "average": (nn.AvgPool2D(3, 2, 1), lambda t: functional.avg_pool2d(t, 3, 2, 1)),
    "no padding": (
        nn.AvgPool2D(3, 2, 1, count_include_pad=False),
        lambda t: functional.avg_pool2d(t, 3, 2, 1, count_include_pad=False),
    ),
    "global average": (nn.GlobalAvgPool2D(), lambda t: t.mean((2, 3), keepdim=True)),
    "global max": (nn.GlobalMaxPool2D(), lambda t: t.amax((2, 3), keepdim=True)),
}


@needs_onednn
@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling(kind: str) -> None:
    block, reference = POOLINGS[kind]
    net = build(nn.Conv2D(8, 3, in_channels=4), block)
    x = mx.nd.random.normal(shape=(2, 4, 9, 9))
    hidden = functional.conv2d(tensor(x), tensor(net[0].weight.data()), tensor(net[0].bias.data()))
    np.testing.assert_allclose(run(net, x), reference(hidden).numpy(), rtol=1e-4, atol=1e-5)
    assert "onednn_pooling" in kernels_of(net, x)


class Branches(mx.gluon.HybridBlock):
    """Sums, products, concatenation, and values that are used after they were added to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2D(8, 3, padding=1, in_channels=4), nn.Conv2D(8, 1, in_channels=8)
        self.scale = nn.Dense(8, in_units=8)

    def hybrid_forward(self, F, x):
        a = self.first(x)
        b = F.relu(self.second(a) + a)
        gate = F.sigmoid(self.scale(F.Pooling(b, global_pool=True, pool_type="avg", kernel=(1, 1))))
        c = F.broadcast_mul(b, gate.reshape((0, -1, 1, 1)))
        return F.concat(a, b, c, dim=1), a


@needs_onednn
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.05)])
def test_branches_share_no_memory_by_mistake(dtype: str, tolerance: float) -> None:
    net = Branches()
    mx.random.seed(5)
    net.initialize(mx.init.Uniform(0.4))
    x = mx.nd.random.normal(shape=(2, 4, 7, 6))
    expected = [value.asnumpy() for value in net(x)]
    net.cast(dtype)
    net.hybridize()
    x = x.astype(dtype)
    for _ in range(3):
        actual = [value.astype("float32").asnumpy() for value in net(x)]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@needs_onednn
def test_batch_norm_that_cannot_be_folded() -> None:
    norm = nn.BatchNorm(in_channels=8)
    net = build(nn.Conv2D(8, 1, in_channels=4), nn.MaxPool2D(2), norm, nn.Activation("relu"))
    net[2].running_mean.set_data(mx.nd.random.normal(shape=(8,)))
    net[2].running_var.set_data(mx.nd.random.uniform(1, 2, shape=(8,)))
    x = mx.nd.random.normal(shape=(2, 4, 6, 6))
    hidden = functional.conv2d(tensor(x), tensor(net[0].weight.data()), tensor(net[0].bias.data()))
    hidden = functional.batch_norm(
        functional.max_pool2d(hidden, 2),
        tensor(net[2].running_mean.data()),
        tensor(net[2].running_var.data()),
        tensor(net[2].gamma.data()),
        tensor(net[2].beta.data()),
        eps=1e-5,
    ).relu()
    np.testing.assert_allclose(run(net, x), hidden.numpy(), rtol=1e-4, atol=1e-5)
    assert kernels_of(net, x).count("onednn_convolution") == 2


@needs_onednn
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 2])
def test_offsets_by_channel_on_few_pixels(count: int, size: int) -> None:
    norm = nn.BatchNorm(in_channels=16)
    net = build(norm, nn.Activation("relu"), nn.Conv2D(5, 3, padding=1, in_channels=16))
    norm.beta.set_data(mx.nd.arange(16) * 100 + 100)
    x = mx.nd.random.normal(shape=(count, 16, size, size))
    hidden = (tensor(x) / (1 + 1e-5) ** 0.5 + tensor(norm.beta.data()).reshape(1, 16, 1, 1)).relu()
    layer = net[2]
    expected = functional.conv2d(hidden, tensor(layer.weight.data()), tensor(layer.bias.data()), padding=1)
    np.testing.assert_allclose(run(net, x), expected.numpy(), rtol=1e-4, atol=1e-3)


@needs_onednn
def test_dense_layers_in_a_region() -> None:
    net = build(nn.Dense(300, in_units=200, activation="tanh"), nn.Dense(40, in_units=300, use_bias=False))
    x = mx.nd.random.normal(shape=(16, 200))
    hidden = torch.tanh(
        functional.linear(tensor(x), tensor(net[0].weight.data()), tensor(net[0].bias.data()))
    )
    expected = functional.linear(hidden, tensor(net[1].weight.data()))
    np.testing.assert_allclose(run(net, x), expected.numpy(), rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize(
    "layers, both, width", [(1, False, 5), (1, True, 5), (3, False, 8), (2, False, 5), (3, True, 7)]
)
@pytest.mark.parametrize("states", [False, True])
def test_lstm(layers: int, both: bool, width: int, states: bool) -> None:
    net = mx.gluon.rnn.LSTM(8, layers, bidirectional=both, input_size=width)
    mx.random.seed(2)
    net.initialize(mx.init.Uniform(0.5))
    net.hybridize()
    x = mx.nd.random.normal(shape=(6, 3, width))
    reference = torch.nn.LSTM(width, 8, layers, bidirectional=both)
    start = [mx.nd.random.normal(shape=(layers * (1 + both), 3, 8)) for _ in range(2)]
    # The vector holds every cell's weights, then every cell's biases.
    ends = [f"l{layer}{end}" for layer in range(layers) for end in ("", "_reverse")[: 1 + both]]
    names = [f"{kind}_{own}_{end}" for kind in ("weight", "bias") for end in ends for own in ("ih", "hh")]
    flat = torch.cat([getattr(reference, name).detach().flatten() for name in names])
    net.rnn_param.set_data(mx.np.array(flat.numpy()))
    with torch.no_grad():
        if states:
            expected, ended = reference(tensor(x), tuple(map(tensor, start)))
            for _ in range(2):
                output, after = net(x, start)
            for one, other in zip(after, ended, strict=True):
                np.testing.assert_allclose(one.asnumpy(), other.numpy(), rtol=1e-4, atol=1e-5)
            kernels = [kernel.kernel for kernel in net.explain(x, start).kernels]
        else:
            expected, _ = reference(tensor(x))
            for _ in range(2):
                output = net(x)
            kernels = kernels_of(net, x)
    np.testing.assert_allclose(output.asnumpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert kernels.count("onednn_lstm") == layers


class Encoder(mx.gluon.HybridBlock):
    """Attention and a feed-forward part, each with a sum and a normalization."""

    def __init__(self) -> None:
        super().__init__()
        projections = (nn.Dense(32, flatten=False, in_units=32) for _ in range(4))
        self.query, self.key, self.value, self.out = projections
        self.norm, self.second = nn.LayerNorm(in_channels=32), nn.LayerNorm(in_channels=32)
        self.wide = nn.Dense(64, flatten=False, in_units=32)
        self.narrow = nn.Dense(32, flatten=False, in_units=64)

    def forward(self, x):
        np_, npx = mx.np, mx.npx

        def split(y):
            y = np_.transpose(npx.reshape(y, (-2, -2, 4, -1)), (0, 2, 1, 3))
            return npx.reshape(y, (-5, -2, -2))

        scores = npx.batch_dot(split(self.query(x)) * 0.35, split(self.key(x)), transpose_b=True)
        mixed = npx.batch_dot(npx.softmax(scores, axis=-1), split(self.value(x)))
        mixed = np_.transpose(npx.reshape(mixed, (-6, -1, 4, -2, -2)), (0, 2, 1, 3))
        x = self.norm(x + self.out(npx.reshape(mixed, (-2, -2, -5))))
        return self.second(x + self.narrow(npx.relu(self.wide(x))))


@needs_onednn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_encoder_in_mixed_precision(dtype: str) -> None:
    net = Encoder()
    mx.random.seed(4)
    net.initialize(mx.init.Uniform(0.2))
    x = mx.np.random.normal(size=(2, 24, 32))
    expected = net(x).asnumpy()
    net.hybridize()
    net(x)
    if dtype != "float32":
        net = mx.amp.convert_hybrid_block(net, target_dtype=dtype, cast_optional_params=True)
        net.hybridize()
        net(x)
    tolerance = 1e-4 if dtype == "float32" else 0.05
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=tolerance, atol=tolerance)
    kernels = {kernel.kernel for kernel in net.explain(x).kernels}
    assert {"onednn_softmax", "onednn_layer_normalization", "onednn_matmul"} <= kernels
    assert not {"softmax", "amp_cast", "_npi_add", "LayerNorm"} & kernels


class Attention(mx.gluon.HybridBlock):
    """Of one sequence to another, both projected to ``heads`` parts."""

    def __init__(self, heads: int, width: int, depth: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = (nn.Dense(width, flatten=False, in_units=64) for _ in range(2))
        self.value = nn.Dense(depth, flatten=False, in_units=64)

    def forward(self, x, y):
        np_, npx = mx.np, mx.npx

        def split(z):
            return np_.transpose(npx.reshape(z, (-2, -2, self.heads, -1)), (0, 2, 1, 3))

        scores = np_.matmul(split(self.query(x)), np_.swapaxes(split(self.key(y)), 2, 3)) * 0.3
        mixed = np_.matmul(npx.softmax(scores, axis=-1), split(self.value(y)))
        return npx.reshape(np_.transpose(mixed, (0, 2, 1, 3)), (-2, -2, -5))


def attention_by_batch_dot(net: Attention, x, y):
    """The same with batch and heads as one axis, whose keys are not turned."""
    np_, npx = mx.np, mx.npx

    def split(z):
        z = np_.transpose(npx.reshape(z, (-2, -2, net.heads, -1)), (0, 2, 1, 3))
        return npx.reshape(z, (-5, -2, -2))

    scores = npx.batch_dot(split(net.query(x)), split(net.key(y)), transpose_b=True) * 0.3
    mixed = npx.batch_dot(npx.softmax(scores, axis=-1), split(net.value(y)))
    mixed = npx.reshape(mixed, (-6, -1, net.heads, -2, -2))
    return npx.reshape(np_.transpose(mixed, (0, 2, 1, 3)), (-2, -2, -5))


class AttentionByBatchDot(Attention):
    def forward(self, x, y):
        return attention_by_batch_dot(self, x, y)


@needs_onednn
@pytest.mark.parametrize("heads, width, depth", [(1, 16, 16), (4, 32, 32), (4, 32, 12), (3, 15, 9)])
@pytest.mark.parametrize("queries, keys", [(24, 24), (7, 33)])
@pytest.mark.parametrize("most", [1 << 24, 0])
def test_attention(
    heads: int, width: int, depth: int, queries: int, keys: int, most: int, monkeypatch
) -> None:
    """By primitives where the scores are few, by torch where they are many."""
    monkeypatch.setattr(forms, "_MOST_SCORES", most)
    net = AttentionByBatchDot(heads, width, depth)
    mx.random.seed(5)
    net.initialize(mx.init.Uniform(0.5))
    x, y = (mx.np.random.normal(size=(2, length, 64)) for length in (queries, keys))
    expected = net(x, y).asnumpy()
    parts = [
        tensor(layer(each)).unflatten(-1, (heads, -1)).transpose(1, 2)
        for layer, each in ((net.query, x), (net.key, y), (net.value, y))
    ]
    weights = torch.softmax(parts[0] @ parts[1].transpose(2, 3) * 0.3, -1)
    reference = (weights @ parts[2]).transpose(1, 2).flatten(2).numpy()
    np.testing.assert_allclose(expected, reference, rtol=1e-4, atol=1e-5)
    net.hybridize()
    net(x, y)
    np.testing.assert_allclose(net(x, y).asnumpy(), reference, rtol=1e-4, atol=1e-5)
    kernels = [kernel.kernel for kernel in net.explain(x, y).kernels]
    assert ("onednn_softmax" in kernels) == (most > 0)
    assert ("attention_by_rows" in kernels) == (most == 0)


@needs_onednn
def test_attention_with_turned_keys() -> None:
    net = Attention(2, 16, 16)
    net.initialize(mx.init.Uniform(0.5))
    x, y = (mx.np.random.normal(size=(2, length, 64)) for length in (5, 9))
    expected = net(x, y).asnumpy()
    net.hybridize()
    net(x, y)
    np.testing.assert_allclose(net(x, y).asnumpy(), expected, rtol=1e-4, atol=1e-5)


@needs_onednn
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no kernels for bfloat16"
)
@pytest.mark.parametrize("rows", [384, 12 * 33])
def test_dense_layers_as_convolutions(rows: int, monkeypatch) -> None:
    """In 16 bits some products are faster so; sums, activations and other numbers of threads included."""
    monkeypatch.setattr(products, "_convolution_is_faster", lambda *_: True)

    class Twice(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(48, flatten=False, in_units=32)
            self.second = nn.Dense(32, flatten=False, in_units=48, use_bias=False)

        def hybrid_forward(self, F, x):
            x = F.concat(x, x * 0.5, dim=1)
            return x + self.second(F.LeakyReLU(self.first(x), act_type="gelu"))

    net = Twice()
    mx.random.seed(6)
    net.initialize(mx.init.Uniform(0.3))
    x = mx.nd.random.normal(shape=(2, rows // 4, 32))
    expected = net(x).asnumpy()
    net.cast("bfloat16")
    x = x.astype("bfloat16")
    net.hybridize()
    count = torch.get_num_threads()
    net(x)
    try:
        for threads in (count, count + 1):
            torch.set_num_threads(threads)
            np.testing.assert_allclose(net(x).astype("float32").asnumpy(), expected, rtol=0.05, atol=0.05)
    finally:
        torch.set_num_threads(count)
    kernels = kernels_of(net, x)
    assert kernels.count("onednn_convolution") == (2 if rows == 384 else 0)
    assert kernels.count("onednn_matmul") == (0 if rows == 384 else 2)


@needs_onednn
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no kernels for bfloat16"
)
@pytest.mark.parametrize("slow", ["matmul", "convolution"])
def test_the_faster_of_product_and_convolution_is_taken(slow: str, monkeypatch) -> None:
    class Trial(products._Trial):
        def __call__(self) -> None:
            super().__call__()
            sleep(0.01 if self._primitive.kind == slow else 0)

    monkeypatch.setattr(products, "_Trial", Trial)
    form = (384, 32, 48, torch.bfloat16, (("relu", ()),), torch.get_num_threads())
    assert products._convolution_is_faster.__wrapped__(*form) == (slow == "matmul")


def convnet() -> nn.HybridSequential:
    return build(
        nn.Conv2D(8, 3, padding=1, in_channels=3, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(16, 3, in_channels=8, activation="relu"),
        nn.Dense(10, in_units=16 * 36),
    )


@needs_onednn
def test_a_written_weight_is_used_at_the_next_call() -> None:
    net, x = convnet(), mx.nd.random.normal(shape=(2, 3, 16, 16))
    before = run(net, x)
    net[0].weight.set_data(net[0].weight.data() * 2)
    net[3].bias.data()[:] += 1
    after = net(x).asnumpy()
    net.hybridize(False)
    np.testing.assert_allclose(after, net(x).asnumpy(), rtol=1e-4, atol=1e-4)
    assert np.abs(after - before).max() > 0.5


@needs_onednn
def test_another_number_of_threads() -> None:
    net, x = convnet(), mx.nd.random.normal(shape=(2, 3, 16, 16))
    count = torch.get_num_threads()
    expected = run(net, x)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(count)


@needs_onednn
def test_many_threads_in_one_region() -> None:
    net = convnet()
    images = [mx.nd.random.normal(shape=(2, 3, 16, 16)) for _ in range(8)]
    net(images[0])
    expected = [net(x).asnumpy() for x in images]
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(40):
            if not np.allclose(net(images[place]).asnumpy(), expected[place], rtol=1e-5, atol=1e-5):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@needs_onednn
def test_results_of_calls_are_kept_apart() -> None:
    net = convnet()
    first, second = mx.nd.ones((2, 3, 16, 16)), mx.nd.zeros((2, 3, 16, 16))
    net(first)
    one = net(first)
    kept = one.asnumpy().copy()
    net(second)
    np.testing.assert_array_equal(one.asnumpy(), kept)


@needs_onednn
@pytest.mark.parametrize("strides", ["channels last", "sliced", "transposed"])
def test_inputs_in_any_memory_order(strides: str) -> None:
    net, x = convnet(), mx.nd.random.normal(shape=(2, 3, 16, 16))
    expected = run(net, x)
    base = tensor(x)
    if strides == "channels last":
        given = base.contiguous(memory_format=torch.channels_last)
    elif strides == "sliced":
        wide = torch.zeros(2, 3, 16, 40)
        wide[..., 5:21] = base
        given = wide[..., 5:21]
    else:
        given = base.transpose(2, 3).contiguous().transpose(2, 3)
    array = mx.nd.from_torch(given) if hasattr(mx.nd, "from_torch") else mx.nd.NDArray._wrap(given, mx.cpu())
    np.testing.assert_allclose(net(array).asnumpy(), expected, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_what_onednn_refuses_runs_on_torch(monkeypatch) -> None:
    refuse = {"tanh"}
    original = interface.Library.eltwise

    def eltwise(self, source, kind, scalars):
        if kind in refuse:
            raise interface.Unsupported("refused")
        return original(self, source, kind, scalars)

    monkeypatch.setattr(interface.Library, "eltwise", eltwise)
    hyperbolic = Op(lambda F, x: F.tanh(x))
    net = build(nn.Conv2D(8, 3, in_channels=4), nn.GlobalAvgPool2D(), hyperbolic, nn.Conv2D(4, 1))
    x = mx.nd.random.normal(shape=(2, 4, 8, 8))
    net(x)
    net.hybridize(False)
    expected = net(x).asnumpy()
    net.hybridize()
    np.testing.assert_allclose(run(net, x), expected, rtol=1e-5, atol=1e-5)
    kernels = kernels_of(net, x)
    assert "tanh" in kernels and kernels.count("onednn_convolution") == 2


@needs_onednn
@pytest.mark.parametrize("when", ["an output's format", "another number of threads"])
def test_a_refusal_elsewhere_is_no_error(when: str, monkeypatch) -> None:
    net, x = convnet(), mx.nd.random.normal(shape=(2, 3, 16, 16))
    expected = net(x).asnumpy()
    if when == "another number of threads":
        run(net, x)

    def refuse(*arguments, **more):
        raise interface.Unsupported("refused")

    count = torch.get_num_threads()
    if when == "another number of threads":
        monkeypatch.setattr(interface.Library, "convolution", refuse)
    else:
        monkeypatch.setattr(builder._Builder, "_give", refuse)
    try:
        torch.set_num_threads(count + 1 if when == "another number of threads" else count)
        net = convnet() if when != "another number of threads" else net
        np.testing.assert_allclose(run(net, x), expected, rtol=1e-4, atol=1e-5)
    finally:
        torch.set_num_threads(count)


def test_without_the_interface_torch_runs_everything(monkeypatch) -> None:
    monkeypatch.setattr(interface, "library", lambda: None)
    net, x = convnet(), mx.nd.random.normal(shape=(2, 3, 16, 16))
    actual = run(net, x)
    net.hybridize(False)
    np.testing.assert_allclose(actual, net(x).asnumpy(), rtol=1e-4, atol=1e-5)


@needs_onednn
def test_values_in_use_at_the_same_time_do_not_overlap() -> None:
    import gc

    net, x = Branches(), mx.nd.random.normal(shape=(2, 4, 7, 6))
    net.initialize()
    net.hybridize()
    net(x)
    net(x)
    found = [each for each in gc.get_objects() if type(each) is Region]
    assert found
    for region in found:
        for built in region._built.values():
            lives: dict[int, tuple[int, int]] = {}
            for time, step in enumerate(built.steps):
                for _, value in step.arguments:
                    buffer = value.place.index
                    if value.place.where == "memory":
                        lives[buffer] = (lives.get(buffer, (time,))[0], time)
            for one, (start, end) in lives.items():
                for other, (begin, finish) in lives.items():
                    if one < other and start <= finish and begin <= end:
                        low, base = built.offsets[one], built.offsets[other]
                        assert low + built.sizes[one] <= base or base + built.sizes[other] <= low


@needs_onednn
def test_a_library_without_the_functions_is_refused(tmp_path) -> None:
    text = tmp_path / "library.so"
    text.write_bytes(b"no library at all" * 10)
    with pytest.raises(OSError, match="ELF"):
        interface._addresses(text)
