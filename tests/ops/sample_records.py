"""The samples of all operators, and what the originals gave for them in every type."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

from . import samples

RECORDS = Path(__file__).parents[1] / "golden" / "operator_types"


@cache
def all_samples() -> dict[str, list[samples.Sample]]:
    """Every operator's samples, by the name that they are given under."""
    found: dict[str, list[samples.Sample]] = {}
    for module in pkgutil.iter_modules(samples.__path__):
        loaded = importlib.import_module(f"{samples.__name__}.{module.name}")
        for name, cases in getattr(loaded, "SAMPLES", {}).items():
            found.setdefault(name, []).extend(cases)
    return found


@cache
def records(version: str) -> dict[str, Any]:
    """Operator -> key of a sample -> type -> what the original of this version gives (None: a refusal)."""
    return json.loads((RECORDS / f"{version}.json").read_text())  # type: ignore[no-any-return]


def record(name: str, sample: samples.Sample) -> dict[str, Any]:
    """What the leading original (2.0.0b1 for the np kind) gives for a sample; empty where neither knows."""
    leading = ("2.0.0b1", "1.9.1") if name.startswith("_np") else ("1.9.1", "2.0.0b1")
    for version in leading:
        if name in records(version):
            return records(version)[name].get(sample.key(), {})  # type: ignore[no-any-return]
    return {}


def names_operator(text: str, name: str) -> bool:
    """Whether a message says whose it is: ``imdecode: ...``, or a word of the name in it."""
    return re.match(r"[\w.]+: ", text) is not None or any(w in text for w in name.split("_") if len(w) > 2)
