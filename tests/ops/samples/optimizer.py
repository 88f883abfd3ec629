"""Samples of the optimizer steps: the reference gives the new weight (a tuple for several weights)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample

_random = np.random.RandomState(22)
LR, WD, RESCALE, CLIP = 0.1, 0.01, 0.5, 0.2


def normal(*shape: int) -> np.ndarray:
    return _random.randn(*shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return _random.uniform(0.2, 1.0, shape).astype(np.float32)


def _clipped(gradient: np.ndarray) -> np.ndarray:
    return np.clip(gradient * RESCALE, -CLIP, CLIP)


def _decayed(weight: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Rescaled gradient plus weight decay, clipped after the sum (Adam and RMSProp)."""
    return np.clip(gradient * RESCALE + WD * weight, -CLIP, CLIP)


def sgd(w: np.ndarray, g: np.ndarray, lr: float = LR, wd: float = WD) -> np.ndarray:
    return w - lr * (_clipped(g) + wd * w)


def momentum(w: np.ndarray, g: np.ndarray, m: np.ndarray, lr: float = LR, wd: float = WD) -> np.ndarray:
    return w + 0.9 * m - lr * (_clipped(g) + wd * w)


def nesterov(w: np.ndarray, g: np.ndarray, m: np.ndarray) -> np.ndarray:
    step = LR * (_clipped(g) + WD * w)
    return w + 0.9 * (0.9 * m - step) - step


def signum(w: np.ndarray, g: np.ndarray, m: np.ndarray) -> np.ndarray:
    return (1 - LR * 0.05) * w + LR * np.sign(0.9 * m - 0.1 * (_clipped(g) + WD * w))


