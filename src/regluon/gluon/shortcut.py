"""The last prediction of a block with one array in and one array out, ready to be run again.

For a small network this saves most of a call. The checks are those of one signature, written out as a
function of their own: a check costs some tens of nanoseconds that way, and a loop over the parameters a
microsecond. For a large network it is the memory that is read which costs: whether a parameter still has the
same tensor is looked at only when one of all has got another, which leaves its version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base.rebinding import rebound
from ..exec import Plan
from .epoch import clock
from .recorded import Recorded
from .structure import LEAF

__all__ = ["Shortcut"]

# So many parameters are checked one after the other; more of them in a loop, since a longer function takes
# longer to make.
_MOST_WRITTEN = 24


class Shortcut:
    """A call that is repeated.

    Attributes
    ----------
    call : callable
        ``call(array)`` gives the result, or None where this is another call; it does not look at hooks, nor
        at the mode of the thread.
    """

    __slots__ = ("_array", "_plain", "_recorded", "call", "plan")

    def __init__(self, recorded: Recorded, plan: Plan, array: Any) -> None:
        self._recorded, self.plan, self._array = recorded, plan, _Like(array)
        self._plain = type(plan).__call__ is Plan.__call__
        self.call: Callable[[Any], Any] = self._slow
        self._renew()

    @classmethod
    def of(cls, recorded: Recorded, plan: Any, flat: list[Any]) -> Shortcut | None:
        """A shortcut where one can be made."""
        simple = (
            isinstance(plan, Plan)
            and recorded.mode == (False, False)
            and len(flat) == 1
            and recorded.in_structure == ("tuple", LEAF)
            and recorded.out_structure == LEAF
            and recorded.classes == [type(flat[0])]
            and not (recorded.captured or recorded.written or recorded.draws)
            and all(len(parameter._data or ()) == 1 for _, parameter in recorded.parameters)
        )
        return cls(recorded, plan, flat[0]) if simple else None

    def _renew(self) -> None:
        """Write the function for the weights that the plan has packed now."""
        prepared = self.plan._prepared
        if not self._plain or prepared is None:
            return
        parameters = [parameter for _, parameter in self._recorded.parameters]
        # Lists of arrays by device: assigned anew where there are others, never changed.
        data = [parameter._data for parameter in parameters]
        if any(each is None or len(each) != 1 for each in data):
            return
        like, bound = self._array, self.plan.bound()
        self.call = _written(len(parameters), bound is not None)(
            self, like.cls, like.context, like.shape, like.dtype, self._recorded.epoch, clock,
            bound or self.plan._function, parameters, data, prepared, rebound,
        )  # fmt: skip

    def _slow(self, array: Any) -> Any:
        """The same without what is remembered of the parameters."""
        like = self._array
        if type(array) is not like.cls or self._recorded.epoch != clock.now or array._ctx is not like.context:
            return None
        tensor = array._t
        if tensor.shape != like.shape or tensor.dtype is not like.dtype:
            return None
        return self.packed_anew(array)

    def packed_anew(self, array: Any, error: Exception | None = None) -> Any:
        """The result by way of the plan, which packs weights that were written, or after an error of it."""
        tensors = [array._t]
        for _, parameter in self._recorded.parameters:
            data = parameter._data
            if data is None or len(data) != 1:
                return None
            tensors.append(data[0]._t)
        if error is not None:
            results = self.plan.recovered(error, 0, tensors)
        else:
            results = self.plan(0, tensors)
            self._renew()
        result = self._array.cls.__new__(self._array.cls)
        result._t, result._ctx = results[0], self._array.context
        return result


class _Like:
    """What the array of another call must be like."""

    __slots__ = ("cls", "context", "dtype", "shape")

    def __init__(self, array: Any) -> None:
        self.cls: Any = type(array)
        self.context, self.dtype, self.shape = array._ctx, array._t.dtype, array._t.shape


@functools.cache
def _written(count: int, bound: bool) -> Callable[..., Callable[[Any], Any]]:
    """A function that makes the functions for ``count`` parameters.

    What one of them compares with lies in its closure: a thread that is in one keeps all of it, with the
    weights that belong to it, while another is made. With ``bound`` these are part of what it calls.
    """
    unpacked, tests = _one_by_one(count) if count <= _MOST_WRITTEN else _in_a_loop()
    run = "function(tensor)" if bound else "function(0, tensor, *given)[0]"
    source = _TEXT.format(unpacked=unpacked, tests=tests, run=run)
    scope: dict[str, Any] = {}
    exec(compile(source, f"<regluon shortcut of {count} parameters>", "exec"), scope)
    return scope["make"]  # type: ignore[no-any-return]


def _one_by_one(count: int) -> tuple[str, str]:
    """What is unpacked, and what makes a call another one."""
    if not count:
        return "", ""
    names = [f"t{i}" for i in range(count)], [f"n{i}" for i in range(count)]
    unpacked = "".join(f"\n    {', '.join(each)}, = prepared[{place}]" for place, each in enumerate(names))
    return unpacked, "".join(f" or t{i}._version != n{i}" for i in range(count))


def _in_a_loop() -> tuple[str, str]:
    """The same for many parameters."""
    unpacked = """
    versions = tuple(zip(prepared[0], prepared[1]))

    def written():
        for tensor, version in versions:
            if tensor._version != version:
                return True
        return False
"""
    return unpacked, " or written()"


# Only numbers are put in.
_TEXT = """\
def make(shortcut, cls, context, shape, dtype, epoch, clock, function, parameters, data, prepared, rebound):
    new, given = cls.__new__, tuple(prepared[2])
    checked = -1
    owners = tuple(zip(parameters, data, prepared[0])){unpacked}

    def moved():
        nonlocal checked
        now = rebound.now
        for parameter, arrays, tensor in owners:
            if parameter._data is not arrays or arrays[0]._t is not tensor:
                return True
        checked = now
        return False

    def call(array):
        if (type(array) is not cls or clock.now != epoch or array._ctx is not context):
            return None
        tensor = array._t
        if tensor.shape != shape or tensor.dtype is not dtype:
            return None
        if ((checked != rebound.now and moved()){tests}):
            return shortcut.packed_anew(array)
        try:
            made = {run}
        except Exception as error:
            return shortcut.packed_anew(array, error)
        result = new(cls)
        result._t = made
        result._ctx = context
        return result

    return call
"""
