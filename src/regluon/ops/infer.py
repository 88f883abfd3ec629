"""Shapes and types of an operator's outputs: its own rule, else a run on meta tensors, remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base.errors import MXNetError
from .failure import reraise
from .opdef import OpDef, Spec, run

__all__ = ["infer_specs"]

_MEMORY: dict[Any, list[Spec]] = {}
_LIMIT = 20_000


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def infer_specs(
    definition: OpDef, attrs: dict[str, Any], specs: Sequence[Spec | None], training: bool = False
) -> list[Spec]:
    """The specs of all outputs for inputs with these specs (None for an absent optional input).

    Raises
    ------
    MXNetError
        If the operator refuses such inputs, or its output shape depends on data.
    """
    if definition.dynamic:
        raise MXNetError(f"the output shape of operator {definition.name} depends on its input's values")
    if definition.opaque:
        return _compute(definition, attrs, specs, training)
    key = (definition.name, tuple((k, _frozen(v)) for k, v in attrs.items()), tuple(specs), training)
    try:
        known = _MEMORY.get(key)
    except TypeError:
        return _compute(definition, attrs, specs, training)
    if known is None:
        known = _compute(definition, attrs, specs, training)
        if len(_MEMORY) >= _LIMIT:
            _MEMORY.clear()
        _MEMORY[key] = known
    return list(known)


def _compute(
    definition: OpDef, attrs: dict[str, Any], specs: Sequence[Spec | None], training: bool
) -> list[Spec]:
    try:
        if definition.infer is not None:
            present = [spec for spec in specs if spec is not None]
            result = definition.infer(present if len(present) == len(specs) else list(specs), attrs)
            return [Spec(tuple(spec[0]), spec[1]) for spec in result]
        tensors = [
            None if spec is None else torch.empty(spec.shape, dtype=spec.dtype, device="meta")
            for spec in specs
        ]
        with torch.no_grad():
            outputs = run(definition, tensors, attrs, training, None)
    except Exception as error:
        reraise(definition, error, specs)
    if isinstance(outputs, torch.Tensor):
        outputs = (outputs,)
    return [Spec(tuple(out.shape), out.dtype) for out in outputs]
