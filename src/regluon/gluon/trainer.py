"""Trainer: applies an optimizer to a set of parameters, on one or several contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from regluon import kvstore as kvstores
from regluon import optimizer as optimizers
from regluon.array.sparse import shown_as
from regluon.base.errors import DeferredInitializationError, MXNetError
from regluon.gluon.parameter import Parameter
from regluon.kvstore.kvstore import LOCAL_KINDS, sum_into
from regluon.optimizer import Optimizer, Updater
from regluon.serial import atomic_writer
from regluon.serial.params import ParamsError, naming

__all__ = ["Trainer"]

_SHOWN = 8


class Trainer:
    """Updates parameters by their gradients.

    Parameters
    ----------
    params : dict or list of Parameter
        What to train, usually ``net.collect_params()``. A dict is taken in the order of its sorted names.
    optimizer : str or Optimizer
        Name or instance.
    optimizer_params : dict, optional
        Arguments of a named optimizer. ``rescale_grad`` in it goes together with the batch size.
    kvstore : str, KVStoreBase or None
        How gradients of several contexts are summed; None leaves each to itself.
    compression_params : dict, optional
        Gradient compression, for stores that send gradients to other machines.
    update_on_kvstore : bool, optional
        True makes ``step`` the only way to update, as in MXNet; results are the same.

    Raises
    ------
    ValueError
        If ``params`` holds anything but parameters.
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: Mapping[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        self._params, self._paths = _collect(params)
        self._param2idx = {id(parameter): index for index, parameter in enumerate(self._params)}
        for parameter in self._params:
            parameter._trainer = self
        self._contexts: list[Any] | None = None
        self._compression_params = compression_params
        options = dict(optimizer_params or {})
        self._scale = float(options.get("rescale_grad", 1.0))
        self._init_optimizer(optimizer, options)
        if kvstore is not None and not isinstance(kvstore, str | kvstores.KVStoreBase):
            raise TypeError(f"kvstore must be a name, a KVStoreBase or None; received {kvstore!r}.")
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._kvstore: Any = None
        self._kv_initialized = False
        self._update_on_kvstore = bool(update_on_kvstore)
        self._steps = 0
        # Set by amp.init_trainer: scales losses, and tells which steps to skip.
        self._amp_loss_scaler: Any = None
        self._amp_original_scale = self._scale

    def _init_optimizer(self, optimizer: str | Optimizer, options: dict[str, Any]) -> None:
        param_dict = dict(enumerate(self._params))
        if isinstance(optimizer, Optimizer):
            if options:
                raise ValueError(
                    "optimizer_params must be left out when the optimizer is an instance; received "
                    f"{options}. Give them to {type(optimizer).__name__} instead."
                )
            self._optimizer = optimizer
            self._optimizer.param_dict = param_dict
        else:
            self._optimizer = optimizers.create(optimizer, param_dict=param_dict, **options)
        self._updaters: list[Updater] = []

    # Preparation ----------------------------------------------------------------------

    def _label(self, index: int) -> str:
        """How messages call a parameter: its path in the network, and its name where that differs."""
        path, name = self._paths[index], self._params[index].name
        return f"'{path}'" if path == name else f"'{path}' ({name})"

    def _check_contexts(self, ignore_uninitialized: bool) -> list[Any]:
        contexts: list[Any] | None = None
        deferred = []
        for index, parameter in enumerate(self._params):
            if parameter._data is None:
                if parameter._deferred_init:
                    deferred.append(index)
                    continue
                if not ignore_uninitialized:
                    raise MXNetError(
                        f"Parameter {self._label(index)} has not been initialized. Call net.initialize() "
                        "before training."
                    )
                continue
            own = parameter.list_ctx()
            if contexts is not None and contexts != own:
                raise ValueError(
                    f"All parameters of a Trainer must be on the same contexts; {self._label(index)} is on "
                    f"{own}, others are on {contexts}. Call reset_ctx on the network."
                )
            contexts = own
        if deferred and not ignore_uninitialized:
            names = ", ".join(self._label(index) for index in deferred[:_SHOWN])
            raise DeferredInitializationError(
                f"{len(deferred)} parameters are not initialized yet because their shapes are unknown: "
                f"{names}. Either no batch went through the network before step(), or their layers are never "
                f"called by forward (in {self._steps} steps so far). Remove such layers, or pass "
                "ignore_stale_grad=True to skip them."
            )
        return contexts or []

    def _init_kvstore(self) -> None:
        chosen = self._kvstore_params["kvstore"]
        self._contexts = self._check_contexts(ignore_uninitialized=True)
        if isinstance(chosen, str):
            # One context in one process has nothing to sum.
            local = chosen.lower() in LOCAL_KINDS
            self._kvstore = None if local and len(self._contexts) == 1 else kvstores.create(chosen)
        else:
            self._kvstore = chosen
        if self._compression_params and self._kvstore is not None:
            self._kvstore.set_gradient_compression(self._compression_params)
        if self._kvstore is not None and not isinstance(self._kvstore, kvstores.KVStore):
            for index, parameter in enumerate(self._params):
                if parameter._data is not None:
                    self._kvstore.broadcast(index, parameter._data[0], list(parameter._data))
        self._make_updaters()
        self._kv_initialized = True

    def _make_updaters(self) -> None:
        # Updaters read from a file before the first step are kept for the contexts that they are for.
        count = len(self._contexts or [])
        while len(self._updaters) < count:
            updater = Updater(self._optimizer)
            if self._updaters:
                updater.set_states(self._updaters[0].get_states())
            self._updaters.append(updater)
        del self._updaters[max(count, 1) :]
        self._spread_counts()

    def _spread_counts(self) -> None:
        """Every context goes on from the steps that were counted so far, wherever they were counted."""
        counts = self._optimizer._all_index_update_counts
        most: dict[Any, int] = {}
        for counted in counts.values():
            for index, number in counted.items():
                most[index] = max(number, most.get(index, 0))
        for context in self._contexts or []:
            if not counts.get(context.device_id):
                counts.setdefault(context.device_id, {}).update(most)

    # Learning rate ----------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Present learning rate of the optimizer."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of the optimizer (an error if a scheduler decides it)."""
        self._optimizer.set_learning_rate(lr)

    # Stepping ----------------------------------------------------------------------

    def _prepare(self, ignore_stale_grad: bool) -> None:
        if not self._kv_initialized or self._contexts == []:
            self._init_kvstore()
        if any(parameter._data is None for parameter in self._params):
            self._check_contexts(ignore_uninitialized=ignore_stale_grad)
        elif self._contexts != self._params[0]._contexts:
            self._contexts = self._check_contexts(ignore_uninitialized=ignore_stale_grad)
            self._kv_initialized = False
            self._init_kvstore()

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum gradients over contexts, divide them by ``batch_size`` and update.

        Raises
        ------
        UserWarning
            If backward did not write some gradient since the last step, unless ``ignore_stale_grad``, which
            skips it.
        DeferredInitializationError
            If a parameter was never initialized, naming it and its block (skipped with
            ``ignore_stale_grad``).
        """
        self._prepare(ignore_stale_grad)
        self._optimizer.rescale_grad = self._scale / batch_size
        # Stale gradients are found before they are summed, so that a refused step changes nothing.
        self._check_stale(ignore_stale_grad)
        self._allreduce_grads()
        self._update(ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients over contexts; between it and :meth:`update`, gradients can be changed.

        Raises
        ------
        RuntimeError
            With ``update_on_kvstore=True``, where only :meth:`step` updates.
        """
        self._refuse_on_kvstore("allreduce_grads")
        self._prepare(ignore_stale_grad=True)
        self._allreduce_grads()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update by the gradients as they are, divided by ``batch_size``; after :meth:`allreduce_grads`."""
        self._refuse_on_kvstore("update")
        self._prepare(ignore_stale_grad)
        self._optimizer.rescale_grad = self._scale / batch_size
        self._check_stale(ignore_stale_grad)
        self._update(ignore_stale_grad)

    def _refuse_on_kvstore(self, method: str) -> None:
        if self._update_on_kvstore:
            raise TrainerError(
                f"{method}() cannot be used by a Trainer made with update_on_kvstore=True. "
                f"Make it with update_on_kvstore=False, or call step()."
            )

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return
        local = isinstance(self._kvstore, kvstores.KVStore)
        for index, parameter in enumerate(self._params):
            gradients = parameter._grad
            if gradients is None:
                continue
            if local:
                if len(gradients) > 1:
                    sum_into(gradients, gradients)
            else:
                self._kvstore.pushpull(index, gradients, priority=-index)

    def _check_stale(self, ignore_stale_grad: bool) -> None:
        if ignore_stale_grad:
            return
        stale = []
        for index, parameter in enumerate(self._params):
            if parameter._grad is not None and parameter._data is not None:
                for array in parameter._data:
                    if not array._fresh_grad:
                        stale.append(f"{self._label(index)} on {array.context}")
        if stale:
            shown = ", ".join(stale[:_SHOWN]) + (
                f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else ""
            )
            raise UserWarning(
                f"The gradients of {len(stale)} parameters have not been written by backward since the last "
                f"step: {shown}. Either backward was not called, or these parameters took no part in the "
                "loss. If that is meant, pass ignore_stale_grad=True to leave them as they are."
            )

    def _update(self, ignore_stale_grad: bool) -> None:
        if self._amp_loss_scaler is not None and self._amp_loss_scaler.has_overflow(self._params):
            for parameter in self._params:
                for array in parameter._data or ():
                    array._fresh_grad = False
            return
        self._steps += 1
        for position, updater in enumerate(self._updaters):
            indices, gradients, values = [], [], []
            for index, parameter in enumerate(self._params):
                if parameter._grad is None or parameter._data is None:
                    continue
                array = parameter._data[position]
                if ignore_stale_grad and not array._fresh_grad:
                    continue
                array._fresh_grad = False
                indices.append(index)
                gradients.append(shown_as(parameter._grad[position], parameter._grad_stype))
                values.append(array)
            if indices:
                updater(indices, gradients, values)

    # Files ----------------------------------------------------------------------

    def save_states(self, fname: str) -> None:
        """Write the optimizer, its counts and its states (momenta, ...) to a file with nothing executable."""
        if not self._kv_initialized:
            self._init_kvstore()
        states = self._updaters[0] if self._updaters else Updater(self._optimizer)
        content = states.get_states(dump_optimizer=True)
        with atomic_writer(fname) as stream:
            stream.write(content)

    def load_states(self, fname: str) -> None:
        """Read a file written by :meth:`save_states`, here or in MXNet.

        The states may come from another number of contexts: all contexts go on with the same states and
        counts of updates. (A Trainer on several contexts without a store saves the states of the first.)

        Raises
        ------
        ParamsError
            If the file is damaged, or asks for anything but arrays, numbers and known optimizers.
        """
        with open(fname, "rb") as stream:
            content = stream.read()
        if not self._kv_initialized:
            self._init_kvstore()
        if not self._updaters:
            self._updaters = [Updater(self._optimizer)]
        for updater in self._updaters:
            with naming(fname):
                updater.set_states(content)
            updater.optimizer = self._updaters[0].optimizer
        self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))
        self._spread_counts()
        self._check_states(fname)

    def _check_states(self, fname: str) -> None:
        places = range(len(self._params))
        unknown = [index for index in self._updaters[0].states if index not in places]
        if unknown:
            raise ParamsError(
                f"File '{fname}' holds states of {len(self._updaters[0].states)} parameters, this Trainer "
                f"has {len(self._params)}, and none with the key {unknown[0]!r}. Load the states of the same "
                "network, written by a Trainer."
            )

    def __repr__(self) -> str:
        return f"Trainer({type(self._optimizer).__name__}, {len(self._params)} parameters)"


class TrainerError(MXNetError, AssertionError):
    """A call that this trainer does not allow (an AssertionError too, as in MXNet)."""


def _collect(params: Any) -> tuple[list[Parameter], list[str]]:
    """Parameters, each once, with their names in the network."""
    if isinstance(params, Mapping):
        # At level 1 the keys are full names; the path in the network says more.
        items = [
            (getattr(one, "_structural_name", None) or key if key == getattr(one, "name", None) else key, one)
            for key, one in sorted(params.items(), key=lambda item: str(item[0]))
        ]
    elif isinstance(params, Iterable) and not isinstance(params, str):
        items = [(getattr(one, "_structural_name", None) or getattr(one, "name", ""), one) for one in params]
    else:
        raise ValueError(
            "A Trainer needs a dict or list of Parameters, such as net.collect_params(); received "
            f"{type(params)}."
        )
    found: dict[int, tuple[str, Parameter]] = {}
    for name, parameter in items:
        if not isinstance(parameter, Parameter):
            raise ValueError(
                f"A Trainer needs a dict or list of Parameters; one of its elements is a {type(parameter)}."
            )
        found.setdefault(id(parameter), (name, parameter))
    return [parameter for _, parameter in found.values()], [name for name, _ in found.values()]
