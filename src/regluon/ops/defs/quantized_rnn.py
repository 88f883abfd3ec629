"""Recurrent layers on 8-bit inputs with a scale and a shift."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.rnn import rnn
from regluon.ops.opdef import Spec, operator

Attrs = dict[str, Any]
_LEVELS = 255.0


@operator(
    "_contrib_quantize_asym",
    outputs=3,
    output_names=("output", "scale", "shift"),
    gradient="zero",
    infer=lambda specs, attrs: [
        Spec(specs[0].shape, torch.uint8),
        Spec((1,), torch.float32),
        Spec((1,), torch.float32),
    ],
)
def quantize_asym(
    data: Tensor, *, min_calib_range: float | None = None, max_calib_range: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Data as unsigned 8-bit integers over their whole range, with scale and shift (1,).

    ``integer = round(data * scale + shift)`` with ``scale = 255 / (max - min)`` and ``shift = 255 - max *
    scale``; the range is that of the data unless both of its ends are given. Values outside are limited.
    """
    if data.dtype != torch.float32:
        raise MXNetError(f"quantize_asym: expected float32; received {data.dtype}")
    if min_calib_range is not None and max_calib_range is not None:
        low, high = data.new_tensor(min_calib_range), data.new_tensor(max_calib_range)
    elif data.numel():
        low, high = data.amin(), data.amax()
    else:
        raise MXNetError("quantize_asym: data without elements have no range; give both ends of it")
    width = high - low
    scale = _LEVELS / torch.where(width > 0, width, 1.0)
    shift = _LEVELS - high * scale
    integers = torch.floor(data * scale + shift + 0.5).clamp(0, _LEVELS).to(torch.uint8)
    return integers, scale.reshape(1), shift.reshape(1)


def _outputs(attrs: Attrs) -> int:
    return 3 if attrs["state_outputs"] else 1


def _infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    length, batch = specs[0].shape[:2]
    directions = 2 if attrs["bidirectional"] else 1
    size = attrs["projection_size"] or attrs["state_size"]
    found = [Spec((length, batch, directions * size), torch.float32)]
    return (
        [*found, *(Spec(spec.shape, torch.float32) for spec in specs[2:4])] if _outputs(attrs) > 1 else found
    )


@operator("_contrib_quantized_rnn", outputs=_outputs, gradient="zero", infer=_infer)
def quantized_rnn(
    data: Tensor,
    parameters: Tensor,
    state: Tensor,
    state_cell: Tensor,
    data_scale: Tensor,
    data_shift: Tensor,
    *,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal["gru", "lstm", "rnn_relu", "rnn_tanh"],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
) -> Any:
    """An LSTM over the unsigned 8-bit integers of `quantize_asym`, with their scale and shift (1,).

    Everything else is as in `RNN`. The integers become real numbers at the begin, so weights keep the
    precision that the originals take from them.
    """
    if mode != "lstm" or use_sequence_length:
        raise MXNetError(
            f"quantized_rnn: takes mode='lstm' without sequence lengths; received mode={mode!r}, "
            f"use_sequence_length={use_sequence_length}"
        )
    real = (data.to(torch.float32) - data_shift) / data_scale
    return rnn(
        real,
        parameters,
        state,
        state_cell,
        state_size=state_size,
        num_layers=num_layers,
        bidirectional=bidirectional,
        mode="lstm",
        p=p,
        state_outputs=state_outputs,
        projection_size=projection_size,
        lstm_state_clip_min=lstm_state_clip_min,
        lstm_state_clip_max=lstm_state_clip_max,
        lstm_state_clip_nan=lstm_state_clip_nan,
    )
