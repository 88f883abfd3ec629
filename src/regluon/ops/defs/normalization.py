"""Normalisation layers.

Batch normalisation never uses torch's running buffers: the operator returns the batch statistics, and
``commit`` writes the moving ones once, when the recorded forward is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.nn_shapes import complete, dimension, fill_channel_vectors, normal_axis
from regluon.ops.opdef import Spec, operator


class _OnesWithoutGradient(torch.autograd.Function):
    """Ones in the shape of the input; the input's gradient is zero (not absent)."""

    @staticmethod
    def forward(ctx: Any, gamma: Tensor) -> Tensor:
        return torch.ones_like(gamma)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.zeros_like(gradient)


def effective_gamma(gamma: Tensor, fixed: bool) -> Tensor:
    """``gamma``, or ones when it is fixed; like in the original the array itself becomes ones then."""
    if not fixed:
        return gamma
    if not gamma.requires_grad:
        return gamma.fill_(1.0)
    if gamma.is_leaf:
        gamma.detach().fill_(1.0)
    return _OnesWithoutGradient.apply(gamma)  # type: ignore[no-any-return,no-untyped-call]


def _fill_batch_norm(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return fill_channel_vectors(shapes, dimension(shapes[0], attrs.get("axis", 1)))


def _infer_batch_norm(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data, gamma = specs[0], specs[1]
    axis = normal_axis(attrs.get("axis", 1), len(data.shape), "BatchNorm")
    channels = data.shape[axis]
    for name, spec in zip(("gamma", "beta", "moving_mean", "moving_var"), specs[1:], strict=True):
        if tuple(spec.shape) != (channels,):
            raise MXNetError(
                f"BatchNorm: expected {name} of shape ({channels},) for data {tuple(data.shape)} and axis "
                f"{axis}; "
                f"received {tuple(spec.shape)}"
            )
    return [Spec(data.shape, data.dtype), Spec((channels,), gamma.dtype), Spec((channels,), gamma.dtype)]


def _commit_moving(auxiliary: Sequence[Tensor], outputs: Sequence[Tensor], attrs: dict[str, Any]) -> None:
    """``moving = momentum * moving + (1 - momentum) * batch`` for mean and variance, in place."""
    if attrs.get("use_global_stats"):
        return
    mean, inverse = outputs[1], outputs[2]
    variance = inverse.pow(-2).sub_(attrs["eps"]).clamp_(min=0.0)
    move_statistics(auxiliary, (mean, variance), attrs["momentum"])


def move_statistics(moving: Sequence[Tensor], batch: Sequence[Tensor], keep: float) -> None:
    """``moving = keep * moving + (1 - keep) * batch`` for mean and variance, in place."""
    with torch.no_grad():
        new = [part.to(old.dtype) for old, part in zip(moving, batch, strict=True)]
        torch._foreach_mul_(list(moving), keep)
        torch._foreach_add_(list(moving), new, alpha=1.0 - keep)


def _batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float,
    fix_gamma: bool,
    global_statistics: bool,
    shown: bool,
    axis: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, mean and inverse standard deviation, the last two without gradient.

    With the moving statistics the last two are only computed when they are ``shown``.
    """
    scale = effective_gamma(gamma, fix_gamma)
    moved = axis != 1 and normal_axis(axis, data.dim(), "BatchNorm") != 1
    source = data.movedim(axis, 1) if moved else data
    if gamma.shape[0] != source.shape[1]:
        raise MXNetError(
            f"BatchNorm: expected gamma of shape ({source.shape[1]},) for data {tuple(data.shape)} and axis "
            f"{axis}; "
            f"received {tuple(gamma.shape)}"
        )
    if global_statistics:
        if source.requires_grad or scale.requires_grad:
            # Backward needs these values even when another graph's backward has moved the statistics.
            moving_mean, moving_var = moving_mean.clone(), moving_var.clone()
        output = torch.batch_norm(source, scale, beta, moving_mean, moving_var, False, 0.0, eps, False)
        mean, inverse = moving_mean, moving_var
        if shown:
            mean, inverse = moving_mean.detach().clone(), torch.rsqrt(moving_var.detach() + eps)
    else:
        output, mean, inverse = torch.native_batch_norm(source, scale, beta, None, None, True, 0.0, eps)
        mean, inverse = mean.detach(), inverse.detach()
    return (output.movedim(1, axis) if moved else output), mean, inverse


def _visible(attrs: dict[str, Any]) -> int:
    return 3 if attrs["output_mean_var"] else 1


_BATCH_NORM: dict[str, Any] = {
    "outputs": 3,
    "visible": _visible,
    "output_names": ("output", "mean", "var"),
    "aux": ("moving_mean", "moving_var"),
    "initial": {"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
    "commit": _commit_moving,
    "fill": _fill_batch_norm,
    "infer": _infer_batch_norm,
}


@operator("BatchNorm", aliases=("_npx_batch_norm", "CuDNNBatchNorm"), npx="batch_norm", **_BATCH_NORM)
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.0010000000474974513,
    momentum: float = 0.899999976,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    _training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise each channel (``axis``) to zero mean and unit variance, then ``gamma x + beta``
    (Ioffe and Szegedy 2015).

    gamma, beta and the moving statistics have shape (channels,).  In training the batch's own mean and biased
    variance are used, and committed to the moving ones when the result is differentiated; otherwise, and with
    ``use_global_stats``, the moving ones are used, as constants. ``fix_gamma`` writes ones to gamma.
    ``output_mean_var`` also shows the mean and ``1/sqrt(variance + eps)``.
    """
    return _batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        eps=eps,
        fix_gamma=fix_gamma,
        global_statistics=use_global_stats or not _training,
        shown=output_mean_var,
        axis=axis,
    )


@operator("BatchNorm_v1", **_BATCH_NORM)
def batch_norm_v1(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.00100000005,
    momentum: float = 0.899999976,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    _training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The batch normalisation of model files before 1.0: BatchNorm with channels on axis 1."""
    return _batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        eps=eps,
        fix_gamma=fix_gamma,
        global_statistics=use_global_stats or not _training,
        shown=output_mean_var,
    )


@operator(
    "_contrib_BatchNormWithReLU",
    aliases=("_npx_batch_norm_with_relu",),
    npx="batch_norm_with_relu",
    **_BATCH_NORM,
)
def batch_norm_with_relu(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.0010000000474974513,
    momentum: float = 0.899999976,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    _training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm followed by relu."""
    output, mean, inverse = _batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        eps=eps,
        fix_gamma=fix_gamma,
        global_statistics=use_global_stats or not _training,
        shown=output_mean_var,
        axis=axis,
    )
    return torch.relu(output), mean, inverse


@operator("_contrib_SyncBatchNorm", aliases=("_npx_sync_batch_norm",), npx="sync_batch_norm", **_BATCH_NORM)
def sync_batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.00100000005,
    momentum: float = 0.899999976,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    ndev: int = 1,
    key: str,
    _training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm (axis 1) whose batch statistics are shared by all processes of a distributed run.

    Without torch.distributed it computes what BatchNorm does; ``key`` and ``ndev`` are accepted for
    compatibility.
    """
    use_moving = use_global_stats or not _training
    if not use_moving and torch.distributed.is_available() and torch.distributed.is_initialized():
        return _synchronised(data, effective_gamma(gamma, fix_gamma), beta, eps)
    return _batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        eps=eps,
        fix_gamma=fix_gamma,
        global_statistics=use_moving,
        shown=output_mean_var,
    )


def _synchronised(data: Tensor, scale: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise with sums taken over every process; the sums are differentiable."""
    from torch.distributed.nn.functional import all_reduce

    axes = (0, *range(2, data.dim()))
    count = torch.full((1,), data.numel() / data.shape[1], dtype=data.dtype, device=data.device)
    local = torch.cat([data.sum(axes), data.square().sum(axes), count])
    totals: Tensor = all_reduce(local)  # type: ignore[no-untyped-call]
    channels = data.shape[1]
    mean = totals[:channels] / totals[-1]
    variance = (totals[channels:-1] / totals[-1] - mean.square()).clamp(min=0.0)
    view = (1, -1, *(1,) * (data.dim() - 2))
    inverse = torch.rsqrt(variance + eps)
    output = (data - mean.reshape(view)) * (scale * inverse).reshape(view) + beta.reshape(view)
    return output, mean.detach(), inverse.detach()


def _fill_layer_norm(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return fill_channel_vectors(shapes, dimension(shapes[0], attrs["axis"]))


def _infer_layer_norm(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data = specs[0]
    axis = normal_axis(attrs["axis"], len(data.shape), "LayerNorm")
    if tuple(specs[1].shape) != (data.shape[axis],):
        raise MXNetError(_layer_mismatch(data.shape, specs[1].shape, axis))
    result = [Spec(data.shape, data.dtype)]
    if attrs["output_mean_var"]:
        reduced = tuple(1 if i == axis else size for i, size in enumerate(data.shape))
        result += [Spec(reduced, data.dtype), Spec(reduced, data.dtype)]
    return result


def _layer_mismatch(data: Any, gamma: Any, axis: int) -> str:
    return (
        f"LayerNorm: expected gamma and beta of shape ({data[axis]},), the size of axis {axis} of data "
        f"{tuple(data)}; received {tuple(gamma)}. Pass vectors of that size or change axis"
    )


@operator(
    "LayerNorm",
    aliases=("_npx_layer_norm",),
    npx="layer_norm",
    outputs=_visible,
    output_names=("output", "mean", "std"),
    fill=_fill_layer_norm,
    infer=_infer_layer_norm,
    amp="float32",
)
def layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    axis: int = -1,
    eps: float = 9.99999975e-06,
    output_mean_var: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Normalise along ``axis`` to zero mean and unit variance, then ``gamma x + beta`` (Ba et al. 2016).

    gamma and beta have the size of that axis.  ``output_mean_var`` adds the mean and the standard deviation
    ``sqrt(var + eps)``, with size 1 on the axis.  Raises MXNetError when gamma does not fit.
    """
    rank = data.dim()
    axis = normal_axis(axis, rank, "LayerNorm")
    if gamma.shape != data.shape[axis : axis + 1]:
        raise MXNetError(_layer_mismatch(data.shape, gamma.shape, axis))
    last = axis == rank - 1
    source = data if last else data.movedim(axis, -1)
    if not output_mean_var:
        output = functional.layer_norm(source, gamma.shape, gamma, beta, eps)
        return output if last else output.movedim(-1, axis)
    output, mean, inverse = torch.native_layer_norm(source, gamma.shape, gamma, beta, eps)
    parts = (output, mean, inverse.reciprocal())
    return parts if last else tuple(part.movedim(-1, axis) for part in parts)  # type: ignore[return-value]


def _fill_group_norm(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return fill_channel_vectors(shapes, dimension(shapes[0], 1))


def _infer_group_norm(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data = specs[0]
    result = [Spec(data.shape, data.dtype)]
    if attrs["output_mean_var"]:
        statistics = Spec((data.shape[0], attrs["num_groups"]), data.dtype)
        result += [statistics, statistics]
    return result


def _per_channel(values: Tensor, channels: int, groups: int) -> Tensor:
    """A value per channel from one per channel or one per group."""
    if values.shape[0] == channels:
        return values
    return values.repeat_interleave(channels // groups)


@operator(
    "GroupNorm",
    aliases=("_npx_group_norm",),
    npx="group_norm",
    outputs=_visible,
    output_names=("output", "mean", "std"),
    fill=_fill_group_norm,
    infer=_infer_group_norm,
    amp="float32",
)
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    num_groups: int = 1,
    eps: float = 9.99999975e-06,
    output_mean_var: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Normalise each group of channels of each sample, then ``gamma x + beta`` (Wu and He 2018).

    ``data`` is (N, C, ...); gamma and beta hold one value per channel, (C,), or per group, (num_groups,).
    ``output_mean_var`` adds mean and standard deviation, (N, num_groups). Raises MXNetError when num_groups
    does not divide C or gamma does not fit.
    """
    batch, channels = data.shape[:2]
    if channels % num_groups:
        raise MXNetError(
            f"GroupNorm: num_groups must divide the number of channels; received num_groups={num_groups} and "
            f"{channels} channels, data {tuple(data.shape)}"
        )
    if gamma.shape[0] not in (channels, num_groups) or beta.shape != gamma.shape:
        raise MXNetError(
            f"GroupNorm: expected gamma and beta of shape ({channels},) or ({num_groups},); received "
            f"{tuple(gamma.shape)} and {tuple(beta.shape)}"
        )
    scale, shift = _per_channel(gamma, channels, num_groups), _per_channel(beta, channels, num_groups)
    if not output_mean_var:
        # torch.nn.functional's refuses groups of one number.
        return torch.group_norm(data, num_groups, scale, shift, eps)
    inner = data.numel() // (batch * channels)
    output, mean, inverse = torch.native_group_norm(
        data.contiguous(), scale, shift, batch, channels, inner, num_groups, eps
    )
    return output, mean, inverse.reciprocal()


def _infer_same(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, specs[0].dtype)]


def _fill_instance_norm(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    channels = dimension(shapes[0], 1)
    return [shapes[0], *(complete(shape, (channels,)) for shape in shapes[1:])]


@operator(
    "InstanceNorm",
    aliases=("_npx_instance_norm",),
    npx="instance_norm",
    fill=_fill_instance_norm,
    infer=_infer_same,
    amp="float32",
)
def instance_norm(data: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 0.00100000005) -> Tensor:
    """Normalise each channel of each sample over its spatial axes, then ``gamma x + beta`` (Ulyanov et al.
    2016).

    ``data`` is (N, C, spatial...) with at least 3 dimensions, gamma and beta (C,); raises MXNetError
    otherwise.
    """
    if data.dim() < 3 or gamma.shape != data.shape[1:2]:
        raise MXNetError(
            "InstanceNorm: expected data of at least 3 dimensions (N, C, ...) and gamma of shape (C,); "
            "received "
            f"{tuple(data.shape)} and {tuple(gamma.shape)}. Add spatial axes or fix gamma"
        )
    # One group for each channel is the same sum, and unlike torch's own it accepts a single spatial element.
    return torch.group_norm(data, data.shape[1], gamma, beta, eps)


@operator("L2Normalization", infer=_infer_same, amp="float32")
def l2_normalization(
    data: Tensor, *, eps: float = 1.00000001e-10, mode: Literal["instance", "channel", "spatial"] = "instance"
) -> Tensor:
    """``x / sqrt(sum(x^2) + eps)``, the sum over a whole sample, over the channels (axis 1) at each position,
    or over the positions of each channel."""
    if mode == "instance":
        axes = tuple(range(1, data.dim()))
    elif mode == "channel":
        axes = (1,)
    else:
        axes = tuple(range(2, data.dim()))
    if not axes:
        return data / torch.sqrt(data.square() + eps)
    return data / torch.sqrt(data.square().sum(axes, keepdim=True) + eps)


@operator("LRN", infer=_infer_same, amp="float32")
def local_response_normalization(
    data: Tensor, *, alpha: float = 9.99999975e-05, beta: float = 0.75, knorm: float = 2.0, nsize: int
) -> Tensor:
    """``x / (knorm + alpha/nsize * sum x^2)^beta``, the sum over ``nsize`` neighbouring channels of (N, C,
    ...) (Krizhevsky et al. 2012, section 3.3)."""
    if nsize < 1:
        raise MXNetError(f"LRN: nsize counts neighbouring channels and must be positive; received {nsize}")
    # An even nsize sums over nsize - 1 channels, centred, but still divides by nsize.
    window = nsize - 1 + nsize % 2
    return functional.local_response_norm(data, window, alpha * window / nsize, beta, knorm)
