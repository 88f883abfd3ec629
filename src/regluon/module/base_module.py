"""`BaseModule`: the loops of training and evaluation over what a module can do in single steps."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from .. import metric as metrics
from .. import serial
from ..array import NDArray
from ..base.errors import MXNetError
from ..initializer import Uniform
from ..io import DataBatch
from ..model import BatchEndParam, pack_params, unpack_params
from ..ndarray import array as nd_array
from ..ndarray import concat

__all__ = ["DEFAULT_INITIALIZER", "BaseModule", "ModuleStateError", "as_list"]


#: Fills parameters that are not given.
DEFAULT_INITIALIZER = Uniform(0.01)


class ModuleStateError(MXNetError, AssertionError):
    """A call that comes before another one which it needs (an AssertionError too, as in MXNet)."""


def as_list(value: Any) -> list[Any]:
    """A list as it is, nothing as an empty one, anything else in one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _without_padding(outputs: Sequence[Any], pad: int | None, copy: bool) -> list[Any]:
    kept = [output[0 : output.shape[0] - (pad or 0)] for output in outputs]
    return [output.copy() for output in kept] if copy else kept


class BaseModule:
    """A network with data, parameters and an optimizer, in stages: bind, init_params, init_optimizer.

    A subclass defines the single steps: `bind`, `init_params`, `init_optimizer`, `forward`, `backward`,
    `update`, `get_outputs`, `get_input_grads`, `update_metric`, `get_params` and the properties that
    describe data, labels and outputs.

    Parameters
    ----------
    logger : logging.Logger
        Where training writes its lines.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    def _require(self, what: str, *, params: bool = False, optimizer: bool = False) -> None:
        """Raise unless the stages that ``what`` needs are done."""
        missing = [] if self.binded else ["bind(data_shapes, label_shapes)"]
        if params and not self.params_initialized:
            missing.append("init_params()")
        if optimizer and not self.optimizer_initialized:
            missing.append("init_optimizer()")
        if missing:
            raise ModuleStateError(f"{type(self).__name__}.{what}: call {', then '.join(missing)} before")

    # Loops ----------------------------------------------------------------------

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in train mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """The metric over the batches of an iterator, as pairs of name and value.

        Parameters
        ----------
        eval_data : DataIter
            The batches, with labels.
        eval_metric : EvalMetric, str, callable or list of those
            What to compute.
        num_batch : int, optional
            At most so many batches.
        batch_end_callback, score_end_callback : callable or list of callables, optional
            Called with a `BatchEndParam` after each batch, and at the end.
        reset : bool
            Reset the iterator before.
        epoch : int
            The number that callbacks are told.
        """
        self._require("score", params=True)
        if reset:
            eval_data.reset()
        eval_metric = metrics.create(eval_metric)
        eval_metric.reset()
        actual_num_batch = 0
        for nbatch, eval_batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.prepare(eval_batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(eval_batch, is_train=False)
            self._update_metric_of(eval_metric, eval_batch)
            self._call_all(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            actual_num_batch += 1
        self._call_all(score_end_callback, BatchEndParam(epoch, actual_num_batch, eval_metric, locals()))
        # Over all batches, also when a callback resets the metric in between.
        pairs: list[tuple[str, float]] = eval_metric.get_global_name_value()
        return pairs

    def _update_metric_of(self, metric: Any, batch: Any) -> None:
        if isinstance(batch, list):
            self.update_metric(metric, [one.label for one in batch], pre_sliced=True)
        else:
            self.update_metric(metric, batch.label)

    @staticmethod
    def _call_all(callbacks: Any, *arguments: Any) -> None:
        for callback in as_list(callbacks):
            callback(*arguments)

    def iter_predict(
        self, eval_data: Any, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
    ) -> Iterator[tuple[list[Any], int, Any]]:
        """The outputs, number and batch of each batch of an iterator, without the rows of padding."""
        self._require("iter_predict", params=True)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(eval_data):
            if nbatch == num_batch:
                return
            self.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(batch, is_train=False)
            yield _without_padding(self.get_outputs(), batch.pad, copy=False), nbatch, batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """The outputs for an array or for the batches of an iterator, without the rows of padding.

        Parameters
        ----------
        eval_data : array or DataIter
            One array is one batch.
        num_batch : int, optional
            At most so many batches.
        merge_batches : bool
            Join the batches along axis 0; else a list with the list of outputs of each batch.
        reset : bool
            Reset the iterator before.
        always_output_list : bool
            Give a list of outputs even when there is one.

        Raises
        ------
        TypeError
            For anything else.
        ValueError
            When batches that are to be joined have unlike numbers of outputs.
        """
        self._require("predict", params=True)
        if isinstance(eval_data, NDArray | numpy.ndarray):
            data = eval_data if isinstance(eval_data, NDArray) else nd_array(eval_data)
            self.forward(DataBatch([data]), is_train=False)
            results = _without_padding(self.get_outputs(), 0, copy=True)
            return results[0] if len(results) == 1 and not always_output_list else results
        if not hasattr(eval_data, "reset") or not hasattr(eval_data, "__iter__"):
            raise TypeError(f"predict expected an array or a DataIter, got {type(eval_data).__name__}")
        batches = [
            [output.copy() for output in outputs]
            for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset, sparse_row_id_fn)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(outputs) for outputs in batches}) > 1:
            raise ValueError(
                "predict cannot join batches with unlike numbers of outputs, as buckets may have; pass "
                "merge_batches=False"
            )
        joined = [concat(*parts, dim=0) for parts in zip(*batches, strict=True)]
        return joined[0] if len(joined) == 1 and not always_output_list else joined

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Any = None,
    ) -> None:
        """Bind, initialize and train for the epochs ``begin_epoch`` to ``num_epoch`` - 1.

        Parameters
        ----------
        train_data, eval_data : DataIter
            Batches to train on, and to evaluate on after every epoch.
        eval_metric, validation_metric : EvalMetric, str, callable or list of those
            Metrics of training and of evaluation (the same by default).
        epoch_end_callback : callable or list of callables, optional
            Called with the epoch, the symbol, arguments and auxiliary states.
        batch_end_callback, eval_batch_end_callback, eval_end_callback : callable or list, optional
            Called with a `BatchEndParam`.
        kvstore, optimizer, optimizer_params
            See `init_optimizer`.
        initializer, arg_params, aux_params, allow_missing, force_init
            See `init_params`.
        force_rebind : bool
            Bind anew even when bound.
        monitor : Monitor, optional
            Its tic and toc_print surround every batch.

        Raises
        ------
        ModuleStateError
            Without ``num_epoch``.
        """
        if num_epoch is None:
            raise ModuleStateError("fit: please specify number of epochs, num_epoch=")
        self.bind(
            data_shapes=train_data.provide_data,
            label_shapes=train_data.provide_label,
            for_training=True,
            force_rebind=force_rebind,
        )
        if monitor is not None:
            self.install_monitor(monitor)
        if force_init or not self.params_initialized or arg_params or aux_params:
            self.init_params(
                initializer=initializer,
                arg_params=arg_params,
                aux_params=aux_params,
                allow_missing=allow_missing,
                force_init=force_init,
            )
        self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)
        eval_metric = metrics.create(eval_metric)
        validation_metric = eval_metric if validation_metric is None else validation_metric
        for epoch in range(begin_epoch, num_epoch):
            tic = time.time()
            for name, value in self._train_epoch(dict(locals())):
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - tic)
            # Copies on several devices become one again.
            parameters = self.get_params()
            self.set_params(*parameters)
            self._call_all(epoch_end_callback, epoch, self.symbol, *parameters)
            if eval_data is not None:
                result = self.score(
                    eval_data,
                    validation_metric,
                    score_end_callback=eval_end_callback,
                    batch_end_callback=eval_batch_end_callback,
                    epoch=epoch,
                    sparse_row_id_fn=sparse_row_id_fn,
                )
                for name, value in result:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()

    def _train_epoch(self, loop: dict[str, Any]) -> list[tuple[str, float]]:
        """One pass over the data, given the variables of `fit`; the metric over all of it, whatever callbacks
        reset in between."""
        eval_metric, monitor = loop["eval_metric"], loop["monitor"]
        eval_metric.reset()
        pairs: list[tuple[str, float]] = []
        batches, following = self._first_batch(loop["train_data"])
        nbatch = 0
        while following is not None:
            data_batch = following
            if monitor is not None:
                monitor.tic()
            self.forward_backward(data_batch)
            self.update()
            self._update_metric_of(eval_metric, data_batch)
            following = next(batches, None)
            if following is not None:
                self.prepare(following, sparse_row_id_fn=loop["sparse_row_id_fn"])
            else:
                pairs = eval_metric.get_global_name_value()
            if monitor is not None:
                monitor.toc_print()
            if loop["batch_end_callback"] is not None:
                variables = {**loop, "data_batch": data_batch, "nbatch": nbatch}
                param = BatchEndParam(loop["epoch"], nbatch, eval_metric, variables)
                self._call_all(loop["batch_end_callback"], param)
            nbatch += 1
        return pairs

    @staticmethod
    def _first_batch(train_data: Any) -> tuple[Iterator[Any], Any]:
        """The batches and the first of them; data at their end, as after another loop, begin anew."""
        for again in (False, True):
            if again:
                train_data.reset()
            batches = iter(train_data)
            first = next(batches, None)
            if first is not None:
                return batches, first
        raise ValueError("fit expected train_data with at least one batch, got none")

    # Parameters ----------------------------------------------------------------------

    def set_params(
        self,
        arg_params: Any,
        aux_params: Any,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Take over parameters; see `init_params`."""
        self.init_params(
            initializer=None,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )

    def save_params(self, fname: Any) -> None:
        """Write the parameters to a file, under names ``arg:...`` and ``aux:...``."""
        serial.save(fname, pack_params(*self.get_params()))

    def load_params(self, fname: Any) -> None:
        """Take over what `save_params` wrote.

        Raises
        ------
        ValueError
            When the file's names are others.
        """
        self.set_params(*unpack_params(fname))

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The states; a module without them has none."""
        self._require("get_states", params=True)
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states; a module without them takes none."""
        self._require("set_states", params=True)
        if states or value:
            raise ValueError(f"{type(self).__name__} has no states to set")

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor watch every operator."""
        raise NotImplementedError(f"{type(self).__name__} must define install_monitor(mon).")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Get ready for the next batch."""
        del data_batch
        if sparse_row_id_fn is not None:
            warnings.warn("sparse_row_id_fn is not needed here: parameters are whole", stacklevel=3)

    # What a subclass defines ----------------------------------------------------------

    def _undefined(self, what: str) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define {what}.")

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""
        names: list[str] = self._undefined("data_names")
        return names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        names: list[str] = self._undefined("output_names")
        return names

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        return self._undefined("data_shapes")

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        return self._undefined("label_shapes")

    @property
    def output_shapes(self) -> Any:
        """Pairs of name and shape of the outputs."""
        return self._undefined("output_shapes")

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and auxiliary states."""
        parameters: tuple[dict[str, Any], dict[str, Any]] = self._undefined("get_params()")
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
        """Make the first values of the parameters."""
        self._undefined("init_params()")

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
        """Make the arrays for inputs of the given shapes."""
        self._undefined("bind()")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make the optimizer."""
        self._undefined("init_optimizer()")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs for a batch."""
        self._undefined("forward()")

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients."""
        self._undefined("backward()")

    def update(self) -> None:
        """Change the parameters by their gradients."""
        self._undefined("update()")

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The outputs of the last forward."""
        return self._undefined("get_outputs()")

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        """The gradients of the inputs."""
        return self._undefined("get_input_grads()")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the last forward's outputs to a metric."""
        self._undefined("update_metric()")
