"""Normalizations: by batch, layer, group and instance."""

from __future__ import annotations

import itertools
from typing import Any

from ..hybrid import HybridBlock
from .making import make_parameter

__all__ = ["BatchNorm", "BatchNormReLU", "GroupNorm", "InstanceNorm", "LayerNorm", "SyncBatchNorm"]

_sync_keys = itertools.count()


class _BatchNorm(HybridBlock):
    """What the batch normalizations share."""

    _operator = "BatchNorm"

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs: dict[str, Any] = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self._axis = axis
        self.in_channels = in_channels
        shape = (max(in_channels, 0),)
        with self.name_scope():
            self.gamma = make_parameter(
                self,
                "gamma",
                grad_req="write" if scale else "null",
                shape=shape,
                init=gamma_initializer,
                allow_deferred_init=True,
                differentiable=scale,
            )
            self.beta = make_parameter(
                self,
                "beta",
                grad_req="write" if center else "null",
                shape=shape,
                init=beta_initializer,
                allow_deferred_init=True,
                differentiable=center,
            )
            self.running_mean = make_parameter(
                self,
                "running_mean",
                grad_req="null",
                shape=shape,
                init=running_mean_initializer,
                allow_deferred_init=True,
                differentiable=False,
            )
            self.running_var = make_parameter(
                self,
                "running_var",
                grad_req="null",
                shape=shape,
                init=running_variance_initializer,
                allow_deferred_init=True,
                differentiable=False,
            )

    def cast(self, dtype: Any) -> None:
        """Convert the parameters; they stay float32 for float16, as the operator computes in float32."""
        if str(getattr(dtype, "__name__", dtype)) == "float16":
            dtype = "float32"
        super().cast(dtype)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return getattr(F, self._operator)(
            x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs
        )

    def __repr__(self) -> str:
        channels = self.gamma.shape[0]
        shown = channels if channels > 0 else (None if self._level == 1 else -1)
        options = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({options}, in_channels={shown})"


class BatchNorm(_BatchNorm):
    """Batch normalization (Ioffe and Szegedy, 2015) over all axes but ``axis``.

    In train mode the batch's statistics normalize; the running ones are updated once for every recorded
    forward,
    when it is differentiated.

    Parameters
    ----------
    axis : int
        The channel axis.
    momentum : float
        Of the running statistics: ``running = momentum * running + (1 - momentum) * batch``.
    epsilon : float
        Added to the variance.
    center, scale : bool
        Whether beta and gamma are learned.
    use_global_stats : bool
        Normalize with the running statistics in train mode too.
    in_channels : int
        Number of channels; 0 is inferred at the first call.
    """


class BatchNormReLU(_BatchNorm):
    """Batch normalization followed by a rectifier."""

    _operator = "BatchNormWithReLU"

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.contrib.BatchNormWithReLU(
            x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs
        )


class SyncBatchNorm(_BatchNorm):
    """Batch normalization whose statistics are those of the whole batch on all devices.

    Parameters
    ----------
    in_channels : int
        Number of channels; 0 is inferred at the first call.
    num_devices : int, optional
        How many devices work on one batch.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1,
            momentum,
            epsilon,
            center,
            scale,
            use_global_stats,
            beta_initializer,
            gamma_initializer,
            running_mean_initializer,
            running_variance_initializer,
            in_channels,
            **kwargs,
        )
        self._kwargs = {
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
            "ndev": num_devices or 1,
            "key": self.prefix or f"syncbatchnorm{next(_sync_keys)}_",
        }

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class InstanceNorm(HybridBlock):
    """Normalization of every channel of every sample by itself (Ulyanov et al., 2016)."""

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        _scale_and_shift(self, center, scale, in_channels, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        swapped = F.swapaxes(x, dim1=1, dim2=self._axis)
        out = F.InstanceNorm(swapped, gamma, beta, name="fwd", eps=self._epsilon)
        return F.swapaxes(out, dim1=1, dim2=self._axis)

    def __repr__(self) -> str:
        return _norm_repr(self)


class LayerNorm(HybridBlock):
    """Normalization over one axis of every sample (Ba et al., 2016)."""

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        _scale_and_shift(self, center, scale, in_channels, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(x, gamma, beta, axis=self._axis, eps=self._epsilon)

    def __repr__(self) -> str:
        return _norm_repr(self)


class GroupNorm(HybridBlock):
    """Normalization over groups of channels of every sample (Wu and He, 2018)."""

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups = num_groups
        self._epsilon = epsilon
        size = num_groups if self._level == 1 else in_channels
        _scale_and_shift(self, center, scale, size, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(x, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        return _norm_repr(self)


def _scale_and_shift(
    block: Any, center: bool, scale: bool, channels: int, beta_initializer: Any, gamma_initializer: Any
) -> None:
    """The parameters gamma and beta of a normalization."""
    shape = (max(channels, 0),)
    with block.name_scope():
        block.gamma = make_parameter(
            block,
            "gamma",
            grad_req="write" if scale else "null",
            shape=shape,
            init=gamma_initializer,
            allow_deferred_init=True,
        )
        block.beta = make_parameter(
            block,
            "beta",
            grad_req="write" if center else "null",
            shape=shape,
            init=beta_initializer,
            allow_deferred_init=True,
        )


def _norm_repr(block: Any) -> str:
    options = ", ".join(f"{key}={value}" for key, value in block._kwargs.items())
    channels = block.gamma.shape[0]
    if channels <= 0:
        channels = 0 if block._level == 1 else -1
    if isinstance(block, GroupNorm) and block._level == 1:
        return f"{type(block).__name__}({options})"
    return f"{type(block).__name__}({options}, in_channels={channels})"
