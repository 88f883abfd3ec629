"""Switching mixed precision on, and training with a scaled loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..gluon.trainer import Trainer
from ..optimizer import Optimizer
from ..runtime.state import state
from .loss_scaler import LossScaler
from .policy import AMPError, policy_of

__all__ = ["init", "init_trainer", "reset", "scale_loss", "unscale"]


def init(
    target_dtype: Any = "float16",
    target_precision_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[tuple[str, str, Sequence[str]]] | None = None,
    fp32_ops: Iterable[str] | None = None,
    layout_optimization: bool = False,
) -> None:
    """Let all operators, imperative and hybridized, compute in mixed precision from now on, in all threads.

    Matrix products and convolutions compute in ``target_dtype``, exponentials, sums, norms and losses in
    float32, sums and products of two arrays in the wider of their types. Parameters stay float32, and their
    gradients arrive in float32. Imported SymbolBlocks compute as their files say; `convert_hybrid_block`
    converts them. `reset` ends it; calling again with other arguments changes it.

    Parameters
    ----------
    target_dtype : {"float16", "bfloat16"}
        The low precision. bfloat16 has the range of float32 and needs no scaled loss; CPUs are fast with it.
    target_precision_ops, fp32_ops : list of str, optional
        Names of operators in place of the default lists; see `list_lp16_ops` and `list_fp32_ops`.
    conditional_fp32_ops : list of (str, str, list of str), optional
        Operator, attribute and values for which it computes in float32, in place of the default list.
    layout_optimization : bool
        Accepted; hybridized blocks choose the layouts of convolutions by themselves.

    Raises
    ------
    AMPError
        For another type, an unknown operator, or an operator in two lists.
    """
    del layout_optimization
    state.set_precision(
        policy_of(
            target_dtype,
            target_precision_ops,
            fp32_ops,
            conditional_fp32_ops,
            argument="target_precision_ops",
        )
    )


def reset() -> None:
    """Undo `init`: all operators compute in the types of their inputs again."""
    state.set_precision(None)


def init_trainer(optimizer_or_trainer: Any) -> None:
    """Give a Trainer a dynamic loss scale: from now on it skips the steps whose gradients overflow.

    Raises
    ------
    AMPError
        If `init` was not called before.
    TypeError
        If it is no Trainer.
    """
    if state.amp is None:
        raise AMPError("AMP not initialized, did you forget to call amp.init()?")
    if isinstance(optimizer_or_trainer, Optimizer):
        raise TypeError(
            "AMP is currently only compatible with Gluon Trainer; received the optimizer "
            f"{type(optimizer_or_trainer).__name__}. Make a Trainer with it"
        )
    if not isinstance(optimizer_or_trainer, Trainer):
        raise TypeError(
            "optimizer_or_trainer should be a Gluon Trainer or an optimizer, instead is "
            f"{type(optimizer_or_trainer)}"
        )
    optimizer_or_trainer._amp_loss_scaler = LossScaler()
    optimizer_or_trainer._amp_original_scale = optimizer_or_trainer._scale


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """A scope with the loss times the scale, to call backward on; the trainer divides the gradients by it.

    Parameters
    ----------
    loss : NDArray, or list or tuple of NDArray
        The loss, of any shape; of a list, a list is given.
    optimizer_or_trainer : Trainer
        One that `init_trainer` was called with.

    Raises
    ------
    AMPError
        Without `init_trainer`.
    """
    scaler = getattr(optimizer_or_trainer, "_amp_loss_scaler", None)
    if scaler is None:
        raise AMPError(
            "scale_loss needs a Trainer with a loss scale: call amp.init_trainer(trainer) after amp.init()"
        )
    scale = scaler.loss_scale
    optimizer_or_trainer._scale = optimizer_or_trainer._amp_original_scale / scale
    if isinstance(loss, (list, tuple)):
        yield [one * scale for one in loss]
    else:
        yield loss * scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divide the gradients by the scale now, to read or clip them before ``trainer.step``.

    Call it once between backward and step. Gradients that were not scaled are left as they are.
    """
    trainer = optimizer_or_trainer
    if getattr(trainer, "_amp_loss_scaler", None) is None:
        return
    factor = trainer._scale / trainer._amp_original_scale
    if factor == 1.0:
        return
    for parameter in trainer._params:
        if parameter.grad_req != "null":
            for gradient in parameter._grad or ():
                gradient *= factor
    trainer._scale = trainer._amp_original_scale
