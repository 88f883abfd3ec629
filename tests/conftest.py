"""Every test starts from the same seed, array mode and API level, and leaves no scope behind."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("MPLBACKEND", "Agg")
# Graphs are checked around every pass.
os.environ["REGLUON_CHECK_GRAPHS"] = "1"
# Nothing that a user's own runs remembered is used here, and nothing is left behind.
os.environ["REGLUON_CACHE"] = tempfile.mkdtemp(prefix="regluon-tests-")

import random
from collections.abc import Iterator

import numpy
import pytest

import regluon
from regluon.base import config


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    state = config.snapshot()
    regluon.random.seed(42)
    numpy.random.seed(42)
    random.seed(42)
    yield
    config.restore(state)
