"""More steps of random networks: shapes, reductions, integers, writes, and the namespaces of 2.0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import regluon as mx
from regluon.gluon import nn

from .random_steps import FUNCTIONS, Unfit, axes, can_broadcast, exact, step, whole

__all__: list[str] = []

# Shapes ----------------------------------------------------------------------


@step
def reshape(m: Any) -> None:
    place = m.pick(lambda value: value.is_float and len(value.shape) > 1)
    count = len(m.shape(place))
    shapes = [(0, -1), (-1,), (0, 1, -1), (0, 0, -1), (0, -1, 2), (0, -4, -1, 2, -2), (0, -3, -2)]
    shapes = [s for s in shapes if count > 2 or (-3 not in s and s != (0, 0, -1))]
    shape = m.choose(*shapes)
    size = math.prod(m.shape(place)[1:])
    if (shape == (0, -1, 2) and size % 2) or (-4 in shape and m.shape(place)[1] % 2):
        raise Unfit
    m.call(lambda F, x: F.reshape(x, shape=shape), place, exact=True)


@step
def reshape_back(m: Any) -> None:
    """Reshapes and permutations that undo one another."""
    place = m.pick(axes(3, 4))
    shape = m.shape(place)
    order = [0, *m.random.sample(range(1, len(shape)), len(shape) - 1)]
    back = [order.index(axis) for axis in range(len(shape))]
    between = FUNCTIONS[m.choose("copy", "relu", "affine", "square")]
    m.call(
        lambda F, x: F.transpose(
            F.reshape_like(between(F, F.flatten(t := F.transpose(x, axes=order))), t), axes=back
        ),
        place,
    )


@step
def transpose(m: Any) -> None:
    place = m.pick()
    count = len(m.shape(place))
    order = m.random.sample(range(count), count)
    if m.choose(True, True, False):
        order = [0, *m.random.sample(range(1, count), count - 1)]
    m.call(lambda F, x: F.transpose(x, axes=order), place, exact=True)


@step
def axes_changed(m: Any) -> None:
    place = m.pick(axes(2, 3, 4))
    axis = m.axis(place, 1)
    end = len(m.shape(place))
    m.call(
        m.choose(
            lambda F, x: F.expand_dims(x, axis=axis),
            lambda F, x: F.swapaxes(x, dim1=axis, dim2=end - 1),
            lambda F, x: F.flip(x, axis=axis),
            lambda F, x: F.tile(x, reps=(1,) * (end - 1) + (2,)),
            lambda F, x: F.repeat(x, repeats=2, axis=axis),
            lambda F, x: F.flatten(x),
            lambda F, x: F.mean(F.expand_dims(x, axis=axis), axis=axis),
        ),
        place,
    )


@step
def squeeze(m: Any) -> None:
    place = m.pick(lambda value: value.is_float and 1 in value.shape[1:] and len(value.shape) > 2)
    axis = m.choose(*[axis for axis, size in enumerate(m.shape(place)) if axis and size == 1])
    m.call(lambda F, x: F.squeeze(x, axis=axis), place, exact=True)


@step
def part(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    axis = m.axis(place, 1)
    size = m.shape(place)[axis]
    begin = m.choose(*range(size))
    end = m.choose(*range(begin + 1, size + 1))
    kind = m.choose("axis", "step", "back", "take", "index")
    before = (None,) * axis
    if kind == "axis":
        m.call(lambda F, x: F.slice_axis(x, axis=axis, begin=begin, end=end), place, exact=True)
    elif kind == "step":
        m.call(lambda F, x: F.slice(x, (*before, begin), (*before, size), (*before, 2)), place, exact=True)
    elif kind == "back":
        m.call(
            lambda F, x: F.slice(x, (*before, size - 1), (*before, None), (*before, -1)), place, exact=True
        )
    elif kind == "index" and m.style == "forward":
        m.call(lambda F, x: x[(slice(None),) * axis + (slice(begin, end),)], place, exact=True)
    else:
        many = [m.choose(*range(size)) for _ in range(m.choose(1, 2, 4))]
        m.call(
            lambda F, x: F.concat(*(F.slice_axis(x, axis=axis, begin=n, end=n + 1) for n in many), dim=axis),
            place,
        )


@step
def split(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    axis = m.axis(place, 1)
    size = m.shape(place)[axis]
    count = m.choose(*[n for n in range(1, 5) if size % n == 0])
    flat = count == size and m.choose(True, False)
    m.call(lambda F, x: F.split(x, num_outputs=count, axis=axis, squeeze_axis=flat), place, exact=True)


@step
def concat(m: Any) -> None:
    place = m.pick()
    shape = m.shape(place)
    axis = m.axis(place, 1)

    def fits(value: Any) -> bool:
        own = value.shape
        return (
            value.is_float
            and len(own) == len(shape)
            and (*own[:axis], *own[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :])
        )

    others = [m.pick(fits, late=False) for _ in range(m.choose(0, 1, 1, 2))]
    m.call(lambda F, *values: F.concat(*values, dim=axis), place, *others, exact=True)


@step
def stack(m: Any) -> None:
    place = m.pick(axes(2, 3, 4))
    shape = m.shape(place)
    other = m.pick(lambda value: value.is_float and value.shape == shape, late=False)
    axis = m.axis(place, 1)
    m.call(lambda F, x, y: F.stack(x, y, axis=axis), place, other, exact=True)


@step
def pad(m: Any) -> None:
    place, mode = m.pick(axes(4, 5)), m.choose("constant", "edge", "reflect")
    sizes = m.shape(place)[2:]
    width = [m.choose(0, 1) if size > 1 else 0 for size in sizes for _ in range(2)]
    value = m.choose(0, 0, 1.5)
    more = {"constant_value": value} if mode == "constant" else {}
    m.call(lambda F, x: F.pad(x, mode=mode, pad_width=(0, 0, 0, 0, *width), **more), place)


@step
def padded_convolution(m: Any) -> None:
    place = m.pick(axes(4))
    channels = m.shape(place)[1]
    width = tuple(m.choose(0, 1, 2) for _ in range(4))
    m.layer(lambda: Padded(channels, width), place)


class Padded(mx.gluon.HybridBlock):
    def __init__(self, channels: int, width: tuple[int, ...]) -> None:
        super().__init__()
        self.width = width
        self.layer = nn.Conv2D(4, (2, 1), in_channels=channels, padding=(1, 0))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.layer(F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, *self.width), constant_value=0))


@step
def blocks(m: Any) -> None:
    place = m.pick(axes(4))
    _, channels, height, width = m.shape(place)
    if channels % 4 == 0 and m.choose(True, False):
        m.call(lambda F, x: F.depth_to_space(x, 2), place, exact=True)
    elif height % 2 == 0 and width % 2 == 0:
        m.call(lambda F, x: F.space_to_depth(x, 2), place, exact=True)


# Reductions ----------------------------------------------------------------------


@step
def reduction(m: Any) -> None:
    place = m.pick(axes(2, 3, 4, 5))
    axis = m.choose(m.axis(place, 1), tuple(range(1, len(m.shape(place)))))
    keep, kind = m.choose(True, False), m.choose("sum", "mean", "max", "min", "norm", "sum", "mean")
    if isinstance(axis, tuple) and not keep and len(m.shape(place)) == len(axis) + 1:
        keep = True
    if kind == "norm":
        m.call(lambda F, x: F.sqrt(F.sum(F.square(x) + 0.01, axis=axis, keepdims=keep)), place)
    else:
        m.call(lambda F, x: getattr(F, kind)(x, axis=axis, keepdims=keep), place)


@step
def over_batch(m: Any) -> None:
    place, kind = m.pick(axes(2, 3, 4)), m.choose("sum", "mean")
    m.call(lambda F, x: F.broadcast_sub(x, getattr(F, kind)(x, axis=0, keepdims=True)), place)


# Integers and indices ----------------------------------------------------------------------


@step
def integer_arithmetic(m: Any) -> None:
    place = m.pick(whole)
    shape, dtype = m.shape(place), m.values[place].array.dtype
    other = m.pick(lambda v: whole(v) and v.shape == shape and v.array.dtype == dtype, late=False)
    m.call(
        m.choose(
            lambda F, x, y: x + y,
            lambda F, x, y: x * 2 - y,
            lambda F, x, y: F.broadcast_maximum(x, y),
            lambda F, x, y: F.clip(x, 0, 3),
            lambda F, x, y: F.where(x > 2, x, y),
            lambda F, x, y: F.flip(x, axis=1),
            lambda F, x, y: F.concat(x, y, dim=1),
            lambda F, x, y: F.abs(x),
            lambda F, x, y: F.sum(x, axis=1, keepdims=True),
        ),
        place,
        other,
        exact=True,
    )


@step
def cast_integers(m: Any) -> None:
    place, dtype = m.pick(whole), m.choose("float32", "float32", "int32", "int64", "uint8", "int8")
    m.call(lambda F, x: F.cast(x, dtype=dtype), place, exact=True)


@step
def comparison(m: Any) -> None:
    place = m.pick(exact)
    m.call(
        m.choose(lambda F, x: x > 0.3, lambda F, x: x <= 0, lambda F, x: F.sign(x), lambda F, x: F.round(x)),
        place,
        exact=True,
    )


@step
def ranking(m: Any) -> None:
    place = m.pick(exact)
    m.call(
        m.choose(
            lambda F, x: F.argmax(x, axis=-1),
            lambda F, x: F.topk(x, k=1, ret_typ="value", axis=-1),
            lambda F, x: F.sort(x, axis=-1),
            lambda F, x: F.argsort(x, axis=-1),
        ),
        place,
        exact=True,
    )


@step
def choice(m: Any) -> None:
    place = m.pick(exact)
    shape = m.shape(place)
    first, second = (m.pick(lambda v: v.is_float and v.shape == shape, late=False) for _ in range(2))
    m.call(lambda F, c, x, y: F.where(c > 0, x, y), place, first, second)


@step
def embedding(m: Any) -> None:
    place = m.pick(lambda v: whole(v) and len(v.shape) == 2)
    width = m.choose(1, 4, 8)
    m.layer(lambda: nn.Embedding(6, width), place)


@step
def one_hot(m: Any) -> None:
    place = m.pick(lambda v: whole(v) and len(v.shape) == 2)
    m.call(lambda F, x: F.one_hot(x, depth=4, on_value=0.8, off_value=0.1), place)


@step
def lookup(m: Any) -> None:
    index = m.pick(lambda v: whole(v) and len(v.shape) == 2)
    place = m.pick(axes(2, 3))
    axis = m.axis(place, 1)
    m.call(lambda F, x, i: F.take(x, i, axis=axis, mode="clip"), place, index)


@step
def sequence(m: Any) -> None:
    place = m.pick(axes(3))
    batch = m.shape(place)[0]
    index = m.pick(lambda v: whole(v) and len(v.shape) == 2 and v.shape[0] == batch, late=False)
    function = m.choose(
        lambda F, x, n: F.SequenceMask(x, n, use_sequence_length=True, value=-1, axis=1),
        lambda F, x, n: F.SequenceLast(x, n, use_sequence_length=True, axis=1),
    )
    size = m.shape(place)[1]
    m.call(
        lambda F, x, i: function(
            F,
            x,
            F.clip(F.cast(F.slice_axis(i, axis=1, begin=0, end=1), dtype="float32").reshape((-1,)), 1, size),
        ),
        place,
        index,
    )


# Writes ----------------------------------------------------------------------


@step
def write_part(m: Any) -> None:
    """An in-place write to a value of the network: an alias of it sees the write."""
    place = m.pick(lambda value: value.is_float and len(value.shape) > 1)
    number = m.choose(0, m.shape(place)[1] - 1)

    def set_part(F: Any, x: Any) -> Any:
        x[:, number] = 0.25
        return x

    def grow(F: Any, x: Any) -> Any:
        x += 0.5
        return x

    def shrink(F: Any, x: Any) -> Any:
        x[:] = x * 0.5
        return x

    m.write(m.choose(set_part, grow, shrink), place)


# The namespaces of 2.0 ----------------------------------------------------------------------


def np_pick(m: Any, fits: Callable[[Any], bool], late: bool = True) -> int:
    if not m.np_kind or m.style != "forward":
        raise Unfit
    return m.pick(fits, late)


@step
def np_function(m: Any) -> None:
    place = np_pick(m, axes(2, 3, 4))
    axis = m.axis(place, 1)
    many = tuple(range(1, len(m.shape(place))))
    m.call(
        m.choose(
            lambda F, x: mx.npx.softmax(x, axis=axis),
            lambda F, x: mx.np.maximum(x, 0),
            lambda F, x: mx.npx.leaky_relu(x, act_type="gelu"),
            lambda F, x: mx.np.clip(x, -1, 0.5),
            lambda F, x: mx.np.mean(x, axis=many, keepdims=True) + x,
            lambda F, x: x - x.max(axis=axis, keepdims=True),
            lambda F, x: mx.np.std(x + mx.np.arange(x.shape[-1]), axis=-1),
            lambda F, x: mx.np.moveaxis(x, axis, -1),
            lambda F, x: x.reshape(x.shape[0], -1),
            lambda F, x: mx.np.split(x, x.shape[axis], axis=axis)[0],
            lambda F, x: mx.np.concatenate([x, x * 2], axis=axis),
            lambda F, x: mx.np.roll(x, 1, axis=axis),
            lambda F, x: x[:, -1:],
            lambda F, x: x[:, None] * x[:, :1].mean(),
            lambda F, x: mx.np.tanh(x) ** 2 / 3,
            lambda F, x: mx.npx.reshape(x, (-2, -1, 1)) if len(x.shape) == 2 else x + 1,
            lambda F, x: mx.np.cumsum(x, axis=axis),
            lambda F, x: mx.np.prod(mx.np.tanh(x), axis=axis),
        ),
        place,
    )


@step
def np_product(m: Any) -> None:
    place = np_pick(m, axes(2, 3, 4))
    shape = m.shape(place)
    other = m.pick(lambda v: v.is_float and len(v.shape) > 1 and v.shape[-1] == shape[-1], late=False)
    second = m.shape(other)
    if len(shape) == len(second) and shape[:-2] == second[:-2]:
        m.call(lambda F, x, y: mx.np.matmul(x, y.swapaxes(-1, -2)) * 0.3, place, other)
    elif len(second) == 2:
        m.call(lambda F, x, y: mx.np.einsum("b...i,ji->b...j", x, y) * 0.3, place, other)
    else:
        m.call(lambda F, x, y: mx.np.tensordot(x, y.mean(0), axes=([-1], [-1])) * 0.3, place, other)


@step
def np_pair(m: Any) -> None:
    place = np_pick(m, axes(1, 2, 3, 4))
    shape = m.shape(place)

    def fits(value: Any) -> bool:
        count = min(len(shape), len(value.shape))
        return value.is_float and count > 0 and can_broadcast(value.shape[-count:], shape[-count:])

    other = m.pick(fits, late=False)
    m.call(
        m.choose(
            lambda F, x, y: x + y,
            lambda F, x, y: x * y - x,
            lambda F, x, y: mx.np.where(x > y, x, y),
            lambda F, x, y: mx.np.maximum(x, y) + mx.np.minimum(x, y),
            lambda F, x, y: x / (mx.np.abs(y) + 1),
            lambda F, x, y: mx.np.logaddexp(x, y),
        ),
        place,
        other,
    )
