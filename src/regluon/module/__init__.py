"""``mx.mod``: training a symbol, as scripts of 1.x do it."""

from __future__ import annotations

from .base_module import BaseModule, ModuleStateError
from .bucketing_module import BucketingModule
from .module import Module
from .python_module import PythonLossModule, PythonModule
from .sequential_module import SequentialModule

__all__ = [
    "BaseModule",
    "BucketingModule",
    "Module",
    "ModuleStateError",
    "PythonLossModule",
    "PythonModule",
    "SequentialModule",
]
