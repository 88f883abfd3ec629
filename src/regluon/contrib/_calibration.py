"""Ranges of values over calibration data: their ends, or the threshold that keeps most information."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from ..base.errors import MXNetError
from ..ops.calibration import best_threshold, least_threshold

__all__ = ["CalibrationCollector", "EntropyCollector", "RangeCollector", "batches_of", "feeding"]

_BINS = 8001
_LEVELS = 255
# Below this the width of a bin would be no normal number: such values count as zeros.
_SMALLEST = 1e-33


class CalibrationCollector:
    """The base of collectors: gets every value that is quantized, gives its range.

    Attributes
    ----------
    include_layers : collection of str or None
        Names of the values to collect; None for all. Set by ``quantize_net``.
    min_max_dict : dict
        Name -> (lowest, highest).
    """

    def __init__(self) -> None:
        self.include_layers: Any = None
        self.min_max_dict: dict[str, tuple[float, float]] = {}

    def collect(self, name: str, op_name: str, arr: Any) -> None:
        """Take the value ``arr`` (NDArray) called ``name`` that the operator ``op_name`` computed."""
        raise NotImplementedError(f"{type(self).__name__} has to define collect(name, op_name, arr)")

    def post_collect(self) -> dict[str, tuple[float, float]]:
        """Name -> (lowest, highest), after all data."""
        return self.min_max_dict

    def _wanted(self, name: str) -> bool:
        return self.include_layers is None or name in self.include_layers


class RangeCollector(CalibrationCollector):
    """The lowest and the highest value over all data (``naive``)."""

    def collect(self, name: str, op_name: str, arr: Any) -> None:
        """Widen the range of ``name`` to hold ``arr``."""
        if not self._wanted(name):
            return
        low, high = (float(end) for end in arr._t.aminmax())
        known = self.min_max_dict.get(name)
        if known is not None:
            low, high = min(low, known[0]), max(high, known[1])
        self.min_max_dict[name] = low, high


class EntropyCollector(CalibrationCollector):
    """The range that keeps most information when what lies outside is clipped (``entropy``).

    Values are counted in bins; see `ops.calibration.best_threshold`. Thresholds that would make the mean
    squared error larger than it is without clipping are not considered.
    """

    def __init__(self, quantized_dtype: str = "auto", num_bins: int = _BINS) -> None:
        super().__init__()
        self.quantized_dtype = quantized_dtype
        self.num_bins = num_bins
        # Name -> counts, width of a bin, lowest value.
        self.hist_dict: dict[str, tuple[numpy.ndarray, float, float]] = {}
        # What was all zeros so far: that says nothing of the width.
        self._silent: set[str] = set()

    def collect(self, name: str, op_name: str, arr: Any) -> None:
        """Count the values of ``arr``."""
        if not self._wanted(name):
            return
        values = arr.asnumpy().reshape(-1)
        if not values.size:
            return
        lowest, largest = float(values.min()), float(numpy.abs(values).max())
        if not numpy.isfinite(largest):
            raise MXNetError(f"calibration: the value {name} is not finite for the data given")
        if largest < _SMALLEST and name not in self.hist_dict:
            self._silent.add(name)
            return
        counts, width, low = self.hist_dict.get(name, (None, 2 * largest / self.num_bins, lowest))
        if counts is None:
            counts = numpy.zeros(self.num_bins)
        # A value further out gets bins of the same width, as many on both sides. After a first batch of very
        # small values that could be millions: then bins are joined by threes.
        while largest > len(counts) * width / 2 * 3:
            counts, width = _joined(counts), width * 3
        more = int(numpy.ceil(max(0.0, largest - len(counts) * width / 2) / width))
        counts = numpy.pad(counts, more)
        end = len(counts) * width / 2
        counts = counts + numpy.histogram(values, bins=len(counts), range=(-end, end))[0]
        self.hist_dict[name] = counts, width, min(low, lowest)

    def post_collect(self) -> dict[str, tuple[float, float]]:
        """The ranges by entropy; (0, 0) for what was all zeros."""
        self.min_max_dict.update({name: (0.0, 0.0) for name in self._silent.difference(self.hist_dict)})
        for name, (counts, width, low) in self.hist_dict.items():
            positive = low >= 0 and self.quantized_dtype in ("auto", "uint8")
            # Without negative values all levels are on one side.
            levels = 2 * _LEVELS + 1 if positive else _LEVELS
            end = len(counts) * width / 2
            edges = numpy.linspace(-end, end, len(counts) + 1)
            useful = _without_zeros(counts)
            # By divergence alone, a sparse distribution may be clipped to a part that matters little.
            least = least_threshold(useful, edges, 255.5 if positive else 127.5)
            threshold, _ = best_threshold(useful, edges, levels, 1 + len(counts) // 1500, least)
            self.min_max_dict[name] = (0.0 if positive else -threshold), threshold
        return self.min_max_dict


def _without_zeros(counts: numpy.ndarray) -> numpy.ndarray:
    """Zeros are exact in any quantization: they have no say, however many there are (relu, white margins)."""
    result = counts.copy()
    middle = len(counts) // 2
    result[middle] = max(result[middle - 1], result[middle + 1])
    return result


def _joined(counts: numpy.ndarray) -> numpy.ndarray:
    """Three bins as one, around the same middle."""
    side = -(len(counts) // 2 - 1) % 3
    padded = numpy.pad(counts, side)
    joined = padded.reshape(-1, 3).sum(1)
    return numpy.pad(joined, (len(counts) - len(joined)) // 2)


def feeding(collector: Any) -> Callable[[str, str, Any], None]:
    """``collector.collect``, with or without the name of the operator, as it takes them (1.9.1: without)."""
    collect = collector.collect
    try:
        count = len(inspect.signature(collect).parameters)
    except (TypeError, ValueError):
        count = 3
    return collect if count >= 3 else lambda name, operator, array: collect(name, array)


def batches_of(data: Any, count: int) -> Iterator[list[Any]]:
    """The inputs of a network with ``count`` inputs, batch by batch.

    ``data`` is a DataIter, a DataLoader, an array, or an iterable of batches; a batch is an array or a
    sequence whose first ``count`` items are the inputs.
    """
    if hasattr(data, "asnumpy"):
        data = [data]
    if hasattr(data, "reset"):
        data.reset()
    for batch in data:
        values = getattr(batch, "data", None) if not hasattr(batch, "asnumpy") else None
        if values is None:
            values = batch
        if hasattr(values, "asnumpy"):
            values = [values]
        if len(values) < count:
            raise ValueError(
                f"calib_data: a batch has {len(values)} item(s), and the network takes {count} input(s)"
            )
        yield list(values[:count])