def adam(w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    g = _decayed(w, g)
    return w - LR * (0.9 * m + 0.1 * g) / (np.sqrt(0.999 * v + 0.001 * g**2) + 1e-8)


def rmsprop(w: np.ndarray, g: np.ndarray, n: np.ndarray) -> np.ndarray:
    g = _decayed(w, g)
    return w - LR * g / np.sqrt(0.95 * n + 0.05 * g**2 + 1e-8)


def rmsprop_centred(
    w: np.ndarray, g: np.ndarray, n: np.ndarray, mean: np.ndarray, delta: np.ndarray
) -> np.ndarray:
    g = _decayed(w, g)
    variance = 0.95 * n + 0.05 * g**2 - (0.95 * mean + 0.05 * g) ** 2
    return w + 0.9 * delta - LR * g / np.sqrt(variance + 1e-8)


def ftml(w: np.ndarray, g: np.ndarray, d: np.ndarray, v: np.ndarray, z: np.ndarray) -> np.ndarray:
    g = _decayed(w, g)
    second = (0.999 * v + 0.001 * g**2) / (1 - 0.999**2)
    scale = (1 - 0.6**2) / LR * (np.sqrt(second) + 1e-8)
    return -(0.6 * z + 0.4 * g - (scale - 0.6 * d) * w) / scale


def ftrl(w: np.ndarray, g: np.ndarray, z: np.ndarray, n: np.ndarray) -> np.ndarray:
    g = _clipped(g)
    root = np.sqrt(n + g**2)
    z = z + g - (root - np.sqrt(n)) * w / LR
    return np.where(abs(z) > 0.01, (np.sign(z) * 0.01 - z) / ((1 + root) / LR + WD), 0)


def adagrad(w: np.ndarray, g: np.ndarray, h: np.ndarray) -> np.ndarray:
    g = _clipped(g)
    return w - LR * (g / np.sqrt(h + g**2 + 1e-7) + WD * w)


def group_adagrad(w: np.ndarray, g: np.ndarray, h: np.ndarray) -> np.ndarray:
    g = _clipped(g)
    return w - LR * g / np.sqrt(h + (g**2).mean(1, keepdims=True) + 1e-5)


def adamw(
    w: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    lr: float = LR,
    wd: float = WD,
    eta: float = 0.3,
) -> np.ndarray:
    g = _clipped(g)
    step = (0.9 * m + 0.1 * g) / (np.sqrt(0.999 * v + 0.001 * g**2) + 1e-8)
    return w - eta * (lr * step + wd * w)


def adabelief(
    w: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    lr: float = LR,
    wd: float = WD,
    eta: float = 0.3,
) -> np.ndarray:
    g = np.clip(g * RESCALE + wd * w, -CLIP, CLIP)
    mean = 0.9 * m + 0.1 * g
    second = 0.999 * v + 0.001 * (g - mean) ** 2 + 1e-8
    return w - eta * lr * mean / (np.sqrt(second) + 1e-8)


def lamb_direction(
    w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, t: int = 2, wd: float = WD
) -> np.ndarray:
    g = _clipped(g)
    mean = (0.9 * m + 0.1 * g) / (1 - 0.9**t)
    second = (0.999 * v + 0.001 * g**2) / (1 - 0.999**t)
    return mean / (np.sqrt(second) + 1e-6) + wd * w


def lamb(
    w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, lr: float, wd: float, t: int
) -> np.ndarray:
    direction = lamb_direction(w, g, m, v, t, wd)
    return w - lr * np.linalg.norm(w) / np.linalg.norm(direction) * direction


def lans(
    w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, lr: float, wd: float, t: int
) -> np.ndarray:
    g = np.clip(g / np.linalg.norm(g), -CLIP, CLIP)
    root = np.sqrt((0.999 * v + 0.001 * g**2) / (1 - 0.999**t)) + 1e-6
    first = (0.9 * m + 0.1 * g) / (1 - 0.9**t) / root + wd * w
    second = g / root + wd * w
    norm = np.linalg.norm(w)
    step = 0.9 * first / np.linalg.norm(first) + 0.1 * second / np.linalg.norm(second)
    return w - lr * norm * step


_COMMON: dict[str, Any] = {"lr": LR, "wd": WD, "rescale_grad": RESCALE, "clip_gradient": CLIP}
_DECOUPLED: dict[str, Any] = {"lr": LR, "wd": WD, "eta": 0.3, "clip_gradient": CLIP}
_SCALE = np.array([RESCALE], np.float32)


def _step(reference: Callable[..., Any], states: str = "", **attrs: Any) -> Sample:
    """A sample for one weight; each letter of ``states`` is a state, ``p`` when it must be positive."""
    arrays = [normal(3, 4), normal(3, 4), *(positive(3, 4) if s == "p" else normal(3, 4) for s in states)]
    return Sample(arrays, {**_COMMON, **attrs}, reference, gradient=False, rtol=1e-4, atol=1e-5)


def _mixed(sample: Sample, reference: Callable[..., Any], at_end: int = 0) -> Sample:
    """The same step with a float16 weight and gradient and the float32 weight after the states."""
    weight, grad, *states = sample.inputs
    extra = states[len(states) - at_end :] if at_end else []
    states = states[: len(states) - at_end] if at_end else states
    low = [weight.astype(np.float16), grad.astype(np.float16)]

    def low_reference(w: np.ndarray, g: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        kept, full = rest[: len(states)], rest[len(states)]
        return reference(full, g.astype(np.float32), *kept).astype(np.float16)

    return Sample(
        [*low, *states, low[0].astype(np.float32), *extra],
        dict(sample.attrs),
        low_reference,
        gradient=False,
        rtol=2e-3,
        atol=1e-3,
    )


def _decoupled(reference: Callable[..., Any]) -> Sample:
    arrays = [normal(3, 4), normal(3, 4), normal(3, 4), positive(3, 4), _SCALE]
    return Sample(
        arrays,
        dict(_DECOUPLED),
        lambda w, g, m, v, scale: reference(w, g, m, v),
        gradient=False,
        rtol=1e-4,
        atol=1e-5,
    )


def _multi(
    reference: Callable[..., Any], states: str, attrs: dict[str, Any], mixed: bool, extra: list[np.ndarray]
) -> Sample:
    """Two weights at once; ``reference(index, weight, grad, *states)`` gives one new weight."""
    inputs: list[np.ndarray] = []
    for _ in range(2):
        weight, grad = normal(3, 4), normal(3, 4)
        kind = np.float16 if mixed else np.float32
        inputs += [weight.astype(kind), grad.astype(kind)]
        inputs += [positive(3, 4) if s == "p" else normal(3, 4) for s in states]
        inputs += [weight.astype(np.float16).astype(np.float32)] if mixed else []
    width = 2 + len(states) + mixed

    def all_weights(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        results = []
        for index in range(2):
            group = arrays[index * width : (index + 1) * width]
            weight = group[-1] if mixed else group[0]
            updated = reference(index, weight, group[1].astype(np.float32), *group[2 : 2 + len(states)])
            results.append(updated.astype(group[0].dtype))
        return tuple(results)

    tolerance = {"rtol": 2e-3, "atol": 1e-3} if mixed else {"rtol": 1e-4, "atol": 1e-5}
    return Sample([*inputs, *extra], attrs, all_weights, gradient=False, **tolerance)


_RATES, _DECAYS, _ETAS, _STEPS = (0.1, 0.2), (0.01, 0.1), (0.3, 0.5), (1, 3)
_SHARED: dict[str, Any] = {"rescale_grad": RESCALE, "clip_gradient": CLIP, "num_weights": 2}
_LISTS: dict[str, Any] = {"lrs": _RATES, "wds": _DECAYS}
_LAYERS: dict[str, Any] = {
    "learning_rates": _RATES,
    "wds": _DECAYS,
    "step_count": _STEPS,
    "num_tensors": 2,
    "rescale_grad": RESCALE,
    "clip_gradient": CLIP,
}
_LOADED = [np.array(_RATES, np.float32), np.array(_DECAYS, np.float32)]


def _multi_samples() -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for mixed in (False, True):
        mp = "mp_" if mixed else ""
        for prefix, attrs, extra in (("", _LISTS, []), ("preloaded_", {}, _LOADED)):
            samples[f"{prefix}multi_{mp}sgd_update"] = [
                _multi(
                    lambda i, w, g: sgd(w, g, _RATES[i], _DECAYS[i]), "", {**_SHARED, **attrs}, mixed, extra
                )
            ]
            samples[f"{prefix}multi_{mp}sgd_mom_update"] = [
                _multi(
                    lambda i, w, g, m: momentum(w, g, m, _RATES[i], _DECAYS[i]),
                    "n",
                    {**_SHARED, **attrs, "momentum": 0.9},
                    mixed,
                    extra,
                )
            ]
        decoupled = {**_LISTS, "etas": _ETAS, "clip_gradient": CLIP, "num_weights": 2}
        for name, rule in (("adamw", adamw), ("adabelief", adabelief)):
            samples[f"_multi_{mp}{name}_update"] = [
                _multi(
                    lambda i, w, g, m, v, rule=rule: rule(w, g, m, v, _RATES[i], _DECAYS[i], _ETAS[i]),
                    "np",
                    decoupled,
                    mixed,
                    [_SCALE],
                )
            ]
        for name, layer in (("lamb", lamb), ("lans", lans)):
            samples[f"_multi_{mp}{name}_update"] = [
                _multi(
                    lambda i, w, g, m, v, layer=layer: layer(w, g, m, v, _RATES[i], _DECAYS[i], _STEPS[i]),
                    "np",
                    dict(_LAYERS),
                    mixed,
                    [],
                )
            ]
    return samples


def _without(attrs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in names}


def _lamb_samples() -> dict[str, list[Sample]]:
    attrs = {**_without(_COMMON, "lr"), "t": 2}
    first = Sample(
        [normal(3, 4), normal(3, 4), normal(3, 4), positive(3, 4)], attrs, lamb_direction, False, 1e-4, 1e-5
    )
    low = [first.inputs[0].astype(np.float16), first.inputs[1].astype(np.float16)]
    norms = [np.array([2.0], np.float32), np.array([4.0], np.float32)]
    weight, direction = normal(3, 4), normal(3, 4)
    low_weight = weight.astype(np.float16)
    return {
        "lamb_update_phase1": [first],
        "mp_lamb_update_phase1": [
            Sample(
                [*low, *first.inputs[2:], low[0].astype(np.float32)],
                attrs,
                lambda w, g, m, v, full: lamb_direction(full, g.astype(np.float32), m, v),
                False,
                1e-4,
                1e-5,
            )
        ],
        "lamb_update_phase2": [
            Sample([weight, direction, *norms], {"lr": LR}, lambda w, g, r1, r2: w - LR * r1 / r2 * g, False)
        ],
        "mp_lamb_update_phase2": [
            Sample(
                [low_weight, direction, *norms, low_weight.astype(np.float32)],
                {"lr": LR},
                lambda w, g, r1, r2, full: (full - LR * r1 / r2 * g).astype(np.float16),
                False,
                2e-3,
                1e-3,
            )
        ],
    }


def _lars(lrs: np.ndarray, weights: np.ndarray, grads: np.ndarray, wds: np.ndarray) -> np.ndarray:
    weight, grad = np.sqrt(weights), np.sqrt(grads) * RESCALE
    return np.where(weights * grads > 0, lrs * 0.1 * weight / (grad + wds * weight + 1e-6), lrs)


_SGD, _MOMENTUM = _step(sgd), _step(momentum, "n", momentum=0.9)
_NESTEROV = _step(nesterov, "n", momentum=0.9)
_ADAMW, _ADABELIEF = _decoupled(adamw), _decoupled(adabelief)

SAMPLES: dict[str, list[Sample]] = {
    "sgd_update": [_SGD],
    "sgd_mom_update": [_MOMENTUM],
    "mp_sgd_update": [_mixed(_SGD, sgd)],
    "mp_sgd_mom_update": [_mixed(_MOMENTUM, momentum)],
    "nag_mom_update": [_NESTEROV],
    "mp_nag_mom_update": [_mixed(_NESTEROV, nesterov)],
    "signsgd_update": [_step(lambda w, g: (1 - LR * WD) * w - LR * np.sign(g))],
    "signum_update": [_step(signum, "n", momentum=0.9, wd_lh=0.05)],
    "adam_update": [_step(adam, "np")],
    "rmsprop_update": [_step(rmsprop, "p")],
    "rmspropalex_update": [
        Sample(
            [normal(3, 4), normal(3, 4), 1 + positive(3, 4), 0.1 * normal(3, 4), normal(3, 4)],
            dict(_COMMON),
            rmsprop_centred,
            False,
            1e-4,
            1e-5,
        )
    ],
    "ftml_update": [
        Sample(
            [normal(3, 4), normal(3, 4), positive(3, 4), positive(3, 4), normal(3, 4)],
            {**_without(_COMMON, "clip_gradient"), "clip_grad": CLIP, "t": 2},
            ftml,
            False,
            1e-4,
            1e-5,
        )
    ],
    "ftrl_update": [_step(ftrl, "np")],
    "_sparse_adagrad_update": [_step(adagrad, "p")],
    "_contrib_group_adagrad_update": [
        Sample(
            [normal(3, 4), normal(3, 4), positive(3, 1)],
            _without(_COMMON, "wd"),
            group_adagrad,
            False,
            1e-4,
            1e-5,
        )
    ],
    "_adamw_update": [_ADAMW],
    "_mp_adamw_update": [_mixed(_ADAMW, adamw, at_end=1)],
    "_adabelief_update": [_ADABELIEF],
    "_mp_adabelief_update": [_mixed(_ADABELIEF, adabelief, at_end=1)],
    "multi_lars": [
        Sample(
            [positive(3), np.array([4.0, 0.0, 9.0], np.float32), positive(3), positive(3)],
            {"eta": 0.1, "eps": 1e-6, "rescale_grad": RESCALE},
            _lars,
            False,
        )
    ],
    **_lamb_samples(),
    **_multi_samples(),
}
