"""Automatic mixed precision: float16 or bfloat16 where it is fast, float32 where it is needed.

``amp.init("bfloat16")`` makes every block and operator compute so from then on; parameters and their
gradients stay float32. ``amp.convert_hybrid_block`` gives a copy of one network that does. It is
``mx.contrib.amp`` too, as in 1.x.
"""

from __future__ import annotations

from .convert import convert_hybrid_block, convert_model, convert_symbol
from .lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_loss_output_functions,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_lp16_use_fp32_params,
    list_widest_type_cast,
)
from .loss_scaler import LossScaler
from .policy import AMPError
from .training import init, init_trainer, reset, scale_loss, unscale

__all__ = [
    "AMPError",
    "LossScaler",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
    "reset",
    "scale_loss",
    "unscale",
]
