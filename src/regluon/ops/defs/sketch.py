"""Count sketches, Fourier transforms of real rows, and the likelihood of Hawkes processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.boxes import fractional
from regluon.ops.opdef import Spec, operator

Attrs = dict[str, Any]


def _check_sketch(data: Any, h: Any, s: Any, out_dim: int) -> None:
    if len(data) not in (2, 4) or out_dim < 1 or tuple(h) != (1, data[-1]) or tuple(s) != (1, data[-1]):
        raise MXNetError(
            "count_sketch: expected data (N, D) or (N, H, W, D), h and s (1, D), and an out_dim above 0; "
            f"received {tuple(data)}, {tuple(h)}, {tuple(s)} and {out_dim}"
        )


def _sketch_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    _check_sketch(shape, specs[1].shape, specs[2].shape, attrs["out_dim"])
    return [Spec((*shape[:-1], attrs["out_dim"]), specs[0].dtype)]


@operator("_contrib_count_sketch", amp="float32", output_names=("output",), infer=_sketch_infer)
def count_sketch(
    data: Tensor, h: Tensor, s: Tensor, *, out_dim: int, processing_batch_size: int = 32
) -> Tensor:
    """Project the last axis to ``out_dim`` numbers: element i is multiplied by s[i] and added at h[i].

    ``h`` (1, D) holds places in [0, out_dim), ``s`` (1, D) usually signs; neither has a gradient. Pham and
    Pagh, "Fast and scalable polynomial kernels via explicit feature maps", 2013.
    """
    del processing_batch_size
    _check_sketch(data.shape, h.shape, s.shape, out_dim)
    place = h.detach().reshape(-1).to(torch.int64)
    if place.numel() and (int(place.min()) < 0 or int(place.max()) >= out_dim):
        raise MXNetError(
            f"count_sketch: h expects places in [0, {out_dim}); received {int(place.min())} to "
            f"{int(place.max())}"
        )
    result = data.new_zeros((*data.shape[:-1], out_dim))
    return result.index_add(-1, place, data * s.detach().reshape(-1).to(data.dtype))


def _check_rows(shape: Any, name: str, whole: int) -> None:
    if len(shape) not in (2, 4) or shape[-1] % whole or shape[-1] == 0:
        even = " of an even size" if whole == 2 else ""
        raise MXNetError(
            f"{name}: expected (N, D) or (N, C, H, D) with a last axis{even}; received {tuple(shape)}"
        )


def _wide(data: Tensor) -> Tensor:
    """Half types and whole numbers are transformed in float32."""
    return data if data.dtype == torch.float64 else data.to(torch.float32)


def _fft_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_rows(specs[0].shape, "fft", 1)
    return [Spec((*specs[0].shape[:-1], specs[0].shape[-1] * 2), specs[0].dtype)]


@operator("_contrib_fft", amp="float32", output_names=("output",), infer=_fft_infer)
def fft(data: Tensor, *, compute_size: int = 128) -> Tensor:
    """Discrete Fourier transform of the last axis (..., D): (..., 2 D), real and imaginary parts in turn."""
    del compute_size
    _check_rows(data.shape, "fft", 1)
    return torch.view_as_real(torch.fft.fft(_wide(data))).flatten(-2).to(data.dtype)


def _ifft_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_rows(specs[0].shape, "ifft", 2)
    return [Spec((*specs[0].shape[:-1], specs[0].shape[-1] // 2), specs[0].dtype)]


@operator("_contrib_ifft", output_names=("output",), infer=_ifft_infer)
def ifft(data: Tensor, *, compute_size: int = 128) -> Tensor:
    """Real part of the inverse transform of (..., 2 D), real and imaginary parts in turn: (..., D).

    It is not divided by D, so ``ifft(fft(x)) == D * x``.
    """
    del compute_size
    _check_rows(data.shape, "ifft", 2)
    pairs = _wide(data).reshape(*data.shape[:-1], data.shape[-1] // 2, 2)
    result: Tensor = torch.fft.ifft(torch.view_as_complex(pairs.contiguous()), norm="forward").real
    return result.to(data.dtype)


def _hawkes_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shapes = [spec.shape for spec in specs]
    _check_hawkes(shapes)
    dtype = fractional(specs[0].dtype)
    return [Spec((shapes[0][0],), dtype), Spec(shapes[0], dtype)]


def _check_hawkes(shapes: list[Any]) -> None:
    background, events = tuple(shapes[0]), tuple(shapes[4])
    fits = len(background) == len(events) == 2 and events[0] == background[0]
    kinds = background[1:]
    fits = fits and tuple(shapes[1]) == tuple(shapes[2]) == kinds and tuple(shapes[3]) == background
    if (
        not fits
        or tuple(shapes[5]) != events
        or tuple(shapes[6]) != events[:1]
        or tuple(shapes[7]) != events[:1]
    ):
        raise MXNetError(
            "hawkesll: expected lda (N, K), alpha (K,), beta (K,), state (N, K), lags and marks (N, T), "
            f"valid_length and max_time (N,); received {', '.join(str(tuple(shape)) for shape in shapes)}"
        )


@operator(
    "_contrib_hawkesll", amp="float32", outputs=2, output_names=("output", "out_state"), infer=_hawkes_infer
)
def hawkes_log_likelihood(
    lda: Tensor,
    alpha: Tensor,
    beta: Tensor,
    state: Tensor,
    lags: Tensor,
    marks: Tensor,
    valid_length: Tensor,
    max_time: Tensor,
) -> tuple[Tensor, Tensor]:
    """Log likelihood (N,) of events of K kinds, each exciting its own kind, and the state (N, K) at the end.

    The intensity of kind k is lda[k] + alpha[k] * beta[k] * (sum of exp(-beta[k] * age) over the earlier
    events of its kind); ``state`` holds that sum at the begin. ``lags`` (N, T) are times since the event
    before, ``marks`` (N, T) the kinds; the first ``valid_length`` (N,) events count, and nothing happens
    until ``max_time`` (N,) after them. States have no gradient. Hawkes, "Spectra of some self-exciting point
    processes", 1971.
    """
    inputs = (lda, alpha, beta, state, lags, marks, valid_length, max_time)
    _check_hawkes([value.shape for value in inputs])
    count, kinds = lda.shape
    dtype = fractional(lda.dtype)
    lda, alpha, beta, state = (value.to(dtype) for value in (lda, alpha, beta, state))
    lags, ends = lags.detach().to(dtype), max_time.detach().to(dtype)
    chosen = torch.nn.functional.one_hot(marks.to(torch.int64), kinds).to(torch.bool)
    in_use = torch.arange(lags.shape[1], device=lags.device) < valid_length.unsqueeze(1)
    total = lda.new_zeros(count)
    # The excitement that is left of each kind, and how much of it has been lived through.
    left, lived = state.detach(), torch.zeros_like(state)
    now = lda.new_zeros(count)
    for step in range(lags.shape[1]):
        here, used = chosen[:, step], in_use[:, step]
        decay = torch.exp(-beta * torch.where(used, lags[:, step], 0.0).unsqueeze(1))
        lived, left = lived + left * (1 - decay), left * decay
        intensity = torch.where(here, lda + alpha * beta * left, 0.0).sum(1)
        total = total + torch.where(used, torch.log(torch.where(used, intensity, 1.0)), 0.0)
        left = left + (here & used.unsqueeze(1)).to(left.dtype)
        now = now + torch.where(used, lags[:, step], 0.0)
    decay = torch.exp(-beta * (ends - now).unsqueeze(1))
    lived, left = lived + left * (1 - decay), left * decay
    expected = (lda * ends.unsqueeze(1) + alpha * lived).sum(1)
    return total - expected, left.detach()
