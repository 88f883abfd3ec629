"""Output layers with a loss's gradient built in, and losses.

The output layers (SoftmaxOutput, the regression outputs, SVMOutput, MakeLoss) return a prediction, and their
gradient is that of a loss they never compute; what flows in from above is ignored unless stated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.nn_shapes import complete
from regluon.ops.opdef import Spec, operator

Normalization = Literal["batch", "null", "valid"]
GradientRule = Callable[[Tensor, Tensor, Tensor], Tensor]


class _BuiltInGradient(torch.autograd.Function):
    """Passes ``output`` on; the gradient of ``data`` is ``rule(head, output, label)``, written in torch
    operators so that it can be differentiated again. The label's gradient is zero."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, label: Tensor, output: Tensor, rule: GradientRule) -> Tensor:
        ctx.save_for_backward(output, label)
        ctx.rule = rule
        return output.clone()

    @staticmethod
    def backward(ctx: Any, head: Tensor) -> Any:
        output, label = ctx.saved_tensors
        gradient = ctx.rule(head, output, label).to(head.dtype)
        return gradient, torch.zeros_like(label) if ctx.needs_input_grad[1] else None, None, None


def _with_gradient(data: Tensor, label: Tensor, output: Tensor, rule: GradientRule) -> Tensor:
    if not (torch.is_grad_enabled() and (data.requires_grad or label.requires_grad)):
        return output
    return _BuiltInGradient.apply(data, label, output.detach(), rule)  # type: ignore[no-any-return,no-untyped-call]


def _infer_first(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, specs[0].dtype)]


def _label_shape(data: Any, attrs: dict[str, Any]) -> tuple[Any, ...]:
    """Shape of class labels for SoftmaxOutput's three ways to read its data."""
    if attrs["multi_output"]:
        return (data[0], *data[2:])
    return tuple(data[:-1])


