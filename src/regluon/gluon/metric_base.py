"""The base of metrics, their registry, and the metrics made of other metrics or of functions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy

from regluon.base import config

_Array = numpy.ndarray[Any, Any]
_Names = list[str] | None

_REGISTRY: dict[str, type[EvalMetric]] = {}


class MetricError(ValueError, AssertionError):
    """Labels and predictions, or arguments, that a metric cannot use (an AssertionError too, as in MXNet)."""


def register(klass: type[EvalMetric], name: str | None = None) -> type[EvalMetric]:
    """Class decorator that makes a metric known by its lower-case class name."""
    _REGISTRY[(name or klass.__name__).lower()] = klass
    return klass


def alias(*aliases: str) -> Callable[[type[EvalMetric]], type[EvalMetric]]:
    """Class decorator that gives a metric further names."""

    def decorate(klass: type[EvalMetric]) -> type[EvalMetric]:
        register(klass)
        for name in aliases:
            register(klass, name)
        return klass

    return decorate


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """Make a metric from a name, from a function ``(label, pred)``, from a list of those, or from itself.

    Raises
    ------
    ValueError
        If no metric of that name is registered.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, list):
        composite = CompositeEvalMetric()
        for child in metric:
            composite.add(create(child, *args, **kwargs))
        return composite
    if isinstance(metric, str):
        klass = _REGISTRY.get(metric.lower())
        if klass is None:
            raise MetricError(
                f"No metric is registered under '{metric}'. Known are {', '.join(sorted(_REGISTRY))}; "
                f"add your own class with mx.metric.register."
            )
        return klass(*args, **kwargs)
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    raise MetricError(f"A metric, its name, a function or a list of those was expected; received {metric!r}.")


