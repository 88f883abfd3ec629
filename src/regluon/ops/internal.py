"""Operators that passes write: never read from a file, never written to one, unknown to users.

They are `OpDef` records, so that a graph stays a graph of one kind of node, but they are not in the registry.
`CONVOLUTION`, `DENSE`, `AFFINE`, `UNARY`, `ADD` are the common forms that fusion works on; each has a plain
function in public torch operators, which is what runs where no faster kernel is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .opdef import OpDef

__all__ = [
    "ADD",
    "AFFINE",
    "CONTIGUOUS",
    "CONVOLUTION",
    "DENSE",
    "KEY",
    "UNARY",
    "InternalOp",
    "Slot",
    "apply_unary",
    "channels_last",
    "constant_op",
    "unary_functions",
]


class Slot:
    """The place of a tensor among the arguments of a kernel."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


# Among the arguments of a kernel: the key of the program's first random draw.
KEY = object()


class InternalOp(OpDef):
    """An operator made by a pass.

    Parameters
    ----------
    name : str
        For printing.
    function : callable
        What runs.
    parameters : sequence of str
        Names of the keyword arguments, given by the node's attributes.
    arguments : sequence, optional
        The whole argument list: a `Slot` for each tensor, constants or `KEY` for the rest. Then there are no
        keywords, and ``function`` may be a kernel of torch without a Python function around it.
    in_place : (callable, sequence, int), optional
        Function, arguments as above, and the place of the tensor that it may write its result into.
    fresh : bool
        Whether the result is new memory that nothing else shares.
    """

    __slots__ = ("arguments", "fresh", "in_place")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[str] = (),
        arguments: Sequence[Any] | None = None,
        in_place: tuple[Callable[..., Any], Sequence[Any], int] | None = None,
        fresh: bool = True,
        outputs: int = 1,
    ) -> None:
        for slot in OpDef.__slots__:
            setattr(self, slot, None)
        self.name = name
        self.function = function
        self.doc = ""
        self.aliases = self.aux = self.mutates = self.inputs = self.optional = self.required = ()
        self.output_names = self.np_aliases = self.nd = ()
        self.outputs = outputs
        self.gradient = "torch"
        self.dynamic = self.variadic = self.uses_training = self.uses_rng = self.plain = False
        self.defaults, self.renamed = {}, {}
        self.parameters = dict.fromkeys(parameters)  # type: ignore[assignment]
        self.arguments = None if arguments is None else tuple(arguments)
        self.in_place = in_place
        self.fresh = fresh

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"the internal operator {self.name} cannot be pickled")


def channels_last(data: Tensor) -> Tensor:
    """Images of shape (N, C, H, W) with the channels last in memory.

    With one channel both orders are the same memory. Then kernels look at the strides to tell them apart, and
    torch's ``contiguous`` leaves those as they are.
    """
    result = data.contiguous(memory_format=torch.channels_last)
    if data.shape[1] != 1 or result.stride(1) == 1:
        return result
    if data.requires_grad:
        return data.clone(memory_format=torch.channels_last)
    height, width = data.shape[2:]
    return result.as_strided(data.shape, (height * width, 1, width, 1))


# Activations ----------------------------------------------------------------------

# kind -> (function, in-place function); scalars follow the tensor.
_UNARY: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor] | None]] = {
    "relu": (torch.relu, torch.relu_),
    "sigmoid": (torch.sigmoid, torch.sigmoid_),
    "tanh": (torch.tanh, torch.tanh_),
    "clip": (torch.clamp, torch.clamp_),
    "leaky": (functional.leaky_relu, torch.ops.aten.leaky_relu_),
    "gelu": (functional.gelu, None),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), None),
    "silu": (functional.silu, lambda x: functional.silu(x, inplace=True)),
}


