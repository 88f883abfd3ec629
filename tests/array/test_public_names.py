"""The public names of the originals' namespaces and arrays are there, in the families that are built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regluon as mx

NAMES = json.loads((Path(__file__).parents[1] / "golden" / "public_names.json").read_text())


@pytest.mark.parametrize("where", sorted(NAMES))
def test_names_of_the_originals(where: str) -> None:
    target = mx
    for part in where.split("."):
        target = getattr(target, part)
    missing = [name for name in NAMES[where].split() if not hasattr(target, name)]
    assert not missing, f"mx.{where} has no {', '.join(missing)}"
