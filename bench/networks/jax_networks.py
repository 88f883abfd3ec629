"""The networks as JAX functions ``apply(parameters, x, training)`` -> (output, new running statistics)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy
from jax import lax
from jax import numpy as jnp

from .describe import Step, load
from .shapes import BERT, bert_layers

Parameters = dict[str, Any]
Apply = Callable[[Parameters, Any, bool], tuple[Any, Parameters]]
STATISTICS = ("running_mean", "running_var")


def build(network: str, settings: dict[str, int], models: Path) -> tuple[Parameters, Apply]:
    """Parameters and the function of a network of the table."""
    if network in ("bert", "bert_layer"):
        return _encoder(bert_layers(network))
    if network == "lstm":
        return _lstm(settings["hidden"], settings["layers"])
    return _described(load(models / f"{network}.json"))


def _random(*shape: int) -> Any:
    random = numpy.random.default_rng(sum(shape))
    return jnp.asarray(random.normal(size=shape).astype(numpy.float32) * 0.02)


def _described(steps: list[Step]) -> tuple[Parameters, Apply]:
    parameters: Parameters = {}
    for step in steps:
        for name, shape in step.shapes.items():
            positive = name in ("gamma", "running_var")
            parameters[f"{step.name}/{name}"] = jnp.ones(shape) if positive else _random(*shape)

    def apply(parameters: Parameters, x: Any, training: bool) -> tuple[Any, Parameters]:
        values, statistics = {"data": x}, {}
        for step in steps:
            weights = {name: parameters[f"{step.name}/{name}"] for name in step.shapes}
            arguments = [values[name] for name in step.inputs]
            if step.op == "BatchNorm":
                values[step.name], moved = _batch_norm(step, weights, arguments[0], training)
                statistics.update({f"{step.name}/{name}": value for name, value in moved.items()})
            else:
                values[step.name] = _OPERATORS[step.op](step, weights, *arguments)
        return values[steps[-1].name], statistics

    return parameters, apply


def _convolution(step: Step, weights: Parameters, x: Any) -> Any:
    attributes = step.attributes
    y = lax.conv_general_dilated(
        x,
        weights["weight"],
        tuple(attributes.get("stride") or (1, 1)),
        [(pad, pad) for pad in attributes.get("pad") or (0, 0)],
        rhs_dilation=tuple(attributes.get("dilate") or (1, 1)),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=attributes.get("num_group", 1),
    )
    return y + weights["bias"][:, None, None] if "bias" in weights else y


def _batch_norm(step: Step, weights: Parameters, x: Any, training: bool) -> tuple[Any, Parameters]:
    mean, variance, moved = weights["running_mean"], weights["running_var"], {}
    if training:
        kept = step.attributes.get("momentum", 0.9)
        wide = x.astype(jnp.float32)
        now = {"running_mean": wide.mean((0, 2, 3)), "running_var": wide.var((0, 2, 3))}
        moved = {name: weights[name] * kept + now[name] * (1 - kept) for name in STATISTICS}
        mean, variance = now["running_mean"], now["running_var"]
    scale = weights["gamma"] * lax.rsqrt(variance + step.attributes.get("eps", 1e-5))
    shift = weights["beta"] - mean * scale
    return x * scale[:, None, None].astype(x.dtype) + shift[:, None, None].astype(x.dtype), moved


def _pooling(step: Step, weights: Parameters, x: Any) -> Any:
    attributes = step.attributes
    average = attributes.get("pool_type", "max") == "avg"
    if attributes.get("global_pool"):
        return x.mean((2, 3), keepdims=True) if average else x.max((2, 3), keepdims=True)
    kernel, stride = attributes["kernel"], attributes.get("stride") or (1, 1)
    borders = [(0, 0), (0, 0)]
    for size, window, move, pad in zip(
        x.shape[2:], kernel, stride, attributes.get("pad") or (0, 0), strict=True
    ):
        beyond = (size + 2 * pad - window) % move
        rounds_up = attributes.get("pooling_convention", "valid") == "full" and beyond
        borders.append((pad, pad + (move - beyond if rounds_up else 0)))
    # A concrete number: only then does JAX see a sum or a maximum, which it can differentiate.
    start = numpy.array(0 if average else -numpy.inf, x.dtype)
    combine = lax.add if average else lax.max
    y = lax.reduce_window(x, start, combine, (1, 1, *kernel), (1, 1, *stride), borders)
    return y / (kernel[0] * kernel[1]) if average else y


def _dense(step: Step, weights: Parameters, x: Any) -> Any:
    if step.attributes.get("flatten", True):
        x = x.reshape(x.shape[0], -1)
    y = x @ weights["weight"].T
    return y + weights["bias"] if "bias" in weights else y


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Convolution": _convolution,
    "Pooling": _pooling,
    "FullyConnected": _dense,
    "Activation": lambda step, weights, x: getattr(jax.nn, step.attributes["act_type"])(x),
    "clip": lambda step, weights, x: jnp.clip(x, step.attributes["a_min"], step.attributes["a_max"]),
    "Concat": lambda step, weights, *xs: jnp.concatenate(xs, step.attributes.get("dim", 1)),
    "Flatten": lambda step, weights, x: x.reshape(x.shape[0], -1),
    "Dropout": lambda step, weights, x: x,
    "_copy": lambda step, weights, x: x,
    "broadcast_add": lambda step, weights, x, y: x + y,
    "elemwise_add": lambda step, weights, x, y: x + y,
}


def _encoder(layers: int) -> tuple[Parameters, Apply]:
    hidden, wide, heads = BERT["hidden"], BERT["feed_forward"], BERT["heads"]
    dense = {name: (hidden, hidden) for name in ("query", "key", "value", "output")}
    dense |= {"widen": (hidden, wide), "narrow": (wide, hidden)}
    parameters: Parameters = {}
    for layer in range(layers):
        for name, shape in dense.items():
            parameters[f"{layer}/{name}"] = (_random(*shape), jnp.zeros(shape[1]))
        for name in ("attention_norm", "norm"):
            parameters[f"{layer}/{name}"] = (jnp.ones(hidden), jnp.zeros(hidden))

    def norm(weights: Any, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-12) * weights[0] + weights[1]
        )

    def apply(parameters: Parameters, x: Any, training: bool) -> tuple[Any, Parameters]:
        for layer in range(layers):

            def project(name: str, x: Any, layer: int = layer) -> Any:
                weight, bias = parameters[f"{layer}/{name}"]
                return x @ weight + bias

            parts = [project(name, x).reshape(*x.shape[:2], heads, -1) for name in ("query", "key", "value")]
            mixed = jax.nn.dot_product_attention(*parts).reshape(x.shape)
            x = norm(parameters[f"{layer}/attention_norm"], x + project("output", mixed))
            inner = jax.nn.gelu(project("widen", x), approximate=False)
            x = norm(parameters[f"{layer}/norm"], x + project("narrow", inner))
        return x, {}

    return parameters, apply


def _lstm(hidden: int, layers: int) -> tuple[Parameters, Apply]:
    parameters = {
        f"{layer}": (_random(hidden, 4 * hidden), _random(hidden, 4 * hidden), jnp.zeros(4 * hidden))
        for layer in range(layers)
    }

    def apply(parameters: Parameters, x: Any, training: bool) -> tuple[Any, Parameters]:
        for layer in range(layers):
            from_input, from_state, bias = parameters[f"{layer}"]

            def step(carry: Any, gates: Any, from_state: Any = from_state) -> tuple[Any, Any]:
                state, cell = carry
                enter, forget, new, leave = jnp.split(gates + state @ from_state, 4, -1)
                cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
                state = jax.nn.sigmoid(leave) * jnp.tanh(cell)
                return (state, cell), state

            zeros = jnp.zeros(x.shape[1:], x.dtype)
            # The products with the inputs do not depend on the state: one for the whole sequence.
            _, x = lax.scan(step, (zeros, zeros), x @ from_input + bias)
        return x, {}

    return parameters, apply
