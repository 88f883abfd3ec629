"""Blocks as torch modules: ``block.to_torch()``. What both directions need stands here too.

Parameters share their memory in both directions: what one side writes, the other reads. Gradients pass the
border as if it were not there, because both sides use torch's engine.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor

from ..array import NDArray
from ..array import ndarray as np_ndarray
from ..base import config, dtypes, rng
from ..base.device import device as as_context
from ..base.errors import MXNetError
from ..base.rebinding import rebound
from ..runtime import autograd
from .epoch import clock
from .parameter import Parameter
from .structure import regroup

__all__ = ["BlockModule", "to_torch"]

RTOL, ATOL = 1e-4, 1e-5
_swapping = threading.RLock()


# Values at the border ----------------------------------------------------------------------


def to_array(tensor: Tensor, kind: Any) -> Any:
    array = kind._wrap(tensor.detach())
    if tensor.requires_grad and torch.is_grad_enabled():
        array._g = tensor
    return array


def _to_tensor(array: Any) -> Tensor:
    handle: Tensor | None = array._g
    if handle is not None and handle.dtype is array._t.dtype and torch.is_grad_enabled():
        return handle
    result: Tensor = array._t
    return result


def mapped(value: Any, change: Any) -> Any:
    """``value`` with ``change`` applied to everything in its lists, tuples and dicts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


def as_tensor(value: Any) -> Any:
    if isinstance(value, NDArray):
        return value._t
    return dtypes.from_numpy(value) if isinstance(value, numpy.ndarray) else value


