"""Comparisons of arrays of any kind, with errors that say where and by how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import numpy.testing

from ..array import NDArray
from .tolerances import as_numpy, get_etol, get_tols

__all__ = [
    "almost_equal",
    "assert_allclose",
    "assert_almost_equal",
    "assert_almost_equal_ignore_nan",
    "assert_almost_equal_with_err",
    "assert_exception",
    "checkShapes",
    "compare_ndarray_tuple",
    "same",
    "same_array",
]


def same(a: Any, b: Any) -> bool:
    """Whether two values have one shape and equal elements."""
    return numpy.array_equal(as_numpy(a), as_numpy(b))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Whether two arrays share their memory: a write to one shows in the other (and is undone)."""
    if array1.shape != array2.shape or not same(array1, array2):
        return False
    array1[:] += 1
    shared = same(array1, array2)
    array1[:] -= 1
    return shared


def checkShapes(a: Any, b: Any) -> None:
    """Refuse arrays of unlike shapes.

    Raises
    ------
    AssertionError
        When they differ.
    """
    if a.shape != b.shape:
        raise AssertionError(
            numpy.testing.build_err_msg(
                [a, b], err_msg=f"a.shape = {a.shape} and b.shape = {b.shape} are not equal"
            )
        )


def _close(
    a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool
) -> tuple[numpy.ndarray[Any, Any], float, float]:
    """Which elements are near enough, and the tolerances used."""
    rtol, atol = get_tols(a, b, rtol, atol)
    near = numpy.isclose(as_numpy(a), as_numpy(b), rtol=rtol, atol=atol, equal_nan=equal_nan)
    return numpy.asarray(near), rtol, atol


def almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Whether ``|a - b| <= atol + rtol * |b|`` holds for all elements.

    Raises
    ------
    AssertionError
        For unlike shapes, without ``use_broadcast``.
    """
    if not use_broadcast:
        checkShapes(as_numpy(a), as_numpy(b))
    return bool(_close(a, b, rtol, atol, equal_nan)[0].all())


def _errors(a: Any, b: Any, rtol: float, atol: float) -> Any:
    """The difference of each element in units of its tolerance."""
    a, b = numpy.broadcast_arrays(a, b)
    with numpy.errstate(all="ignore"):
        return numpy.abs(a.astype("float64") - b) / (atol + rtol * numpy.abs(b.astype("float64")) + 1e-300)


def _worst(a: Any, b: Any, errors: Any, names: Sequence[str], count: int) -> list[str]:
    """Descriptions of the largest errors, the largest first."""
    a, b = numpy.broadcast_arrays(a, b)
    order = numpy.argsort(-numpy.nan_to_num(errors, nan=numpy.inf), axis=None, kind="stable")[:count]
    found = []
    for place in order:
        index = tuple(int(i) for i in numpy.unravel_index(place, errors.shape))
        found.append(f"{index}, {names[0]}={a[index]:.8f}, {names[1]}={b[index]:.8f}")
    return found


def _report(
    a: Any, b: Any, near: Any, tolerances: tuple[float, float], names: Sequence[str], mismatches: Any
) -> str:
    rtol, atol = tolerances
    errors = numpy.asarray(_errors(a, b, rtol, atol))
    failing = numpy.where(near, 0.0, errors)
    share = 100.0 * (1.0 - near.mean())
    count = max(1, min(int((~near).sum()), mismatches[0]))
    worst = _worst(a, b, failing, names, count)
    head = (
        f"Error {numpy.nan_to_num(failing, nan=numpy.inf).max():f} exceeds tolerance rtol={rtol:e}, "
        f"atol={atol:e} (mismatch {share:f}%).\nLocation of maximum error: {worst[0]}"
    )
    if len(worst) > 1:
        head += "\nNext: " + "; ".join(worst[1:])
    return numpy.testing.build_err_msg([a, b], err_msg=head, names=["ACTUAL", "DESIRED"])


def _check(
    a: Any,
    b: Any,
    rtol: Any,
    atol: Any,
    etol: float,
    names: Sequence[str],
    equal_nan: bool,
    use_broadcast: bool,
    mismatches: Any,
) -> None:
    if not use_broadcast:
        checkShapes(as_numpy(a), as_numpy(b))
    near, rtol, atol = _close(a, b, rtol, atol, equal_nan)
    if near.all() or (~near).sum() <= etol * near.size:
        return
    raise AssertionError(_report(as_numpy(a), as_numpy(b), near, (rtol, atol), names, mismatches))


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Refuse values that are not almost equal.

    Parameters
    ----------
    a, b : array or number
        Of any kind.
    rtol, atol : float or dict, optional
        Tolerances, or tolerances by type; those of the less exact type by default.
    names : (str, str)
        What the message calls them.
    equal_nan : bool
        Whether NaN equals NaN.
    use_broadcast : bool
        Whether shapes may differ as in broadcasting.
    mismatches : (int, int)
        How many differences are named at most (the second number is accepted for compatibility).

    Raises
    ------
    AssertionError
        With the largest differences, in units of the tolerance, and where they are.
    ValueError
        When the shapes cannot be broadcast.
    """
    _check(a, b, rtol, atol, 0.0, names, equal_nan, use_broadcast, mismatches)


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: float | None = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """As `assert_almost_equal`; a share ``etol`` of the elements may differ."""
    _check(a, b, rtol, atol, get_etol(etol), names, equal_nan, True, mismatches)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: Sequence[str] = ("a", "b")
) -> None:
    """As `assert_almost_equal`, without the elements that are NaN on either side."""
    a, b = numpy.copy(as_numpy(a)), numpy.copy(as_numpy(b))
    ignored = numpy.isnan(a) | numpy.isnan(b)
    a[ignored] = b[ignored] = 0
    assert_almost_equal(a, b, rtol, atol, names)


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    """NumPy's `assert_allclose` on arrays of any kind."""
    numpy.testing.assert_allclose(as_numpy(a), as_numpy(b), rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_exception(
    f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any
) -> None:
    """Refuse a call that does not raise.

    Raises
    ------
    AssertionError
        When it returns.
    """
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type.__name__}")


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """`assert_almost_equal` for nested tuples and lists of arrays, where None equals None."""
    if t1 is None or t2 is None:
        if t1 is not t2:
            raise AssertionError(f"one of the values is None, the other {type(t1 or t2).__name__}")
        return
    if isinstance(t1, (tuple, list)):
        for one, other in zip(t1, t2, strict=True):
            compare_ndarray_tuple(one, other, rtol, atol)
        return
    assert_almost_equal(t1, t2, rtol=rtol, atol=atol)
