"""Random networks: what is compiled equals what runs op by op, in values and in gradients, for every flag."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regluon as mx
from regluon.gluon import nn

CHANNELS, SIZE = 4, 6
# Each step reads one or two earlier values, all of shape (2, CHANNELS, SIZE, SIZE).
LAYERS: dict[str, Any] = {
    "conv": lambda: nn.Conv2D(CHANNELS, 3, padding=1, in_channels=CHANNELS),
    "conv_bare": lambda: nn.Conv2D(CHANNELS, 1, in_channels=CHANNELS, use_bias=False),
    "conv_depthwise": lambda: nn.Conv2D(CHANNELS, 3, padding=1, groups=CHANNELS, in_channels=CHANNELS),
    "deconv": lambda: nn.Conv2DTranspose(CHANNELS, 3, padding=1, in_channels=CHANNELS),
    "norm": lambda: nn.BatchNorm(in_channels=CHANNELS),
    "norm_fixed": lambda: nn.BatchNorm(in_channels=CHANNELS, scale=False, use_global_stats=True),
    "dense": lambda: nn.Dense(SIZE, flatten=False, in_units=SIZE),
    "dropout": lambda: nn.Dropout(0.3),
    "prelu": lambda: nn.PReLU(in_channels=CHANNELS),
    "layer_norm": lambda: nn.LayerNorm(in_channels=SIZE),
}
ONE: dict[str, Any] = {
    "relu": lambda F, x: F.relu(x),
    "tanh": lambda F, x: F.tanh(x),
    "sigmoid": lambda F, x: F.sigmoid(x),
    "gelu": lambda F, x: F.LeakyReLU(x, act_type="gelu"),
    "leaky": lambda F, x: F.LeakyReLU(x, slope=0.2),
    "clip": lambda F, x: F.clip(x, -0.5, 0.7),
    "pool": lambda F, x: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="max"),
    "average": lambda F, x: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg"),
    "scale": lambda F, x: x * 0.5 + 0.1,
    "turn": lambda F, x: F.transpose(x, axes=(0, 1, 3, 2)),
    "turn_twice": lambda F, x: F.swapaxes(F.transpose(x, axes=(0, 1, 3, 2)), dim1=2, dim2=3),
    "reshape": lambda F, x: F.reshape(F.reshape(x, shape=(0, -1)), shape=(2, CHANNELS, SIZE, SIZE)),
    "softmax": lambda F, x: F.softmax(x, axis=1),
    "copy": lambda F, x: F.identity(x),
    "halves": lambda F, x: F.concat(*F.split(x, num_outputs=2, axis=1)[::-1], dim=1),
    "mean": lambda F, x: F.broadcast_add(x * 0, F.mean(x, axis=1, keepdims=True)),
    "stop": lambda F, x: F.BlockGrad(x) * 0.5 + x,
}
TWO: dict[str, Any] = {
    "add": lambda F, x, y: x + y,
    "plus": lambda F, x, y: F.elemwise_add(x, y),
    "multiply": lambda F, x, y: x * y,
    "maximum": lambda F, x, y: F.broadcast_maximum(x, y),
    "concat": lambda F, x, y: F.slice_axis(F.concat(x, y, dim=1), axis=1, begin=2, end=2 + CHANNELS),
}

step = st.tuples(st.sampled_from([*LAYERS, *ONE, *TWO]), st.integers(0, 100), st.integers(0, 100))
plan = st.lists(step, min_size=1, max_size=12)


class Random(mx.gluon.HybridBlock):
    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.HybridSequential()
        self.where: list[int] = []
        for name, _, _ in steps:
            self.where.append(len(self.layers))
            if name in LAYERS:
                self.layers.add(LAYERS[name]())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        values = [x]
        for place, (name, first, second) in enumerate(self.steps):
            a, b = values[-1 - first % min(len(values), 3)], values[-1 - second % len(values)]
            if name in LAYERS:
                values.append(self.layers[self.where[place]](a))
            elif name in ONE:
                values.append(ONE[name](F, a))
            else:
                values.append(TWO[name](F, a, b))
        return values[-1], values[len(values) // 2]


def train(net: Random, x: mx.nd.NDArray) -> list[np.ndarray]:
    mx.random.seed(7)
    x.attach_grad()
    with mx.autograd.record():
        outputs = net(x)
        loss = sum((value * value).sum() for value in outputs)
    loss.backward()
    results = [value.asnumpy() for value in outputs] + [x.grad.asnumpy()]
    for parameter in net.collect_params().values():
        results.append(
            parameter.grad().asnumpy() if parameter.grad_req != "null" else parameter.data().asnumpy()
        )
    return results


def close(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(actual, expected, strict=True):
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-4 * scale)


@pytest.mark.filterwarnings("ignore:Parameter .* is not used by any computation")
@settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(steps=plan, static=st.booleans(), np_kind=st.booleans())
def test_compiled_equals_imperative(steps: list[tuple[str, int, int]], static: bool, np_kind: bool) -> None:
    mx.random.seed(1)
    net = Random(steps)
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.normal(shape=(2, CHANNELS, SIZE, SIZE))
    if np_kind:
        x = x.as_np_ndarray()
    for parameter in net.collect_params().values():
        if parameter.name.endswith("running_var"):
            parameter.set_data(mx.nd.random.uniform(0.5, 1.5, shape=parameter.shape))
    start = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    expected = [value.asnumpy() for value in net(x)]
    expected_training = train(net, x)

    for name, parameter in net.collect_params().items():
        parameter.set_data(mx.nd.array(start[name]))
    net.hybridize(static_alloc=static, static_shape=static)
    for _ in range(3):
        outputs = net(x)
        close([value.asnumpy() for value in outputs], expected)
        assert all(type(value) is type(x) for value in outputs)
    close(train(net, x), expected_training)
    # The weights' statistics moved: a plan made before must see that.
    after = [value.asnumpy() for value in net(x)]
    net.hybridize(False)
    close(after, [value.asnumpy() for value in net(x)])