def apply_unary(
    data: Tensor, kind: str | None, scalars: Sequence[float] = (), in_place: bool = False
) -> Tensor:
    """An activation by name; None is the identity. With ``in_place`` the data may be overwritten."""
    if kind is None:
        return data
    function, writing = _UNARY[kind]
    chosen = writing if in_place and writing is not None else function
    return chosen(data, *scalars)


def unary_functions(kind: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor] | None]:
    """The function of an activation, and the one that writes in place, where there is one."""
    return _UNARY[kind]


def _rest(rest: Sequence[Tensor], bias: bool, residual: bool) -> tuple[Tensor | None, Tensor | None]:
    found = iter(rest)
    return (next(found) if bias else None), (next(found) if residual else None)


def _finish(result: Tensor, residual: Tensor | None, kind: str | None, scalars: Sequence[float]) -> Tensor:
    if residual is not None:
        result = result.add_(residual)
    return apply_unary(result, kind, scalars, in_place=True)


_CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def convolution(
    data: Tensor,
    weight: Tensor,
    *rest: Tensor,
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilate: tuple[int, ...],
    groups: int,
    transposed: bool = False,
    extra: tuple[int, ...] = (),
    bias: bool = False,
    residual: bool = False,
    kind: str | None = None,
    scalars: tuple[float, ...] = (),
) -> Tensor:
    """``kind(convolution(data, weight) + bias + residual)``, channels first; ``extra`` is output padding."""
    offset, other = _rest(rest, bias, residual)
    rank = len(stride)
    if transposed:
        result = _TRANSPOSED[rank](data, weight, offset, stride, pad, extra or 0, groups, dilate)
    else:
        result = _CONVOLUTIONS[rank](data, weight, offset, stride, pad, dilate, groups)
    return _finish(result, other, kind, scalars)


def dense(
    data: Tensor,
    weight: Tensor,
    *rest: Tensor,
    flatten: bool,
    bias: bool = False,
    residual: bool = False,
    kind: str | None = None,
    scalars: tuple[float, ...] = (),
) -> Tensor:
    """``kind(data weight^T + bias + residual)``."""
    offset, other = _rest(rest, bias, residual)
    if flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 2 else data.unsqueeze(1)
    return _finish(functional.linear(data, weight, offset), other, kind, scalars)


def affine(
    data: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    axis: int,
    kind: str | None = None,
    scalars: tuple[float, ...] = (),
) -> Tensor:
    """``kind(data * scale + shift)``, with one scale and shift for each place along ``axis``."""
    shape = [1] * data.dim()
    shape[axis] = -1
    # Statistics may be kept more precisely than the data.
    source = data if data.dtype is scale.dtype else data.to(scale.dtype)
    result = torch.addcmul(shift.view(shape), source, scale.view(shape))
    return apply_unary(result, kind, scalars, in_place=True).to(data.dtype)


def unary(data: Tensor, *, kind: str, scalars: tuple[float, ...] = ()) -> Tensor:
    """An activation by name."""
    return apply_unary(data, kind, scalars)


_FUSED = ("bias", "residual", "kind", "scalars")
CONVOLUTION = InternalOp(
    "convolution",
    convolution,
    ("stride", "pad", "dilate", "groups", "transposed", "extra", *_FUSED),
)
DENSE = InternalOp("dense", dense, ("flatten", *_FUSED))
AFFINE = InternalOp("affine", affine, ("axis", "kind", "scalars"))
UNARY = InternalOp("unary", unary, ("kind", "scalars"))
_TWO = (Slot(0), Slot(1))
CONTIGUOUS = InternalOp("contiguous", Tensor.contiguous, fresh=False)
ADD = InternalOp("add", torch.add, arguments=_TWO, in_place=(Tensor.add_, _TWO, 0))


def constant_op(name: str, function: Callable[..., Any], *parameters: str, outputs: int = 1) -> InternalOp:
    """An operator that passes apply to weights, once per version of the weights."""
    return InternalOp(name, function, parameters, fresh=False, outputs=outputs)
