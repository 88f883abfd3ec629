"""gluon.loss: losses. Each gives one value per sample: the mean over all axes but ``batch_axis``."""

from __future__ import annotations

import math
import numbers
from typing import Any

from ..base.dtypes import to_torch
from ..runtime.handles import kinds
from .hybrid import HybridBlock

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]


def _weighted(F: Any, loss: Any, weight: float | None, sample_weight: Any) -> Any:
    if sample_weight is not None:
        loss = _times(F, loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, numbers.Number):
            raise TypeError(f"the weight of a loss is a number; received {weight!r}")
        loss = loss * weight
    return loss


def _is_np(value: Any) -> bool:
    """True for np arrays and their Symbols: some losses reduce otherwise in 2.0 than in 1.x."""
    return isinstance(value, (kinds.np, kinds.np_symbol))


def _times(F: Any, x: Any, y: Any) -> Any:
    """The product with broadcasting; np arrays may differ in type, as in the originals."""
    return x * y if _is_np(x) else F.broadcast_mul(x, y)


def _shaped_like(F: Any, value: Any, like: Any) -> Any:
    return F.reshape_like(value, like)


def _kept_in_type(value: Any, label: Any, pred: Any) -> Any:
    """``value``, which is made from labels and plain numbers, in the type of the predictions.

    Integers of np make float64 with a plain number, and so would the loss be.
    """
    dtype = getattr(label, "dtype", None)
    if not _is_np(label) or dtype is None or to_torch(dtype).is_floating_point:
        return value
    return value.astype(pred.dtype)


