"""What a sabotage is, and how it replaces parts of the library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from regluon.ops.registry import get

HYBRID = "tests/traps/test_hybridize_traps.py::"
TRAINING = "tests/traps/test_training_traps.py::"
FILES = "tests/traps/test_file_traps.py::"
SYMBOLS = "tests/traps/test_symbol_traps.py::"
LAYERS = "tests/traps/test_layer_traps.py::"
Patch = pytest.MonkeyPatch


class Sabotage(NamedTuple):
    """What to break, and the regular tests that notice it."""

    apply: Callable[[Patch], None]
    tests: tuple[str, ...]


SABOTAGES: dict[str, Sabotage] = {}


def sabotage(*tests: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register the decorated function."""

    def register(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        SABOTAGES[function.__name__] = Sabotage(function, tests)
        return function

    return register


def wrap(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``change(original, *arguments)``."""
    original = getattr(owner, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    patch.setattr(owner, name, changed)


def change_kernel(patch: Patch, operator: str, **forced: Any) -> None:
    """Make an operator run with these keyword arguments whatever it is called with."""
    definition = get(operator)
    signature = inspect.signature(definition.function)

    def run(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments.update(forced)
        return kernel(*given.args, **given.kwargs)

    wrap(patch, definition, "function", run)
