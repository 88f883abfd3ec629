"""`Monitor`: statistics of outputs and parameters while a network trains."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

from .array import NDArray

__all__ = ["Monitor"]


def _root_mean_square(array: Any) -> Any:
    """The norm over the root of the number of elements."""
    return array.norm() / math.sqrt(max(array.size, 1))


class Monitor:
    """Collects a statistic of every output, argument and auxiliary state in chosen batches.

    Parameters
    ----------
    interval : int
        Batches from one that is looked at to the next.
    stat_func : callable, optional
        Function of an array that gives an array or a list of arrays; by default the norm over the root of
        the number of elements.
    pattern : str
        Regular expression that a name has to match at its beginning.
    sort : bool
        Order the results by name.
    monitor_all : bool
        Look at the inputs of every operator too.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[Any], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.interval = interval
        self.stat_func = stat_func or _root_mean_square
        self.sort = sort
        self.monitor_all = monitor_all
        self.re_prog = re.compile(pattern)
        self.activated = False
        self.step = 0
        self.exes: list[Any] = []
        self.queue: list[tuple[int, str, Any]] = []

    def stat_helper(self, name: str, array: Any) -> None:
        """The callback of the executors: keep the statistic of an array."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Watch an executor."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """Begin a batch: collect if it is one to look at."""
        if self.step % self.interval == 0:
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """End the batch: what was collected, as number of the batch, name and statistic."""
        if not self.activated:
            return []
        for executor in self.exes:
            for arrays in (executor.arg_dict, executor.aux_dict):
                for name, array in arrays.items():
                    self.stat_helper(name, array)
        self.activated = False
        found = sorted(self.queue, key=lambda item: item[1]) if self.sort else self.queue
        self.queue = []
        return [(step, name, _text(name, value)) for step, name, value in found]

    def toc_print(self) -> None:
        """End the batch and log what was collected."""
        for step, name, value in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, value)


def _text(name: str, value: Any) -> str:
    """A statistic's numbers, each followed by a tab."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    text = ""
    for one in values:
        if not isinstance(one, NDArray):
            raise TypeError(
                f"a Monitor's stat_func gives an array or a list of arrays; for {name} it gave "
                f"{type(one).__name__}"
            )
        shown = one.asnumpy()
        # str() of a NumPy number gives its own digits; a format would make it double.
        text += str(shown.reshape(())[()] if one.size == 1 else shown) + "\t"
    return text
