"""The classes that stand for values, registered by the layers above: arrays and Symbols of both kinds.

`invoke` makes results of these classes without importing the layers that define them.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["Kinds", "TraceHandle", "kinds", "user_location"]


class Kinds:
    """NDArray and np.ndarray, Symbol and its np kind."""

    nd: Any = None
    np: Any = None
    symbol: Any = None
    np_symbol: Any = None
    # The base class of sparse arrays, and what runs an operator on them.
    sparse: Any = ()
    sparse_dispatch: Any = None


kinds = Kinds()


class TraceHandle:
    """What a traced value holds: its current graph entry, or the array it is a view of and the index.

    Writing rebinds the entry, so an alias sees the write; a view reads its base anew when that was written
    to, and a write to a view is a write to its base.
    """

    __slots__ = ("base", "depth", "entry", "tracer", "version", "view")

    def __init__(self, entry: Any, tracer: Any) -> None:
        self.entry = entry
        self.tracer = tracer
        self.version = 0
        # How many bodies of loops are being recorded around it.
        self.depth = getattr(tracer, "depth", 0)
        self.base: TraceHandle | None = None
        self.view: Any = None

    def get(self) -> Any:
        """The graph entry of the present value."""
        if self.base is not None:
            read, _write, seen = self.view
            root = self.base.get()
            if self.base.version != seen:
                if self.depth < getattr(self.tracer, "depth", 0):
                    # What the body of a loop reads is no value outside of it.
                    return read(root)
                self.entry = read(root)
                self.view = (read, _write, self.base.version)
        return self.entry

    def set(self, entry: Any) -> None:
        """Make ``entry`` the value; a view writes it through to its base."""
        if self.base is not None:
            read, write, _seen = self.view
            self.base.set(write(self.base.get(), entry))
            self.view = (read, write, self.base.version)
        self.entry = entry
        self.version += 1


# Frames of these are not the user's: this package, and what calls back into it on the user's behalf.
_NOT_THE_USER = {__name__.split(".", 1)[0], "contextlib", "copy", "functools", "numpy", "torch"}
# By module, since this is asked at every operator that is recorded.
_is_users: dict[str, bool] = {}
# By code and place in it, the code, which keeps its id, and the text: finding a line takes long.
_texts: dict[tuple[int, int], tuple[Any, str]] = {}
_MOST_TEXTS = 50_000


def user_location() -> str | None:
    """File and line of the nearest caller outside the package and libraries that it is called through."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        users = _is_users.get(module)
        if users is None:
            users = _is_users[module] = module.split(".", 1)[0] not in _NOT_THE_USER
        if users:
            code = frame.f_code
            known = _texts.get((id(code), frame.f_lasti))
            if known is None:
                if len(_texts) >= _MOST_TEXTS:
                    _texts.clear()
                known = code, f"{code.co_filename}:{frame.f_lineno}"
                _texts[id(code), frame.f_lasti] = known
            return known[1]
        frame = frame.f_back  # type: ignore[assignment]
    return None