class Loss(HybridBlock):
    """Base of losses.

    Parameters
    ----------
    weight : float, optional
        Factor on the loss.
    batch_axis : int
        The axis of samples.
    """

    def __init__(
        self, weight: float | None, batch_axis: int, prefix: str | None = None, params: Any = None
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _mean(self, F: Any, loss: Any) -> Any:
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L2Loss(Loss):
    """``weight / 2 * (label - pred)**2``."""

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(_shaped_like(F, label, pred) - pred)
        half = 0.5 if self._weight is None else self._weight / 2
        return self._mean(F, _weighted(F, loss, half, sample_weight))


class L1Loss(Loss):
    """``weight * |label - pred|``."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.abs(_shaped_like(F, label, pred) - pred)
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


class SigmoidBinaryCrossEntropyLoss(Loss):
    """Cross entropy of independent yes/no labels.

    Parameters
    ----------
    from_sigmoid : bool
        Whether ``pred`` holds probabilities; else it holds logits.
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        label = _shaped_like(F, label, pred)
        if not self._from_sigmoid:
            if pos_weight is None:
                # max(x, 0) - x*z + log(1 + exp(-|x|))
                loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
            else:
                weight = 1 + _times(F, pos_weight - 1, label)
                tail = F.Activation(-F.abs(pred), act_type="softrelu") + F.relu(-pred)
                loss = pred - pred * label + weight * tail
        else:
            eps = 1e-12
            missing = _kept_in_type(1.0 - label, label, pred)
            if pos_weight is None:
                loss = -(F.log(pred + eps) * label + F.log(1.0 - pred + eps) * missing)
            else:
                loss = -(_times(F, F.log(pred + eps) * label, pos_weight) + F.log(1.0 - pred + eps) * missing)
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """Cross entropy of class labels.

    Parameters
    ----------
    axis : int
        The axis of classes.
    sparse_label : bool
        Whether labels are class numbers; else they are distributions.
    from_logits : bool
        Whether ``pred`` holds log-probabilities already.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * _shaped_like(F, label, pred), axis=self._axis, keepdims=True)
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Kullback-Leibler divergence of ``label`` from ``pred``: ``label * (log(label) - pred)``.

    As in the originals, the result is the mean over all axes but ``batch_axis`` for np arrays, and the sum
    over them for nd arrays.

    Parameters
    ----------
    from_logits : bool
        Whether ``pred`` holds log-probabilities.
    axis : int
        The axis of classes.
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = label * (_kept_in_type(F.log(label + 1e-12), label, pred) - pred)
        loss = _weighted(F, loss, self._weight, sample_weight)
        return self._mean(F, loss) if _is_np(pred) else F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification (Graves et al., 2006).

    Parameters
    ----------
    layout : str
        Axes of ``pred``: ``NTC`` or ``TNC``.
    label_layout : str
        Axes of ``label``: ``NT`` or ``TN``.
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any
    ) -> None:
        if layout not in ("NTC", "TNC"):
            raise ValueError(f"Only 'NTC' and 'TNC' layouts for pred are supported; received {layout!r}")
        if label_layout not in ("NT", "TN"):
            raise ValueError(f"Only 'NT' and 'TN' layouts for label are supported; received {label_layout!r}")
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout = layout
        self._label_layout = label_layout

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, dim1=0, dim2=1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, dim1=0, dim2=1)
        lengths = [array for array in (pred_lengths, label_lengths) if array is not None]
        loss = F.CTCLoss(
            pred,
            label,
            *lengths,
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return _weighted(F, loss, self._weight, sample_weight)


class HuberLoss(Loss):
    """Squared near zero, linear beyond ``rho``."""

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.abs(_shaped_like(F, label, pred) - pred)
        loss = F.where(loss > self._rho, loss - 0.5 * self._rho, (0.5 / self._rho) * F.square(loss))
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


class HingeLoss(Loss):
    """``max(0, margin - pred * label)`` for labels -1 and 1."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.relu(self._margin - pred * _shaped_like(F, label, pred))
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


class SquaredHingeLoss(Loss):
    """``max(0, margin - pred * label)**2`` for labels -1 and 1."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(F.relu(self._margin - pred * _shaped_like(F, label, pred)))
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


class LogisticLoss(Loss):
    """``log(1 + exp(-pred * label))``.

    Parameters
    ----------
    label_format : {"signed", "binary"}
        Labels -1 and 1, or 0 and 1.
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise ValueError(f"label_format can only be signed or binary, received {label_format}.")
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _shaped_like(F, label, pred)
        if self._label_format == "signed":
            label = _kept_in_type((label + 1.0) / 2.0, label, pred)
        loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        return self._mean(F, _weighted(F, loss, self._weight, sample_weight))


class TripletLoss(Loss):
    """``max(0, |pred - positive|^2 - |pred - negative|^2 + margin)``."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Any, pred: Any, positive: Any, negative: Any, sample_weight: Any = None
    ) -> Any:
        positive, negative = _shaped_like(F, positive, pred), _shaped_like(F, negative, pred)
        loss = F.sum(
            F.square(positive - pred) - F.square(negative - pred), axis=self._batch_axis, exclude=True
        )
        return _weighted(F, F.relu(loss + self._margin), self._weight, sample_weight)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts under Poisson distributions.

    As in the originals, the result is one value per sample for np arrays, and the mean of all for nd arrays.

    Parameters
    ----------
    from_logits : bool
        Whether ``pred`` holds logarithms of rates; else it holds rates.
    compute_full : bool
        Whether Stirling's approximation of ``log(target!)`` is added where the target is above 1.
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def hybrid_forward(
        self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08
    ) -> Any:
        target = _shaped_like(F, target, pred)
        loss = F.exp(pred) - target * pred if self._from_logits else pred - target * F.log(pred + epsilon)
        if self._compute_full:
            # Stirling's approximation of log(target!). The logarithm of integers would be integers here.
            target = _kept_in_type(target, target, pred)
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * target * math.pi)
            loss = loss + stirling * (target > 1)
        loss = _weighted(F, loss, self._weight, sample_weight)
        return self._mean(F, loss) if _is_np(pred) else F.mean(loss)


class CosineEmbeddingLoss(Loss):
    """``1 - cos`` for label 1, ``max(0, cos - margin)`` for label -1.

    As in the originals, the result has the shape (batch,) for np arrays, and (batch, 1) for nd arrays.
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None) -> Any:
        input1 = _shaped_like(F, input1, input2)
        cosine = self._cosine(F, input1, input2)
        label = F.reshape(label, shape=(-1, 1))
        loss = F.where(label == 1, 1.0 - cosine, F.relu(cosine - self._margin))
        loss = _weighted(F, loss, self._weight, sample_weight)
        return self._mean(F, loss) if _is_np(input1) else loss

    @staticmethod
    def _cosine(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        x_norm = F.reshape(F.norm(x, axis=axis), shape=(-1, 1))
        y_norm = F.reshape(F.norm(y, axis=axis), shape=(-1, 1))
        product = F.reshape(F.sum(x * y, axis=axis), shape=(-1, 1))
        return product / F.broadcast_maximum(x_norm * y_norm, F.ones_like(x_norm) * 1e-12)


class SDMLLoss(Loss):
    """Smoothed deep metric learning (Bonadiman et al., 2019).

    Row i of ``x1`` (batch, size) belongs with row i of ``x2``; all other rows serve as its negatives.

    Parameters
    ----------
    smoothing_parameter : float
        Probability mass that is given to the negatives; more for noisy pairs.
    """

    def __init__(
        self, smoothing_parameter: float = 0.3, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        first, second = F.expand_dims(x1, axis=1), F.expand_dims(x2, axis=0)
        logits = F.log_softmax(-F.sum(F.square(F.broadcast_sub(first, second)), axis=2), axis=1)
        # Row numbers come from the logits: the graph holds for every batch size, on every device.
        number = F.contrib.arange_like(logits, axis=0)
        rows, columns = F.reshape(number, shape=(-1, 1)), F.reshape(number, shape=(1, -1))
        gold = F.broadcast_equal(rows, columns)
        negatives = F.sum(F.ones_like(rows), axis=0, keepdims=True) - 1
        smooth = F.broadcast_div((1 - gold) * self.smoothing_parameter, negatives)
        return self.kl_loss(logits, gold * (1 - self.smoothing_parameter) + smooth)
