"""`BucketingModule`: a module for each of several shapes of input, with the same parameters."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import model, serial
from ..base.device import cpu
from ..ndarray import array as nd_array
from ..symbol import load as load_symbol
from .base_module import DEFAULT_INITIALIZER, BaseModule, ModuleStateError
from .module import Module

__all__ = ["BucketingModule"]


class BucketingModule(BaseModule):
    """A module for each bucket (say each length of sequences), with the same parameters and optimizer.

    Parameters
    ----------
    sym_gen : callable
        Gives symbol, names of inputs and names of labels for a bucket's key.
    default_bucket_key : hashable
        The bucket whose symbol has all parameters, usually the largest.
    logger, context, work_load_list, fixed_param_names, state_names, group2ctxs, compression_params
        See `Module`.

    Raises
    ------
    ValueError
        Without a default bucket.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], tuple[Any, Any, Any]],
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = None,
        work_load_list: Any = None,
        fixed_param_names: Any = None,
        state_names: Any = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise ValueError("BucketingModule needs default_bucket_key=, the key of the largest bucket")
        self._sym_gen = sym_gen
        self._default_bucket_key = default_bucket_key
        self._options = {
            "logger": logger,
            "context": cpu() if context is None else context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
        }
        # Symbols that were read from files, asked before the generator.
        self._symbols: dict[Any, Any] = {}
        self._first_params: tuple[Any, Any] | None = None
        self._monitor: Any = None
        self._grad_req: Any = "write"
        self._forget_binding()
        self._make(default_bucket_key)

    def _forget_binding(self) -> None:
        self.binded = False
        self._buckets: dict[Any, Module] = {}
        self._curr_module: Any = None
        self._curr_bucket_key: Any = None

    def _make(self, key: Any) -> Module:
        """A new, unbound module of a bucket."""
        symbol, data_names, label_names = self._sym_gen(key)
        return Module(self._symbols.get(key, symbol), data_names, label_names, **self._options)

    def _default(self) -> Module:
        return self._buckets[self._default_bucket_key]

    # Descriptions ----------------------------------------------------------------------

    def _names(self, key: Any) -> tuple[Any, Any, Any]:
        symbol, data_names, label_names = self._sym_gen(key)
        return self._symbols.get(key, symbol), data_names, label_names

    @property
    def symbol(self) -> Any:
        self._require("symbol")
        return self._curr_module.symbol

    @property
    def data_names(self) -> list[str]:
        if self.binded:
            names: list[str] = self._curr_module.data_names
            return names
        return list(self._names(self._default_bucket_key)[1])

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        if self.binded:
            names: list[str] = self._curr_module.label_names
            return names
        return list(self._names(self._default_bucket_key)[2] or ())

    @property
    def output_names(self) -> list[str]:
        if self.binded:
            names: list[str] = self._curr_module.output_names
            return names
        names = self._names(self._default_bucket_key)[0].list_outputs()
        return names

    @property
    def data_shapes(self) -> Any:
        self._require("data_shapes")
        return self._curr_module.data_shapes

    @property
    def label_shapes(self) -> Any:
        self._require("label_shapes")
        return self._curr_module.label_shapes

    @property
    def output_shapes(self) -> Any:
        self._require("output_shapes")
        return self._curr_module.output_shapes

    # Parameters ----------------------------------------------------------------------

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._require("get_params", params=True)
        parameters: tuple[dict[str, Any], dict[str, Any]] = self._default().get_params()
        return parameters

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Make the first values of the parameters of all buckets; see `Module.init_params`."""
        self._require("init_params")
        self._default().init_params(
            initializer, arg_params, aux_params, allow_missing, force_init, allow_extra
        )
        self._parameters_changed()

    def set_params(
        self,
        arg_params: Any,
        aux_params: Any,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Take over parameters; see `Module.set_params`."""
        self._require("set_params")
        self._default().set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
        self._parameters_changed()

    def _parameters_changed(self) -> None:
        self.params_initialized = True
        for module in self._buckets.values():
            module.params_initialized = True

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        self._require("get_states", params=True)
        states: list[Any] = self._curr_module.get_states(merge_multi_context)
        return states

    def set_states(self, states: Any = None, value: Any = None) -> None:
        self._require("set_states", params=True)
        self._curr_module.set_states(states, value)

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
        """Bind the default bucket; the others are bound as they first come.

        Parameters are as in `Module.bind`; ``shared_module`` is refused.
        """
        if shared_module is not None:
            raise ValueError("BucketingModule.bind: shared_module is not for modules with buckets")
        parameters = None
        if force_rebind and self.binded:
            parameters = self.get_params() if self.params_initialized else None
            self._forget_binding()
            self.optimizer_initialized = False
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req = grad_req
        module = self._make(self._default_bucket_key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self.binded = True
        self._curr_module, self._curr_bucket_key = module, self._default_bucket_key
        self._buckets[self._default_bucket_key] = module
        parameters = parameters or self._first_params
        if parameters is not None:
            self.set_params(*parameters)

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Go to a bucket, which is bound to these shapes if it comes for the first time."""
        self._require("switch_bucket")
        module = self._buckets.get(bucket_key)
        if module is None:
            default = self._default()
            module = self._make(bucket_key)
            module.bind(
                data_shapes,
                label_shapes,
                default.for_training,
                default.inputs_need_grad,
                shared_module=default,
                grad_req=self._grad_req,
            )
            if self._monitor is not None:
                module.install_monitor(self._monitor)
            if self.optimizer_initialized:
                module.borrow_optimizer(default)
            self._buckets[bucket_key] = module
        self._curr_module, self._curr_bucket_key = module, bucket_key

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make the optimizer of all buckets; see `Module.init_optimizer`."""
        self._require("init_optimizer", params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        default = self._default()
        default.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        for module in self._buckets.values():
            if module is not default:
                module.borrow_optimizer(default)
        self.optimizer_initialized = True

    def install_monitor(self, mon: Any) -> None:
        self._require("install_monitor")
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # Single steps ----------------------------------------------------------------------

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Bind the bucket of the next batch, if it comes for the first time."""
        self._require("prepare")
        present = self._curr_module, self._curr_bucket_key
        self._switch_for(data_batch)
        self._curr_module.prepare(data_batch, sparse_row_id_fn=sparse_row_id_fn)
        self._curr_module, self._curr_bucket_key = present

    def _switch_for(self, batch: Any) -> None:
        key = self._default_bucket_key if batch.bucket_key is None else batch.bucket_key
        if key not in self._buckets and not batch.provide_data:
            raise ValueError(
                f"a batch of the new bucket {key!r} needs provide_data= and provide_label=, the shapes "
                "to bind"
            )
        self.switch_bucket(key, batch.provide_data, batch.provide_label)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Go to the batch's bucket and compute its outputs."""
        self._require("forward", params=True)
        self._switch_for(data_batch)
        self._curr_module.forward(data_batch, is_train=is_train)

    def backward(self, out_grads: Any = None) -> None:
        self._require("backward", params=True)
        self._curr_module.backward(out_grads)

    def update(self) -> None:
        self._require("update", params=True, optimizer=True)
        self._curr_module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        self._require("get_outputs", params=True)
        return self._curr_module.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        self._require("get_input_grads", params=True)
        return self._curr_module.get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._require("update_metric", params=True)
        self._curr_module.update_metric(eval_metric, labels, pre_sliced)

    # Files ----------------------------------------------------------------------

    def save_checkpoint(self, prefix: Any, epoch: int, remove_amp_cast: bool = False) -> None:
        """Write the parameters (``prefix-0001.params``), the symbol of each bucket so far
        (``prefix-KEY-symbol.json``) and their keys, which are whole numbers (``prefix.buckets``).

        Raises
        ------
        ModuleStateError
            When no bucket is bound.
        ValueError
            When a key is no whole number.
        """
        if not self._buckets:
            raise ModuleStateError("BucketingModule.save_checkpoint: call bind() before")
        prefix = os.fspath(prefix)
        if not all(isinstance(key, int) for key in self._buckets):
            raise ValueError(
                f"save_checkpoint keeps keys that are whole numbers, got {list(self._buckets)}; use "
                "save_params and your own sym_gen instead"
            )
        self.save_params(model.params_file(prefix, epoch))
        for key, module in self._buckets.items():
            module.symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast=remove_amp_cast)
        serial.save(f"{prefix}.buckets", [nd_array(list(self._buckets), dtype="int32")])

    @staticmethod
    def load(
        prefix: Any, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any
    ) -> BucketingModule:
        """A module from what `save_checkpoint` wrote; ``sym_gen`` tells names, and makes other buckets."""
        prefix = os.fspath(prefix)
        buckets: Any = serial.load(f"{prefix}.buckets")
        keys = [int(key) for key in buckets[0].asnumpy()]
        symbols = {key: load_symbol(f"{prefix}-{key}-symbol.json") for key in keys}
        return BucketingModule.load_dict(
            symbols, sym_gen, default_bucket_key, *model.load_params(prefix, epoch), **kwargs
        )

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Any] | None = None,
        sym_gen: Any = None,
        default_bucket_key: Any = None,
        arg_params: Any = None,
        aux_params: Any = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A module from symbols by bucket and parameters, which bind takes over."""
        if sym_gen is None:
            raise ValueError(
                "BucketingModule.load needs sym_gen=, which tells the names of inputs and labels"
            )
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        module._symbols = dict(sym_dict or {})
        module._first_params = (arg_params or {}, aux_params or {})
        return module
