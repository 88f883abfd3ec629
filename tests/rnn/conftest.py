"""Symbolic cells are of 1.x."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import regluon
from regluon.base import config


@pytest.fixture(autouse=True)
def first_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """API level 1, in an empty folder: runs leave checkpoints where they are."""
    monkeypatch.chdir(tmp_path)
    before = config.snapshot()
    regluon.set_api(1)
    yield
    config.restore(before)
