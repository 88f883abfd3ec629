"""The base of all optimizers: learning rates, weight decay, update counts, mixed precision, and their
registry.

Both generations' interfaces work. In 1.x an optimizer defines ``update(index, weight, grad, state)``; in
2.0 it
defines ``step(indices, weights, grads, states)`` over lists, and ``update`` takes lists too. A class of
ours defines
``_apply``, the rule for one weight on tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from regluon.base import config

State = Any

_LOW_PRECISION = (torch.float16, torch.bfloat16)


class Optimizer:
    """Base of all optimizers.

    Parameters
    ----------
    rescale_grad : float
        Factor on every gradient (``Trainer.step`` sets it to 1 / batch size).
    param_idx2name : dict of int to str, optional
        Names of the parameters, for ``set_lr_mult`` and ``set_wd_mult``.
    wd : float
        Weight decay (L2 regularisation).
    clip_gradient : float, optional
        Clip every gradient element to [-clip_gradient, clip_gradient], after rescaling.
    learning_rate : float, optional
        Learning rate (0.01 if neither it nor a scheduler is given). With a scheduler, its base rate.
    lr_scheduler : LRScheduler, optional
        Learning rate as a function of the number of updates.
    sym : Symbol, optional
        Symbol whose ``__lr_mult__`` and ``__wd_mult__`` attributes apply.
    begin_num_update : int
        Number of updates already done.
    multi_precision : bool
        Keep a float32 copy of float16 and bfloat16 weights, and update that.
    param_dict : dict of int to Parameter, optional
        Parameters, whose ``lr_mult`` and ``wd_mult`` apply.
    aggregate_num : int, optional
        How many weights MXNet updates in one call; it does not change results here.
    use_fused_step : bool, optional
        Accepted for compatibility; one step is the same either way.
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: Any = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Mapping[Any, Any] | None = None,
        aggregate_num: int | None = None,
        use_fused_step: bool | None = None,
    ) -> None:
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            raise TypeError(f"param_idx2name must be a dict of int to str; received {param_idx2name!r}.")
        self.rescale_grad = rescale_grad
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and learning_rate is not None:
            if lr_scheduler.base_lr != learning_rate:
                warnings.warn(
                    f"The optimizer's learning rate {learning_rate} replaces the scheduler's base_lr "
                    f"{lr_scheduler.base_lr}. Give learning_rate= to the optimizer to choose.",
                    stacklevel=3,
                )
            lr_scheduler.base_lr = learning_rate
        if lr_scheduler is None and learning_rate is None:
            learning_rate = 0.01
        self.lr = learning_rate
        self.wd = wd
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.aggregate_num = 1 if aggregate_num is None else aggregate_num
        self.use_fused_step = bool(use_fused_step)
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = dict(param_dict or {})
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    # Registry ----------------------------------------------------------------------

    @staticmethod
    def register(klass: type[Optimizer]) -> type[Optimizer]:
        """Class decorator that makes an optimizer known by its lower-case class name."""
        name = klass.__name__.lower()
        known = Optimizer.opt_registry.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (
            klass.__module__,
            klass.__qualname__,
        ):
            warnings.warn(
                f"The new optimizer {klass.__module__}.{klass.__name__} replaces "
                f"{known.__module__}.{known.__name__}, "
                f"which was registered under the same name.",
                stacklevel=2,
            )
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Make the optimizer that is registered under ``name``, in any case.

        Raises
        ------
        ValueError
            If there is none.
        """
        klass = Optimizer.opt_registry.get(name.lower())
        if klass is None:
            raise ValueError(
                f"There is no optimizer named '{name}'. Known are "
                f"{', '.join(sorted(Optimizer.opt_registry))}; "
                f"add your own class with mx.optimizer.register."
            )
        return klass(**kwargs)

    # Learning rate and weight decay ---------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Present learning rate: the scheduler's if there is one."""
        if self.lr_scheduler is not None:
            return float(self.lr_scheduler(self.num_update))
        return float(self.lr)  # type: ignore[arg-type]

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate.

        Raises
        ------
        UserWarning
            If a scheduler decides it.
        """
        if self.lr_scheduler is not None:
            raise UserWarning(
                "The learning rate cannot be set while an lr_scheduler decides it. Change the scheduler's "
                "base_lr, or "
                "set optimizer.lr_scheduler = None first."
            )
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Set factors on the learning rate, by parameter name or index."""
        self.lr_mult = self._from_symbol("__lr_mult__")
        self.lr_mult.update(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set factors on the weight decay, by parameter name or index.

        At API level 1, parameters with a known name that does not end in _weight or _gamma are not decayed
        unless
        a factor is given.
        """
        self.wd_mult = {}
        if config.api_level() < 2:
            for name in self.idx2name.values():
                if not name.endswith(("_weight", "_gamma")):
                    self.wd_mult[name] = 0.0
        self.wd_mult.update(self._from_symbol("__wd_mult__"))
        self.wd_mult.update(args_wd_mult)

    def _from_symbol(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attributes, names = self.sym_info
        return {name: float(attributes[name][key]) for name in names if key in attributes.get(name, {})}

    def _multiplier(self, index: Any, which: str) -> float:
        if index in self.param_dict:
            return float(getattr(self.param_dict[index], which))
        given = getattr(self, which)
        if index in given:
            return float(given[index])
        return float(given.get(self.idx2name.get(index), 1.0))

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        rate = self.learning_rate
        return [rate * self._multiplier(index, "lr_mult") for index in indices]

    def _get_lr(self, index: Any) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Sequence[Any]) -> list[float]:
        return [self.wd * self._multiplier(index, "wd_mult") for index in indices]

    def _get_wd(self, index: Any) -> float:
        return self._get_wds([index])[0]

    # Counting ----------------------------------------------------------------------

    def _set_current_context(self, device_id: int) -> None:
        """Count the updates of this device from now on: copies of a weight on several devices count once."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        for one in index if isinstance(index, list | tuple) else (index,):
            count = self._index_update_count.get(one, self.begin_num_update) + 1
            self._index_update_count[one] = count
            self.num_update = max(count, self.num_update)

    # State ----------------------------------------------------------------------

    def create_state(self, index: Any, weight: Any) -> State:
        """State for one weight: None, an array, or a tuple of those."""

    def create_state_multi_precision(self, index: Any, weight: Any) -> State:
        """State for one weight; with a float32 copy first if its precision is low and ``multi_precision``
        is on."""
        if self._needs_master(weight):
            master = _as_float32(weight)
            return (master, self.create_state(index, master))
        if weight._t.dtype in _LOW_PRECISION and not self.multi_precision:
            warnings.warn(
                f"The optimizer accumulates in {weight.dtype}, which may lose small updates. "
                f"Pass multi_precision=True to keep a float32 copy of the weights.",
                stacklevel=2,
            )
        return self.create_state(index, weight)

    def _needs_master(self, weight: Any) -> bool:
        return self.multi_precision and weight._t.dtype in _LOW_PRECISION

    @staticmethod
    def _zeros(weight: Any) -> Any:
        """A state array of zeros, like the weight."""
        return type(weight)._wrap(torch.zeros_like(weight._t), weight._ctx)

    # Updating ----------------------------------------------------------------------

    def update(self, indices: Any, weights: Any, grads: Any, states: Any) -> None:
        """Update one weight, or each of a list of weights, in place."""
        if isinstance(indices, list | tuple):
            step = self.fused_step if self.use_fused_step else self.step
            step(list(indices), list(weights), list(grads), list(states))
        else:
            self.step([indices], [weights], [grads], [states])

    def update_multi_precision(self, indices: Any, weights: Any, grads: Any, states: Any) -> None:
        """The same as :meth:`update`, through the float32 copies where there are any."""
        if not isinstance(indices, list | tuple):
            self._update_one(indices, weights, grads, states)
            return
        if not any(self._needs_master(weight) for weight in weights):
            self.update(indices, weights, grads, states)
            return
        for index, weight, grad, state in zip(indices, weights, grads, states, strict=True):
            self._update_one(index, weight, grad, state)

    def _update_one(self, index: Any, weight: Any, grad: Any, state: State) -> None:
        if not self._needs_master(weight):
            self.update(index, weight, grad, state)
            return
        master, own = state
        self.update(index, master, _as_float32(grad), own)
        weight._t.copy_(master._t)

    def step(self, indices: list[Any], weights: list[Any], grads: list[Any], states: list[State]) -> None:
        """Update a list of weights in place. Counts, rates and decays are looked up here."""
        kind = type(self)
        if kind._apply is Optimizer._apply and kind._apply_all is Optimizer._apply_all:
            raise NotImplementedError(
                f"{type(self).__name__} must define step(indices, weights, grads, states)."
            )
        self._update_count(indices)
        lrs, wds = self._get_lrs(indices), self._get_wds(indices)
        counts = [self._index_update_count[index] for index in indices]
        with torch.no_grad():
            rest = self._apply_rows(list(zip(indices, weights, grads, states, lrs, wds, counts, strict=True)))
            if rest:
                self._apply_all(*map(list, zip(*rest, strict=True)))

    def _apply_rows(self, updates: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Lazy updates: of the rows only that a row_sparse gradient has. Gives the updates that are left."""
        if not getattr(self, "lazy_update", False):
            return updates
        rest = []
        for update in updates:
            index, weight, grad, state, lr, wd, count = update
            if getattr(grad, "stype", "default") != "row_sparse":
                rest.append(update)
                continue
            rows, whole = grad.indices._t, [weight._t, *_leaves(_tensors(state))]
            parts = [tensor[rows] for tensor in whole]
            picked = iter(parts[1:])
            self._apply(index, parts[0], grad.data._t, _like(state, picked), lr, wd, count)
            for tensor, part in zip(whole, parts, strict=True):
                tensor[rows] = part
        return rest

    def fused_step(
        self, indices: list[Any], weights: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        """The same as :meth:`step`."""
        self.step(indices, weights, grads, states)

    def _apply_all(
        self,
        indices: list[Any],
        weights: list[Any],
        grads: list[Any],
        states: list[State],
        lrs: list[float],
        wds: list[float],
        counts: list[int],
    ) -> None:
        for index, weight, grad, state, lr, wd, count in zip(
            indices, weights, grads, states, lrs, wds, counts, strict=True
        ):
            self._apply(index, weight._t, _dense(grad), _tensors(state), lr, wd, count)

    def _apply(
        self,
        index: Any,
        weight: torch.Tensor,
        grad: torch.Tensor,
        state: Any,
        lr: float,
        wd: float,
        count: int,
    ) -> None:
        """The rule: change ``weight`` and ``state`` in place. ``count`` is 1 at the first update of this
        weight."""
        raise NotImplementedError

    # Gradients ----------------------------------------------------------------------

    def _clip(self, grad: torch.Tensor) -> torch.Tensor:
        if self.clip_gradient is not None and self.clip_gradient >= 0:
            return grad.clamp(-self.clip_gradient, self.clip_gradient)
        return grad

    def _gradient(self, grad: torch.Tensor) -> torch.Tensor:
        """Rescaled and clipped gradient."""
        return self._clip(grad if self.rescale_grad == 1 else grad * self.rescale_grad)

    def _decayed(self, grad: torch.Tensor, weight: torch.Tensor, wd: float) -> torch.Tensor:
        """Rescaled and clipped gradient, with the weight decay added after clipping."""
        grad = self._gradient(grad)
        return grad.add(weight, alpha=wd) if wd else grad

    def _decayed_then_clipped(self, grad: torch.Tensor, weight: torch.Tensor, wd: float) -> torch.Tensor:
        """Rescaled gradient with the weight decay added, then clipped: what several optimizers of 1.x do."""
        if config.api_level() >= 2:
            return self._decayed(grad, weight, wd)
        grad = grad if self.rescale_grad == 1 else grad * self.rescale_grad
        return self._clip(grad.add(weight, alpha=wd) if wd else grad)

    # Copies ----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Parameters belong to the network, not to the optimizer's state.
        state.pop("param_dict", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("param_dict", {})
        self._index_update_count = self._all_index_update_counts.setdefault(0, {})


def _as_float32(array: Any) -> Any:
    """A float32 copy, in the same storage type."""
    if getattr(array, "stype", "default") != "default":
        return array.astype("float32")
    return type(array)._wrap(array._t.float(), array._ctx)


def _dense(array: Any) -> torch.Tensor:
    """Tensor of a gradient; a sparse one is filled up with zeros."""
    if getattr(array, "stype", "default") != "default":
        array = array.tostype("default")
    tensor: torch.Tensor = array._t
    return tensor


def _tensors(state: State) -> Any:
    """The tensors of a state, in the same nesting."""
    if state is None:
        return None
    if isinstance(state, list | tuple):
        return tuple(_tensors(part) for part in state)
    return state._t


def _leaves(state: Any) -> list[torch.Tensor]:
    """The tensors of a nested state in order."""
    if state is None:
        return []
    return [leaf for part in state for leaf in _leaves(part)] if isinstance(state, tuple) else [state]


def _like(state: State, tensors: Any) -> Any:
    """The nesting of a state around other tensors."""
    if state is None:
        return None
    return tuple(_like(part, tensors) for part in state) if isinstance(state, list | tuple) else next(tensors)


@Optimizer.register
class Test(Optimizer):
    """For tests of training loops: adds the rescaled gradient (API level 1) or takes a plain step (level
    2)."""

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight)

    def _apply(
        self,
        index: Any,
        weight: torch.Tensor,
        grad: torch.Tensor,
        state: Any,
        lr: float,
        wd: float,
        count: int,
    ) -> None:
        if config.api_level() < 2:
            weight.add_(grad, alpha=self.rescale_grad)
            state.copy_(weight)
        else:
            weight.sub_(self._decayed(grad, weight, wd), alpha=lr)


register = Optimizer.register
create = Optimizer.create_optimizer
