"""NDArray and np.ndarray.

``_t`` is the tensor and never requires grad; ``_g`` is the gradient handle inside recorded computations: a
leaf of a marked array, or the result of a recorded operator. ``_s`` is the trace handle of an array that
stands for a value of a graph being recorded; then there is no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch

from ..base import config, dtypes
from ..base.device import Context, cpu, device
from ..base.errors import MXNetError
from ..base.rebinding import rebound
from ..base.sharing import mark_shared
from ..ops import shaping
from ..ops.registry import get
from ..runtime import autograd
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from ..runtime.state import state
from ..runtime.steps import note_index
from . import arithmetic, indexing, printing
from .derived import Derived

__all__ = ["NDArray", "from_torch", "ndarray", "waitall"]

_IN_PLACE_TEXT = (
    "Assigning in-place (+=, -=, x[:]=, ...) to an array that is already in a computational graph, "
    "while recording, "
    "would make its gradients wrong. Write `y = y + x` instead, work on a copy, or do it outside "
    "autograd.record()."
)


class NDArray(Derived):
    """An array of the 1.x kind: float32 by default, no 0-dimensional results, comparisons give numbers.

    Made by ``mx.nd.array`` and the other creation functions. Holds one torch tensor on one device.
    """

    _kind: Any = "nd"
    _t: Any = None
    _g: Any = None
    _s: Any = None
    _ctx: Context | None = None
    _grad: Any = None
    _step: Any = None
    _request = "null"
    _fresh_grad = False
    __array_priority__ = 1000.0

    def __init__(self, handle: Any = None, writable: bool = True, *, ctx: Any = None) -> None:
        del writable
        if isinstance(handle, NDArray):
            self._t, self._ctx = handle._t, handle._ctx
        elif isinstance(handle, torch.Tensor):
            self._t = handle.detach()
        elif handle is not None:
            raise TypeError(
                f"{type(self).__name__}() wraps a tensor; received {type(handle).__name__}. Use "
                f"mx.nd.array(...) or "
                "mx.np.array(...) to make an array from data"
            )
        if ctx is not None:
            self._ctx = device(ctx)

    # Making ----------------------------------------------------------------------

    @classmethod
    def _wrap(cls, tensor: torch.Tensor, context: Context | None = None) -> Any:
        """An array around a tensor that does not require grad."""
        result = cls.__new__(cls)
        result._t = tensor.detach() if tensor.requires_grad else tensor
        if context is not None:
            result._ctx = context
        elif tensor.device.type != "cpu":
            result._ctx = Context("gpu", tensor.device.index or 0)
        return result

    _from_tensor = _wrap

    @classmethod
    def _traced(cls, handle: Any) -> Any:
        """An array that stands for a value of the graph being recorded."""
        result = cls.__new__(cls)
        result._s = handle
        result._ctx = handle.tracer.context
        return result

    @classmethod
    def zeros_on(cls, shape: Any, dtype: torch.dtype, context: Context) -> Any:
        """Zeros of this kind on a context."""
        return cls._wrap(torch.zeros(tuple(shape), dtype=dtype, device=context.torch), context)

    # What it is ----------------------------------------------------------------------

    @property
    def shape(self) -> Any:
        """Sizes of the axes. While a block is recorded the sizes are symbolic integers."""
        if self._s is not None:
            return self._s.tracer.shape(self._s.get())
        return tuple(self._t.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec_shape())

    def _spec_shape(self) -> tuple[int, ...]:
        return self._s.tracer.spec(self._s.get()).shape if self._s is not None else tuple(self._t.shape)

    def _torch_dtype(self) -> torch.dtype:
        result = self._s.tracer.spec(self._s.get()).dtype if self._s is not None else self._t.dtype
        return result  # type: ignore[no-any-return]

    @property
    def size(self) -> Any:
        """Number of elements."""
        if self._s is not None:
            result: Any = 1
            for size in self.shape:
                result = size * result
            return result
        return self._t.numel()

    @property
    def dtype(self) -> Any:
        """The NumPy scalar class of the elements."""
        return dtypes.to_numpy(self._torch_dtype())

    @property
    def context(self) -> Context:
        """The device the array is on."""
        return self._ctx if self._ctx is not None else cpu()

    ctx = context
    device = context

    @property
    def stype(self) -> str:
        """The storage type: ``"default"``, dense."""
        return "default"

    @property
    def handle(self) -> Any:
        """The torch tensor (the originals have a C handle here)."""
        return self._t

    @property
    def T(self) -> Any:
        """The array with its axes in reverse order."""
        return self.transpose()

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return int(shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self._spec_shape():
            raise TypeError("iteration over a 0-d array")
        for i in range(len(self)):
            yield self[i]

    def __repr__(self) -> str:
        if self._s is not None:
            return f"<{type(self).__name__} {self._s.get().node.name}, being recorded>"
        return printing.array_repr(self, self._kind)

    def __str__(self) -> str:
        return repr(self) if self._s is not None else printing.array_str(self, self._kind)

    def __hash__(self) -> int:
        return id(self) >> 4

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    # Values ----------------------------------------------------------------------

    def _value(self, what: str) -> torch.Tensor:
        if self._t is None:
            if self._s is not None:
                return self._s.tracer.read_value(self, what)  # type: ignore[no-any-return]
            raise MXNetError("this array was never given a value")
        return self._t  # type: ignore[no-any-return]

    def asnumpy(self) -> Any:
        """A NumPy array with a copy of the values (bfloat16 becomes float32)."""
        value = self._value("asnumpy()")
        if value.dtype is torch.bfloat16:
            value = value.float()
        host = value.cpu().numpy()
        return numpy.array(host, copy=True, order="C")

    def asscalar(self) -> Any:
        """The value of an array of one element, as a NumPy scalar.

        Raises
        ------
        ValueError
            If there is more than one element.
        """
        if self._value("asscalar()").numel() != 1:
            raise ValueError(
                f"The current array is not a scalar: it has shape {self.shape}. Use asnumpy() for all values"
            )
        return self.asnumpy().reshape(-1)[0]

    def item(self, *args: Any) -> Any:
        """The value of one element as a Python number; the index is needed when there are several."""
        if not args:
            value = self._value("item()")
            if value.numel() != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return value.item()
        return self.asnumpy().item(*args)

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self._value("tolist()").tolist()

    def _scalar(self, what: str) -> Any:
        value = self._value(what)
        if value.numel() != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return value.item()

    def __bool__(self) -> bool:
        value = self._value("bool()")
        if value.numel() == 0:
            return False
        if value.numel() == 1:
            return bool(value.item())
        article = "an ndarray" if self._kind == "np" else "an NDArray"
        raise ValueError(f"The truth value of {article} with multiple elements is ambiguous.")

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __index__(self) -> int:
        value = self._scalar("index")
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        host = self.asnumpy()
        return host if dtype is None else host.astype(dtype)

    def __dlpack__(self, **keywords: Any) -> Any:
        return mark_shared(self._value("__dlpack__")).__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self._value("__dlpack_device__").__dlpack_device__()

    def to_dlpack_for_read(self) -> Any:
        """A DLPack capsule that shares memory."""
        return self.__dlpack__()

    to_dlpack_for_write = to_dlpack_for_read

    def to_torch(self) -> torch.Tensor:
        """The torch tensor that holds the values; memory is shared."""
        return self._value("to_torch()")

    def __reduce__(self) -> Any:
        return _restore, (type(self) is kinds.np, self._value("pickling"), self._ctx, self._request)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        result = type(self)._wrap(self._value("deepcopy").clone(), self._ctx)
        memory[id(self)] = result
        if self._grad is not None:
            result.attach_grad(self._request)
        return result

    def wait_to_read(self) -> None:
        """Wait until the value is there (operators run at once on a CPU)."""
        if self._t is not None and self._t.device.type == "cuda":
            torch.cuda.synchronize(self._t.device)

    wait_to_write = wait_to_read

    # Copies ----------------------------------------------------------------------

    def copy(self, order: str = "C") -> Any:
        """A copy on the same device."""
        del order
        return invoke(get("_copy"), (self,), {})

    def copyto(self, other: Any) -> Any:
        """Copy into an array (converting the type) or onto a context.

        Raises
        ------
        MXNetError
            If the shapes differ.
        TypeError
            If ``other`` is neither an array nor a context.
        """
        if isinstance(other, NDArray):
            if other is self:
                import warnings

                warnings.warn("You are attempting to copy an array to itself", RuntimeWarning, stacklevel=2)
                return False
            if self._spec_shape() != other._spec_shape():
                raise MXNetError(
                    f"copyto expects arrays of one shape; received {self.shape} to {other.shape}"
                )
            other[...] = self
            return other
        if not isinstance(other, Context):
            raise TypeError(f"copyto does not support type {type(other)}")
        result = self.copy()
        if result._t is not None:
            if result._t.device != other.torch:
                result._t = result._t.to(other.torch)
            result._ctx = other
        return result

    def as_in_context(self, context: Any) -> Any:
        """This array if it is on the context, else a copy there."""
        context = device(context)
        return self if self.context == context or self._s is not None else self.copyto(context)

    as_in_ctx = as_in_context
    to_device = as_in_context

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """The array converted to ``dtype``; itself when nothing changes and ``copy`` is False."""
        wanted = dtypes.to_torch(dtype)
        if not copy and wanted is self._torch_dtype():
            return self
        return invoke(get("Cast"), (self,), {"dtype": wanted})

    def as_np_ndarray(self) -> Any:
        """The same array as an np.ndarray."""
        return self._as(kinds.np)

    def as_nd_ndarray(self) -> Any:
        """The same array as an NDArray."""
        return self._as(kinds.nd)

    def _as(self, cls: Any) -> Any:
        if issubclass(cls, kinds.sparse):
            cls = kinds.nd
        if type(self) is cls:
            return self
        result = cls.__new__(cls)
        result.__dict__.update(self.__dict__)
        return result

    def tostype(self, stype: str) -> Any:
        """The array in another storage type: ``"csr"``, ``"row_sparse"`` or, itself, ``"default"``."""
        from .sparse import cast_storage

        return cast_storage(self, stype)

    # Gradients ----------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The gradient buffer, or None; in the storage type that attach_grad was asked for."""
        if self._grad is None:
            return None
        gradient = type(self)._wrap(self._grad._t, self._ctx)
        if self._grad_stype == "default":
            return gradient
        from .sparse import shown_as

        return shown_as(gradient, self._grad_stype)

    _grad_stype = "default"

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Give the array a gradient buffer of zeros; backward then writes, or adds, its gradient there.

        An array that was the result of a recorded operator starts a graph of its own. With ``stype``
        "row_sparse" or "csr", ``grad`` gives the gradient in that storage type.
        """
        self._grad_stype = stype or "default"
        if grad_req == "null":
            autograd.mark(self, None, "null")
            return
        gradient = type(self)._wrap(torch.zeros_like(self._value("attach_grad()")), self._ctx)
        autograd.mark(self, gradient, grad_req)

    def drop_grad(self) -> None:
        """Take the gradient buffer away."""
        autograd.mark(self, None, "null")

    def zero_grad(self) -> None:
        """Fill the gradient buffer with zeros."""
        if self._grad is not None:
            self._grad._t.zero_()

    def detach(self) -> Any:
        """The same values (memory is shared) outside of any recorded graph."""
        if self._s is not None:
            return invoke(get("BlockGrad"), (self,), {})
        return type(self)._wrap(self._t, self._ctx)

    def backward(self, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Compute the gradients of this array; see `regluon.autograd.backward`."""
        autograd.backward([self], [out_grad], retain_graph, train_mode)

    # Reading and writing ----------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if self._s is not None or state.tracer is not None:
            return self._s_handle().tracer.getitem(self, key, self._kind)
        key = _plain_key(key)
        if state.recording and self._g is not None:
            value = self._g
            if value.dtype is not self._t.dtype:
                value = self._t
            result, shared = indexing.getitem_torch(value, key, self._kind)
            plain = indexing.getitem_torch(self._t, key, self._kind)[0] if shared else result.detach()
            array = type(self)._wrap(plain, self._ctx)
            if result.requires_grad:
                array._g = result
                note_index(self, key, array)
                if shared:
                    array._viewed = (self, key)
            return array
        value, shared = indexing.getitem_torch(self._t, key, self._kind)
        array = type(self)._wrap(value, self._ctx)
        if shared and state.recording:
            array._viewed = (self, key)
        return array

    _viewed: Any = None

    def _s_handle(self) -> Any:
        if self._s is None:
            return state.tracer.lift(self)
        return self._s

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._s is not None or state.tracer is not None:
            (self._s.tracer if self._s is not None else state.tracer).setitem(self, key, value, self._kind)
            return
        if isinstance(value, NDArray):
            recorded = state.recording and value._g is not None
            if recorded or (state.recording and self._g is not None):
                self._recorded_write(key, value)
                return
            value = value._t
        elif state.recording and self._g is not None:
            self._recorded_write(key, value)
            return
        indexing.setitem_torch(self._t, _plain_key(key), value, self._kind)

    def _recorded_write(self, key: Any, value: Any) -> None:
        """Write while recording: the array becomes the result of an operator, unless it is a leaf."""
        if self._grad is not None or config.strict():
            raise MXNetError(_IN_PLACE_TEXT)
        source = self._g if self._g is not None else self._t
        fresh = source.clone()
        if isinstance(value, NDArray):
            value = value._g if value._g is not None else value._t
        plain = _plain_key(key)
        indexing.setitem_torch(fresh, plain, value, self._kind)
        self._rebind(fresh)

    def _rebind(self, handle: torch.Tensor) -> None:
        """Take a new recorded value; a view writes it into the array it is a view of."""
        if self._viewed is not None:
            base, key = self._viewed
            carrier = type(self)._wrap(handle.detach(), self._ctx)
            carrier._g = handle if handle.requires_grad else None
            base[key] = carrier
        self._g = handle if handle.requires_grad else None
        self._t = handle.detach()
        self._step = None
        rebound.tick()

    def _assign_result(self, value: Any, inplace: bool = False) -> None:
        """Take the values of an operator's result: ``out=`` and the in-place operators."""
        if self._s is not None or value._s is not None:
            self._s_handle().tracer.assign(self, value)
            return
        if tuple(value._t.shape) != tuple(self._t.shape):
            raise MXNetError(
                f"a result of shape {value.shape} cannot be written into an array of shape {self.shape}"
            )
        if inplace and value._t.dtype is not self._t.dtype and self._kind == "np":
            raise MXNetError(
                f"an in-place operation cannot change the type of the array from "
                f"{dtypes.to_name(self._t.dtype)} to "
                f"{dtypes.to_name(value._t.dtype)}; write y = y + x, or convert one with astype"
            )
        if state.recording and (value._g is not None or self._g is not None):
            if inplace and (self._grad is not None or config.strict()):
                raise MXNetError(_IN_PLACE_TEXT)
            if self._grad is None and value._g is not None and value._t.dtype is self._t.dtype:
                self._rebind(value._g)
                self._step = value._step
                return
        self._t.copy_(value._t)

    # Shapes ----------------------------------------------------------------------

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        """The array in another shape; codes 0, -1, -2, -3 and -4 as in the Reshape operator."""
        if "shape" in keywords:
            shape = (keywords.pop("shape"),)
        reverse = keywords.pop("reverse", False)
        keywords.pop("order", None)
        if keywords:
            raise TypeError(f"reshape got unexpected keyword argument(s) {', '.join(keywords)}")
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        attrs: dict[str, Any] = {"shape": tuple(target)}
        if reverse:
            attrs["reverse"] = True
        now = not state.recording and state.tracer is None
        if now and self._t is not None and self._t.is_contiguous():
            # This method shares memory, as in the originals; the operator of that name does not.
            sizes = shaping.legacy_reshape(self._t.shape, attrs["shape"], reverse)
            return type(self)._wrap(self._t.view(sizes), self._ctx)
        return invoke(get("Reshape"), (self,), attrs)

    def reshape_like(self, other: Any, *args: Any, **keywords: Any) -> Any:
        """The array in the shape of another."""
        return invoke(get("reshape_like"), (self, other), keywords)

    def transpose(self, *axes: Any, **keywords: Any) -> Any:
        """The array with its axes permuted; in reverse order by default."""
        if "axes" in keywords:
            axes = (keywords.pop("axes"),)
        chosen = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        if len(axes) == 1 and axes[0] is None:
            chosen = ()
        return invoke(get("transpose"), (self,), {"axes": tuple(chosen)} if chosen else {})

    def broadcast_to(self, *shape: Any, **keywords: Any) -> Any:
        """The array repeated along axes of size 1 up to ``shape``."""
        target = keywords.get(
            "shape", shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        )
        return invoke(get("broadcast_to"), (self,), {"shape": tuple(target)})


