"""Trainings by an Estimator, written for the originals and for regluon alike: each gives what it logged.

With each original's Python, ``python estimator_runs.py ../golden`` completes estimator.json; the tests repeat
the runs with regluon. Folders and times are masked.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

RUNS: dict[str, Callable[[Any, bool], Any]] = {}


def run(function: Callable[[Any, bool], Any]) -> Callable[[Any, bool], Any]:
    """Register a run; it takes the module ``mx`` and whether it is of the second generation."""
    RUNS[function.__name__] = function
    return function


def loader(mx: Any, second: bool, samples: int = 20, batch_size: int = 5) -> Any:
    """Batches of data (4 features) and labels of three classes."""
    state = numpy.random.RandomState(0)
    values = state.randn(samples, 4).astype("float32"), state.randint(0, 3, samples).astype("float32")
    arrays = [mx.np.array(value) if second else mx.nd.array(value) for value in values]
    return mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(*arrays), batch_size=batch_size)


def make(mx: Any, second: bool, hybridize: bool = False, contexts: Any = None, **arguments: Any) -> Any:
    """An Estimator of a Dense layer with constant weights, trained by SGD with momentum."""
    contexts = contexts or [mx.cpu()]
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize(mx.init.Constant(0.1), **{"device" if second else "ctx": contexts})
    if hybridize:
        net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    metrics = mx.gluon.metric if second else mx.metric
    arguments = {"train_metrics": metrics.Accuracy(), **arguments}
    return mx.gluon.contrib.estimator.Estimator(
        net,
        mx.gluon.loss.SoftmaxCrossEntropyLoss(),
        trainer=trainer,
        **{"device" if second else "context": contexts},
        **arguments,
    )


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that the Estimator's logger receives, with times and folders masked."""
    lines: list[str] = []
    plain = logging.Logger.handle

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        if logger.name == "Estimator":
            text = re.sub(r"[0-9.]+s(?=[, ]|$)", "TIME", record.getMessage().strip())
            lines.append(re.sub(rf"{re.escape(tempfile.gettempdir())}/[^/ ]+", "FOLDER", text))
        plain(logger, record)

    logging.Logger.handle = handle  # type: ignore[method-assign]
    try:
        yield lines
    finally:
        logging.Logger.handle = plain  # type: ignore[method-assign]


def weight(estimator: Any, context: Any = None) -> Any:
    """The weight of the layer."""
    return estimator.net.weight.data(context).asnumpy().astype("float64").round(4).tolist()


