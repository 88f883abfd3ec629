"""Which operators compute in which type, by the classes in their definitions."""

from __future__ import annotations

from typing import Any

from ..ops import registry
from ..passes.amp import CONDITIONAL
from .policy import target_of

__all__ = [
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
]

_PARAMETERS = ("gamma", "beta", "moving_mean", "moving_var")


def _of_class(target_dtype: Any, wanted: str | None) -> list[str]:
    target_of(target_dtype)
    return [name for name in registry.list_names() if registry.get(name).amp == wanted]


def list_lp16_ops(target_dtype: Any = "float16") -> list[str]:
    """Operators that compute in the low precision, under all their names."""
    return _of_class(target_dtype, "low")


def list_fp32_ops(target_dtype: Any = "float16") -> list[str]:
    """Operators that compute in float32."""
    return _of_class(target_dtype, "float32")


def list_lp16_fp32_ops(target_dtype: Any = "float16") -> list[str]:
    """Operators that compute in whatever type their inputs have."""
    return _of_class(target_dtype, None)


def list_widest_type_cast(target_dtype: Any = "float16") -> list[str]:
    """Operators whose inputs are cast to the widest type among them."""
    return _of_class(target_dtype, "widest")


def list_conditional_fp32_ops(target_dtype: Any = "float16") -> list[tuple[str, str, list[str]]]:
    """Operators that compute in float32 for some values of an attribute: (name, attribute, values)."""
    target_of(target_dtype)
    return [(name, attribute, list(values)) for name, attribute, values in CONDITIONAL]


def list_loss_output_functions(target_dtype: Any = "float16") -> list[str]:
    """Output operators that bring the gradient of a loss of their own; they compute in float32."""
    target_of(target_dtype)
    return ["SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]


def list_lp16_use_fp32_params(target_dtype: Any = "float16") -> dict[str, list[str]]:
    """Operators that take data in the low precision and parameters in float32.

    For each the names of its inputs; the empty name stands for one in the low precision.
    """
    target_of(target_dtype)
    return {
        definition.name: ["" if label not in _PARAMETERS else label for label in definition.inputs]
        for definition in registry.all_definitions()
        if "moving_mean" in definition.aux
    }
