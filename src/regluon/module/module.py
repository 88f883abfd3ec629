"""`Module`: a symbol with its data, parameters and optimizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .. import model
from .. import optimizer as opt
from ..base.device import cpu
from ..gluon.imported import label_names as labels_of
from ..graph.node import topological
from ..initializer import InitDesc
from ..io import DataDesc
from .base_module import DEFAULT_INITIALIZER, BaseModule, ModuleStateError, as_list
from .executor_group import DataParallelExecutorGroup, describe, request_gradients
from .parameters import HostParameters
from .updating import Updating, make_store

__all__ = ["Module"]

# Executors for as many shapes are kept, so that a smaller last batch of an epoch costs once.
KEPT_GROUPS = 8


def check_names(symbol: Any, names: Sequence[str], what: str, needed: bool) -> None:
    """Raise (or warn, when not ``needed``) for names that are no arguments of a symbol."""
    arguments = symbol.list_arguments()
    endings = ("_weight", "_bias", "_gamma", "_beta")
    for name in names:
        if name in arguments:
            continue
        likely = "\n\t".join(argument for argument in arguments if not argument.endswith(endings))
        message = (
            f"You created Module with Module(..., {what}={list(names)}) but input with name '{name}' is not "
            f"found in symbol.list_arguments(). Did you mean one of:\n\t{likely}"
        )
        if needed:
            raise ValueError(message)
        warnings.warn(message, stacklevel=4)


class Module(BaseModule):
    """A symbol with its data, parameters and optimizer.

    Parameters
    ----------
    symbol : Symbol
        The network, usually with an output operator such as SoftmaxOutput at its end.
    data_names, label_names : list of str
        Arguments that are inputs and labels; all others are parameters.
    logger : logging.Logger
        Where training writes its lines.
    context : Context or list of Context
        Devices; a batch is split among several.
    work_load_list : list of float, optional
        The share of each device, equal by default.
    fixed_param_names : list of str, optional
        Parameters that are not trained.
    state_names : list of str, optional
        Arguments that keep their value from batch to batch; see `set_states`.
    group2ctxs, compression_params : optional
        Accepted for compatibility: on one machine nothing depends on them.

    Raises
    ------
    ValueError
        For names that are no arguments of the symbol.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Any = ("data",),
        label_names: Any = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Any = None,
        state_names: Any = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        del group2ctxs, compression_params
        self._symbol = symbol
        self._context = as_list(cpu() if context is None else context)
        self._work_load_list = [1.0] * len(self._context) if work_load_list is None else list(work_load_list)
        if len(self._work_load_list) != len(self._context):
            raise ValueError(
                f"work_load_list needs a number for each of {len(self._context)} devices, got "
                f"{len(self._work_load_list)}"
            )
        self._data_names, self._label_names = as_list(data_names), as_list(label_names)
        self._state_names, self._fixed_param_names = as_list(state_names), as_list(fixed_param_names)
        check_names(symbol, self._data_names, "data_names", True)
        check_names(symbol, self._label_names, "label_names", False)
        check_names(symbol, self._state_names, "state_names", True)
        check_names(symbol, self._fixed_param_names, "fixed_param_names", True)
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [name for name in symbol.list_arguments() if name not in inputs]
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names = symbol.list_outputs()
        self._host = HostParameters()
        self._updating: Updating | None = None
        self._preload_opt_states: str | None = None
        self._grad_req: Any = "write"
        self._monitors: list[Any] = []
        self._forget_binding()

    def _forget_binding(self) -> None:
        self.binded = False
        self._exec_group: Any = None
        self._groups: dict[Any, DataParallelExecutorGroup] = {}
        self._shared_group: Any = None

    # Files ----------------------------------------------------------------------

    @staticmethod
    def load(prefix: Any, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; ``kwargs`` are those of `Module`.

        With ``load_optimizer_states`` `init_optimizer` also reads ``prefix-0001.states``.
        """
        symbol, arguments, auxiliary = model.load_checkpoint(prefix, epoch)
        module = Module(symbol=symbol, **kwargs)
        module._host.arg_params, module._host.aux_params = arguments, auxiliary
        module.params_initialized = True
        if load_optimizer_states:
            module._preload_opt_states = f"{prefix}-{int(epoch):04d}.states"
        return module

    def save_checkpoint(
        self, prefix: Any, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write ``prefix-symbol.json``, ``prefix-0001.params`` and perhaps ``prefix-0001.states``."""
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        parameters = model.params_file(prefix, epoch)
        self.save_params(parameters)
        logging.info('Saved checkpoint to "%s"', parameters)
        if save_optimizer_states:
            states = f"{prefix}-{int(epoch):04d}.states"
            self.save_optimizer_states(states)
            logging.info('Saved optimizer state to "%s"', states)

    def save_optimizer_states(self, fname: Any) -> None:
        """Write the optimizer's states to a file."""
        self._optimizing("save_optimizer_states").save_states(fname)

    def load_optimizer_states(self, fname: Any) -> None:
        """Read the optimizer's states from a file."""
        self._optimizing("load_optimizer_states").load_states(fname)

    # Descriptions ----------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        self._require("data_shapes")
        shapes: list[DataDesc] = self._exec_group.data_shapes
        return shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        self._require("label_shapes")
        return self._exec_group.label_shapes or None

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self._require("output_shapes")
        shapes: list[tuple[str, tuple[int, ...]]] = self._exec_group.output_shapes()
        return shapes

    # Parameters ----------------------------------------------------------------------

    @property
    def _arg_params(self) -> dict[str, Any] | None:
        return self._host.arg_params

    @property
    def _aux_params(self) -> dict[str, Any] | None:
        return self._host.aux_params

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and auxiliary states, the mean of several devices' copies."""
        if not self.params_initialized or (self._exec_group is None and self._host.arg_params is None):
            self._require("get_params", params=True)
        if self._exec_group is not None:
            self._host.read(self._exec_group)
        return self._host.arg_params or {}, self._host.aux_params or {}

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: Mapping[str, Any] | None = None,
        aux_params: Mapping[str, Any] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Make the first values of the parameters.

        Parameters
        ----------
        initializer : Initializer or None
            Fills what is not given; None leaves it as it is. An ``init`` of a variable comes first.
        arg_params, aux_params : dict of str to NDArray, optional
            Values; names that the symbol does not have are left out.
        allow_missing : bool
            Whether given dicts may lack parameters.
        force_init : bool
            Do it even when it was done before.
        allow_extra : bool
            Accepted for compatibility.

        Raises
        ------
        ModuleStateError
            Before bind.
        RuntimeError
            For a missing parameter.
        ValueError
            For a value of another shape.
        """
        del allow_extra
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.", stacklevel=2
            )
            return
        if not self.binded:
            raise ModuleStateError("call bind before initializing the parameters")
        host, group = self._host, self._exec_group
        if host.arg_params is None:
            host.allocate(group)
        elif self.params_initialized:
            host.read(group)
        attributes = self._symbol.attr_dict()
        for values, given in ((host.arg_params, arg_params), (host.aux_params, aux_params)):
            for name, array in sorted((values or {}).items()):
                if given is not None and name in given:
                    self._take(name, array, given[name])
                elif given is not None and not allow_missing:
                    raise RuntimeError(
                        f"{name} is not presented: the given parameters have "
                        f"{', '.join(given) or 'no names'}. Pass allow_missing=True to keep or initialize "
                        "the rest"
                    )
                elif initializer is not None:
                    initializer(InitDesc(name, attributes.get(name)), array)
        self.params_initialized = True
        host.write(group)

    @staticmethod
    def _take(name: str, array: Any, value: Any) -> None:
        if value is array:
            return
        if tuple(value.shape) != tuple(array.shape):
            raise ValueError(
                f"the parameter {name} has shape {tuple(array.shape)}; the given value has "
                f"{tuple(value.shape)}"
            )
        array[:] = value

    def set_params(
        self,
        arg_params: Any,
        aux_params: Any,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Take over parameters.

        Parameters
        ----------
        arg_params, aux_params : dict of str to NDArray
            Values.
        allow_missing : bool
            Leave what is not given as it is; else every parameter must be given.
        force_init : bool
            Do it even when parameters are initialized.
        allow_extra : bool
            With ``allow_missing``, whether names that the symbol does not have are left out.

        Raises
        ------
        RuntimeError
            For a missing parameter.
        ValueError
            For an unknown name or a value of another shape.
        """
        if not allow_missing:
            super().set_params(arg_params, aux_params, allow_missing, force_init)
            return
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. set_params call ignored.", stacklevel=2
            )
            return
        self._require("set_params")
        known = {*self._symbol.list_arguments(), *self._aux_names}
        extra = [name for name in [*(arg_params or ()), *(aux_params or ())] if name not in known]
        if extra and not allow_extra:
            raise ValueError(
                f'Find name "{extra[0]}" that is not in the arguments of the symbol; pass allow_extra=True '
                "to leave such values out"
            )
        self.init_params(None, arg_params or {}, aux_params or {}, True, True)

    # Binding ----------------------------------------------------------------------

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Make the arrays for inputs of the given shapes.

        Parameters
        ----------
        data_shapes, label_shapes : list of DataDesc or pairs of name and shape
            The inputs; labels may be left out to predict.
        for_training : bool
            Make arrays for gradients.
        inputs_need_grad : bool
            Make them for the inputs too.
        force_rebind : bool
            Bind anew; parameters stay.
        shared_module : Module, optional
            A bound module whose parameters are used too.
        grad_req : str, list or dict
            "write", "add" or "null", for all parameters or single arguments.

        Raises
        ------
        ValueError
            When the names of the shapes are not the module's.
        MXNetError
            When the shapes contradict each other, or leave others unknown.
        """
        if force_rebind and self.binded:
            if self.params_initialized:
                self.get_params()
            self._forget_binding()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise ValueError("bind: inputs_need_grad=True needs for_training=True")
        data, labels = describe(data_shapes), describe(label_shapes)
        self._check_shapes(data, self._data_names, "data", True)
        self._check_shapes(labels, self._label_names, "label", False)
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req = grad_req if for_training else "null"
        if shared_module is not None:
            if not shared_module.binded:
                raise ModuleStateError("bind: call bind of the shared module before")
            self._share(shared_module)
        self._exec_group = self._group(data, labels)
        self.binded = True
        if self._host.arg_params is not None and self.params_initialized and shared_module is None:
            # Parameters from a checkpoint or from before: now they get their devices.
            arguments, auxiliary = self._host.arg_params, self._host.aux_params
            self._host.allocate(self._exec_group)
            # With label_names=None a label counts as a parameter. Checkpoints have none, and none is needed.
            unneeded = labels_of(topological(self._symbol._list()))
            free = {name: array for name, array in self._host.arg_params.items() if name in unneeded}
            self.init_params(None, {**free, **arguments}, auxiliary, allow_missing=False, force_init=True)

    def _share(self, other: Module) -> None:
        missing = [name for name in self._param_names if name not in other._param_names]
        if missing and other.params_initialized:
            raise ValueError(
                f"the shared module has no parameters {', '.join(missing)}; the module that others share "
                "(the default bucket's) must have them all"
            )
        self._shared_group = other._exec_group
        self._host = other._host
        self.params_initialized = other.params_initialized

    @staticmethod
    def _check_shapes(shapes: Sequence[DataDesc], names: Sequence[str], what: str, needed: bool) -> None:
        if sorted(given.name for given in shapes) == sorted(names):
            return
        message = (
            f"Data provided by {what}_shapes don't match names specified by {what}_names ({list(shapes)} vs. "
            f"{list(names)})"
        )
        if needed:
            raise ValueError(message)
        # Without any labels the module predicts; that needs no remark.
        if shapes:
            warnings.warn(message, stacklevel=4)

    def _group(self, data: list[DataDesc], labels: list[DataDesc]) -> DataParallelExecutorGroup:
        """The executors for these shapes, from before if there are some."""
        key = (len(data), *((given, str(given.dtype), given.layout) for given in [*data, *labels]))
        group = self._groups.pop(key, None)
        if group is None:
            requests = request_gradients(
                self._grad_req,
                self._symbol.list_arguments(),
                self._param_names,
                self._fixed_param_names,
                self._data_names,
                self.inputs_need_grad,
            )
            group = DataParallelExecutorGroup(
                self._symbol,
                self._context,
                self._work_load_list,
                data,
                labels,
                self._param_names,
                self._state_names,
                requests,
                self._exec_group or self._shared_group,
            )
            for monitor in self._monitors:
                self._watch(monitor, group)
        self._groups[key] = group
        while len(self._groups) > KEPT_GROUPS:
            del self._groups[next(iter(self._groups))]
        return group

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Change the shapes of the inputs; parameters stay.

        Without ``label_shapes`` those of the labels follow from the inputs'.
        """
        self._require("reshape")
        data, labels = describe(data_shapes), describe(label_shapes)
        self._check_shapes(data, self._data_names, "data", True)
        self._exec_group = self._group(data, labels)

    # Optimizer ----------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make the optimizer.

        Parameters
        ----------
        kvstore : str, KVStore or None
            How gradients of several devices become one.
        optimizer : str or Optimizer
            The optimizer or its name. By name, its ``rescale_grad`` is 1 / batch size unless given, and only
            parameters named ``..._weight`` and ``..._gamma`` decay.
        optimizer_params : dict or pairs
            Its arguments.
        force_init : bool
            Do it even when it was done before.
        """
        self._require("init_optimizer", params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        group, store = self._exec_group, make_store(kvstore)
        workers = 1 if store is None else store.num_workers
        rescale = 1.0 / (max(group.batch_size, 1) * workers)
        if isinstance(optimizer, str):
            settings = dict(optimizer_params)
            settings.setdefault("rescale_grad", rescale)
            names = dict(enumerate(self._param_names))
            optimizer = opt.create(optimizer, sym=self._symbol, param_idx2name=names, **settings)
            for name in self._param_names:
                # What Module has always done, at every API level.
                if not name.endswith(("_weight", "_gamma")):
                    optimizer.wd_mult.setdefault(name, 0.0)
        else:
            if optimizer.rescale_grad != rescale:
                warnings.warn(
                    "Optimizer created manually outside Module but rescale_grad is not normalized to "
                    f"1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {rescale}). Is this intended?",
                    stacklevel=2,
                )
            if not optimizer.idx2name:
                optimizer.idx2name = dict(enumerate(self._param_names))
        self._updating = Updating(optimizer, store, self._param_names, group)
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def borrow_optimizer(self, shared_module: Any) -> None:
        """Use the optimizer of another module, with its states."""
        self._updating = shared_module._optimizing("borrow_optimizer")
        self.optimizer_initialized = True

    def _optimizing(self, what: str) -> Updating:
        if self._updating is None:
            raise ModuleStateError(f"Module.{what}: call init_optimizer() before")
        return self._updating

    @property
    def _optimizer(self) -> Any:
        return None if self._updating is None else self._updating.optimizer

    @property
    def _kvstore(self) -> Any:
        return None if self._updating is None else self._updating.kvstore

    @property
    def _updater(self) -> Any:
        return None if self._updating is None else self._updating.updater

    def update(self) -> None:
        """Change the parameters by their gradients."""
        self._require("update", params=True, optimizer=True)
        self._optimizing("update").update(self._exec_group)
        self._host.outdated = True

    # Single steps ----------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs for a batch; batches of other shapes than bound are fine.

        Parameters
        ----------
        data_batch : DataBatch
            Inputs, and labels if they are known. Any object with ``data`` will do.
        is_train : bool, optional
            Train mode; by default what `bind` was told.
        """
        self._require("forward", params=True)
        if isinstance(data_batch, list):
            raise TypeError(f"{type(self).__name__}.forward expected one DataBatch, got a list")
        data, label = as_list(data_batch.data), as_list(getattr(data_batch, "label", None))
        self._follow_shapes(data_batch, data, label)
        is_train = self.for_training if is_train is None else bool(is_train)
        self._exec_group.forward(data, label, is_train)
        if is_train and self._aux_names:
            self._host.outdated = True

    def _follow_shapes(self, batch: Any, data: list[Any], label: list[Any]) -> None:
        """Bind for the shapes of the batch if they are others than before."""
        group = self._exec_group
        given = getattr(batch, "provide_data", None)
        if given:
            shapes = describe(given)
        else:
            if len(data) != len(group.data_shapes):
                raise ValueError(
                    f"the module has the inputs {', '.join(group.data_names)}; the batch has {len(data)} "
                    "array(s)"
                )
            shapes = _like(group.data_shapes, data)
        # Labels that the module was not bound for are not used; those that are missing stay as they are.
        seen = _like(group.label_shapes, label) if label else group.label_shapes
        if not _differ(shapes, group.data_shapes) and not _differ(seen, group.label_shapes):
            return
        given = getattr(batch, "provide_label", None)
        if given:
            labels = describe(given)
        elif label and group.label_shapes:
            labels = _like(group.label_shapes, label)
        elif label:
            labels = _like([DataDesc(name, ()) for name in self._label_names], label)
        else:
            labels = []
        self.reshape(shapes, labels)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients.

        Parameters
        ----------
        out_grads : array or list of arrays, optional
            Gradients of the outputs; output operators such as SoftmaxOutput need none.
        """
        self._require("backward", params=True)
        if not self.for_training:
            raise ModuleStateError("Module.backward: the module was bound with for_training=False")
        self._exec_group.backward(None if out_grads is None else as_list(out_grads))

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last forward: joined, or for each a list with the devices' parts."""
        self._require("get_outputs", params=True)
        outputs: list[Any] = self._exec_group.get_outputs(merge_multi_context)
        return outputs

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the inputs, in the same way; needs bind with ``inputs_need_grad=True``."""
        self._require("get_input_grads", params=True)
        if not self.inputs_need_grad:
            raise ModuleStateError("Module.get_input_grads: bind with inputs_need_grad=True")
        grads: list[Any] = self._exec_group.get_input_grads(merge_multi_context)
        return grads

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The states: joined, or for each a list with the devices' parts."""
        self._require("get_states", params=True)
        states: list[Any] = self._exec_group.get_states(merge_multi_context)
        return states

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states, to arrays (or what `get_states` gives) or all to one number."""
        self._require("set_states", params=True)
        if (states is None) == (value is None):
            raise ValueError("set_states expected either states= or value=")
        self._exec_group.set_states(states, value)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the last forward's outputs, with these labels, to a metric."""
        self._require("update_metric", params=True)
        self._exec_group.update_metric(eval_metric, labels or [], pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor watch every operator."""
        self._require("install_monitor")
        self._monitors = [mon]
        for group in self._groups.values():
            self._watch(mon, group)

    @staticmethod
    def _watch(monitor: Any, group: DataParallelExecutorGroup) -> None:
        for executor in group.execs:
            monitor.install(executor)


def _like(described: Sequence[DataDesc], arrays: Sequence[Any]) -> list[DataDesc]:
    """The descriptions with the shapes of arrays."""
    return [
        DataDesc(given.name, array.shape, given.dtype, given.layout)
        for given, array in zip(described, arrays, strict=False)
    ]


def _differ(one: Sequence[DataDesc], other: Sequence[DataDesc]) -> bool:
    return [(given.name, tuple(given.shape)) for given in one] != [
        (given.name, tuple(given.shape)) for given in other
    ]
