"""The ground floor: errors, data types, devices, configuration, random draws and names. Imports nothing
above."""

from __future__ import annotations

from .errors import DeferredInitializationError, MXNetError, NotImplementedForSymbol

__all__ = ["DeferredInitializationError", "MXNetError", "NotImplementedForSymbol"]
