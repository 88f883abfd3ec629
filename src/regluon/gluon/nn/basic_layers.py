"""Containers, Dense, Dropout, normalizations, Embedding, Lambda and the like."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ... import ndarray, numpy, numpy_extension
from ...base import config
from ...symbol import Symbol
from ..block import Block
from ..hybrid import HybridBlock
from .making import add_activation, make_parameter

__all__ = [
    "BatchNorm",
    "BatchNormReLU",
    "Concatenate",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HybridConcatenate",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "Sequential",
    "SyncBatchNorm",
]


_sync_keys = itertools.count()


class _Container:
    """What Sequential and HybridSequential share."""

    _children: Any
    _layers: Any

    def add(self, *blocks: Any) -> None:
        """Append blocks."""
        for block in blocks:
            self.register_child(block)  # type: ignore[attr-defined]

    def _run(self, x: Any, args: tuple[Any, ...]) -> Any:
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)) and x:
                x, args = x[0], tuple(x[1:])
        return [x, *args] if args else x

    def __repr__(self) -> str:
        rows = "\n".join(f"  ({key}): {_indented(repr(block))}" for key, block in self._children.items())
        return f"{type(self).__name__}(\n{rows}\n)"

    def __getitem__(self, key: Any) -> Any:
        layers = list(self._children.values())[key]
        if not isinstance(key, slice):
            return layers
        part = type(self)(prefix=self._prefix) if self._level == 1 else type(self)()  # type: ignore[attr-defined,call-arg]
        part.add(*layers)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._children.values()))


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *("  " + line for line in rest)])


class Sequential(_Container, Block):
    """Blocks one after another. A tuple of outputs becomes several arguments of the next block."""

    def __init__(self, *args: Any, prefix: str | None = None, params: Any = None) -> None:
        if args and isinstance(args[0], str):
            prefix, args = args[0], args[1:]
        Block.__init__(self, prefix=prefix, params=params)
        self.add(*args)

    def forward(self, x: Any, *args: Any) -> Any:
        """Run the blocks in order."""
        return self._run(x, args)


class HybridSequential(_Container, HybridBlock):
    """HybridBlocks one after another, as one graph when hybridized."""

    def __init__(self, *args: Any, prefix: str | None = None, params: Any = None) -> None:
        if args and isinstance(args[0], str):
            prefix, args = args[0], args[1:]
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self.add(*args)

    def forward(self, x: Any, *args: Any) -> Any:
        """Run the blocks in order."""
        return self._run(x, args)

    def _is_symbolic_style(self) -> bool:
        """Recorded as its first layers are: with Symbols where they are written in the 1.x style."""
        return config.api_level() == 1


class Dense(HybridBlock):
    """``activation(x W^T + b)``.

    Parameters
    ----------
    units : int
        Size of the output's last axis.
    activation : str, optional
        Name of an activation; none by default.
    use_bias : bool
        Whether there is a bias.
    flatten : bool
        Whether all axes but the first are flattened; else the layer works on the last axis.
    dtype : dtype
        Of the parameters.
    weight_initializer, bias_initializer : Initializer or str
        Of the parameters.
    in_units : int
        Size of the input's last axis; 0 is inferred at the first call.

    Shapes: input (batch, ..., in_units), output (batch, units) with ``flatten``, else (batch, ..., units).
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._units = units
        self._in_units = in_units
        self._flatten = flatten
        with self.name_scope():
            self.weight = make_parameter(
                self,
                "weight",
                shape=(units, max(in_units, 0)),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )
            if use_bias:
                self.bias = make_parameter(
                    self, "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
            else:
                self.bias = None
            add_activation(self, activation)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = F.FullyConnected(
            x,
            weight,
            bias,
            no_bias=bias is None,
            num_hidden=self._units,
            flatten=self._flatten,
            name="fwd",
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        shape = self.weight.shape
        unknown = None if self._level == 1 else -1
        source = shape[1] if shape[1] > 0 else unknown
        act = self.act if self.act is not None else "linear"
        return f"{type(self).__name__}({source} -> {shape[0]}, {act})"


class Dropout(HybridBlock):
    """Sets a share of the elements to 0 in train mode and scales the others up.

    Parameters
    ----------
    rate : float
        The share.
    axes : tuple of int
        Axes along which one choice serves all elements.
    """

    def __init__(self, rate: float, axes: Any = (), prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._rate = rate
        self._axes = axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


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


class Embedding(HybridBlock):
    """Rows of a table by number.

    Parameters
    ----------
    input_dim, output_dim : int
        Number of rows and their length.
    dtype : dtype
        Of the table.
    weight_initializer : Initializer, optional
        Of the table.
    sparse_grad : bool
        Accepted; the gradient is dense.

    Shapes: input (...), output (..., output_dim).
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": sparse_grad,
        }
        with self.name_scope():
            self.weight = make_parameter(
                self,
                "weight",
                shape=(input_dim, output_dim),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        return f"{type(self).__name__}({kwargs['input_dim']} -> {kwargs['output_dim']}, {kwargs['dtype']})"


class Flatten(HybridBlock):
    """All axes but the first as one."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


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


class Lambda(Block):
    """A function as a Block.

    Parameters
    ----------
    function : str or callable
        The name of a function of ``mx.nd``, ``mx.np`` or ``mx.npx``, or a function on arrays.
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self._func_impl, self._func_name = _function(function)

    def forward(self, *args: Any) -> Any:
        """Call the function."""
        if isinstance(self._func_impl, str):
            return _named(self._func_impl, args[0])(*args)
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class HybridLambda(HybridBlock):
    """A function as a HybridBlock.

    Parameters
    ----------
    function : str or callable
        The name of an operator, or a function: ``function(F, x, ...)`` in the 1.x style, ``function(x,
        ...)`` else.
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self._func_impl, self._func_name = _function(function)
        self._takes_namespace = callable(self._func_impl) and _first_parameter(self._func_impl) == "F"

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        if isinstance(self._func_impl, str):
            return _named(self._func_impl, x, F)(x, *args)
        if self._takes_namespace or (self._level == 1 and not _accepts(self._func_impl, 1 + len(args))):
            return self._func_impl(F, x, *args)
        return self._func_impl(x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


def _function(function: Any) -> tuple[Any, str]:
    if isinstance(function, str):
        if not any(hasattr(module, function) for module in (ndarray, numpy, numpy_extension)):
            raise AttributeError(f"Function name {function} is not found in nd, np or npx.")
        return function, function
    if callable(function):
        return function, getattr(function, "__name__", type(function).__name__)
    raise ValueError(f"Unrecognized function in lambda: {function!r} of type {type(function)}")


def _named(name: str, x: Any, F: Any = ndarray) -> Any:
    np_kind = getattr(x, "_kind", "nd") == "np"
    modules = (numpy, numpy_extension, F) if np_kind else (F, numpy_extension, numpy)
    if isinstance(x, Symbol) and not np_kind:
        from ... import symbol

        modules = (symbol, numpy_extension, numpy)
    for module in modules:
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"Function name {name} is not found")


def _first_parameter(function: Any) -> str | None:
    import inspect

    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None


def _accepts(function: Any, count: int) -> bool:
    import inspect

    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class Concatenate(_Container, Block):
    """Runs its children on the same input and concatenates their outputs along ``axis``."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        Block.__init__(self, prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        """Concatenate the children's outputs."""
        return ndarray.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcatenate(_Container, HybridBlock):
    """Runs its children on the same input and concatenates their outputs along ``axis``."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        HybridBlock.__init__(self, prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Identity(HybridBlock):
    """Gives its input on."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.identity(x)
