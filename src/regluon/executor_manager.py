"""mx.executor_manager: how a batch is divided among devices. Training over devices is a Module's."""

from __future__ import annotations

from .module.executor_group import DataParallelExecutorGroup, split_batch

__all__ = ["DataParallelExecutorGroup"]

# The name by which 1.x's detection scripts import it.
_split_input_slice = split_batch
