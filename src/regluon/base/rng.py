"""Random draws: each is a function of the seed and the number of the draw.

A draw gets a fresh generator made from (seed, number), so its values depend neither on what ran before on the
device nor on how a graph was fused or laid out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

__all__ = [
    "draw",
    "draw_seed",
    "drawing_from",
    "drawing_in_steps",
    "generator",
    "rewind",
    "seed",
    "state",
]

_MASK = (1 << 64) - 1


class _Stream:
    def __init__(self, value: int) -> None:
        self.seed = value
        self.count = 0
        self.lock = threading.Lock()


_stream = _Stream(int.from_bytes(os.urandom(4), "little"))


class _Reserved(threading.local):
    """Where this thread's keys come from in a scope, instead of the stream: a function that does what `draw`
    does."""

    take: Callable[[int], int] | None = None


_reserved = _Reserved()


def seed(value: int) -> None:
    """Start the sequence of draws anew from ``value``, also for the rest of a `drawing_from` scope."""
    _reserved.take = None
    with _stream.lock:
        _stream.seed = int(value) & _MASK
        _stream.count = 0


def state() -> tuple[int, int]:
    """The seed and the number of draws so far."""
    return _stream.seed, _stream.count


def rewind(count: int) -> None:
    """Go back to the state in which ``count`` draws had been made, to repeat a computation."""
    with _stream.lock:
        _stream.count = count


def draw(count: int = 1) -> int:
    """Reserve ``count`` draws; gives the key of the first (the following keys are the next integers)."""
    if _reserved.take is not None:
        return _reserved.take(count)
    with _stream.lock:
        number = _stream.count
        _stream.count += count
        return (_stream.seed * 0x9E3779B97F4A7C15 + number) & _MASK


@contextmanager
def drawing_from(key: int) -> Iterator[None]:
    """A scope in which this thread's draws follow from ``key``, a draw reserved earlier.

    What is computed later, such as the first values of a parameter whose shape was not known, is then the
    same whatever was drawn in between. The first draw inside is ``key`` itself.
    """
    keys = _following(key)
    with _drawing(lambda count: next(keys)):
        yield


@contextmanager
def drawing_in_steps() -> Iterator[None]:
    """A scope that is one draw for what is around it, as a loop in a graph is one node.

    The draws inside have the keys that bodies of loops and branches in graphs give theirs.
    """
    following = generator(draw()).initial_seed()

    def take(count: int) -> int:
        nonlocal following
        first, following = following, following + count
        return first

    with _drawing(take):
        yield


@contextmanager
def _drawing(take: Callable[[int], int]) -> Iterator[None]:
    before, _reserved.take = _reserved.take, take
    try:
        yield
    finally:
        _reserved.take = before


def _following(key: int) -> Iterator[int]:
    while True:
        yield key
        key = _mix(key ^ 0x5851F42D4C957F2D)


def _mix(key: int) -> int:
    """SplitMix64 (Steele, Lea, Flood 2014): neighbouring keys give unrelated seeds."""
    key = (key + 0x9E3779B97F4A7C15) & _MASK
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
    return key ^ (key >> 31)


def generator(key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of the draw with this key."""
    result = torch.Generator(device=device)
    result.manual_seed(_mix(key) & 0x7FFFFFFFFFFFFFFF)
    return result


def draw_seed() -> int:
    """One draw as an integer seed in [0, 2**32), for libraries with generators of their own."""
    return _mix(draw()) & 0xFFFFFFFF
