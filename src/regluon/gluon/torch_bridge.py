"""Blocks as torch modules (``block.to_torch()``) and torch modules as blocks (``gluon.from_torch(module)``).

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
from ..ops.opdef import OpDef
from ..runtime import autograd
from ..runtime.invoke import invoke
from ..runtime.state import state
from ..runtime.tracer import GraphBreak
from .epoch import clock
from .hybrid import HybridBlock
from .parameter import Parameter
from .structure import flatten, regroup

__all__ = ["BlockModule", "TorchBlock", "from_torch", "to_torch"]

_RTOL, _ATOL = 1e-4, 1e-5
_swapping = threading.RLock()


# Values at the border ----------------------------------------------------------------------


def _to_array(tensor: Tensor, kind: Any) -> Any:
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


def _mapped(value: Any, change: Any) -> Any:
    """``value`` with ``change`` applied to everything in its lists, tuples and dicts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return change(value)


def _as_tensor_input(value: Any) -> Any:
    if isinstance(value, NDArray):
        return value._t
    return dtypes.from_numpy(value) if isinstance(value, numpy.ndarray) else value


def _tensors_in(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _mapped(value, lambda item: found.append(item) if isinstance(item, Tensor) else None)
    return found


def _random_like(value: Any, generator: torch.Generator) -> Any:
    """Standard normal values for floats; integers (indices, lengths) as they are, which are surely valid."""
    if not isinstance(value, Tensor):
        return value
    if not value.is_floating_point():
        return value.detach().clone()
    made = torch.randn(value.shape, generator=generator, dtype=torch.float32)
    return made.to(device=value.device, dtype=value.dtype)


@contextmanager
def _same_draws() -> Iterator[Any]:
    """Two computations in this scope see the same random draws: call the value between them."""
    start = rng.state()[1]
    yield lambda: rng.rewind(start)
    rng.rewind(start)


def _compare(what: str, ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Raise, with the largest difference, if two results disagree."""
    left, right = _tensors_in(ours), _tensors_in(theirs)
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
    gradients stand in ``.grad`` and, copied, in the block's own buffers, so that a Gluon ``Trainer`` can step.
    Moving statistics change in backward, as everywhere in Gluon.
    """

    def __init__(self, block: Any, kind: Any, memory: dict[int, Any]) -> None:
        super().__init__()
        memory[id(block)] = self
        self.__dict__["_block"] = block
        self.__dict__["_kind"] = kind
        self.__dict__["_unchecked"] = None
        children = block._children
        for name, parameter in block._collect_with_prefix().items():
            if name.split(".", 1)[0] not in children:
                tensor = memory.get(id(parameter))
                if tensor is None:
                    tensor = memory[id(parameter)] = _shared_tensor(parameter)
                slot = self._parameters if isinstance(tensor, torch.nn.Parameter) else self._buffers
                slot[name] = tensor
        for name, child in children.items():
            if id(child) not in memory:
                wrapped = isinstance(child, TorchBlock)
                memory[id(child)] = child.module if wrapped else BlockModule(child, kind, memory)
            self._modules[name] = memory[id(child)]

    @property
    def block(self) -> Any:
        """The block that computes."""
        return self._block

    def _places(self) -> list[_Place]:
        places = self.__dict__.get("_known_places")
        if places is None:
            places = []
            for module in self.modules():
                if isinstance(module, BlockModule):
                    own = module._block._collect_with_prefix()
                    for slot in (module._parameters, module._buffers):
                        places += [_Place(slot, name, own[name], slot[name]) for name in slot]
            self.__dict__["_known_places"] = places
        return places

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block on tensors (nested in lists, tuples and dicts as the block takes them)."""
        if self._unchecked is not None:
            rtol, atol = self._unchecked
            self.__dict__["_unchecked"] = None
            _check_module(self, args, kwargs, rtol, atol)
        return self._run(args, kwargs)

    def _run(self, args: Any, kwargs: Any, record: bool = True) -> Any:
        kind = self._kind or (np_ndarray if config.is_np_array() else NDArray)

        def convert(value: Any) -> Any:
            return _to_array(value, kind) if isinstance(value, Tensor) else value

        with _linked(self._places()), autograd._Scope(record and torch.is_grad_enabled(), self.training):
            out = self._block(*_mapped(args, convert), **_mapped(kwargs, convert))
        return _mapped(out, lambda value: _to_tensor(value) if isinstance(value, NDArray) else value)

    def extra_repr(self) -> str:
        """What torch prints in the parentheses: the block's class, and the layer's own description."""
        text = repr(self._block)
        return type(self._block).__name__ if self._block._children or "\n" in text else text

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """``to``, ``half``, ``cuda`` and the like: the block follows."""
        result = super()._apply(fn, recurse)
        for place in self._places():
            tensor = place.slot[place.own]
            place.tensor = tensor
            _follow(place.parameter, tensor)
        return result

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        twin = to_torch(copy.deepcopy(self._block, memory), check=False)
        twin.__dict__["_kind"], twin.__dict__["_unchecked"] = self._kind, self._unchecked
        _take_modes(twin, self)
        memory[id(self)] = twin
        return twin

    def __reduce__(self) -> Any:
        return _rebuilt, (self._block, self.training)


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
    shared = torch.nn.Parameter(value, requires_grad=parameter.grad_req != "null")
    shared.register_post_accumulate_grad_hook(lambda tensor: _mirror_gradient(parameter, tensor))
    return shared


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
        if array._g is tensor and array._t.data_ptr() == tensor.data_ptr():
            continue
        if tensor is place.tensor:
            if array._t.data_ptr() != tensor.data_ptr() or array._t.dtype is not tensor.dtype:
                # The block's side was changed (cast, initialized again): the module follows.
                tensor.data = array._t
            if not tensor.requires_grad and array._g is None:
                continue
            if tensor.requires_grad and array._grad is not None:
                _link(array, tensor)
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
        try:
            yield
        finally:
            for array, value, handle in before:
                array._t, array._g = value, handle


class _Reference(weakref.ref[Any]):
    """A weak reference that is left behind when its holder is pickled."""

    def __reduce__(self) -> Any:
        return type(None), ()


def _link(array: Any, tensor: Tensor) -> None:
    """Make a torch parameter the leaf that an array's gradient is computed for."""
    tensor._regluon_array = _Reference(array)  # type: ignore[attr-defined]
    array._g = tensor


def _follow(parameter: Parameter, tensor: Tensor) -> None:
    """Make a parameter use the memory, type and device of a torch tensor."""
    assert parameter._data is not None
    array = parameter._data[0]
    if array._t.data_ptr() == tensor.data_ptr() and array._t.dtype is tensor.dtype:
        return
    array._t = tensor.detach()
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
    block: Any, *inputs: Any, check: bool = True, rtol: float = _RTOL, atol: float = _ATOL
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
    if isinstance(block, TorchBlock):
        return block.module  # type: ignore[return-value]
    kind, examples = _examples(block, inputs)
    if any(parameter._data is None for parameter in block._collect_with_prefix().values()) and inputs:
        with autograd._Scope(False, False):
            block(*_mapped(examples, lambda v: _to_array(v, kind) if isinstance(v, Tensor) else v))
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
        _mapped(inputs, lambda value: flat.append(value) if isinstance(value, NDArray) else None)
        return (type(flat[0]) if flat else None) or _default_kind(), _mapped(inputs, _as_tensor_input)
    signature = block.__dict__.get("_last_signature")
    if signature is None or not signature[1]:
        return None, None
    structure, specs = signature
    arrays = [spec.zeros() for spec in specs]
    return specs[0].cls, _mapped(regroup(structure, iter(arrays)), _as_tensor_input)


def _default_kind() -> Any:
    return np_ndarray if config.is_np_array() else NDArray


def _check_module(module: BlockModule, args: Any, kwargs: Any, rtol: float, atol: float) -> None:
    generator = torch.Generator().manual_seed(0)

    def randomize(value: Any) -> Any:
        return _random_like(value, generator)

    args, kwargs = _mapped(args, randomize), _mapped(kwargs, randomize)
    kind = module._kind or _default_kind()

    def to_array(value: Any) -> Any:
        return _to_array(value, kind) if isinstance(value, Tensor) else value

    modes = [part.training for part in module.modules()]
    module.eval()
    try:
        with _same_draws() as again:
            with autograd._Scope(False, False), torch.no_grad():
                expected = module._block(*_mapped(args, to_array), **_mapped(kwargs, to_array))
            again()
            with torch.enable_grad():
                received = module._run(args, kwargs)
    finally:
        for part, mode in zip(module.modules(), modes, strict=True):
            part.training = mode
    expected = _mapped(expected, lambda value: value._t if isinstance(value, NDArray) else value)
    what = f"to_torch of {type(module._block).__name__}"
    _compare(what, _mapped(received, _detached), expected, rtol, atol)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


# Modules as blocks ----------------------------------------------------------------------


class TorchParameter(Parameter):
    """A parameter on the memory of a torch module's parameter or buffer."""

    _owner: Tensor

    @classmethod
    def of(cls, name: str, tensor: Tensor, trainable: bool) -> TorchParameter:
        """The parameter for ``tensor``."""
        result = cls(
            name,
            grad_req="write" if trainable and tensor.requires_grad else "null",
            shape=tuple(tensor.shape),
            dtype=dtypes.to_numpy(tensor.dtype),
            differentiable=trainable and tensor.is_floating_point(),
        )
        result._owner = tensor
        context = as_context(tensor.device)
        result._contexts = [context]
        result._data = [_default_kind()._wrap(tensor.detach(), context)]
        result._attach_gradients()
        return result

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        *,
        device: Any = None,
    ) -> None:
        """Keep the module's values, unless ``force_reinit``."""
        if force_reinit:
            super().initialize(init, ctx, default_init, True, device=device)
            self._push()

    def cast(self, dtype: Any) -> None:
        """Change the element type here and in the module."""
        super().cast(dtype)
        self._push()

    def reset_ctx(self, ctx: Any = None, *, device: Any = None) -> None:
        """Move the parameter, and the module's, to another context."""
        super().reset_ctx(ctx, device=device)
        self._push()

    def _push(self) -> None:
        """The module takes this parameter's memory."""
        owner = self.__dict__.get("_owner")
        if owner is not None and self._data is not None:
            owner.data = self._data[0]._t


class TorchBreak(GraphBreak, MXNetError):
    """A torch module cannot become part of a recorded graph."""


class TorchBlock(HybridBlock):
    """A ``torch.nn.Module`` as a Gluon block; made by ``gluon.from_torch``.

    It may be a child of any block. A hybridized parent runs op by op, because a module's computation cannot
    be recorded as operators; hybridized siblings stay compiled. Random operators of the module draw from
    ``mx.random.seed``'s sequence in train mode.
    """

    def __init__(self, module: torch.nn.Module, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        attributes = self.__dict__
        attributes["module"] = module
        attributes["_unchecked"] = None
        known: dict[int, Parameter] = {}
        entries: list[tuple[str, Tensor, bool]] = [
            (name, tensor, True) for name, tensor in module.named_parameters(remove_duplicate=False)
        ]
        entries += [(name, tensor, False) for name, tensor in module.named_buffers(remove_duplicate=False)]
        for path, tensor, trainable in entries:
            parameter = known.get(id(tensor))
            if parameter is None:
                name = path.replace(".", "_") if self._level == 1 else path.rsplit(".", 1)[-1]
                parameter = known[id(tensor)] = TorchParameter.of(name, tensor, trainable)
            self._register_parameter(path, parameter)
        attributes["_ready"] = len(self._reg_params)

    def __repr__(self) -> str:
        return "TorchBlock(\n  " + repr(self.module).replace("\n", "\n  ") + "\n)"

    def hybridize(self, active: bool = True, *args: Any, **kwargs: Any) -> None:
        """Accepted for the sake of parents; a module always runs as torch runs it."""
        super().hybridize(False, *args, **kwargs)

    def forward(self, *args: Any) -> Any:
        """Run the module on arrays; its mode is that of ``autograd.record()`` or ``train_mode()``."""
        if state.tracer is not None:
            raise TorchBreak(
                f"{self.name} wraps the torch module {type(self.module).__name__}, which cannot be recorded "
                "as operators. It runs inside hybridized blocks (op by op), but cannot be exported or "
                "composed into a Symbol"
            )
        if self._unchecked is not None:
            rtol, atol = self._unchecked
            self.__dict__["_unchecked"] = None
            _check_block(self, _mapped(args, _as_tensor_input), rtol, atol)
        flat: list[Any] = []
        call = _ModuleCall(self.module, flatten(args, flat), len(flat))
        values = [self._synchronized(path, parameter) for path, parameter in self._reg_params.items()]
        out = invoke(call.operator, [*flat, *values], {}, cls=type(flat[0]) if flat else None)
        return regroup(call.out_structure, iter(out if isinstance(out, list) else [out]))

    def _synchronized(self, path: str, parameter: Parameter) -> Any:
        """The parameter's array, whose gradient leaf is the module's own tensor."""
        owner, name = self.module, path
        while "." in name:
            head, name = name.split(".", 1)
            owner = owner._modules[head]  # type: ignore[assignment]
        tensor = owner._parameters.get(name)
        if tensor is None:
            tensor = owner._buffers[name]
        assert tensor is not None
        if isinstance(parameter, TorchParameter):
            parameter._owner = tensor
        # The module may have been moved or cast, or its parameters frozen.
        _follow(parameter, tensor)
        if not tensor.requires_grad:
            parameter.grad_req = "null"
        array = parameter.data()
        if array._grad is not None and array._g is not tensor:
            _link(array, tensor)
        return array

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        twin = _copied_block(copy.deepcopy(self.module, memory), self._requests())
        memory[id(self)] = twin
        return twin

    def __reduce__(self) -> Any:
        return _copied_block, (self.module, self._requests())

    def _requests(self) -> dict[str, str]:
        return {path: parameter.grad_req for path, parameter in self._reg_params.items()}


def _copied_block(module: torch.nn.Module, requests: dict[str, str]) -> TorchBlock:
    block = TorchBlock(module)
    for path, request in requests.items():
        block._reg_params[path].grad_req = request
    return block


class _ModuleCall:
    """One call of a module as an operator on the input tensors, followed by the parameters (for the graph)."""

    def __init__(self, module: torch.nn.Module, structure: Any, count: int) -> None:
        self.module, self.structure, self.count = module, structure, count
        self.out_structure: Any = None
        self.operator = OpDef(f"_TorchModule_{type(module).__name__}", self._function(), {})

    def _function(self) -> Any:
        def torch_module(*data: Tensor, _training: bool = False, _rng: Any = None) -> Any:
            arguments = regroup(self.structure, iter(data[: self.count]))
            tracked = any(tensor.requires_grad for tensor in data)
            seeded = _seeded(_rng if _training else None, data)
            with _mode(self.module, _training), seeded, torch.set_grad_enabled(tracked):
                out = self.module(*arguments)
            tensors = _tensors_in(out)
            self.out_structure = flatten(
                _mapped(out, lambda value: NDArray._wrap(value) if isinstance(value, Tensor) else value), []
            )
            self.operator.outputs = len(tensors)
            return tuple(tensors)

        return torch_module


_modes = threading.RLock()


@contextmanager
def _mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put the module into this mode for one call; the lock keeps threads of other modes out meanwhile.

    A module that is in the mode already is left alone, so that submodules frozen with ``eval()`` stay so.
    """
    with _modes:
        if module.training is training:
            yield
            return
        parts = [(part, part.training) for part in module.modules()]
        module.train(training)
        try:
            yield
        finally:
            for part, mode in parts:
                part.training = mode


@contextmanager
def _seeded(generator: Any, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Random operators inside draw from this generator's seed."""
    if generator is None:
        yield
        return
    devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(generator.initial_seed())
        yield


def from_torch(
    module: torch.nn.Module, *inputs: Any, check: bool = True, rtol: float = _RTOL, atol: float = _ATOL
) -> TorchBlock:
    """A torch module as a Gluon block that shares its parameters.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters become the block's, with gradients where they require one; its buffers become
        parameters that are not trained. Structural names are torch's (``0.weight``).
    *inputs : arrays or tensors, optional
        Example inputs for the check.
    check : bool
        Compare the block with the module on random inputs shaped like ``inputs``; without them, at the
        first call.
    rtol, atol : float
        Tolerances of the check.

    Raises
    ------
    TypeError
        If ``module`` is no ``torch.nn.Module``.
    MXNetError
        If the forms disagree, with the largest difference.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"from_torch expects a torch.nn.Module; received {type(module).__name__}")
    if isinstance(module, BlockModule):
        return module.block  # type: ignore[no-any-return]
    lazy = [name for name, tensor in module.named_parameters() if torch.nn.parameter.is_lazy(tensor)]
    if lazy:
        raise MXNetError(
            f"from_torch: the parameters {', '.join(lazy)} have no shape yet (lazy modules). Run the module "
            "once before converting it"
        )
    block = TorchBlock(module)
    if check:
        if inputs:
            _check_block(block, _mapped(inputs, _as_tensor_input), rtol, atol)
        else:
            block.__dict__["_unchecked"] = (rtol, atol)
    return block


def _check_block(block: TorchBlock, args: Any, rtol: float, atol: float) -> None:
    generator = torch.Generator().manual_seed(0)
    args = _mapped(args, lambda value: _random_like(value, generator))
    kind = _default_kind()
    with _mode(block.module, False), torch.no_grad(), _seeded(torch.Generator().manual_seed(0), []):
        expected = block.module(*args)
    with _same_draws(), autograd._Scope(False, False), _seeded(torch.Generator().manual_seed(0), []):
        received = block.forward(
            *_mapped(args, lambda value: _to_array(value, kind) if isinstance(value, Tensor) else value)
        )
    received = _mapped(received, lambda value: value._t if isinstance(value, NDArray) else value)
    _compare(f"from_torch of {type(block.module).__name__}", received, expected, rtol, atol)
