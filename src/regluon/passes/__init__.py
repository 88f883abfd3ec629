"""Passes: pure functions from a graph to an equivalent graph that runs faster at prediction.

Those of training graphs are in `exec.training`; a name switches off the passes of both kinds that have it.
A pass never changes a node in place. With ``REGLUON_CHECK_GRAPHS=1`` in the environment, as in the tests,
`lint` checks the graph before and after each. A pass is switched off by
``with regluon.passes.skip("fold_batch_norm"):`` around the first call, or by the environment variable
``REGLUON_SKIP_PASSES=fold_batch_norm,...`` (``all`` for all of them).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..graph.node import Entry, topological
from .attention import attend_by_rows, join_attention
from .cleanup import (
    CASTS,
    IDENTITIES,
    RESHAPES,
    TRANSPOSES,
    merge_repeats,
    protect_outputs,
    remove_identities,
    simplify_shapes,
)
from .fuse import fuse_activations, fuse_padding, pool_first
from .integers import use_integers
from .layers import BATCH_NORMS, COMMON, LAYERS, fold_batch_norm, use_common_forms
from .lint import check, lint
from .rewrite import Settings
from .strides import stride_early

__all__ = [
    "PASSES",
    "TRAINING_PASSES",
    "Settings",
    "Watch",
    "lint",
    "optimize",
    "protect_outputs",
    "skip",
    "skipped",
]

Pass = Callable[[Sequence[Entry], Settings], list[Entry]]
# Told of a pass: its name, the graph before, and the graph after it.
Watch = Callable[[str, Sequence[Entry], Sequence[Entry]], None]

PASSES: tuple[Pass, ...] = (
    remove_identities,
    merge_repeats,
    simplify_shapes,
    join_attention,
    pool_first,
    use_common_forms,
    fuse_padding,
    simplify_shapes,
    fold_batch_norm,
    stride_early,
    fuse_activations,
    attend_by_rows,
    use_integers,
)

# The names of those of training graphs, in their order.
TRAINING_PASSES = (
    "attend",
    "simplify_losses",
    "pool_first",
    "use_norms",
    "use_common_forms",
    "join_activations",
    "use_pools",
)

# Passes that have nothing to do in a graph without any of these operators.
_NEEDS: dict[Pass, frozenset[str]] = {
    remove_identities: IDENTITIES | CASTS | {"Dropout"},
    simplify_shapes: RESHAPES | TRANSPOSES | {"Convolution", "Deconvolution"},
    join_attention: frozenset({"softmax", "_npx_softmax"}),
    attend_by_rows: frozenset({"softmax", "_npx_softmax"}),
    fuse_padding: frozenset({"Pad"}),
    pool_first: frozenset({"Pooling"}),
    use_common_forms: COMMON,
    fold_batch_norm: BATCH_NORMS,
    stride_early: frozenset({"Convolution", "convolution"}),
    fuse_activations: LAYERS,
    use_integers: frozenset({"_contrib_dequantize"}),
}

_SWITCH = "REGLUON_SKIP_PASSES"


def names() -> list[str]:
    """The names of the passes, in the order they first run: those of prediction, then those of training."""
    return list(dict.fromkeys([*(each.__name__ for each in PASSES), *TRAINING_PASSES]))


def _from_environment() -> set[str]:
    """What the environment switches off.

    Raises
    ------
    ValueError
        For a name that is no pass.
    """
    asked = [name.strip() for name in os.environ.get(_SWITCH, "").split(",")]
    chosen = {name for name in asked if name}
    unknown = sorted(chosen.difference(names(), ["all"]))
    if unknown:
        raise ValueError(
            f"the environment variable {_SWITCH} expects names of passes, with commas between them; received "
            f"{', '.join(map(repr, unknown))}; there are: {', '.join(names())} and all. Correct or unset it"
        )
    return chosen


_skipped = _from_environment()


def skipped() -> frozenset[str]:
    """The passes that are switched off."""
    return frozenset(names()) if "all" in _skipped else frozenset(_skipped)


@contextmanager
def skip(*chosen: str) -> Iterator[None]:
    """Switch passes off for the graphs that are compiled inside; ``"all"`` switches every pass off.

    Raises
    ------
    ValueError
        For a name that is no pass.
    """
    unknown = [name for name in chosen if name not in (*names(), "all")]
    if unknown:
        raise ValueError(f"no pass is called {', '.join(unknown)}; there are: {', '.join(names())} and all")
    before = set(_skipped)
    _skipped.update(chosen)
    try:
        yield
    finally:
        _skipped.clear()
        _skipped.update(before)


def optimize(
    entries: Sequence[Entry],
    settings: Settings,
    watch: Watch | None = None,
) -> list[Entry]:
    """Run all passes that are not switched off.

    ``watch(name, before, after)`` is told of each pass that ran.
    """
    check(entries, "recording")
    off = skipped()
    current = list(entries)
    there = {node.op.name for node in topological(entries) if node.op is not None}
    for each in PASSES:
        needed = _NEEDS.get(each)
        if each.__name__ not in off and (needed is None or not needed.isdisjoint(there)):
            before, current = current, each(current, settings)
            check(current, each.__name__)
            if watch is not None:
                watch(each.__name__, before, current)
    return current
