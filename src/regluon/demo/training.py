"""Training the demo's network in one mode of execution, and what was measured on the way."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from tqdm import tqdm

import regluon as mx

from .digits import Digits
from .network import DigitNetwork

__all__ = ["MODES", "Mode", "Run", "export", "probabilities", "train"]

BATCH = 50
LEARNING_RATE = 0.05
LARGEST_SHIFT = 2
TIMED_CALLS = 60


@dataclass(frozen=True)
class Mode:
    """A way to run a network: None as flags means without hybridize()."""

    name: str
    flags: dict[str, bool] | None


MODES = (
    Mode("imperative", None),
    Mode("hybridized", {}),
    Mode("static_alloc+static_shape", {"static_alloc": True, "static_shape": True}),
)


@dataclass
class Run:
    """The outcome of training in one mode; times in seconds."""

    mode: Mode
    network: DigitNetwork
    losses: list[float] = field(default_factory=list)  # mean of each epoch
    epoch_seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    single_call: float = 0.0
    batch_call: float = 0.0

    def times(self) -> dict[str, float]:
        """Seconds of an epoch (median), of one image and of a batch of `BATCH` images."""
        return {
            "epoch": statistics.median(self.epoch_seconds),
            "one image": self.single_call,
            f"{BATCH} images": self.batch_call,
        }


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one processor: for images this small more threads gain nothing, and they wait for each
    other for long whenever another program is busy.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(mode: Mode, data: Digits, epochs: int, seed: int) -> Run:
    """Train from ``seed`` with momentum SGD and a cosine schedule on randomly shifted images, then
    measure."""
    mx.random.seed(seed)
    network = DigitNetwork()
    network.initialize(mx.init.Xavier())
    if mode.flags is not None:
        network.hybridize(active=True, **mode.flags)  # type: ignore[arg-type]
    run = Run(mode, network)
    loader = mx.gluon.data.DataLoader(
        mx.gluon.data.ArrayDataset(data.train_images, data.train_labels), batch_size=BATCH, shuffle=True
    )
    schedule = mx.lr_scheduler.CosineScheduler(epochs * len(loader), base_lr=LEARNING_RATE, final_lr=0)
    trainer = mx.gluon.Trainer(
        network.collect_params(),
        "sgd",
        {"learning_rate": LEARNING_RATE, "momentum": 0.9, "lr_scheduler": schedule},
    )
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    shifts = numpy.random.RandomState(seed)
    with tqdm(total=epochs * len(loader), desc=f"{mode.name:<27}", unit="step", disable=None) as bar:
        for _ in range(epochs):
            begin = time.perf_counter()
            total = 0.0
            for images, labels in loader:
                shifted = mx.nd.array(shift(images.asnumpy(), shifts))
                with mx.autograd.record():
                    loss = loss_function(network(shifted), labels)
                loss.backward()
                trainer.step(len(shifted))
                total += float(loss.mean().asscalar())
                bar.update()
            run.epoch_seconds.append(time.perf_counter() - begin)
            run.losses.append(total / len(loader))
            bar.set_postfix(loss=f"{run.losses[-1]:.3f}")
    guesses = probabilities(network, data.test_images).argmax(axis=1)
    run.accuracy = float((guesses == data.test_labels).mean())
    run.single_call = _time_call(network, data.test_images[:1])
    run.batch_call = _time_call(network, data.test_images[:BATCH])
    return run


def shift(images: numpy.ndarray, random: numpy.random.RandomState) -> numpy.ndarray:
    """Move every image by up to `LARGEST_SHIFT` pixels each way; the border of the digits is empty."""
    steps = random.randint(-LARGEST_SHIFT, LARGEST_SHIFT + 1, size=(len(images), 2))
    rows = (numpy.arange(images.shape[2]) - steps[:, :1]) % images.shape[2]
    columns = (numpy.arange(images.shape[3]) - steps[:, 1:]) % images.shape[3]
    numbers = numpy.arange(len(images))
    return images[numbers[:, None, None, None], 0, rows[:, None, :, None], columns[:, None, None, :]]


def probabilities(network: Any, images: numpy.ndarray) -> numpy.ndarray:
    """Softmax of the network's scores for images of shape (count, 1, 28, 28)."""
    return mx.nd.softmax(network(mx.nd.array(images)), axis=1).asnumpy()


def export(run: Run, folder: Path) -> None:
    """Write ``lenet-symbol.json`` and ``lenet-0000.params``."""
    run.network.export(str(folder / "lenet"), epoch=0)


def _time_call(network: DigitNetwork, images: numpy.ndarray) -> float:
    """Median seconds of a call."""
    batch = mx.nd.array(images)
    seconds = []
    for _ in range(TIMED_CALLS):
        begin = time.perf_counter()
        network(batch).wait_to_read()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
