"""Convolutions, poolings, padding and pixel shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..hybrid import HybridBlock
from .making import add_activation, make_parameter

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "ReflectionPad2D",
]

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _sizes(value: Any, rank: int, name: str) -> tuple[int, ...]:
    """A number for every axis, or one for each."""
    if hasattr(value, "__index__"):
        return (int(value),) * rank
    sizes = tuple(int(size) for size in value)
    if len(sizes) != rank:
        raise ValueError(f"{name} must be a number or a tuple of {rank}; received {value}")
    return sizes


class _Conv(HybridBlock):
    """What all convolutions share.

    Parameters
    ----------
    channels : int
        Number of output channels.
    kernel_size, strides, padding, dilation : int or tuple of int
        Sizes along the spatial axes.
    groups : int
        Groups of channels that are convolved apart.
    layout : str
        Order of the axes: ``NCHW`` or ``NHWC`` and the like.
    activation : str, optional
        Name of an activation.
    use_bias : bool
        Whether there is a bias.
    weight_initializer, bias_initializer : Initializer or str
        Of the parameters.
    in_channels : int
        Number of input channels; 0 is inferred at the first call.
    """

    _rank = 2
    _operator = "Convolution"

    def _setup(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        layout: str,
        in_channels: int,
        activation: str | None,
        use_bias: bool,
        weight_initializer: Any,
        bias_initializer: Any,
        output_padding: Any = None,
    ) -> None:
        rank = self._rank
        if layout not in _LAYOUTS[rank]:
            raise ValueError(f"layout must be one of {', '.join(_LAYOUTS[rank])}; received {layout!r}")
        kernel = _sizes(kernel_size, rank, "kernel_size")
        self._channels = channels
        self._in_channels = in_channels
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": _sizes(strides, rank, "strides"),
            "dilate": _sizes(dilation, rank, "dilation"),
            "pad": _sizes(padding, rank, "padding"),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if output_padding is not None:
            self._kwargs["adj"] = _sizes(output_padding, rank, "output_padding")
        with self.name_scope():
            self.weight = make_parameter(
                self,
                "weight",
                shape=self._weight_shape(max(in_channels, 0), kernel, groups, layout),
                init=weight_initializer,
                allow_deferred_init=True,
            )
            if use_bias:
                self.bias = make_parameter(
                    self, "bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True
                )
            else:
                self.bias = None
            add_activation(self, activation)

    def _weight_shape(
        self, in_channels: int, kernel: tuple[int, ...], groups: int, layout: str
    ) -> tuple[int, ...]:
        if self._operator == "Convolution":
            outer, inner = self._channels, in_channels // groups
        else:
            outer, inner = in_channels, self._channels // groups
        return (outer, inner, *kernel) if layout[1] == "C" else (outer, *kernel, inner)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        function = getattr(F, self._operator)
        out = function(x, weight, bias, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def _alias(self) -> str:
        return "conv"

    def __repr__(self) -> str:
        kwargs = self._kwargs
        shape = self.weight.shape
        rank = self._rank
        inner = 1 if kwargs["layout"][1] == "C" else rank + 1
        if self._operator == "Convolution":
            source, target = shape[inner], self._channels
        else:
            source, target = shape[0], shape[inner]
        if source <= 0:
            source = None if self._level == 1 else -1
        text = f"{source} -> {target}, kernel_size={kwargs['kernel']}, stride={kwargs['stride']}"
        if kwargs["pad"] != (0,) * rank:
            text += f", padding={kwargs['pad']}"
        if kwargs["dilate"] != (1,) * rank:
            text += f", dilation={kwargs['dilate']}"
        if kwargs["num_group"] != 1:
            text += f", groups={kwargs['num_group']}"
        if self.bias is None:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        return f"{type(self).__name__}({text})"


def _make_conv(rank: int) -> Any:
    zero, one = ((0,) * rank, (1,) * rank) if rank > 1 else (0, 1)

    def __init__(
        self: Any,
        channels: int,
        kernel_size: Any,
        strides: Any = one,
        padding: Any = zero,
        dilation: Any = one,
        groups: int = 1,
        layout: str = _LAYOUTS[rank][0],
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
        )

    doc = f"Convolution over {rank} axis(es); see the base class for the parameters."
    return type(f"Conv{rank}D", (_Conv,), _members(__init__, doc, rank, "Convolution"))


def _make_transpose(rank: int) -> Any:
    zero, one = ((0,) * rank, (1,) * rank) if rank > 1 else (0, 1)

    def __init__(
        self: Any,
        channels: int,
        kernel_size: Any,
        strides: Any = one,
        padding: Any = zero,
        output_padding: Any = zero,
        dilation: Any = one,
        groups: int = 1,
        layout: str = _LAYOUTS[rank][0],
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            output_padding,
        )

    doc = f"Transposed convolution over {rank} axis(es); see the base class for the parameters."
    return type(f"Conv{rank}DTranspose", (_Conv,), _members(__init__, doc, rank, "Deconvolution"))


def _members(init: Any, doc: str, rank: int, operator: str) -> dict[str, Any]:
    return {"__init__": init, "__doc__": doc, "_rank": rank, "_operator": operator, "__module__": __name__}


Conv1D, Conv2D, Conv3D = (_make_conv(rank) for rank in (1, 2, 3))
Conv1DTranspose, Conv2DTranspose, Conv3DTranspose = (_make_transpose(rank) for rank in (1, 2, 3))


class _Pooling(HybridBlock):
    """What all poolings share."""

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Each pooling made below has a signature of its own."""

    def _setup(
        self,
        rank: int,
        pool_size: Any,
        strides: Any,
        padding: Any,
        ceil_mode: bool,
        global_pool: bool,
        pool_type: str,
        layout: str,
        count_include_pad: bool | None = None,
    ) -> None:
        if layout not in _LAYOUTS[rank]:
            raise ValueError(f"layout must be one of {', '.join(_LAYOUTS[rank])}; received {layout!r}")
        size = _sizes(pool_size, rank, "pool_size")
        self._kwargs: dict[str, Any] = {
            "kernel": size,
            "stride": size if strides is None else _sizes(strides, rank, "strides"),
            "pad": _sizes(padding, rank, "padding"),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        return (
            f"{type(self).__name__}(size={kwargs['kernel']}, stride={kwargs['stride']}, "
            f"padding={kwargs['pad']}, ceil_mode={kwargs['pooling_convention'] == 'full'}, "
            f"global_pool={kwargs['global_pool']}, "
            f"pool_type={kwargs['pool_type']}, layout={kwargs['layout']})"
        )


def _make_pool(kind: str, rank: int) -> type[_Pooling]:
    """A pooling class. Where the layout stands among the arguments differs, as in the originals."""
    size = (2,) * rank if rank > 1 else 2
    layouts = _LAYOUTS[rank]

    def max_layout_first(
        self: Any,
        pool_size: Any = size,
        strides: Any = None,
        padding: Any = 0,
        layout: str = layouts[0],
        ceil_mode: bool = False,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(rank, pool_size, strides, padding, ceil_mode, False, "max", layout)

    def max_ceil_first(
        self: Any,
        pool_size: Any = size,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = layouts[0],
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(rank, pool_size, strides, padding, ceil_mode, False, "max", layout)

    def average_layout_first(
        self: Any,
        pool_size: Any = size,
        strides: Any = None,
        padding: Any = 0,
        layout: str = layouts[0],
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(rank, pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad)

    def average_ceil_first(
        self: Any,
        pool_size: Any = size,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = layouts[0],
        count_include_pad: bool = True,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(rank, pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad)

    init: Any
    if kind == "avg":
        word, init = "Average", average_layout_first if rank == 1 else average_ceil_first
    else:
        word, init = "Maximum", max_ceil_first if rank == 3 else max_layout_first
    init.__name__ = init.__qualname__ = "__init__"
    doc = f"{word} pooling over {rank} axis(es). ``strides`` is the pool size by default."
    name = f"{'Avg' if kind == 'avg' else 'Max'}Pool{rank}D"
    return type(name, (_Pooling,), {"__init__": init, "__doc__": doc, "__module__": __name__})


def _make_global(kind: str, rank: int) -> Any:
    def __init__(
        self: Any, layout: str = _LAYOUTS[rank][0], prefix: str | None = None, params: Any = None
    ) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self._setup(rank, 1, None, 0, True, True, kind, layout)

    word = "Average" if kind == "avg" else "Maximum"
    doc = f"{word} over all of {rank} spatial axis(es)."
    name = f"Global{'Avg' if kind == 'avg' else 'Max'}Pool{rank}D"
    return type(name, (_Pooling,), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


MaxPool1D, MaxPool2D, MaxPool3D = (_make_pool("max", rank) for rank in (1, 2, 3))
AvgPool1D, AvgPool2D, AvgPool3D = (_make_pool("avg", rank) for rank in (1, 2, 3))
GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D = (_make_global("max", rank) for rank in (1, 2, 3))
GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D = (_make_global("avg", rank) for rank in (1, 2, 3))


class ReflectionPad2D(HybridBlock):
    """Pads height and width with reflections of the border.

    Parameters
    ----------
    padding : int or tuple of 8 int
        Rows and columns on every side, or the pad width of every axis.
    """

    def __init__(self, padding: Any = 0, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        if hasattr(padding, "__index__"):
            padding = (0, 0, 0, 0, padding, padding, padding, padding)
        if len(padding) != 8:
            raise ValueError(f"padding must be a number or a tuple of 8; received {padding}")
        self._padding = tuple(padding)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)


class PixelShuffle1D(HybridBlock):
    """(N, C*f, W) to (N, C, W*f)."""

    def __init__(self, factor: int, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._factor = int(factor)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        f = self._factor
        x = F.reshape(x, shape=(0, -4, -1, f, 0))
        x = F.transpose(x, axes=(0, 1, 3, 2))
        return F.reshape(x, shape=(0, 0, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factor})"


class PixelShuffle2D(HybridBlock):
    """(N, C*f1*f2, H, W) to (N, C, H*f1, W*f2)."""

    def __init__(self, factor: Any, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._factors = _sizes(factor, 2, "factor")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        f1, f2 = self._factors
        x = F.reshape(x, shape=(0, -4, -1, f1 * f2, 0, 0))
        x = F.reshape(x, shape=(0, 0, -4, f1, f2, 0, 0))
        x = F.transpose(x, axes=(0, 1, 4, 2, 5, 3))
        return F.reshape(x, shape=(0, 0, -3, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"


class PixelShuffle3D(HybridBlock):
    """(N, C*f1*f2*f3, D, H, W) to (N, C, D*f1, H*f2, W*f3)."""

    def __init__(self, factor: Any, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._factors = _sizes(factor, 3, "factor")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        f1, f2, f3 = self._factors
        x = F.reshape(x, shape=(0, -4, -1, f1 * f2 * f3, 0, 0, 0))
        x = F.swapaxes(x, dim1=2, dim2=3)
        x = F.reshape(x, shape=(0, 0, 0, -4, f1, f2 * f3, 0, 0))
        x = F.reshape(x, shape=(0, 0, -3, 0, 0, 0))
        x = F.swapaxes(x, dim1=3, dim2=4)
        x = F.reshape(x, shape=(0, 0, 0, 0, -4, f2, f3, 0))
        x = F.reshape(x, shape=(0, 0, 0, -3, 0, 0))
        x = F.swapaxes(x, dim1=4, dim2=5)
        return F.reshape(x, shape=(0, 0, 0, 0, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"
