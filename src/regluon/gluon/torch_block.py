"""Torch modules as blocks: ``gluon.from_torch(module)``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..array import NDArray
from ..base import dtypes
from ..base.device import device as as_context
from ..base.errors import MXNetError
from ..ops.opdef import OpDef
from ..runtime import autograd
from ..runtime.invoke import invoke
from ..runtime.state import state
from ..runtime.tracer import GraphBreak
from .hybrid import HybridBlock
from .parameter import Parameter
from .structure import flatten, regroup
from .torch_bridge import (
    ATOL,
    RTOL,
    BlockModule,
    as_tensor,
    compare,
    default_kind,
    follow,
    link,
    mapped,
    random_like,
    same_draws,
    tensors_in,
    to_array,
)

__all__ = ["TorchBlock", "from_torch"]


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
        result._data = [default_kind()._wrap(tensor.detach(), context)]
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
        """Keep the module's values, unless ``force_reinit``; those of buffers always."""
        if force_reinit and self._differentiable:
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

    @property
    def _torch_module(self) -> torch.nn.Module:
        return self.module  # type: ignore[no-any-return]

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
            _check_block(self, mapped(args, as_tensor), rtol, atol)
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
        follow(parameter, tensor)
        if not tensor.requires_grad:
            parameter.grad_req = "null"
        array = parameter.data()
        if array._grad is not None and array._g is not tensor:
            link(array, tensor)
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
    """One call of a module as an operator on the input tensors and, for the graph, the parameters."""

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
            tensors = tensors_in(out)
            self.out_structure = flatten(
                mapped(out, lambda value: NDArray._wrap(value) if isinstance(value, Tensor) else value), []
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
    module: torch.nn.Module, *inputs: Any, check: bool = True, rtol: float = RTOL, atol: float = ATOL
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
            _check_block(block, mapped(inputs, as_tensor), rtol, atol)
        else:
            block.__dict__["_unchecked"] = (rtol, atol)
    return block


def _check_block(block: TorchBlock, args: Any, rtol: float, atol: float) -> None:
    generator = torch.Generator().manual_seed(0)
    args = mapped(args, lambda value: random_like(value, generator))
    kind = default_kind()
    with _mode(block.module, False), torch.no_grad(), _seeded(torch.Generator().manual_seed(0), []):
        expected = block.module(*args)
    with same_draws(), autograd._Scope(False, False), _seeded(torch.Generator().manual_seed(0), []):
        received = block.forward(
            *mapped(args, lambda value: to_array(value, kind) if isinstance(value, Tensor) else value)
        )
    received = mapped(received, lambda value: value._t if isinstance(value, NDArray) else value)
    compare(f"from_torch of {type(block.module).__name__}", received, expected, rtol, atol)
