"""Sabotages: each breaks one thing of the library on purpose, and names regular tests that must then fail.

A sabotage that nothing notices would mean that the thing it breaks is not tested.
"""

from __future__ import annotations

import core_sabotages  # noqa: F401
import file_sabotages  # noqa: F401
from breaking import SABOTAGES

__all__ = ["SABOTAGES"]