def tensors_in(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(value, lambda item: found.append(item) if isinstance(item, Tensor) else None)
    return found


def random_like(value: Any, generator: torch.Generator) -> Any:
    """Standard normal values for floats; integers (indices, lengths) as they are, which are surely valid."""
    if not isinstance(value, Tensor):
        return value
    if not value.is_floating_point():
        return value.detach().clone()
    made = torch.randn(value.shape, generator=generator, dtype=torch.float32)
    return made.to(device=value.device, dtype=value.dtype)


@contextmanager
def same_draws() -> Iterator[Any]:
    """Two computations in this scope see the same random draws: call the value between them."""
    start = rng.state()[1]
    yield lambda: rng.rewind(start)
    rng.rewind(start)


def compare(what: str, ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Raise, with the largest difference, if two results disagree."""
    left, right = tensors_in(ours), tensors_in(theirs)
    if len(left) != len(right):
        raise MXNetError(f"{what}: expected {len(right)} outputs from the new form; received {len(left)}")
    for place, (one, other) in enumerate(zip(left, right, strict=True)):
        if tuple(one.shape) != tuple(other.shape):
            raise MXNetError(
                f"{what}: output {place} has shape {tuple(one.shape)}, expected {tuple(other.shape)}"
            )
        if one.dtype is not other.dtype:
            raise MXNetError(f"{what}: output {place} has type {one.dtype}, expected {other.dtype}")
        if not torch.allclose(one.double(), other.double(), rtol=rtol, atol=atol, equal_nan=True):
            difference = (one.double() - other.double()).abs().max().item()
            raise MXNetError(
                f"{what}: the two forms disagree on random inputs: output {place} differs by up to "
                f"{difference:.3g} (rtol {rtol}, atol {atol}). Compare the block and the module layer by "
                "layer, or pass check=False if the computation is random on purpose"
            )


# Blocks as modules ----------------------------------------------------------------------


class _Place:
    """Where one parameter of a block is kept in the tree of modules."""

    __slots__ = ("own", "parameter", "slot", "tensor")

    def __init__(self, slot: Any, own: str, parameter: Parameter, tensor: Tensor) -> None:
        self.slot, self.own, self.parameter, self.tensor = slot, own, parameter, tensor


class BlockModule(torch.nn.Module):
    """A Gluon block as a ``torch.nn.Module``; made by ``block.to_torch()``.

    Submodules mirror the children of the block, and ``state_dict()`` has the structural names. Trainable
    parameters are ``torch.nn.Parameter``s on the block's memory; moving statistics and constants are buffers.
    ``train()`` and ``eval()`` choose the block's train and predict mode. After torch's ``backward`` the
    gradients stand in ``.grad`` and, copied, in the block's own buffers, so that a Gluon ``Trainer`` can
    step. Moving statistics change in backward, as everywhere in Gluon. The mode is that of the module that is
    called; modes of its submodules have no effect on it.
    """

    _block: Any
    _kind: Any
    _places: list[_Place]
    _unchecked: tuple[float, float] | None

    def __init__(self, block: Any, kind: Any, memory: dict[int, Any]) -> None:
        super().__init__()
        memory[id(block)] = self
        # Plainly set: torch would look for modules and tensors in them.
        self.__dict__.update(_block=block, _kind=kind, _unchecked=None)
        children = block._children
        for name, parameter in block._collect_with_prefix().items():
            if name.split(".", 1)[0] not in children:
                tensor = memory.get(id(parameter))
                if tensor is None:
                    tensor = memory[id(parameter)] = _shared_tensor(parameter)
                slot: Any = self._parameters if isinstance(tensor, torch.nn.Parameter) else self._buffers
                slot[name] = tensor
        for name, child in children.items():
            if id(child) not in memory:
                wrapped = getattr(child, "_torch_module", None)
                memory[id(child)] = BlockModule(child, kind, memory) if wrapped is None else wrapped
            self._modules[name] = memory[id(child)]
        self.__dict__["_places"] = self._find_places()

    @property
    def block(self) -> Any:
        """The block that computes."""
        return self._block

    def _find_places(self) -> list[_Place]:
        """Every parameter in the tree below, found once: a later replacement is noticed by its identity."""
        places = []
        for module in self.modules():
            if isinstance(module, BlockModule):
                own = module._block._collect_with_prefix()
                slots: tuple[Any, ...] = (module._parameters, module._buffers)
                for slot in slots:
                    places += [_Place(slot, name, own[name], slot[name]) for name in slot]
        return places

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block on tensors (nested in lists, tuples and dicts as the block takes them)."""
        if self._unchecked is not None and _have_values(args, kwargs):
            rtol, atol = self._unchecked
            self.__dict__["_unchecked"] = None
            _check_module(self, args, kwargs, rtol, atol)
        return self._run(args, kwargs)

    def _run(self, args: Any, kwargs: Any) -> Any:
        kind = self._kind or default_kind()

        def convert(value: Any) -> Any:
            return to_array(value, kind) if isinstance(value, Tensor) else value

        with _linked(self._places), autograd._Scope(torch.is_grad_enabled(), self.training):
            out = self._block(*mapped(args, convert), **mapped(kwargs, convert))
        return mapped(out, lambda value: _to_tensor(value) if isinstance(value, NDArray) else value)

    def extra_repr(self) -> str:
        """What torch prints in the parentheses: the block's class, and the layer's own description."""
        text = repr(self._block)
        return type(self._block).__name__ if self._block._children or "\n" in text else text

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """``to``, ``half``, ``cuda`` and the like: the block follows."""
        result = super()._apply(fn, recurse)
        for place in self._places:
            tensor = place.slot[place.own]
            place.tensor = tensor
            follow(place.parameter, tensor)
        return result

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        twin = to_torch(copy.deepcopy(self._block, memory), check=False)
        twin.__dict__["_kind"], twin.__dict__["_unchecked"] = self._kind, self._unchecked
        _take_modes(twin, self)
        memory[id(self)] = twin
        return twin

    def __reduce__(self) -> Any:
        return _rebuilt, (self._block, self.training)


def _have_values(*inputs: Any) -> bool:
    """Whether the tensors are real: torch.export and torch.compile trace with others."""
    return all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors_in(inputs))


def _rebuilt(block: Any, training: bool) -> BlockModule:
    return to_torch(block, check=False).train(training)


def _take_modes(twin: torch.nn.Module, source: torch.nn.Module) -> None:
    """The train mode of every module, and which parameters are frozen."""
    for one, other in zip(twin.modules(), source.modules(), strict=True):
        one.training = other.training
    for mine, its in zip(twin.parameters(), source.parameters(), strict=True):
        mine.requires_grad_(its.requires_grad)


def _shared_tensor(parameter: Parameter) -> Tensor:
    """A torch parameter (or, for what is never trained, a plain tensor) on a parameter's memory."""
    arrays = parameter.list_data()
    if len(arrays) > 1:
        raise MXNetError(
            f"Parameter {parameter._label} is on the contexts {parameter.list_ctx()}; a torch module has one "
            "copy of each parameter. Call block.reset_ctx(mx.cpu()) first."
        )
    value = arrays[0]._t
    if not parameter._differentiable or not value.is_floating_point():
        tensor: Tensor = value.detach()
        return tensor
    shared = torch.nn.Parameter(value)
    # torch's hooks are out of sight of the garbage collector: one that held the parameter, which holds the
    # tensor, would keep both for good.
    reference = weakref.ref(parameter)

    def mirror(tensor: Tensor) -> None:
        owner = reference()
        if owner is not None:
            _mirror_gradient(owner, tensor)

    shared.register_post_accumulate_grad_hook(mirror)
    return shared.requires_grad_(parameter.grad_req != "null")


def _mirror_gradient(parameter: Parameter, tensor: Tensor) -> None:
    """torch's backward wrote ``tensor.grad``: the block's buffer gets the same values."""
    if parameter._grad is None or parameter._data is None or tensor.grad is None:
        return
    buffer = parameter._grad[0]._t
    if buffer.shape == tensor.grad.shape:
        with torch.no_grad():
            buffer.copy_(tensor.grad)
        parameter._data[0]._fresh_grad = True


@contextmanager
def _linked(places: Sequence[_Place]) -> Iterator[None]:
    """A scope in which the block's arrays have the module's tensors as their gradient handles."""
    strange: list[tuple[Any, Tensor]] = []
    for place in places:
        array, tensor = place.parameter.list_data()[0], place.slot[place.own]
        if tensor is place.tensor:
            if array._t.data_ptr() != tensor.data_ptr() or array._t.dtype is not tensor.dtype:
                # The block's side was changed (cast, initialized again): the module follows.
                tensor.data = array._t
            if array._g is tensor or (not tensor.requires_grad and array._g is None):
                continue
            if tensor.requires_grad and array._grad is not None:
                link(array, tensor)
                continue
        strange.append((array, tensor))
    if not strange:
        yield
        return
    # Frozen on one side only, or replaced for this call (torch.func.functional_call).
    with _swapping:
        before = [(array, array._t, array._g) for array, _ in strange]
        for array, tensor in strange:
            array._t, array._g = tensor.detach(), tensor if tensor.requires_grad else None
        rebound.tick()
        try:
            yield
        finally:
            for array, value, handle in before:
                array._t, array._g = value, handle
            rebound.tick()


class _Reference(weakref.ref[Any]):
    """A weak reference that is left behind when its holder is pickled."""

    def __reduce__(self) -> Any:
        return type(None), ()


def link(array: Any, tensor: Tensor) -> None:
    """Make a torch parameter the leaf that an array's gradient is computed for."""
    tensor._regluon_array = _Reference(array)  # type: ignore[attr-defined]
    array._g = tensor


def follow(parameter: Parameter, tensor: Tensor) -> None:
    """Make a parameter use the memory, type and device of a torch tensor."""
    assert parameter._data is not None
    array = parameter._data[0]
    if array._t.data_ptr() == tensor.data_ptr() and array._t.dtype is tensor.dtype:
        return
    array._t = tensor.detach()
    rebound.tick()
    context = as_context(tensor.device)
    if array.context.torch != tensor.device:
        array._ctx = context
        parameter._contexts = [context]
    parameter._dtype = dtypes.to_numpy(tensor.dtype)
    parameter._shape = tuple(tensor.shape)
    parameter._var = None
    parameter._attach_gradients()
    clock.tick()


def to_torch(
    block: Any, *inputs: Any, check: bool = True, rtol: float = RTOL, atol: float = ATOL
) -> BlockModule:
    """The block as a ``torch.nn.Module`` that shares its parameters.

    Parameters
    ----------
    block : Block
        Initialized; deferred shapes are completed from ``inputs``.
    *inputs : arrays or tensors, optional
        Example inputs. They decide the kind of array that the block gets (``mx.np`` or ``mx.nd``); without
        them the kind of its last call does.
    check : bool
        Compare the module with the block on random inputs shaped like ``inputs``, or like those of the
        block's last call; where there were none, at the module's first call.
    rtol, atol : float
        Tolerances of the check.

    Raises
    ------
    DeferredInitializationError
        If a parameter has no value yet and ``inputs`` are not given.
    MXNetError
        If the forms disagree, with the largest difference; or if parameters are on several contexts.
    """
    wrapped = getattr(block, "_torch_module", None)
    if wrapped is not None:
        return wrapped  # type: ignore[no-any-return]
    kind, examples = _examples(block, inputs)
    if any(parameter._data is None for parameter in block._collect_with_prefix().values()) and inputs:
        with autograd._Scope(False, False):
            block(*mapped(examples, lambda v: to_array(v, kind) if isinstance(v, Tensor) else v))
    module = BlockModule(block, kind, {})
    if check:
        if examples is None:
            module.__dict__["_unchecked"] = (rtol, atol)
        else:
            _check_module(module, examples, {}, rtol, atol)
    return module


def _examples(block: Any, inputs: Any) -> tuple[Any, Any]:
    """The kind of array the block takes, and example tensors, as far as they are known."""
    if inputs:
        flat: list[Any] = []
        mapped(inputs, lambda value: flat.append(value) if isinstance(value, NDArray) else None)
        return (type(flat[0]) if flat else None) or default_kind(), mapped(inputs, as_tensor)
    signature = block.__dict__.get("_last_signature")
    if signature is None or not signature[1]:
        return None, None
    structure, specs = signature
    arrays = [spec.zeros() for spec in specs]
    return specs[0].cls, mapped(regroup(structure, iter(arrays)), as_tensor)


def default_kind() -> Any:
    return np_ndarray if config.is_np_array() else NDArray


def _check_module(module: BlockModule, args: Any, kwargs: Any, rtol: float, atol: float) -> None:
    generator = torch.Generator().manual_seed(0)

    def randomize(value: Any) -> Any:
        return random_like(value, generator)

    args, kwargs = mapped(args, randomize), mapped(kwargs, randomize)
    kind = module._kind or default_kind()

    def convert(value: Any) -> Any:
        return to_array(value, kind) if isinstance(value, Tensor) else value

    modes = [part.training for part in module.modules()]
    module.eval()
    try:
        with same_draws() as again:
            with autograd._Scope(False, False), torch.no_grad():
                expected = module._block(*mapped(args, convert), **mapped(kwargs, convert))
            again()
            with torch.enable_grad():
                received = module._run(args, kwargs)
    finally:
        for part, mode in zip(module.modules(), modes, strict=True):
            part.training = mode
    expected = mapped(expected, lambda value: value._t if isinstance(value, NDArray) else value)
    what = f"to_torch of {type(module._block).__name__}"
    compare(what, mapped(received, _detached), expected, rtol, atol)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
