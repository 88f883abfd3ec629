"""`FeedForward`: the training interface from before modules, on top of them."""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any

import numpy

from .. import metric as metrics
from .. import model
from ..array import NDArray
from ..base.device import cpu
from ..callback import LogValidationMetricsCallback
from ..io import DataIter, NDArrayIter, ResizeIter
from .base_module import DEFAULT_INITIALIZER, as_list
from .module import Module

__all__ = ["FeedForward"]

LOG_VALIDATION = LogValidationMetricsCallback()


class FeedForward:
    """A symbol with its parameters that fits, predicts and scores arrays; `Module` does more.

    Parameters
    ----------
    symbol : Symbol
        The network.
    ctx : Context or list of Context, optional
        Devices.
    num_epoch : int, optional
        Epochs to train.
    epoch_size : int, optional
        Batches of an epoch, all of the data by default.
    optimizer : str or Optimizer
        The optimizer; other keywords are its arguments.
    initializer : Initializer
        Fills parameters that are not given.
    numpy_batch_size : int
        Rows of a batch of NumPy arrays.
    arg_params, aux_params : dict of str to NDArray, optional
        Parameters to begin with.
    allow_extra_params : bool
        Whether these may hold more than the symbol needs.
    begin_epoch : int
        Number of the first epoch.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = DEFAULT_INITIALIZER,
        numpy_batch_size: int = 128,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        warnings.warn(
            "mxnet.model.FeedForward has been deprecated. Please use mxnet.mod.Module instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.symbol = symbol
        self.ctx = as_list(cpu() if ctx is None else ctx)
        self.num_epoch, self.epoch_size, self.begin_epoch = num_epoch, epoch_size, begin_epoch
        self.optimizer, self.initializer = optimizer, initializer
        self.numpy_batch_size = numpy_batch_size
        self.allow_extra_params = allow_extra_params
        self.arg_params, self.aux_params = self._known(arg_params), self._known(aux_params)
        self.kwargs = kwargs

    def _known(self, given: Any) -> Any:
        """Parameters, without those that the symbol does not have if they are allowed.

        Raises
        ------
        ValueError
            If there are some and they are not allowed.
        """
        if given is None:
            return None
        names = {*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states()}
        extra = [name for name in given if name not in names]
        if extra and not self.allow_extra_params:
            raise ValueError(
                f"the symbol has no parameters {', '.join(extra)}; pass allow_extra_params=True to leave "
                "them out"
            )
        return {name: value for name, value in given.items() if name in names}

    def _data_iter(self, data: Any, label: Any, train: bool) -> Any:
        """An iterator over arrays; an iterator as it is."""
        if not isinstance(data, numpy.ndarray | NDArray):
            if not isinstance(data, DataIter) and not hasattr(data, "provide_data"):
                raise TypeError(f"X expected an array or a DataIter, got {type(data).__name__}")
            return data
        if label is None:
            if train:
                raise ValueError("y must be specified when X is numpy.ndarray")
            label = numpy.zeros(data.shape[0])
        if isinstance(label, list):
            label = numpy.asarray(label)
        if label.ndim == 2 and label.shape[1] == 1:
            label = label.reshape(-1)
        if label.ndim != 1 or label.shape[0] != data.shape[0]:
            raise ValueError(
                f"y expected one label for each of {data.shape[0]} rows of X, got shape {label.shape}"
            )
        size = min(data.shape[0], self.numpy_batch_size)
        return NDArrayIter(
            data, label, size, shuffle=train, last_batch_handle="roll_over" if train else "pad"
        )

    def _module(self, data: Any, train: bool) -> Module:
        module = Module(
            self.symbol,
            data_names=[given[0] for given in data.provide_data],
            label_names=[given[0] for given in data.provide_label],
            context=self.ctx,
        )
        module.bind(data.provide_data, data.provide_label, for_training=train)
        return module

    def _predictor(self, data: Any) -> Module:
        if self.arg_params is None:
            raise ValueError("FeedForward needs parameters: call fit(), or give arg_params= and aux_params=")
        arguments = set(self.symbol.list_arguments())
        labels = [given for given in data.provide_label if given[0] in arguments]
        module = Module(
            self.symbol,
            data_names=[given[0] for given in data.provide_data],
            label_names=[given[0] for given in labels],
            context=self.ctx,
        )
        module.bind(data.provide_data, labels, for_training=False)
        module.init_params(None, self.arg_params, self.aux_params or {})
        return module

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        monitor: Any = None,
        eval_end_callback: Any = LOG_VALIDATION,
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Train on arrays or an iterator; ``eval_data`` is an iterator or a pair of arrays.

        Raises
        ------
        ValueError
            Without ``num_epoch``, or without ``y`` for arrays.
        """
        del work_load_list
        if self.num_epoch is None:
            raise ValueError("FeedForward.fit needs num_epoch=, given to FeedForward")
        logger = logger or logging
        data = self._data_iter(X, y, True)
        if isinstance(eval_data, tuple | list):
            eval_data = self._data_iter(eval_data[0], eval_data[1], False)
        module = self._module(data, True)
        if monitor is not None:
            module.install_monitor(monitor)
        module.init_params(self.initializer, self.arg_params, self.aux_params, allow_missing=True)
        module.init_optimizer(kvstore, self.optimizer, self.kwargs)
        eval_metric = metrics.create(eval_metric)
        logger.info("Start training with %s", str(self.ctx))
        batches = data if self.epoch_size is None else ResizeIter(data, self.epoch_size, False)
        data.reset()
        for epoch in range(self.begin_epoch, self.num_epoch):
            began = time.time()
            eval_metric.reset()
            for number, batch in enumerate(batches, 1):
                if monitor is not None:
                    monitor.tic()
                module.forward_backward(batch)
                module.update()
                module.update_metric(eval_metric, batch.label)
                if monitor is not None:
                    monitor.toc_print()
                param = model.BatchEndParam(epoch, number, eval_metric, locals())
                module._call_all(batch_end_callback, param)
            logger.info("Epoch[%d] Resetting Data Iterator", epoch)
            batches.reset()
            logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - began)
            self.arg_params, self.aux_params = module.get_params()
            module._call_all(epoch_end_callback, epoch, self.symbol, self.arg_params, self.aux_params)
            if eval_data is not None:
                module.score(
                    eval_data,
                    eval_metric,
                    batch_end_callback=eval_batch_end_callback,
                    score_end_callback=eval_end_callback,
                    epoch=epoch,
                )
                # It may be the iterator that is trained on.
                eval_data.reset()

    def predict(
        self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """The outputs as NumPy arrays; with ``return_data`` also the inputs and labels."""
        data = self._data_iter(X, None, False)
        module = self._predictor(data)
        outputs: list[list[numpy.ndarray]] = []
        inputs: list[list[numpy.ndarray]] = []
        labels: list[list[numpy.ndarray]] = []
        for results, _, batch in module.iter_predict(data, num_batch, reset):
            kept = data.batch_size - (batch.pad or 0)
            outputs.append([output.asnumpy() for output in results])
            inputs.append([array[0:kept].asnumpy() for array in batch.data])
            labels.append([array[0:kept].asnumpy() for array in batch.label or ()])

        def joined(batches: list[list[numpy.ndarray]]) -> Any:
            whole = [numpy.concatenate(parts) for parts in zip(*batches, strict=True)]
            return whole[0] if len(whole) == 1 else whole

        return (joined(outputs), joined(inputs), joined(labels)) if return_data else joined(outputs)

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> Any:
        """The value of a metric over an iterator with labels."""
        module = self._predictor(X)
        metric = metrics.create(eval_metric)
        module.score(X, metric, num_batch, batch_end_callback, reset=reset)
        return metric.get_global()[1]

    def save(self, prefix: Any, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write a checkpoint, under the number of epochs by default."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise ValueError("FeedForward.save needs epoch=")
        model.save_checkpoint(
            prefix, epoch, self.symbol, self.arg_params or {}, self.aux_params or {}, remove_amp_cast
        )

    @staticmethod
    def load(prefix: Any, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """A model from a checkpoint; ``kwargs`` are those of `FeedForward`."""
        symbol, arguments, auxiliary = model.load_checkpoint(prefix, epoch)
        return FeedForward(
            symbol, ctx=ctx, arg_params=arguments, aux_params=auxiliary, begin_epoch=epoch, **kwargs
        )

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = DEFAULT_INITIALIZER,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        eval_end_callback: Any = LOG_VALIDATION,
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Make a model and fit it."""
        made = FeedForward(
            symbol,
            ctx=ctx,
            num_epoch=num_epoch,
            epoch_size=epoch_size,
            optimizer=optimizer,
            initializer=initializer,
            **kwargs,
        )
        made.fit(
            X,
            y,
            eval_data=eval_data,
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=batch_end_callback,
            kvstore=kvstore,
            logger=logger,
            work_load_list=work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return made
