"""Lets the tests of this folder import what they share; they are written in the style of 1.x."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import regluon

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def first_level(clean_state: None) -> None:
    """API level 1, unless a test says otherwise."""
    regluon.set_api(1)