class ndarray(NDArray):
    """An array of the NumPy kind: 0-dimensional and zero-size arrays, NumPy's types and broadcasting."""

    _kind = "np"

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the elements."""
        kind = dtypes.to_numpy(self._torch_dtype())
        return kind if isinstance(kind, torch.dtype) else numpy.dtype(kind)

    @property
    def mT(self) -> Any:
        """The array with its last two axes swapped."""
        return invoke(get("SwapAxis"), (self,), {"dim1": -1, "dim2": -2})

    def __hash__(self) -> int:
        return id(self) >> 4

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        """The array in another shape; one size may be -1."""
        if "newshape" in keywords:
            shape = (keywords.pop("newshape"),)
        if "shape" in keywords:
            shape = (keywords.pop("shape"),)
        order = keywords.pop("order", "C")
        reverse = keywords.pop("reverse", False)
        if keywords:
            raise TypeError(f"reshape got unexpected keyword argument(s) {', '.join(keywords)}")
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        attrs: dict[str, Any] = {"newshape": tuple(target)}
        if order != "C":
            attrs["order"] = order
        if reverse:
            attrs["reverse"] = True
        return invoke(get("_npx_reshape"), (self,), attrs)

    def reshape_view(self, *shape: Any, **keywords: Any) -> Any:
        """The array in another shape, sharing memory."""
        return NDArray.reshape(self, *shape, **keywords)

    def transpose(self, *axes: Any) -> Any:
        """The array with its axes permuted; in reverse order by default."""
        chosen = (
            axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        )
        return invoke(get("_npi_transpose"), (self,), {"axes": tuple(chosen)} if chosen else {})

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .. import numpy as module
        from .dispatch import array_function

        return array_function(module, function, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .. import numpy as module
        from .dispatch import array_ufunc

        return array_ufunc(module, ufunc, method, inputs, kwargs)


def _plain_key(key: Any) -> Any:
    """The key with arrays replaced by tensors."""
    if isinstance(key, tuple):
        return tuple(_plain_key(item) for item in key)
    if isinstance(key, NDArray):
        return key._value("indexing with it")
    return key


def _restore(np_kind: bool, tensor: torch.Tensor, context: Context | None, request: str) -> Any:
    result = (ndarray if np_kind else NDArray)._wrap(tensor, context)
    if request != "null":
        result.attach_grad(request)
    return result


def from_torch(tensor: torch.Tensor, np_kind: bool | None = None) -> Any:
    """An array that shares memory with a torch tensor, outside of any graph.

    Parameters
    ----------
    tensor : torch.Tensor
        Any tensor of a supported type.
    np_kind : bool, optional
        Whether to make an np.ndarray; by default when NumPy arrays are on (``npx.set_np()``).
    """
    dtypes.to_name(tensor.dtype)
    cls = ndarray if (config.is_np_array() if np_kind is None else np_kind) else NDArray
    return cls._wrap(tensor.detach())


def waitall() -> None:
    """Wait for all running work (on a CPU there is none)."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


arithmetic.install(NDArray)
kinds.nd, kinds.np = NDArray, ndarray
