"""Functions of mx.sym whose signatures differ from their operators'."""

from __future__ import annotations

from typing import Any

from ..base import dtypes
from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from .operators import pair_function

__all__ = [
    "arange",
    "eye",
    "full",
    "histogram",
    "hypot",
    "linspace",
    "maximum",
    "minimum",
    "ones",
    "power",
    "split_v2",
    "zeros",
]


def _create(operator: str, name: str | None, attr: Any, **attrs: Any) -> Any:
    given = {key: value for key, value in attrs.items() if value is not None}
    if "dtype" in given:
        given["dtype"] = dtypes.to_torch(given["dtype"])
    return invoke(get(operator), [], given, None, name, kinds.symbol, attr)


def zeros(shape: Any, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any) -> Any:
    """A Symbol of zeros of a shape."""
    return _create("_zeros", name, attr, shape=shape, dtype=dtype or "float32")


def ones(shape: Any, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any) -> Any:
    """A Symbol of ones of a shape."""
    return _create("_ones", name, attr, shape=shape, dtype=dtype or "float32")


def full(
    shape: Any, val: float, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any
) -> Any:
    """A Symbol of a shape filled with ``val``."""
    return _create("_full", name, attr, shape=shape, value=float(val), dtype=dtype or "float32")


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, name: str | None = None, attr: Any = None) -> Any:
    """A Symbol of an identity matrix, with ones on the k-th diagonal."""
    return _create("_eye", name, attr, N=N, M=M, k=k, dtype=dtype or "float32")


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
    attr: Any = None,
) -> Any:
    """A Symbol of evenly spaced values; see ``mx.nd.arange``."""
    if stop is None and not infer_range:
        start, stop = 0, start
    return _create(
        "_arange", name, attr, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype or "float32"
    )


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: Any = None,
    attr: Any = None,
) -> Any:
    """A Symbol of ``num`` evenly spaced values."""
    return _create(
        "_linspace", name, attr, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype or "float32"
    )


def split_v2(
    ary: Any, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False, name: str | None = None
) -> Any:
    """A Symbol split into equal parts, or at the given indices.

    Raises
    ------
    ValueError
        If ``indices_or_sections`` is neither a number of parts nor indices.
    """
    if isinstance(indices_or_sections, int):
        places: dict[str, Any] = {"indices": (), "sections": indices_or_sections}
    elif isinstance(indices_or_sections, (tuple, list, set)):
        places = {"indices": (0, *(int(index) for index in indices_or_sections)), "sections": 0}
    else:
        raise ValueError(
            f"indices_or_sections must be either int, or tuple/list/set of ints; received "
            f"{indices_or_sections!r}"
        )
    attrs = {**places, "axis": axis, "squeeze_axis": squeeze_axis}
    return invoke(get("_split_v2"), [ary], attrs, None, name)


def histogram(a: Any, bins: Any = 10, range: Any = None, name: str | None = None) -> Any:
    """Counts of a Symbol's values in bins, and their edges; ``bins`` is a number, with ``range``, or edges.

    Raises
    ------
    ValueError
        If ``bins`` is a number without ``range``, or neither a number nor a Symbol.
    """
    if isinstance(bins, kinds.symbol):
        return invoke(get("_histogram"), [a, bins], {}, None, name)
    if not isinstance(bins, int) or range is None:
        raise ValueError(
            f"histogram takes bins as a Symbol of edges, or as an int with range; received {bins!r}"
        )
    return invoke(get("_histogram"), [a], {"bin_cnt": bins, "range": tuple(range)}, None, name)


maximum = pair_function("maximum", "maximum", "The larger of two, by element.", __name__)
minimum = pair_function("minimum", "minimum", "The smaller of two, by element.", __name__)
power = pair_function("power", "pow", "The first to the power of the second, by element.", __name__)
hypot = pair_function("hypot", "hypot", "``sqrt(left**2 + right**2)`` by element.", __name__)
