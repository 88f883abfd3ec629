"""What the functions of ``mx.np`` share: running operators and reading arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import config
from ..base import device as devices
from ..base.errors import MXNetError
from ..ops import registry
from ..runtime.handles import kinds
from ..runtime.invoke import invoke


def apply(name: str, arrays: Sequence[Any] = (), out: Any = None, **attrs: Any) -> Any:
    """Run an operator; the result is of the np kind."""
    definition = registry.get(name)
    if definition.num_args_key:
        attrs[definition.num_args_key] = len(arrays)
    return invoke(definition, list(arrays), attrs, out=out, cls=kinds.np)


def listed(result: Any) -> list[Any]:
    """The outputs of an operator as a list, also when there is only one."""
    return list(result) if isinstance(result, list | tuple) else [result]


def is_value(value: Any) -> bool:
    """Whether this is an array, a traced value or a Symbol."""
    return isinstance(value, (kinds.nd, kinds.symbol))


def known_shape(value: Any) -> tuple[Any, ...] | None:
    """The shape of a value, or None for a Symbol that does not know it."""
    try:
        return tuple(value.shape)
    except (MXNetError, NotImplementedError, TypeError):
        return None


def where_to(device: Any, ctx: Any) -> str:
    """The device given under either name, as an attribute; empty for the current one."""
    chosen = device if device is not None else ctx
    return "" if chosen is None else str(devices.device(chosen))


def float_dtype(dtype: Any) -> Any:
    """The dtype asked for, or the default of floating arrays: float32, float64 under
    ``npx.set_np(dtype=True)``."""
    if dtype is not None:
        return dtype
    return "float64" if config.is_np_default_dtype() else "float32"


def only_c(order: str, name: str) -> None:
    if order not in ("C", "K", "A"):
        raise NotImplementedError(f"np.{name}: only the row-major order='C' is supported, received {order!r}")


def sizes(shape: Any) -> tuple[Any, ...]:
    """A shape from a number, a sequence of numbers or an array of them."""
    if isinstance(shape, int) or not hasattr(shape, "__iter__"):
        return (shape,)
    return tuple(shape)


def axes_of(axis: Any) -> tuple[int, ...] | None:
    if axis is None:
        return None
    return tuple(axis) if isinstance(axis, list | tuple) else (axis,)


def as_array(value: Any) -> Any:
    """Arrays, traced values and Symbols as they are; anything else as a new array."""
    if is_value(value):
        return value
    from .creation import array

    return array(value)


def as_arrays(values: Any) -> list[Any]:
    return [as_array(value) for value in values]
