"""No test leaves mixed precision on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from regluon import amp


@pytest.fixture(autouse=True)
def full_precision_after() -> Iterator[None]:
    yield
    amp.reset()
