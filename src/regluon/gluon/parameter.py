"""Parameters: named arrays with a gradient request, an initializer and one copy on each context.

A parameter may be created before its whole shape is known. Sizes 0 and -1 mean "unknown"; initialisation of
such a parameter is deferred until shape inference has filled the gaps. One lock serialises the (rare)
finishing step, so that several threads may run the first call of a block at the same time.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from regluon import initializer
from regluon.array import NDArray
from regluon.array import ndarray as np_ndarray
from regluon.array.sparse import shown_as
from regluon.base import config, dtypes, rng
from regluon.base.device import Context, cpu, current_context
from regluon.base.errors import DeferredInitializationError, MXNetError
from regluon.base.rebinding import rebound
from regluon.base.zeros import untouched_zeros_like
from regluon.gluon.parameter_dict import ParameterDict
from regluon.gluon.parameter_errors import ParameterValueError
from regluon.gluon.parameter_support import (
    GRADIENT_REQUESTS,
    INITIALISING,
    STORAGE_CODES,
    Eager,
    as_contexts,
    as_shape,
    copied,
    described,
    merge_shapes,
    shape_is_known,
)
from regluon.runtime import autograd
from regluon.runtime.state import state

__all__ = [
    "Constant",
    "DeferredInitializationError",
    "Parameter",
    "ParameterDict",
    "ParameterValueError",
    "tensor_types",
]

tensor_types = (NDArray,)


class Parameter:
    """A learnable (or at least saved) array of a block.

    Parameters
    ----------
    name : str
        Own name of the parameter. A block completes it with its prefix at API level 1.
    grad_req : {"write", "add", "null"}
        Whether backward overwrites, adds to, or does not produce the gradient.
    shape : int or tuple of int, optional
        Sizes; 0 and -1 are unknown and need ``allow_deferred_init=True``.
    dtype : dtype
        Element type.
    lr_mult, wd_mult : float
        Factors on the learning rate and on the weight decay for this parameter.
    init : Initializer or str, optional
        Own initializer; it goes before the ``default_init`` of :meth:`initialize`.
    allow_deferred_init : bool
        Permit :meth:`initialize` before the shape is known.
    differentiable : bool
        False forces ``grad_req="null"`` (moving statistics, for instance).
    stype, grad_stype : {"default", "row_sparse", "csr"}
        Storage types of the value and of its gradient.
    """

    def __init__(
        self,
        name: str = "weight",
        grad_req: str = "write",
        shape: int | Sequence[int] | None = None,
        dtype: Any = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        for role, storage in (("stype", stype), ("grad_stype", grad_stype)):
            if storage not in STORAGE_CODES:
                raise ParameterValueError(
                    f"{role} of Parameter '{name}' must be one of 'default', 'row_sparse' or 'csr'; received "
                    f"{storage!r}."
                )
        self._name = name
        self._structural_name: str | None = None
        self._var: Any = None
        self._variables: dict[str, Any] = {}  # nodes that stand for this parameter in composed Symbols
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._contexts: list[Context] = []
        self._deferred_init: tuple[Any, ...] = ()
        self._draw = 0
        self._trainer: Any = None
        self._differentiable = differentiable
        self._allow_deferred_init = allow_deferred_init
        self._shape = as_shape(shape)
        self._dtype = dtype
        self._stype = stype
        self._grad_stype = grad_stype
        self._grad_req = "null"
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self.grad_req = grad_req

    def __repr__(self) -> str:
        shown = "" if config.api_level() >= 2 else f" {self.name}"
        return f"{type(self).__name__}{shown} (shape={self.shape}, dtype={self.dtype})"

    # Names ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the parameter: with the block's prefix at API level 1."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if value != self._name:
            self._name = value
            self._var = None

    @property
    def _label(self) -> str:
        """How messages call this parameter: the block path where it is known."""
        if self._structural_name is not None and self._structural_name != self._name:
            return f"'{self._name}' (at '{self._structural_name}')"
        return f"'{self._name}'"

    # Properties ----------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """Gradient request: "write", "add" or "null". Setting it allocates or drops the gradient buffers."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, request: str) -> None:
        if request not in GRADIENT_REQUESTS:
            raise ParameterValueError(
                f"The gradient request of Parameter {self._label} must be one of 'write', 'add' or 'null'; "
                f"received {request!r}."
            )
        if not self._differentiable:
            request = "null"
        if request == self._grad_req:
            return
        self._grad_req = request
        if self._data is not None:
            self._attach_gradients()

    @property
    def dtype(self) -> Any:
        """Element type, as it was given."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self.cast(value)

    @property
    def stype(self) -> str:
        """Storage type of the value."""
        return self._stype

    @property
    def grad_stype(self) -> str:
        """Storage type of the gradient."""
        return self._grad_stype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Sizes; unknown ones read 0 at API level 1 and -1 at API level 2. None while the rank is unknown."""
        if self._shape is None or shape_is_known(self._shape):
            return self._shape
        if config.api_level() >= 2:
            return tuple(size if size > 0 else -1 for size in self._shape)
        return self._shape

    @shape.setter
    def shape(self, value: int | Sequence[int]) -> None:
        new = as_shape(value)
        if new is None or self._shape is None:
            self._shape = new
            return
        if self._shape == new:
            return
        merged = merge_shapes(self._shape, new)
        if merged is None:
            raise ParameterValueError(
                f"Parameter {self._label} has shape {self._shape}; the new shape {new} contradicts it. Only "
                "unknown sizes (0 or -1) can be filled in; make a new parameter to change the others."
            )
        if merged != self._shape:
            self._shape = merged
            self._var = None

    # Initialisation ----------------------------------------------------------------------

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        *,
        device: Any = None,
    ) -> None:
        """Allocate and fill the value (and gradient) on one or several contexts.

        ``init`` goes before the parameter's own initializer, which goes before ``default_init``
        (Uniform(0.07)).

        Raises
        ------
        ValueError
            If the shape is not known and deferred initialisation is not allowed.
        """
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter {self._label} is already initialized and keeps its value. Pass "
                "force_reinit=True to initialize it again.",
                stacklevel=2,
            )
            return
        default_init = initializer.Uniform() if default_init is None else default_init
        contexts = as_contexts(ctx, device)
        if init is None:
            init = default_init if self.init is None else self.init
        with INITIALISING:
            self._data = self._grad = None
            rebound.tick()
            self._contexts = []
            if not shape_is_known(self._shape) and not self._allow_deferred_init:
                raise ParameterValueError(
                    f"Parameter {self._label} cannot be initialized: its shape is {self.shape}, with unknown "
                    "sizes. Give the whole shape (in_units, in_channels, ...) or allow_deferred_init=True."
                )
            # The random draw is reserved now: when the values are made later, dropout may have drawn before.
            self._draw = rng.draw()
            self._deferred_init = (init, contexts, default_init, None)
            if shape_is_known(self._shape):
                self._finish_deferred_init()

    def _finish_deferred_init(self) -> None:
        """Carry out a deferred initialisation; the shape must be known by now."""
        if not self._deferred_init:
            return
        with INITIALISING:
            if not self._deferred_init:
                return
            init, contexts, default_init, data = self._deferred_init
            if not shape_is_known(self._shape):
                raise ParameterValueError(
                    f"Parameter {self._label} cannot be initialized: its shape {self.shape} still has "
                    "unknown sizes. Give the whole shape, or run the block once so that it is inferred."
                )
            with Eager():
                if data is None:
                    data = self._make_array(contexts[0])
                    description = initializer.InitDesc(self.name, {"__init__": init})
                    with rng.drawing_from(self._draw):
                        initializer.create(default_init)(description, data)
                self._init_impl(data, contexts)
            self._deferred_init = ()

    def _make_array(self, context: Context) -> NDArray:
        """Zeros of this parameter's shape and type, of the kind that is current (NDArray or np.ndarray)."""
        kind = np_ndarray if config.is_np_array() else NDArray
        zeros = torch.zeros(self._shape or (), dtype=dtypes.to_torch(self._dtype), device=context.torch)
        return kind._wrap(zeros, context)

    def _init_impl(self, data: NDArray, contexts: Iterable[Context]) -> None:
        """Put a copy of ``data`` on every context."""
        self._contexts = list(contexts)
        arrays = [copied(data, context) for context in self._contexts]
        self._grad = self._gradients_for(arrays)
        # Last: another thread may use the value as soon as it is here.
        self._data = arrays
        rebound.tick()

    def _attach_gradients(self) -> None:
        """Allocate gradient buffers as the gradient request says, or drop them."""
        if self._data is not None:
            self._grad = self._gradients_for(self._data)

    def _gradients_for(self, arrays: list[NDArray]) -> list[NDArray] | None:
        """New gradient buffers of zeros for ``arrays``, which are marked; None where none are wanted."""
        if self._grad_req == "null":
            for array in arrays:
                autograd.mark(array, None, "null")
            return None
        gradients = [type(array)._wrap(untouched_zeros_like(array._t), array._ctx) for array in arrays]
        for array, gradient in zip(arrays, gradients, strict=True):
            autograd.mark(array, gradient, self._grad_req)
        return gradients

    def _load_init(
        self, data: Any, ctx: Any = None, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """Take the value from a file; fills unknown sizes and finishes a deferred initialisation."""
        shape = self._check_load(data, ctx, cast_dtype, dtype_source)
        if dtype_source == "saved" and not self._has_dtype(data):
            self.cast(dtypes.to_name(dtypes.to_torch(data.dtype)))
        self._shape = shape
        self._var = None
        with INITIALISING, Eager():
            if self._data is None:
                deferred = self._deferred_init[1] if self._deferred_init else [current_context()]
                contexts = deferred if ctx is None else as_contexts(ctx)
                array = self._make_array(contexts[0])
                array[...] = data
                self._init_impl(array, contexts)
            else:
                self.set_data(data)
            self._deferred_init = ()

    def _check_load(self, data: Any, ctx: Any, cast_dtype: bool, dtype_source: str) -> tuple[int, ...]:
        """The shape after loading this array; an error if it does not fit. Changes nothing."""
        given = tuple(data.shape)
        merged = merge_shapes(self._shape, given) if self._shape is not None else given
        if merged is None:
            raise ParameterValueError(
                f"Parameter {self._label} cannot be loaded: its shape is {self.shape}, the file holds "
                f"{given}. Build the same network that was saved, or leave this parameter out with "
                "ignore_extra and allow_missing."
            )
        if dtype_source not in ("current", "saved"):
            raise ParameterValueError(
                f"dtype_source must be 'current' or 'saved'; received {dtype_source!r}."
            )
        if not cast_dtype and not self._has_dtype(data):
            own, saved = (dtypes.to_name(dtypes.to_torch(dtype)) for dtype in (self._dtype, data.dtype))
            raise ParameterValueError(
                f"Parameter {self._label} cannot be loaded: its dtype is {own}, the file holds {saved}. Pass "
                "cast_dtype=True to convert the file's values, with dtype_source='saved' to convert the "
                "parameter."
            )
        if ctx is not None and self._data is not None and set(as_contexts(ctx)) != set(self.list_ctx()):
            raise ParameterValueError(
                f"Parameter {self._label} cannot be loaded on {as_contexts(ctx)}: it was initialized on "
                f"{self.list_ctx()}. Call reset_ctx() first, or leave the context out."
            )
        return merged

    def _has_dtype(self, data: Any) -> bool:
        return dtypes.to_torch(self._dtype) == dtypes.to_torch(data.dtype)

    def set_data(self, data: Any) -> None:
        """Write ``data`` (an array or number sequence of this shape) to the value on every context.

        Raises
        ------
        ValueError
            If the shape differs.
        RuntimeError
            If the parameter was never initialized.
        """
        if not hasattr(data, "shape"):
            data = np.asarray(data)
        self.shape = tuple(data.shape)
        if self._data is None:
            if not self._deferred_init:
                raise MXNetError(
                    f"Parameter {self._label} has not been initialized, so there is nothing to write to. "
                    "Call initialize() first."
                )
            with Eager():
                array = self._make_array(self._deferred_init[1][0])
                array[...] = data
            self._deferred_init = (*self._deferred_init[:3], array)
            return
        with Eager():
            for array in self._data:
                array[...] = data

    # Access ----------------------------------------------------------------------

    def data(self, ctx: Context | None = None, *, device: Context | None = None) -> NDArray:
        """Value on ``ctx`` (the only copy, or the one on the current context).

        Raises
        ------
        DeferredInitializationError
            While a deferred initialisation is pending.
        RuntimeError
            If the parameter was not initialized, or not on that context.
        """
        trace = state.tracer
        if trace is not None:
            return trace.parameter_handle(self, ctx if ctx is not None else device)
        arrays = self._data
        if arrays is not None and ctx is None and device is None and len(arrays) == 1:
            return arrays[0]
        return self._select(arrays, ctx if ctx is not None else device)

    def _select(self, arrays: list[NDArray] | None, ctx: Context | None) -> NDArray:
        if arrays is None:
            raise self._missing()
        if ctx is None:
            if len(arrays) == 1:
                return arrays[0]
            ctx = current_context()
        for context, array in zip(self._contexts, arrays, strict=True):
            if context == ctx:
                return array
        raise MXNetError(
            f"Parameter {self._label} was not initialized on {ctx}; it is on {self._contexts}. Initialize it "
            "there or call reset_ctx()."
        )

    def _missing(self) -> MXNetError:
        """The error for a value that does not exist (yet)."""
        if self._deferred_init:
            return DeferredInitializationError(
                f"Parameter {self._label} has not been initialized yet because initialization was deferred: "
                f"its shape is {self.shape}. Run one batch through the network (or call infer_shape) before "
                "reading it, or give in_units, in_channels and the like when the layer is made. A layer "
                "that forward never calls is never initialized."
            )
        return MXNetError(
            f"Parameter {self._label} has not been initialized. Call initialize() on the block first, and "
            "give the Trainer block.collect_params(): block.params leaves out the parameters of children."
        )

    def list_data(self) -> list[NDArray]:
        """Values on all contexts, in the order of :meth:`list_ctx`."""
        if self._data is None:
            raise self._missing()
        return list(self._data)

    def grad(self, ctx: Context | None = None, *, device: Context | None = None) -> NDArray:
        """Gradient on ``ctx``: the buffer, or, with another ``grad_stype``, an array that shows it.

        Raises
        ------
        RuntimeError
            If ``grad_req`` is "null", or the parameter has no value there.
        """
        self._check_gradient()
        return shown_as(self._select(self._grad, ctx if ctx is not None else device), self._grad_stype)

    def list_grad(self) -> list[NDArray]:
        """Gradient buffers on all contexts, in the order of :meth:`list_ctx`."""
        self._check_gradient()
        if self._grad is None:
            raise self._missing()
        return [shown_as(gradient, self._grad_stype) for gradient in self._grad]

    def _check_gradient(self) -> None:
        if self._data is not None and self._grad is None:
            raise MXNetError(
                f"Parameter {self._label} has no gradient because its grad_req is 'null'. Set grad_req to "
                "'write' or 'add' first."
            )

    def list_ctx(self) -> list[Context]:
        """Contexts that hold (or, while deferred, will hold) a copy."""
        if self._data is None:
            if self._deferred_init:
                return list(self._deferred_init[1])
            raise self._missing()
        return list(self._contexts)

    list_device = list_ctx

    def row_sparse_data(self, row_id: NDArray) -> NDArray:
        """Rows ``row_id`` of a row_sparse parameter as a row_sparse array."""
        return self._sparse_rows(row_id, self.data(row_id.context))

    def list_row_sparse_data(self, row_id: NDArray) -> list[NDArray]:
        """Rows ``row_id`` of a row_sparse parameter on every context."""
        return [self._sparse_rows(row_id, array) for array in self.list_data()]

    def _sparse_rows(self, row_id: NDArray, array: NDArray) -> NDArray:
        if self._stype != "row_sparse":
            raise MXNetError(
                f"Parameter {self._label} has stype '{self._stype}': its rows cannot be read as row_sparse. "
                "Use data()."
            )
        return array.tostype("row_sparse").retain(row_id)

    # Changes ----------------------------------------------------------------------

    def zero_grad(self) -> None:
        """Fill all gradient buffers with zeros; nothing to do where there are none."""
        if self._grad is not None:
            with Eager():
                for gradient in self._grad:
                    gradient[...] = 0

    def reset_ctx(self, ctx: Any = None, *, device: Any = None) -> None:
        """Move the parameter to other contexts; the value is kept (averaged if there were several)."""
        contexts = as_contexts(ctx, device)
        if self._data is not None:
            with Eager():
                self._init_impl(self._reduce(), contexts)
        elif self._deferred_init:
            self._deferred_init = (self._deferred_init[0], contexts, *self._deferred_init[2:])
        else:
            raise ParameterValueError(
                f"Parameter {self._label} cannot be moved to {contexts}: it has not been initialized. Call "
                "initialize(ctx=...) instead."
            )

    def reset_device(self, device: Any = None, *, ctx: Any = None) -> None:
        """The same as :meth:`reset_ctx`."""
        self.reset_ctx(device if device is not None else ctx)

    def _reduce(self) -> NDArray:
        """One copy of the value on the CPU: the mean over contexts."""
        arrays = self.list_data()
        with Eager():
            first = copied(arrays[0], cpu())
            if len(arrays) > 1:
                total = first._t.double()
                for array in arrays[1:]:
                    total = total + array._t.to("cpu")
                first._t.copy_(total / len(arrays))
            return first

    def cast(self, dtype: Any) -> None:
        """Change the element type of value and gradient."""
        self._dtype = dtype
        self._var = None
        if self._data is None:
            return
        with Eager():
            self._data = [copied(array, array.context, dtypes.to_torch(dtype)) for array in self._data]
            rebound.tick()
            self._attach_gradients()

    def var(self) -> Any:
        """Symbol variable that stands for this parameter, with its shape, type, factors and initializer
        noted."""
        if self._var is None:
            symbol: Any = importlib.import_module("regluon.symbol")
            attributes: dict[str, Any] = {"shape": self.shape, "dtype": self._dtype}
            initial = self._initializer_text()
            if initial is not None:
                attributes["init"] = initial
            self._var = symbol.var(
                self.name,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                stype=self._stype,
                **attributes,
            )
        return self._var

    def _initializer_text(self) -> str | None:
        """What the variable of this parameter says about its initial value."""
        return described(self.init)

    # Copies ----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_var"] = None
        state["_variables"] = {}
        state["_trainer"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        rebound.tick()
        old = self._grad
        self._attach_gradients()
        if old is not None and self._grad is not None:
            for target, source in zip(self._grad, old, strict=True):
                target[...] = source


from regluon.gluon.constant import Constant  # noqa: E402  (it is a Parameter)
