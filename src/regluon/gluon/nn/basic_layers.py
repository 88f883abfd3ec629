"""Containers, Dense, Dropout, Embedding, Lambda and the like; normalizations are found here, too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ... import ndarray, numpy, numpy_extension
from ...base import config
from ...symbol import Symbol
from ..block import Block
from ..hybrid import HybridBlock
from .making import add_activation, make_parameter
from .norm_layers import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm, SyncBatchNorm

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

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the children; warns where HybridSequential would make one graph of all of them."""
        children = list(self._children.values())
        if (
            active
            and type(self) is Sequential
            and children
            and all(isinstance(c, HybridBlock) for c in children)
        ):
            warnings.warn(
                f"all children of the Sequential '{self.name}' are HybridBlocks: "
                "HybridSequential would run them as one graph",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


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
        Whether the gradient is row_sparse: optimizers with ``lazy_update`` then change only the rows in use.

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
                grad_stype="row_sparse" if sparse_grad else "default",
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
