"""Deformable convolutions: the taps are moved by offsets that a second convolution computes."""

from __future__ import annotations

from math import prod
from typing import Any

from ..hybrid import HybridBlock
from .conv_layers import _sizes
from .making import add_activation, make_parameter

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class DeformableConvolution(HybridBlock):
    """Convolution over images whose taps are moved (Dai et al., "Deformable Convolutional Networks", 2017).

    A convolution of the same sizes gives the offsets, two for each tap and deformable group.

    Parameters
    ----------
    channels : int
        Number of output channels.
    kernel_size, strides, padding, dilation : int or tuple of 2 int
        Sizes along height and width.
    groups, num_deformable_group : int
        Groups of channels convolved apart, and groups of channels that share offsets.
    layout : str
        ``NCHW``.
    use_bias, offset_use_bias : bool
        Whether the convolution, and that of the offsets, have a bias.
    in_channels : int
        Number of input channels; 0 is inferred at the first call.
    activation : str, optional
        Name of an activation.
    weight_initializer, bias_initializer, offset_weight_initializer, offset_bias_initializer : Initializer
    or str
        Of the parameters. Offsets are zero at first by default, which makes this an ordinary convolution.

    Shapes: input (N, in_channels, H, W), output (N, channels, H', W').
    """

    _per_tap = 2

    def __init__(
        self,
        channels: int,
        kernel_size: Any = (1, 1),
        strides: Any = (1, 1),
        padding: Any = (0, 0),
        dilation: Any = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str | None = None,
        adj: Any = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        if layout != "NCHW":
            raise ValueError(f"{type(self).__name__} works in the layout 'NCHW'; received {layout!r}")
        super().__init__(prefix=prefix, params=params)
        kernel = _sizes(kernel_size, 2, "kernel_size")
        self._channels = channels
        self._groups = num_deformable_group
        self._offset_channels = self._per_tap * prod(kernel) * num_deformable_group
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": _sizes(strides, 2, "strides"),
            "dilate": _sizes(dilation, 2, "dilation"),
            "pad": _sizes(padding, 2, "padding"),
            "num_group": groups,
        }
        known = max(in_channels, 0)
        shape = (self._offset_channels, known // groups, *kernel)
        with self.name_scope():
            self._add("offset", shape, offset_use_bias, offset_weight_initializer, offset_bias_initializer)
            shape = (channels, known // groups, *kernel)
            self._add("deformable_conv", shape, use_bias, weight_initializer, bias_initializer)
            add_activation(self, activation)

    def _add(
        self, role: str, shape: tuple[int, ...], use_bias: bool, weight_init: Any, bias_init: Any
    ) -> None:
        """The weight, and the bias where there is one, of one of the two convolutions."""
        name = f"{role}_weight"
        weight = make_parameter(self, name, shape=shape, init=weight_init, allow_deferred_init=True)
        setattr(self, name, weight)
        name, bias = f"{role}_bias", None
        if use_bias:
            bias = make_parameter(self, name, shape=shape[:1], init=bias_init, allow_deferred_init=True)
        setattr(self, name, bias)

    def _alias(self) -> str:
        return "deformable_conv"

    def _offset(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        return F.Convolution(
            x,
            weight,
            bias,
            num_filter=self._offset_channels,
            no_bias=bias is None,
            name="offset",
            **self._kwargs,
        )

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        out = F.contrib.DeformableConvolution(
            x,
            self._offset(F, x, offset_weight, offset_bias),
            deformable_conv_weight,
            deformable_conv_bias,
            num_filter=self._channels,
            num_deformable_group=self._groups,
            no_bias=deformable_conv_bias is None,
            name="fwd",
            **self._kwargs,
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        source = self.deformable_conv_weight.shape[1]
        if source <= 0:
            source = None if self._level == 1 else -1
        text = f"{source} -> {self._channels}, kernel_size={kwargs['kernel']}, stride={kwargs['stride']}"
        for name, key, usual in (("padding", "pad", 0), ("dilation", "dilate", 1)):
            if kwargs[key] != (usual, usual):
                text += f", {name}={kwargs[key]}"
        if kwargs["num_group"] != 1:
            text += f", groups={kwargs['num_group']}"
        if self.deformable_conv_bias is None:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        return f"{type(self).__name__}({text})"


class ModulatedDeformableConvolution(DeformableConvolution):
    """Deformable convolution that also weighs every tap (Zhu et al., "Deformable ConvNets v2", 2019).

    The second convolution gives three values for each tap: two offsets, and a weight, which is twice their
    sigmoid. The parameters are those of `DeformableConvolution`.
    """

    _per_tap = 3

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        both = self._offset(F, x, offset_weight, offset_bias)
        border = self._offset_channels // 3 * 2
        offset = F.slice_axis(both, axis=1, begin=0, end=border)
        mask = F.sigmoid(F.slice_axis(both, axis=1, begin=border, end=None)) * 2
        out = F.contrib.ModulatedDeformableConvolution(
            x,
            offset,
            mask,
            deformable_conv_weight,
            deformable_conv_bias,
            num_filter=self._channels,
            num_deformable_group=self._groups,
            no_bias=deformable_conv_bias is None,
            name="fwd",
            **self._kwargs,
        )
        return out if self.act is None else self.act(out)
