"""`Estimator`: training and evaluation of a network, with handlers of what happens."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ....base.device import Context, current_context
from ...block import Block
from ...data.dataloader import DataLoader
from ...metric import EvalMetric
from ...trainer import Trainer
from .batch_processor import BatchProcessor
from .event_handler import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
)
from .utils import TRAINING, VALIDATION, default_metrics, known_metrics, mark, metric_list, validation_twin

__all__ = ["Estimator"]

_EVENTS = {
    "train_begin": TrainBegin,
    "epoch_begin": EpochBegin,
    "batch_begin": BatchBegin,
    "batch_end": BatchEnd,
    "epoch_end": EpochEnd,
    "train_end": TrainEnd,
}


class _Output(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what ``sys.stdout`` is at that moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, value: Any) -> None:
        raise AttributeError("this handler follows sys.stdout; add a handler of your own to write elsewhere")


def _logger() -> logging.Logger:
    """A logger of one estimator's own, as in MXNet: the program's logging does not write its lines again."""
    logger = logging.Logger("Estimator", logging.INFO)
    logger.addHandler(_Output())
    return logger


class Estimator:
    """Trains and evaluates a network.

    Parameters
    ----------
    net : Block
        The network.
    loss : gluon.loss.Loss
        The training loss.
    train_metrics, val_metrics : EvalMetric or list, optional
        What is measured. Their names get "training " and "validation " in front. Training metrics are by
        default the loss, and the accuracy where the loss is the softmax cross entropy of class numbers;
        validation metrics are by default of the kinds of the training metrics.
    initializer : Initializer, optional
        For a network that is not initialized.
    trainer : Trainer, optional
        By default SGD with a learning rate of 0.001, with a warning.
    context, device : Context or list of Context, optional
        Where to train (two names of one argument); the current context by default. Batches are split over
        several.
    val_net, val_loss : optional
        The network and loss of evaluation, ``net`` and ``loss`` by default. ``evaluation_loss`` is another
        name of ``val_loss``.
    batch_processor : BatchProcessor, optional
        What is done with a batch: an object with ``fit_batch`` and ``evaluate_batch``.

    Raises
    ------
    ValueError
        For arguments of a wrong kind.
    """

    def __init__(
        self,
        net: Block,
        loss: Block,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Trainer | None = None,
        context: Context | Sequence[Context] | None = None,
        val_net: Block | None = None,
        val_loss: Block | None = None,
        batch_processor: Any = None,
        *,
        device: Context | Sequence[Context] | None = None,
        evaluation_loss: Block | None = None,
    ) -> None:
        if not isinstance(net, Block):
            raise ValueError(f"net must be a Block, refer to gluon.Block: {net}")
        self.net = net
        self.loss = _checked_loss(loss)
        given_loss = evaluation_loss if val_loss is None else val_loss
        self.val_loss = self.loss if given_loss is None else _checked_loss(given_loss)
        self.val_net = net if val_net is None else val_net
        self._train_metrics = metric_list(train_metrics) or default_metrics(loss)
        for metric in self._train_metrics:
            mark(metric, TRAINING)
        self._val_metrics = metric_list(val_metrics) or [validation_twin(m) for m in self._train_metrics]
        for metric in self._val_metrics:
            mark(metric, VALIDATION)
        self.logger = _logger()
        self.context = _checked_contexts(device if context is None else context)
        if trainer is not None and not isinstance(trainer, Trainer):
            raise ValueError(f"Trainer must be a Gluon Trainer instance, refer to gluon.Trainer:{trainer}")
        self._initialize(initializer, move=trainer is None)
        self.trainer = self._default_trainer() if trainer is None else trainer
        processor = BatchProcessor() if batch_processor is None else batch_processor
        if not all(callable(getattr(processor, name, None)) for name in ("fit_batch", "evaluate_batch")):
            raise ValueError(
                "Customized Batch Processor must contain fit_batch() and evaluate_batch() methods; received "
                f"{processor!r}"
            )
        self.batch_processor = processor
        self.max_epoch: int | None = None
        self.max_batch: int | None = None
        self.batch_axis = 0

    @property
    def device(self) -> list[Context]:
        """The contexts of training."""
        return self.context

    @property
    def train_metrics(self) -> list[EvalMetric]:
        """The training metrics."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        """The validation metrics."""
        return self._val_metrics

    # Preparation ----------------------------------------------------------------------

    def _initialize(self, initializer: Any, move: bool) -> None:
        """Initialize what is not, and with ``move`` bring parameters that are elsewhere to the contexts."""
        parameters = list(self.net.collect_params().values())
        missing = [p for p in parameters if p._data is None and not p._deferred_init]
        if parameters and not missing:
            if initializer is not None:
                warnings.warn(
                    "Network already fully initialized, skipping initialization. You don't need to pass "
                    "initializer if you already initialized your net. You can use "
                    "net.initialize(init=your_initializer, force_reinit=True) to force re-initialize.",
                    UserWarning,
                    stacklevel=3,
                )
            if move and any(p.list_ctx() != self.context for p in parameters):
                self.net.reset_ctx(self.context)
            return
        if len(missing) == len(parameters):
            arguments = {} if initializer is None else {"init": initializer}
            self.net.initialize(ctx=self.context, **arguments)
            return
        warnings.warn(
            f"Network already partially initialized, initializing the other {len(missing)} of "
            f"{len(parameters)} parameters only.",
            UserWarning,
            stacklevel=3,
        )
        for parameter in missing:
            parameter.initialize(init=initializer if parameter.init is None else None, ctx=self.context)

    def _default_trainer(self) -> Trainer:
        warnings.warn(
            "No trainer specified, default SGD optimizer with learning rate 0.001 is used.",
            UserWarning,
            stacklevel=3,
        )
        return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})

    # Events ---------------------------------------------------------------------------

    def _checked_handlers(self, event_handlers: Any) -> list[Any]:
        """The handlers as a list; their metrics must be this estimator's."""
        if event_handlers is None:
            return []
        handlers = list(event_handlers) if isinstance(event_handlers, (list, tuple)) else [event_handlers]
        if not all(isinstance(handler, EventHandler) for handler in handlers):
            raise ValueError(
                f"handlers must be an EventHandler or a list of EventHandler, got: {event_handlers}"
            )
        known = {id(metric) for metric in known_metrics([*self.train_metrics, *self.val_metrics])}
        for handler in handlers:
            for value in vars(handler).values():
                for metric in value if isinstance(value, (list, tuple)) else [value]:
                    if isinstance(metric, EvalMetric) and id(metric) not in known:
                        raise ValueError(
                            f"Event handler {type(handler).__name__} refers to a metric instance {metric} "
                            "outside of the known training and validation metrics. Please use the metrics "
                            "from estimator.train_metrics and estimator.val_metrics instead."
                        )
        return handlers

    def _training_handlers(self, val_data: Any, event_handlers: Any) -> list[Any]:
        """The handlers given, and the default ones of the kinds that are not among them."""
        handlers = self._checked_handlers(event_handlers)
        defaults: list[Any] = [
            StoppingHandler(self.max_epoch, self.max_batch),
            GradientUpdateHandler(),
            MetricHandler(metrics=self.train_metrics),
        ]
        if val_data is not None:
            # One log for all validations of a training: it counts the epochs.
            log = LoggingHandler(metrics=self.val_metrics)
            defaults.append(ValidationHandler(val_data, self.evaluate, event_handlers=[log]))
        defaults.append(LoggingHandler(metrics=self.train_metrics))
        return _completed(handlers, defaults)

    def _validation_handlers(self, event_handlers: Any) -> list[Any]:
        handlers = self._checked_handlers(event_handlers)
        metrics = self.val_metrics
        return _completed(handlers, [MetricHandler(metrics=metrics), LoggingHandler(metrics=metrics)])

    def _tell(self, handlers: list[Any], event: str, **kwargs: Any) -> bool:
        """Call the handlers of an event; whether one of them wants to stop."""
        interested = [handler for handler in handlers if isinstance(handler, _EVENTS[event])]
        interested.sort(key=lambda handler: getattr(handler, "priority", 0))
        answers = [getattr(handler, event)(self, **kwargs) for handler in interested]
        return any(bool(answer) for answer in answers)

    # Running --------------------------------------------------------------------------

    def evaluate(self, val_data: DataLoader, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Measure ``val_metrics`` on validation data.

        Parameters
        ----------
        val_data : DataLoader
            The data.
        batch_axis : int
            The axis of samples.
        event_handlers : EventHandler or list, optional
            Besides a `MetricHandler` and a `LoggingHandler`, unless those are among them.

        Raises
        ------
        ValueError
            If ``val_data`` is no DataLoader, or handlers are of a wrong kind.
        """
        _check_loader(val_data)
        handlers = self._validation_handlers(event_handlers)
        self._tell(handlers, "epoch_begin")
        for batch in val_data:
            self._tell(handlers, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            self._tell(handlers, "batch_end", batch=batch, pred=pred, label=label, loss=loss)
        self._tell(handlers, "epoch_end")

    def fit(
        self,
        train_data: DataLoader,
        val_data: DataLoader | None = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Train for a number of epochs or of batches.

        Parameters
        ----------
        train_data, val_data : DataLoader
            Training data, and data that is evaluated after each epoch.
        epochs, batches : int
            How long; exactly one of the two.
        event_handlers : EventHandler or list, optional
            Besides `StoppingHandler`, `GradientUpdateHandler`, `MetricHandler`, `ValidationHandler` and
            `LoggingHandler`, each of which is made unless one of its kind is among them.
        batch_axis : int
            The axis of samples.

        Raises
        ------
        ValueError
            For data or handlers of a wrong kind, data without a batch, or none or both of ``epochs`` and
            ``batches``.
        """
        for data in (train_data, val_data):
            if data is not None or data is train_data:
                _check_loader(data)
        if (not epochs) == (not batches):
            raise ValueError(
                "Fit only support exactly one type of iteration, train by number of epochs or number of "
                f"batches. Please specify one and only one of: epochs or batches; received epochs={epochs}, "
                f"batches={batches}."
            )
        self.max_epoch, self.max_batch = epochs, batches
        self.batch_axis = batch_axis
        handlers = self._training_handlers(val_data, event_handlers)
        self._tell(handlers, "train_begin")
        while not self._epoch(train_data, handlers, batch_axis):
            pass
        self._tell(handlers, "train_end")

    def _epoch(self, train_data: DataLoader, handlers: list[Any], batch_axis: int) -> bool:
        """One epoch of training; whether to stop after it."""
        self._tell(handlers, "epoch_begin")
        batch = None
        for batch in train_data:
            self._tell(handlers, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
            if self._tell(handlers, "batch_end", batch=batch, pred=pred, label=label, loss=loss):
                break
        if batch is None:
            raise ValueError("fit expected training data with at least one batch; the DataLoader gave none")
        return self._tell(handlers, "epoch_end")


def _completed(handlers: list[Any], defaults: list[Any]) -> list[Any]:
    missing = [one for one in defaults if not any(isinstance(handler, type(one)) for handler in handlers)]
    return [*handlers, *missing]


def _checked_loss(loss: Any) -> Block:
    if not isinstance(loss, Block):
        raise ValueError(f"loss must be a Loss, refer to gluon.loss.Loss:{loss}")
    return loss


def _checked_contexts(contexts: Any) -> list[Context]:
    listed = list(contexts) if isinstance(contexts, (list, tuple)) else [contexts or current_context()]
    if not listed or not all(isinstance(context, Context) for context in listed):
        raise ValueError(
            "context must be a Context or a list of Context, for example mx.cpu() or [mx.gpu(0), mx.gpu(1)], "
            f"refer to mxnet.Context:{contexts}"
        )
    return listed


def _check_loader(data: Any) -> None:
    if not isinstance(data, DataLoader):
        raise ValueError(
            "Estimator only support input as Gluon DataLoader. Alternatively, you can transform your "
            "DataIter or any NDArray into Gluon DataLoader. Refer to gluon.data.DataLoader; received "
            f"{type(data).__name__}"
        )
