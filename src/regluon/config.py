"""mx.config: settings of the library. ``strict`` (REGLUON_STRICT=1) restores the refusals of the
originals."""

from __future__ import annotations

import sys
from types import ModuleType

from .base import config as _config

__all__ = ["api_level", "set_api", "strict"]

api_level = _config.api_level
set_api = _config.set_api
strict: bool


class _Settings(ModuleType):
    """The module with ``strict`` as a live setting."""

    @property
    def strict(self) -> bool:  # type: ignore[override]
        return _config.strict()

    @strict.setter
    def strict(self, value: bool) -> None:
        _config.set_strict(value)


sys.modules[__name__].__class__ = _Settings
