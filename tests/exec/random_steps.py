"""The steps of random networks: each chooses operands and attributes, and adds what it does to a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import regluon as mx
from regluon.gluon import nn, rnn

__all__ = ["STEPS", "Unfit"]

# A step is given the `random_graphs.Maker` of the network.
STEPS: dict[str, Callable[[Any], None]] = {}


class Unfit(Exception):
    """A step finds no operand."""


def step(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Register a step under its function's name."""
    STEPS[function.__name__] = function
    return function


def axes(*counts: int) -> Callable[[Any], bool]:
    """Values of floats with so many axes."""
    return lambda value: value.is_float and len(value.shape) in counts


def exact(value: Any) -> bool:
    return value.exact and value.is_float


def whole(value: Any) -> bool:
    return np.dtype(value.array.dtype).kind in "iu"


# Convolutions ----------------------------------------------------------------------

CONVOLUTIONS = {1: nn.Conv1D, 2: nn.Conv2D, 3: nn.Conv3D}
TRANSPOSED = {1: nn.Conv1DTranspose, 2: nn.Conv2DTranspose, 3: nn.Conv3DTranspose}
NAMES = ["relu", "sigmoid", "tanh", "softrelu", "softsign", None, None, None]


def groups_of(m: Any, *sizes: int) -> int:
    common = math.gcd(*sizes)
    return m.choose(*[n for n in range(1, common + 1) if common % n == 0])