def _fill_softmax_output(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    data, label = shapes[0], shapes[1]
    if data is None or label is not None:
        return shapes
    if attrs["multi_output"]:
        # The originals' choice, which files and iterators follow: the places of a sample in one row.
        return [data, (data[0], prod(data[2:]))]
    return [data, _label_shape(data, attrs)]


def _infer_softmax_output(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    _check_label(specs[0].shape, specs[1].shape, attrs)
    return _infer_first(specs, attrs)


def _check_label(data: Any, label: Any, attrs: dict[str, Any]) -> None:
    expected = _label_shape(tuple(data), attrs)
    if tuple(label) in (expected, tuple(data), (data[0], prod(expected[1:]))):
        return
    if not attrs["multi_output"] and not attrs["preserve_shape"] and tuple(label) == tuple(data[:1]):
        return
    if attrs["multi_output"] and tuple(label) == (data[0], 1, *data[2:]):
        return
    raise MXNetError(
        f"SoftmaxOutput: expected a label of shape {expected} (classes) or {tuple(data)} (probabilities) for "
        f"data {tuple(data)} with multi_output={attrs['multi_output']}, "
        f"preserve_shape={attrs['preserve_shape']}; received {tuple(label)}"
    )


def _softmax_gradient(
    head: Tensor, output: Tensor, label: Tensor, attrs: dict[str, Any], axis: int
) -> Tensor:
    """``softmax - target`` with ignored places, label smoothing and normalisation."""
    scale = attrs["grad_scale"]
    gradient: Tensor
    if label.shape == output.shape:
        gradient = (output - label) * scale
        return gradient * head if attrs["out_grad"] else gradient
    classes = output.shape[axis]
    places = output.select(axis, 0)
    label = label.flatten()[: places.numel()].reshape(places.shape)
    index = label.to(torch.int64).clamp(0, classes - 1)
    positions = torch.arange(classes, device=output.device)
    view = [1] * output.dim()
    view[axis] = classes
    hit = index.unsqueeze(axis) == positions.view(view)
    # The original smooths labels only in its two-dimensional form.
    alpha = 0.0 if attrs["multi_output"] else attrs["smooth_alpha"]
    others = alpha / (classes - 1) if alpha else 0.0
    gradient = output - torch.where(hit, 1.0 - alpha, others).to(output.dtype)
    ignored = label == attrs["ignore_label"]
    if attrs["use_ignore"]:
        gradient = torch.where(ignored.unsqueeze(axis), 0.0, gradient)
    if attrs["multi_output"] and attrs["normalization"] != "valid":
        scale = scale / prod(places.shape[1:])
    if attrs["normalization"] == "batch":
        scale = scale / (output.shape[0] if attrs["multi_output"] else places.numel())
    gradient = gradient * scale
    if attrs["normalization"] == "valid":
        # The original counts so whether or not it ignores.
        gradient = gradient / (~ignored).sum().clamp(min=1)
    return gradient * head if attrs["out_grad"] else gradient


@operator(
    "SoftmaxOutput",
    aliases=("Softmax",),
    fill=_fill_softmax_output,
    infer=_infer_softmax_output,
    amp="float32",
)
def softmax_output(
    data: Tensor,
    label: Tensor,
    *,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: Normalization = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
) -> Tensor:
    """Softmax whose gradient is that of the cross entropy with ``label``: ``(softmax - target) *
    grad_scale``.

    All of a sample's values make one distribution; with ``multi_output`` axis 1 holds the classes of (N, C,
    ...) and the label is (N, ...); with ``preserve_shape`` the last axis holds them. A label of data's own
    shape gives probabilities. ``use_ignore`` drops places labelled ``ignore_label``; ``normalization``
    divides by the number of labels or of those kept; ``smooth_alpha`` spreads that share over the other
    classes (not with ``multi_output``); ``out_grad`` multiplies by the incoming gradient. Raises MXNetError
    when the label does not fit.
    """
    attrs = {
        "grad_scale": grad_scale,
        "ignore_label": ignore_label,
        "multi_output": multi_output,
        "use_ignore": use_ignore,
        "preserve_shape": preserve_shape,
        "normalization": normalization,
        "out_grad": out_grad,
        "smooth_alpha": smooth_alpha,
    }
    _check_label(data.shape, label.shape, attrs)
    if multi_output:
        return _with_gradient(
            data,
            label,
            torch.softmax(data, 1),
            lambda head, output, target: _softmax_gradient(head, output, target, attrs, 1),
        )
    if preserve_shape or data.dim() == 2:
        return _with_gradient(
            data,
            label,
            torch.softmax(data, -1),
            lambda head, output, target: _softmax_gradient(head, output, target, attrs, output.dim() - 1),
        )

    def rule(head: Tensor, output: Tensor, target: Tensor) -> Tensor:
        target = target.flatten(1) if target.shape == output.shape else target
        return _softmax_gradient(head.flatten(1), output.flatten(1), target, attrs, 1).reshape(output.shape)

    return _with_gradient(data, label, torch.softmax(data.flatten(1), 1).reshape(data.shape), rule)


def _fill_like_data(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    data = shapes[0]
    if shapes[1] is not None or data is None:
        return [data, shapes[1]]
    # One output a sample: its label is a vector, as in the original.
    return [data, data[:1] if len(data) == 2 and data[1] == 1 else data]


def _check_regression(data: Any, label: Any, name: str) -> None:
    if prod(label) == prod(data) and label[:1] == data[:1]:
        return
    raise MXNetError(
        f"{name}: expected a label with as many elements as the data {tuple(data)}; received {tuple(label)}. "
        "Reshape the label"
    )


def _infer_regression(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    _check_regression(tuple(specs[0].shape), tuple(specs[1].shape), "RegressionOutput")
    return _infer_first(specs, attrs)


def _regression(
    name: str,
    predict: Callable[[Tensor], Tensor] | None,
    residual: Callable[[Tensor, Tensor], Tensor],
    text: str,
) -> Any:
    """Define one regression output: its prediction, and the gradient ``residual * grad_scale / outputs``."""

    def function(data: Tensor, label: Tensor, *, grad_scale: float = 1.0) -> Tensor:
        _check_regression(data.shape, label.shape, name)

        def rule(head: Tensor, output: Tensor, target: Tensor) -> Tensor:
            outputs = max(output.numel() // max(output.shape[0], 1), 1)
            return residual(output, target.reshape(output.shape).to(output.dtype)) * (grad_scale / outputs)

        output = predict(data) if predict is not None else data.clone()
        return _with_gradient(data, label, output, rule)

    function.__name__ = name
    function.__doc__ = (
        f"{text}  The gradient is ``({'sign' if 'MAE' in name else ''}(output - label)) * grad_scale / "
        "outputs per "
        "sample``, whatever flows in from above.  ``label`` has as many elements as ``data``; raises "
        "MXNetError "
        "otherwise."
    )
    register = operator(
        name, aliases=(f"_sparse_{name}",), fill=_fill_like_data, infer=_infer_regression, amp="float32"
    )
    return register(function)


linear_regression_output = _regression(
    "LinearRegressionOutput", None, torch.sub, "The data itself, trained with the squared error."
)
logistic_regression_output = _regression(
    "LogisticRegressionOutput",
    torch.sigmoid,
    torch.sub,
    "Sigmoid of the data, trained with the logistic loss.",
)
mae_regression_output = _regression(
    "MAERegressionOutput",
    None,
    lambda output, label: torch.sign(output - label),
    "The data itself, trained with the absolute error.",
)


def _fill_batch_label(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    data = shapes[0]
    return shapes if data is None else [data, complete(shapes[1], (data[0],))]


@operator("SVMOutput", amp="float32", fill=_fill_batch_label, infer=_infer_first)
def svm_output(
    data: Tensor,
    label: Tensor,
    *,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
) -> Tensor:
    """The scores (N, C) themselves, with the gradient of a one-against-all support vector loss.

    With y = +1 for the labelled class and -1 for the others: ``max(0, margin - y x)``, squared unless
    ``use_linear``, times ``regularization_coefficient``.  ``label`` (N,) holds class numbers.
    """
    if data.dim() != 2 or label.shape[0] != data.shape[0]:
        raise MXNetError(
            f"SVMOutput: expected data (N, C) and label (N,); received {tuple(data.shape)} and "
            f"{tuple(label.shape)}"
        )

    def rule(head: Tensor, output: Tensor, target: Tensor) -> Tensor:
        classes = torch.arange(output.shape[1], device=output.device)
        sign = torch.where(target.reshape(-1, 1).to(torch.int64) == classes, 1.0, -1.0).to(output.dtype)
        slack = margin - sign * output
        amount = torch.ones_like(slack) if use_linear else 2.0 * slack
        return torch.where(slack > 0, -sign * amount * regularization_coefficient, 0.0)

    return _with_gradient(data, label, data.clone(), rule)


@operator("MakeLoss", amp="float32", infer=_infer_first)
def make_loss(
    data: Tensor,
    *,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: Normalization = "null",
) -> Tensor:
    """Mark ``data`` as a loss: it passes through, and its gradient is ``grad_scale`` whatever flows in from
    above, divided by the batch size (``batch``) or by the number of values above ``valid_thresh``
    (``valid``). As in the originals, data of one axis are one sample."""

    def rule(head: Tensor, output: Tensor, label: Tensor) -> Tensor:
        gradient = torch.full_like(output, grad_scale)
        if normalization == "batch":
            return gradient / max(output.shape[0] if output.dim() > 1 else 1, 1)
        if normalization == "valid":
            return gradient / (output > valid_thresh).sum().clamp(min=1)
        return gradient

    return _with_gradient(data, data.detach(), data.clone(), rule)


def _fill_ctc(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    data = shapes[0]
    batch = data[1] if data is not None and len(data) > 1 else -1
    return [*shapes[:2], *(complete(shape, (batch,)) for shape in shapes[2:])]


def _infer_ctc(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    _check_ctc(tuple(specs[0].shape), tuple(specs[1].shape))
    return [Spec((specs[0].shape[1],), specs[0].dtype)]


def _check_ctc(data: Any, label: Any) -> None:
    if len(data) != 3 or len(label) != 2 or label[0] != data[1]:
        raise MXNetError(
            "CTCLoss: expected data (length, batch, classes) and label (batch, labels) of the same batch; "
            "received "
            f"{tuple(data)} and {tuple(label)}"
        )


def _ctc_active(attrs: dict[str, Any]) -> int:
    return 2 + bool(attrs["use_data_lengths"]) + bool(attrs["use_label_lengths"])


@operator(
    "CTCLoss",
    aliases=("_contrib_CTCLoss", "_contrib_ctc_loss", "_npx_ctc_loss", "ctc_loss"),
    npx="ctc_loss",
    output_names=("output0",),  # of two in the originals: the second is their gradient
    active=_ctc_active,
    fill=_fill_ctc,
    infer=_infer_ctc,
    amp="float32",
)
def ctc_loss(
    data: Tensor,
    label: Tensor,
    data_lengths: Tensor | None = None,
    label_lengths: Tensor | None = None,
    *,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: Literal["first", "last"] = "first",
) -> Tensor:
    """Connectionist temporal classification loss for each sample (Graves et al. 2006); output (batch,).

    ``data`` (length, batch, classes) holds unnormalised scores, ``label`` (batch, labels) class numbers. With
    ``blank_label="first"`` class 0 is the blank and label 0 is padding; with ``"last"`` the last class is the
    blank and -1 is padding. Lengths (batch,) limit the sequences; without them data is used whole and labels
    end at the first padding.
    """
    _check_ctc(data.shape, label.shape)
    if use_label_lengths and not use_data_lengths and label_lengths is None:
        # With only one optional input in use it arrives in the first free place.
        data_lengths, label_lengths = None, data_lengths
    length, batch, classes = data.shape
    blank, padding = (0, 0) if blank_label == "first" else (classes - 1, -1)
    targets = label.to(torch.int64)
    if use_label_lengths and label_lengths is not None:
        target_lengths = label_lengths.to(torch.int64)
    else:
        target_lengths = (targets != padding).to(torch.int64).cumprod(1).sum(1)
    if use_data_lengths and data_lengths is not None:
        input_lengths = data_lengths.to(torch.int64)
    else:
        input_lengths = torch.full((batch,), length, dtype=torch.int64, device=data.device)
    targets = targets.clamp(0, classes - 1)
    logs = torch.log_softmax(data.float() if data.dtype in (torch.float16, torch.bfloat16) else data, 2)
    loss = functional.ctc_loss(logs, targets, input_lengths, target_lengths, blank, reduction="none")
    return loss.to(data.dtype)


def _infer_scalar(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec((1,), specs[0].dtype)]


@operator("softmax_cross_entropy", fill=_fill_batch_label, infer=_infer_scalar, amp="float32")
def softmax_cross_entropy(data: Tensor, label: Tensor) -> Tensor:
    """Sum over the batch of ``-log softmax(data)[label]``; ``data`` (N, C), ``label`` (N,); output (1,)."""
    if data.dim() != 2 or tuple(label.shape) != (data.shape[0],):
        raise MXNetError(
            f"softmax_cross_entropy: expected data (N, C) and label (N,); received {tuple(data.shape)} and "
            f"{tuple(label.shape)}"
        )
    index = label.to(torch.int64).clamp(0, data.shape[1] - 1)
    return -torch.log_softmax(data, 1).gather(1, index.unsqueeze(1)).sum().reshape(1)
