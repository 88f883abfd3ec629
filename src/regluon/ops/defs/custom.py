"""Custom: an operator written in Python by the user, found by its ``op_type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import OpDef, operator


def _specialise(attributes: Mapping[str, Any]) -> OpDef:
    from regluon.runtime.custom import specialise

    return specialise(attributes)


@operator(
    "Custom", aliases=("_npi_Custom",), npx="Custom", amp="float32", opaque=True, specialise=_specialise
)
def custom(*data: Tensor, op_type: str) -> Tensor:
    """An operator written in Python and registered with ``mx.operator.register(op_type)``.

    Its inputs, by position or by the names that its property lists, are the arguments and after them the
    auxiliary states. All further keywords reach the property as strings; see `regluon.operator`.

    Raises
    ------
    MXNetError
        If no operator is registered under ``op_type``, the inputs do not fit, or the user's code raises.
    """
    raise MXNetError(f"Custom operator {op_type!r}: it has no definition before its attributes are known")