@step
def convolution(m: Any) -> None:
    place = m.pick(axes(3, 4, 5))
    _, channels, *sizes = m.shape(place)
    made = m.choose(channels, channels, 2, 4, 8, 16)
    kernel = [m.choose(*[k for k in (1, 2, 3) if k <= size + 1]) for size in sizes]
    pad = [m.choose(0, k // 2, 1) if size >= k else k // 2 + 1 for k, size in zip(kernel, sizes, strict=True)]
    dilation = [
        m.choose(1, 1, 2) if (k - 1) * 2 < size + 2 * p else 1
        for k, size, p in zip(kernel, sizes, pad, strict=True)
    ]
    options = dict(
        channels=made,
        kernel_size=kernel,
        strides=[m.choose(1, 1, 2) for _ in sizes],
        padding=pad,
        dilation=dilation,
        groups=m.choose(1, 1, groups_of(m, channels, made), math.gcd(channels, made)),
        use_bias=m.choose(True, False),
        activation=m.choose(*NAMES),
        in_channels=channels,
    )
    m.layer(lambda: CONVOLUTIONS[len(sizes)](**options), place)


@step
def deconvolution(m: Any) -> None:
    place = m.pick(axes(3, 4, 5))
    _, channels, *sizes = m.shape(place)
    made = m.choose(channels, 2, 4)
    strides = [m.choose(1, 2) for _ in sizes]
    options = dict(
        channels=made,
        kernel_size=[m.choose(2, 3) for _ in sizes],
        strides=strides,
        padding=[m.choose(0, 1) if size > 1 else 0 for size in sizes],
        output_padding=[m.choose(0, stride - 1) for stride in strides],
        dilation=[m.choose(1, 1, 2) for _ in sizes],
        groups=m.choose(1, 1, groups_of(m, channels, made)),
        use_bias=m.choose(True, False),
        activation=m.choose(*NAMES),
        in_channels=channels,
    )
    m.layer(lambda: TRANSPOSED[len(sizes)](**options), place)


@step
def norm_and_convolution(m: Any) -> None:
    """BatchNorm before or after a convolution, with a rectifier or without, as networks have them."""
    place = m.pick(axes(4))
    channels = m.shape(place)[1]
    before, rectified, biased = m.choose(True, False), m.choose(True, False), m.choose(True, False)
    pad, size = m.choose((0, 1), (1, 3))

    def factory() -> Any:
        layers = nn.HybridSequential()
        norm = nn.BatchNorm(in_channels=channels, scale=biased or rectified, epsilon=1e-3)
        layer = nn.Conv2D(channels, size, padding=pad, use_bias=biased, in_channels=channels)
        parts = [norm, nn.Activation("relu")] if rectified else [norm]
        layers.add(*([*parts, layer] if before else [layer, *parts]))
        return layers

    m.layer(factory, place)


@step
def residual(m: Any) -> None:
    place = m.pick(axes(3, 4, 5))
    channels, count = m.shape(place)[1], len(m.shape(place)) - 2
    biased, late = m.choose(True, False), m.choose(True, False)

    def factory() -> Any:
        return Residual(CONVOLUTIONS[count], channels, biased, late)

    m.layer(factory, place, then=m.choose(None, lambda F, y: F.relu(y)))


class Residual(mx.gluon.HybridBlock):
    def __init__(self, kind: Any, channels: int, biased: bool, late: bool) -> None:
        super().__init__()
        self.late = late
        self.first = kind(channels, 3, padding=1, use_bias=biased, in_channels=channels, activation="relu")
        self.second = kind(channels, 1, use_bias=biased, in_channels=channels)
        self.norm = nn.BatchNorm(in_channels=channels, epsilon=1e-3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.norm(self.second(self.first(x)))
        return x + y if self.late else y + x


@step
def strided_readers(m: Any) -> None:
    """Convolutions of one pixel with strides, behind layers whose other pixels may be read or not."""
    place = m.pick(axes(3, 4, 5))
    channels, count = m.shape(place)[1], len(m.shape(place)) - 2
    biased, late, strides = m.choose(True, False), m.choose(True, False), m.choose(2, 2, 3)
    readers = m.choose(1, 2)

    def factory() -> Any:
        block = Residual(CONVOLUTIONS[count], channels, biased, late)
        return Strided(CONVOLUTIONS[count], channels, block, strides, readers)

    m.layer(factory, place)


class Strided(mx.gluon.HybridBlock):
    def __init__(self, kind: Any, channels: int, before: Any, strides: int, readers: int) -> None:
        super().__init__()
        self.before = before
        self.readers = nn.HybridSequential()
        for _ in range(readers):
            self.readers.add(kind(channels, 1, strides, in_channels=channels))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.relu(self.before(x))
        results = [reader(y) for reader in self.readers]
        return results[0] if len(results) == 1 else results[0] * results[1]


@step
def pooling(m: Any) -> None:
    place = m.pick(axes(3, 4, 5))
    sizes = m.shape(place)[2:]
    kernel = tuple(m.choose(*[k for k in (1, 2, 3) if k <= size]) for size in sizes)
    options = dict(
        kernel=kernel,
        stride=tuple(m.choose(1, 2) for _ in sizes),
        pad=tuple(m.choose(0, k // 2) for k in kernel),
        pool_type=m.choose("max", "max", "avg", "avg", "sum", "lp"),
        pooling_convention=m.choose("valid", "full"),
    )
    if options["pool_type"] == "avg":
        options["count_include_pad"] = m.choose(True, False)
    if options["pool_type"] == "lp":
        options["p_value"] = m.choose(1, 2)
        m.call(lambda F, x: F.Pooling(F.abs(x) + 0.1, **options), place)
        return
    m.call(lambda F, x: F.Pooling(x, **options), place)


@step
def global_pooling(m: Any) -> None:
    place, kind = m.pick(axes(3, 4, 5)), m.choose("max", "avg", "sum")
    m.call(
        lambda F, x: F.Pooling(x, kernel=(1,) * (len(x.shape) - 2), global_pool=True, pool_type=kind), place
    )


@step
def resize(m: Any) -> None:
    place, height, width = m.pick(axes(4)), m.choose(1, 3, 8), m.choose(1, 2, 7)
    kind = m.choose("up", "bilinear", "adaptive")
    if kind == "up":
        m.call(lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest"), place)
    elif kind == "bilinear":
        m.call(lambda F, x: F.contrib.BilinearResize2D(x, height=height, width=width), place)
    else:
        m.call(lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=(height, width)), place)


# Layers ----------------------------------------------------------------------


@step
def dense(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    flat = m.choose(True, False)
    sizes = m.shape(place)[1:]
    options = dict(
        units=m.choose(1, 4, 8, 16, sizes[-1]),
        flatten=flat,
        use_bias=m.choose(True, False),
        activation=m.choose(*NAMES),
        in_units=math.prod(sizes) if flat else sizes[-1],
    )
    m.layer(lambda: nn.Dense(**options), place)


@step
def dense_of_values(m: Any) -> None:
    """A layer whose weight is a value, no parameter."""
    place = m.pick(axes(2, 3))
    last = m.shape(place)[-1]
    weight = m.pick(
        lambda value: value.is_float and len(value.shape) == 2 and value.shape[1] == last, late=False
    )
    units = m.shape(weight)[0]
    m.call(
        lambda F, x, w: F.FullyConnected(x, w, num_hidden=units, no_bias=True, flatten=False) * 0.3,
        place,
        weight,
    )


@step
def batch_norm(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    axis = m.choose(1, 1, 1, m.axis(place, 1))
    options = dict(
        axis=axis,
        in_channels=m.shape(place)[axis],
        # One of the two stays, so that a gradient reaches every BatchNorm, which moves its statistics then.
        **m.choose({}, {}, {"center": False}, {"scale": False}),
        use_global_stats=m.choose(False, False, True),
        epsilon=m.choose(1e-3, 1e-5, 0.1),
    )
    m.layer(lambda: nn.BatchNorm(**options), place)


@step
def other_norm(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    shape = m.shape(place)
    kind, epsilon = m.choose("layer", "layer", "group", "instance", "l2", "lrn"), m.choose(1e-3, 1e-5)
    if kind == "layer":
        axis = m.choose(-1, -1, m.axis(place, 1))
        center, scale, size = m.choose(True, True, False), m.choose(True, True, False), shape[axis]
        m.layer(lambda: nn.LayerNorm(axis, epsilon, center, scale, in_channels=size), place)
    elif kind == "group" and len(shape) > 2:
        count, size = groups_of(m, shape[1]), shape[1]
        m.layer(lambda: nn.GroupNorm(count, epsilon, in_channels=size), place)
    elif kind == "instance" and len(shape) > 2:
        axis = m.choose(1, 1, m.axis(place, 1))
        size = shape[axis]
        m.layer(lambda: nn.InstanceNorm(axis, epsilon, in_channels=size), place)
    elif kind == "lrn" and len(shape) == 4:
        m.call(lambda F, x: F.LRN(x, nsize=3), place)
    else:
        mode = m.choose("instance", "channel", "spatial") if len(shape) > 2 else "instance"
        m.call(lambda F, x: F.L2Normalization(x, mode=mode, eps=1e-3), place)


@step
def prelu(m: Any) -> None:
    place = m.pick(axes(2, 3, 4))
    size = m.choose(1, m.shape(place)[1])
    m.layer(lambda: nn.PReLU(in_channels=size), place)


@step
def dropout(m: Any) -> None:
    place, over = m.pick(axes(2, 3, 4)), m.choose((), (), (1,))
    if any(each.name == "cell" for each in m.instructions):
        raise Unfit
    m.layer(lambda: nn.Dropout(0.3, axes=over), place)


@step
def parameter(m: Any) -> None:
    """A parameter that is added, multiplied or compared, of any shape that fits."""
    place = m.pick()
    shape = m.shape(place)
    own = [m.choose(1, size) if axis else 1 for axis, size in enumerate(shape)]
    own = tuple(own[m.choose(0, 0, *range(len(own))) :])
    kind = m.choose("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_maximum")
    turned = m.choose(True, False)
    m.layer(lambda: WithParameter(own, kind, turned), place)


class WithParameter(mx.gluon.HybridBlock):
    def __init__(self, shape: tuple[int, ...], kind: str, turned: bool) -> None:
        super().__init__()
        self.kind, self.turned = kind, turned
        self.value = mx.gluon.Parameter("value", shape=shape, init=mx.init.Uniform(1))

    def hybrid_forward(self, F: Any, x: Any, value: Any) -> Any:
        if self.kind == "broadcast_div":
            return x / (F.abs(value) + 0.5) if not self.turned else F.broadcast_div(value, F.abs(x) + 0.5)
        function = getattr(F, self.kind)
        return function(value, x) if self.turned else function(x, value)


@step
def recurrent(m: Any) -> None:
    place = m.pick(axes(3))
    size, kind = m.shape(place)[2], m.choose(rnn.LSTM, rnn.GRU, rnn.RNN)
    options = dict(num_layers=m.choose(1, 1, 2), bidirectional=m.choose(True, False), input_size=size)
    hidden, layout = m.choose(4, 8, 1), m.choose("NTC", "NTC", "TNC")
    m.layer(lambda: kind(hidden, layout=layout, **options), place)


@step
def cell(m: Any) -> None:
    """A cell, unrolled or as the body of a loop."""
    place = m.pick(axes(3))
    size, kind = m.shape(place)[2], m.choose(rnn.LSTMCell, rnn.GRUCell, rnn.RNNCell)
    unrolled, hidden = m.choose(True, False), m.choose(4, 8)
    # A recorded loop draws one random number for all steps, whether its body uses it or not.
    unrolled = unrolled or any(each.name == "dropout" for each in m.instructions)
    m.layer(lambda: Recurrent(kind(hidden, input_size=size), unrolled, kind is rnn.LSTMCell, hidden), place)


class Recurrent(mx.gluon.HybridBlock):
    def __init__(self, cell: Any, unrolled: bool, two: bool, hidden: int) -> None:
        super().__init__()
        self.cell, self.unrolled, self.two, self.hidden = cell, unrolled, two, hidden

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        first = F.tile(F.sum(x, axis=(1, 2), keepdims=False).expand_dims(1) * 0, reps=(1, self.hidden))
        states = [first, first + 0.1][: 1 + self.two]
        if self.unrolled:
            self.cell.reset()
            return self.cell.unroll(x.shape[1], x, states, layout="NTC", merge_outputs=True)[0]
        outputs, states = F.contrib.foreach(self.cell, F.swapaxes(x, 0, 1), states)
        return F.swapaxes(outputs, 0, 1) + states[0].expand_dims(1)


# Activations and functions of one value ------------------------------------------------

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: (lambda F, x, name=name: F.Activation(x, act_type=name)) for name in NAMES if name},
    "log_sigmoid": lambda F, x: F.Activation(x, act_type="log_sigmoid"),
    "mish": lambda F, x: F.Activation(x, act_type="mish"),
    "leaky": lambda F, x: F.LeakyReLU(x, slope=0.2),
    "elu": lambda F, x: F.LeakyReLU(x, act_type="elu", slope=0.7),
    "selu": lambda F, x: F.LeakyReLU(x, act_type="selu"),
    "gelu": lambda F, x: F.LeakyReLU(x, act_type="gelu"),
    "gelu_written": lambda F, x: 0.5 * x * (1 + F.erf(x / math.sqrt(2))),
    "swish": lambda F, x: x * F.sigmoid(x),
    "hard_sigmoid": lambda F, x: F.hard_sigmoid(x),
    "clip": lambda F, x: F.clip(x, -0.5, 0.7),
    "relu6": lambda F, x: F.clip(x, 0, 6),
    "square": lambda F, x: F.square(x),
    "sqrt": lambda F, x: F.sqrt(F.abs(x) + 0.1),
    "rsqrt": lambda F, x: F.rsqrt(F.abs(x) + 0.5),
    "exp": lambda F, x: F.exp(F.tanh(x)),
    "log": lambda F, x: F.log(F.abs(x) + 0.5),
    "sin": lambda F, x: F.sin(x),
    "smooth_l1": lambda F, x: F.smooth_l1(x, scalar=1.0),
    "softmax": lambda F, x: F.softmax(x),
    "hot_softmax": lambda F, x: F.softmax(x, axis=1, temperature=2.0) if len(x.shape) > 1 else x * 1,
    "log_softmax": lambda F, x: F.log_softmax(x, axis=-1),
    "softmin": lambda F, x: F.softmin(x, axis=-1),
    "copy": lambda F, x: F.identity(x),
    "stop": lambda F, x: F.BlockGrad(x) * 0.5 + x,
    "affine": lambda F, x: x * 0.5 + 0.1,
    "turned_scalar": lambda F, x: 1 - x / 3,
    "power": lambda F, x: (F.abs(x) + 0.2) ** 1.5,
    "negative": lambda F, x: -x,
    "cumsum": lambda F, x: F.cumsum(x, axis=0 - 1),
}


@step
def function(m: Any) -> None:
    place, name = m.pick(), m.choose(*FUNCTIONS)
    m.call(FUNCTIONS[name], place)


@step
def chain(m: Any) -> None:
    place = m.pick()
    first, second, third = (FUNCTIONS[m.choose(*FUNCTIONS)] for _ in range(3))
    m.call(lambda F, x: third(F, second(F, first(F, x))), place)


# Two operands ----------------------------------------------------------------------

PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda F, x, y: F.broadcast_add(x, y),
    "subtract": lambda F, x, y: F.broadcast_sub(x, y),
    "multiply": lambda F, x, y: F.broadcast_mul(x, y),
    "divide": lambda F, x, y: F.broadcast_div(x, F.abs(y) + 0.5),
    "maximum": lambda F, x, y: F.broadcast_maximum(x, y),
    "minimum": lambda F, x, y: F.broadcast_minimum(x, y),
    "hypot": lambda F, x, y: F.broadcast_hypot(x, F.abs(y) + 0.5),
    "power": lambda F, x, y: F.broadcast_power(F.abs(x) + 0.3, F.tanh(y)),
    "mixed": lambda F, x, y: F.broadcast_add(F.broadcast_mul(x, F.sigmoid(y)), y),
}


def can_broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return len(first) == len(second) and all(
        a == b or 1 in (a, b) for a, b in zip(first, second, strict=True)
    )


@step
def pair(m: Any) -> None:
    place = m.pick()
    shape = m.shape(place)
    other = m.pick(lambda value: value.is_float and can_broadcast(value.shape, shape), late=False)
    m.call(PAIRS[m.choose(*PAIRS)], *m.choose((place, other), (other, place)))


@step
def add(m: Any) -> None:
    place = m.pick()
    shape = m.shape(place)
    other = m.pick(lambda value: value.is_float and value.shape == shape, late=False)
    m.call(
        m.choose(
            lambda F, x, y: x + y,
            lambda F, x, y: x - y * 2,
            lambda F, x, y: x * y,
            lambda F, x, y: F.elemwise_add(y, x),
            lambda F, x, y: F.relu(x + y),
            lambda F, x, y: F.add_n(x, y, x),
        ),
        place,
        other,
    )


@step
def with_reduced(m: Any) -> None:
    """A value against its own mean, sum or maximum."""
    place = m.pick(axes(2, 3, 4, 5))
    axis, kind = m.axis(place, 1), m.choose("mean", "sum", "max")
    m.call(lambda F, x: F.broadcast_sub(x, getattr(F, kind)(x, axis=axis, keepdims=True)), place)


@step
def squeeze_and_excite(m: Any) -> None:
    place = m.pick(axes(4))
    channels = m.shape(place)[1]

    def factory() -> Any:
        layers = nn.HybridSequential()
        layers.add(nn.GlobalAvgPool2D(), nn.Conv2D(2, 1, in_channels=channels, activation="relu"))
        layers.add(nn.Conv2D(channels, 1, in_channels=2, activation="sigmoid"))
        return layers

    m.layer(lambda: Gate(factory()), place)


class Gate(mx.gluon.HybridBlock):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.broadcast_mul(x, self.body(x))


@step
def squared_error(m: Any) -> None:
    """The squared error of two values, or its mean as losses take it."""
    place = m.pick(axes(2, 3, 4))
    shape = tuple(m.shape(place))
    other = m.pick(lambda v: v.is_float and tuple(v.shape) == shape, late=False)
    factor, axis, exclude = m.choose(None, 1.0, 0.5, 3.0), m.axis(place), m.choose(True, False)
    mean = m.choose(True, False)

    def run(F: Any, x: Any, y: Any) -> Any:
        made = F.square(x - y)
        made = made if factor is None else made * factor
        return F.mean(made, axis=axis, exclude=exclude, keepdims=True) if mean else made

    m.call(run, place, other)