def as_numpy(array: Any) -> numpy.ndarray[Any, Any]:
    """NumPy form of an array of any kind."""
    return array.asnumpy() if hasattr(array, "asnumpy") else numpy.asarray(array)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Compare the numbers (or with ``shape`` the shapes) of labels and predictions; with ``wrap`` make
    lists of them.

    Raises
    ------
    ValueError
        If they differ.
    """
    ours, theirs = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if ours != theirs:
        what = "shape" if shape else "number"
        raise MetricError(f"Labels have {what} {ours}, predictions have {what} {theirs}; they must agree.")
    return (_as_list(labels), _as_list(preds)) if wrap else (labels, preds)


class EvalMetric:
    """Base of all metrics: sums up a value over batches.

    Parameters
    ----------
    name : str
        Name in reports.
    output_names, label_names : list of str, optional
        Which entries :meth:`update_dict` takes (all by default).

    A subclass defines :meth:`update` and calls :meth:`_add`. Besides the sum since the last :meth:`reset`,
    a sum since
    the last :meth:`reset_local` is kept (1.x); :meth:`get` answers by the latter, :meth:`get_global` by
    the former.
    """

    def __init__(
        self,
        name: str,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        self.num_inst: float = 0
        self.sum_metric: Any = 0.0
        self.global_num_inst: float = 0
        self.global_sum_metric: Any = 0.0
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Arguments from which an equal metric can be made, with the class name as "metric"."""
        config = dict(self._kwargs)
        config.update(
            metric=type(self).__name__,
            name=self.name,
            output_names=self.output_names,
            label_names=self.label_names,
        )
        return config

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Add a batch given by names."""
        preds = (
            [pred[name] for name in self.output_names]
            if self.output_names is not None
            else list(pred.values())
        )
        labels = (
            [label[name] for name in self.label_names]
            if self.label_names is not None
            else list(label.values())
        )
        self.update(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: one array or a list of arrays each of labels and of predictions."""
        raise NotImplementedError(f"{type(self).__name__} must define update(labels, preds).")

    def _add(self, total: Any, count: float) -> None:
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def reset(self) -> None:
        """Forget everything."""
        self.num_inst = 0
        self.sum_metric = 0.0
        self.global_num_inst = 0
        self.global_sum_metric = 0.0

    def reset_local(self) -> None:
        """Forget what :meth:`get` answers by; :meth:`get_global` keeps it."""
        self.num_inst = 0
        self.sum_metric = 0.0

    def _value(self, total: Any, count: float) -> Any:
        return total / count if count else float("nan")

    def get(self) -> tuple[Any, Any]:
        """Name and value (nan before the first batch)."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """Name and value since the last :meth:`reset`."""
        if not self._has_global_stats:
            # A class that keeps only the sums of get() has no others.
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def get_name_value(self) -> list[tuple[str, Any]]:
        """Pairs of name and value."""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """Pairs of name and value since the last :meth:`reset`."""
        return _pairs(*self.get_global())


def _pairs(name: Any, value: Any) -> list[tuple[str, Any]]:
    names = name if isinstance(name, list) else [name]
    values = value if isinstance(value, list) else [value]
    return list(zip(names, values, strict=True))


@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics at once; values and names are lists."""

    def __init__(
        self,
        metrics: Iterable[Any] | None = None,
        name: str = "composite",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        self.metrics: list[EvalMetric] = [create(one) for one in metrics or []]
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def add(self, metric: Any) -> None:
        """Add a metric, or what :func:`create` makes one of."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric at a position.

        Raises
        ------
        ValueError
            If there is none.
        """
        try:
            return self.metrics[index]
        except IndexError:
            raise MetricError(f"There is no metric {index}; there are {len(self.metrics)}.") from None

    def update_dict(self, labels: Mapping[str, Any], preds: Mapping[str, Any]) -> None:
        if self.label_names is not None:
            labels = OrderedDict((name, labels[name]) for name in labels if name in self.label_names)
        if self.output_names is not None:
            preds = OrderedDict((name, preds[name]) for name in preds if name in self.output_names)
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def _collect(self, method: str) -> tuple[list[str], list[Any]]:
        names: list[str] = []
        values: list[Any] = []
        for metric in self.metrics:
            for name, value in _pairs(*getattr(metric, method)()):
                names.append(name)
                values.append(value)
        return names, values

    def get(self) -> tuple[Any, Any]:
        return self._collect("get")

    def get_global(self) -> tuple[Any, Any]:
        return self._collect("get_global")

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["metrics"] = [metric.get_config() for metric in self.metrics]
        return config


@alias()
class CustomMetric(EvalMetric):
    """A metric from a function of label and prediction as NumPy arrays.

    It answers a value for the batch, or a pair of a sum and a count. ``allow_extra_outputs`` permits more
    predictions
    than labels; the extra ones are left out.
    """

    def __init__(
        self,
        feval: Callable[[Any, Any], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        if name is None:
            name = str(getattr(feval, "__name__", type(feval).__name__))
            if "<" in name:
                name = f"custom({name})"
        super().__init__(
            name,
            output_names,
            label_names,
            feval=feval,
            allow_extra_outputs=allow_extra_outputs,
            has_global_stats=True,
        )
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = _as_list(labels), _as_list(preds)
        if not self._allow_extra_outputs:
            check_label_shapes(labels, preds)
        for label, pred in zip(labels, preds, strict=False):
            result = self._feval(as_numpy(label), as_numpy(pred))
            if isinstance(result, tuple):
                self._add(*result)
            else:
                self._add(result, 1)

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError("A CustomMetric holds a function, which a configuration cannot carry.")


def np(
    numpy_feval: Callable[[Any, Any], Any], name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """A :class:`CustomMetric` from a function of NumPy arrays."""

    def feval(label: Any, pred: Any) -> Any:
        return numpy_feval(label, pred)

    feval.__name__ = str(getattr(numpy_feval, "__name__", "numpy_feval"))
    return CustomMetric(feval, name, allow_extra_outputs)


@alias()
class Loss(EvalMetric):
    """Mean of all elements of the predictions, which are losses; labels are not looked at."""

    def __init__(
        self, name: str = "loss", output_names: list[str] | None = None, label_names: list[str] | None = None
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, _: Any, preds: Any) -> None:
        for pred in _as_list(preds):
            values = as_numpy(pred)
            self._add(float(values.sum(dtype=numpy.float64)), values.size)


@alias()
class Torch(Loss):
    """Another name of :class:`Loss`."""

    def __init__(
        self, name: str = "torch", output_names: list[str] | None = None, label_names: list[str] | None = None
    ) -> None:
        super().__init__(name, output_names, label_names)


@alias()
class Caffe(Loss):
    """Another name of :class:`Loss`."""

    def __init__(
        self, name: str = "caffe", output_names: list[str] | None = None, label_names: list[str] | None = None
    ) -> None:
        super().__init__(name, output_names, label_names)


def first_generation() -> bool:
    """True at API level 1, whose sums differ."""
    return config.api_level() < 2


def batches(labels: Any, preds: Any) -> Iterator[tuple[_Array, _Array]]:
    """Pairs of label and prediction as NumPy arrays."""
    labels, preds = check_label_shapes(_as_list(labels), _as_list(preds))
    for label, pred in zip(labels, preds, strict=True):
        yield as_numpy(label), as_numpy(pred)
