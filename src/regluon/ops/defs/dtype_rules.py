"""Type rules that the elementwise families share, and the shape rules that go with them.

Legacy (``nd``) operators keep the type of their data: integers are computed in float32 where the
mathematics needs it and truncated back. NumPy-style operators promote as MXNet 2.0.0b1 does: two arrays
promote by torch's own table (0-d arrays included, unlike torch), a Python integer keeps the array's type,
a Python float turns integers into float64, and a transcendental function turns short integers into
float16 and long ones into float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Spec
from regluon.ops.shaping import broadcast_shapes

Shapes: TypeAlias = "list[tuple[int, ...] | None]"
Inference: TypeAlias = Callable[["list[Spec]", "dict[str, Any]"], "list[Spec]"]
Unary: TypeAlias = Callable[[Tensor], Tensor]
Binary: TypeAlias = Callable[[Tensor, Tensor], Tensor]
WithScalar: TypeAlias = Callable[[Tensor, float], Tensor]

_SHORT = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16})


def math_dtype(dtype: torch.dtype) -> torch.dtype:
    """Type of a transcendental NumPy-style function: float16 for integers up to 16 bits, else float32."""
    if dtype.is_floating_point:
        return dtype
    return torch.float16 if dtype in _SHORT else torch.float32


def scalar_dtype(dtype: torch.dtype, is_int: bool) -> torch.dtype:
    """Type of an array combined with a Python number, which is an integer when ``is_int``."""
    if dtype.is_floating_point:
        return dtype
    if not is_int:
        return torch.float64
    return torch.int64 if dtype == torch.bool else dtype


def scalar_operands(data: Tensor, scalar: float, is_int: bool) -> tuple[Tensor, float]:
    """Cast integer ``data`` and ``scalar`` to the type in which they are combined."""
    if not is_int:
        return data.to(torch.float64), scalar
    return (data.to(torch.int64) if data.dtype == torch.bool else data), int(scalar)


def promoted(lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """Cast both arrays to their common type; a 0-d array counts as much as any other."""
    dtype = torch.promote_types(lhs.dtype, rhs.dtype)
    return lhs.to(dtype), rhs.to(dtype)


def float_promoted(lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """Like :func:`promoted`, but two integer arrays become float32."""
    dtype = torch.promote_types(lhs.dtype, rhs.dtype)
    if not dtype.is_floating_point:
        dtype = torch.float32
    return lhs.to(dtype), rhs.to(dtype)


def require_integers(name: str, *tensors: Tensor) -> None:
    """Raise MXNetError when an operand of an integer-only operator is a floating-point array."""
    for tensor in tensors:
        if tensor.dtype.is_floating_point:
            raise MXNetError(
                f"{name} works on integer and boolean arrays, received {str(tensor.dtype)[6:]}; "
                "convert the array with astype('int64') first"
            )


def type_mismatch(name: str, lhs: Tensor, rhs: Tensor) -> MXNetError:
    """The error of a legacy binary operator on arrays of two types."""
    left, right = str(lhs.dtype)[6:], str(rhs.dtype)[6:]
    return MXNetError(
        f"{name}: both arrays must have the same dtype, received {left} and {right}; "
        f"convert one of them, for instance with astype('{left}')"
    )


def shape_mismatch(name: str, lhs: Tensor, rhs: Tensor) -> MXNetError:
    """The error of a binary operator on arrays whose shapes do not fit."""
    left, right = list(lhs.shape), list(rhs.shape)
    rule = (
        "the shapes must be equal"
        if name.startswith(("elemwise", "_"))
        else "each pair of dimensions, counted from the last, must be equal or contain a 1"
    )
    return MXNetError(f"{name}: operands with shapes {left} and {right} do not fit together; {rule}")


def infer_same(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output like the first input."""
    return [Spec(specs[0].shape, specs[0].dtype)]


def infer_math(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output of a transcendental NumPy-style function."""
    return [Spec(specs[0].shape, math_dtype(specs[0].dtype))]


def infer_bool(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Boolean output of the shape of the first input."""
    return [Spec(specs[0].shape, torch.bool)]


def infer_scalar(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output of an array combined with a Python number."""
    return [Spec(specs[0].shape, scalar_dtype(specs[0].dtype, attrs["is_int"]))]


def infer_broadcast(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output of a legacy binary operator: broadcast shape, type of the left array."""
    return [Spec(broadcast_shapes(specs[0].shape, specs[1].shape), specs[0].dtype)]


def infer_promoted(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output of a NumPy-style binary operator: broadcast shape, promoted type."""
    dtype = torch.promote_types(specs[0].dtype, specs[1].dtype)
    return [Spec(broadcast_shapes(specs[0].shape, specs[1].shape), dtype)]


def infer_float_promoted(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Output of a NumPy-style binary operator whose result is never an integer."""
    spec = infer_promoted(specs, attrs)[0]
    return [Spec(spec.shape, spec.dtype if spec.dtype.is_floating_point else torch.float32)]


def infer_broadcast_bool(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    """Boolean output of broadcast shape."""
    return [Spec(broadcast_shapes(specs[0].shape, specs[1].shape), torch.bool)]


def _known(dimension: int) -> bool:
    return dimension > 0


def unify_shapes(shapes: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Complete unknown input shapes of an operator whose inputs all have one shape.

    An unknown shape (None) takes the known one, an unknown dimension (0 or -1) the dimension that another
    input has in its place, counted from the last. Inputs of lower rank keep their rank.
    """
    full = max((shape for shape in shapes if shape is not None), key=len, default=None)
    if full is None:
        return shapes
    merged = list(full)
    for shape in shapes:
        for place, dimension in enumerate(reversed(shape or ()), start=1):
            merged[-place] = max(merged[-place], dimension)
    completed: Shapes = []
    for shape in shapes:
        if shape is None:
            completed.append(tuple(merged))
            continue
        tail = merged[len(merged) - len(shape) :]
        completed.append(tuple(d if _known(d) else t for d, t in zip(shape, tail, strict=True)))
    return completed