@run
def epochs(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    estimator.fit(loader(mx, second), val_data=loader(mx, second), epochs=2)
    return weight(estimator)


@run
def batches(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    estimator.fit(loader(mx, second), batches=6)
    return weight(estimator)


@run
def lines_of_batches(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    handler = mx.gluon.contrib.estimator.LoggingHandler(log_interval=3, metrics=estimator.train_metrics)
    estimator.fit(loader(mx, second), epochs=2, event_handlers=[handler])
    return handler.processed_samples


@run
def two_contexts(mx: Any, second: bool) -> Any:
    contexts = [mx.cpu(0), mx.cpu(1)]
    estimator = make(mx, second, contexts=contexts)
    estimator.fit(loader(mx, second, batch_size=4), val_data=loader(mx, second, batch_size=4), epochs=2)
    return [weight(estimator, context) for context in contexts]


@run
def default_metrics(mx: Any, second: bool) -> Any:
    estimator = make(mx, second, train_metrics=None)
    estimator.fit(loader(mx, second), val_data=loader(mx, second), epochs=1)
    return [[metric.name for metric in estimator.train_metrics + estimator.val_metrics]]


@run
def validation_periods(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    handler = mx.gluon.contrib.estimator.ValidationHandler(
        loader(mx, second), estimator.evaluate, epoch_period=2, batch_period=3
    )
    estimator.fit(loader(mx, second), epochs=2, event_handlers=[handler])
    return [handler.current_epoch, handler.current_batch]


@run
def early_stopping(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    handler = mx.gluon.contrib.estimator.EarlyStoppingHandler(
        estimator.val_metrics[0], patience=2, mode="max"
    )
    estimator.fit(loader(mx, second), val_data=loader(mx, second), epochs=10, event_handlers=[handler])
    return [handler.stopped_epoch, handler.wait, round(handler.best, 4)]


@run
def early_stopping_by_change(mx: Any, second: bool) -> Any:
    estimator = make(mx, second)
    handler = mx.gluon.contrib.estimator.EarlyStoppingHandler(
        estimator.train_metrics[0], min_delta=0.2, patience=1, mode="max"
    )
    estimator.fit(loader(mx, second), epochs=10, event_handlers=[handler])
    return [handler.stopped_epoch, handler.wait, round(handler.best, 4)]


@run
def checkpoints(mx: Any, second: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        estimator = make(mx, second, hybridize=True)
        handler = mx.gluon.contrib.estimator.CheckpointHandler(
            folder, "net", verbose=1, epoch_period=2, batch_period=3, max_checkpoints=2
        )
        estimator.fit(loader(mx, second), epochs=4, event_handlers=[handler])
        return [sorted(os.listdir(folder)), handler.saved_checkpoints]


@run
def best_and_resumed(mx: Any, second: bool) -> Any:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for epochs_wanted, resume in ((4, False), (6, True)):
            estimator = make(mx, second)
            handler = mx.gluon.contrib.estimator.CheckpointHandler(
                folder,
                "net",
                monitor=estimator.train_metrics[0],
                verbose=1,
                save_best=True,
                mode="max",
                max_checkpoints=9,
                resume_from_checkpoint=resume,
            )
            estimator.fit(loader(mx, second), epochs=epochs_wanted, event_handlers=[handler])
            found.append([sorted(os.listdir(folder)), round(handler.best, 4), weight(estimator)])
    return found


@run
def resumed_by_batches(mx: Any, second: bool) -> Any:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for wanted, resume in ((7, False), (11, True)):
            estimator = make(mx, second)
            handler = mx.gluon.contrib.estimator.CheckpointHandler(
                folder, verbose=1, epoch_period=None, batch_period=3, resume_from_checkpoint=resume
            )
            estimator.fit(loader(mx, second), batches=wanted, event_handlers=[handler])
            found.append([sorted(os.listdir(folder)), weight(estimator)])
    return found


@run
def order_of_handlers(mx: Any, second: bool) -> Any:
    kinds = mx.gluon.contrib.estimator
    seen: list[Any] = []

    class Watcher(kinds.TrainBegin, kinds.TrainEnd, kinds.EpochBegin, kinds.EpochEnd, kinds.BatchEnd):
        def __init__(self, priority: Any) -> None:
            self.priority = priority

        def _note(self, event: str, estimator: Any) -> None:
            accuracy = str(estimator.train_metrics[0].get()[1])
            seen.append([event, self.priority, weight(estimator)[0][0], accuracy])

        def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            self._note("train_begin", estimator)

        def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            self._note("train_end", estimator)

        def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            self._note("epoch_begin", estimator)

        def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
            self._note("epoch_end", estimator)
            return False

        def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
            self._note("batch_end", estimator)
            return False

    handlers = [Watcher(priority) for priority in (0, -3000, -1500, 5, -500)]
    make(mx, second).fit(loader(mx, second, 5), epochs=1, event_handlers=handlers)
    return seen


def write(folder: str) -> None:
    """Add what an original does to estimator.json in a folder."""
    import mxnet as mx

    second = mx.__version__.startswith("2")
    path = os.path.join(folder, "estimator.json")
    golden = {}
    if os.path.exists(path):
        with open(path) as stream:
            golden = json.load(stream)
    warnings.simplefilter("ignore")
    found = {}
    for name, function in RUNS.items():
        with logged() as lines:
            result = function(mx, second)
        found[name] = {"log": lines, "result": result}
    golden["2.0.0b1" if second else "1.9.1"] = found
    with open(path, "w") as stream:
        json.dump(golden, stream, indent=1, sort_keys=True)
        stream.write("\n")


if __name__ == "__main__":
    write(sys.argv[1])
