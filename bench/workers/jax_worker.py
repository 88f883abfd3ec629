"""JAX, jitted for the CPU; it has no layers of its own, so its networks are functions of lax operators."""

from __future__ import annotations

import operator
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy
from jax import numpy as jnp

from bench.networks.jax_networks import build
from bench.networks.shapes import classes, input_shape
from bench.workers.protocol import Prepared, Unsupported, serve


def setting(work: dict[str, Any]) -> tuple[Any, Any, Any]:
    parameters, apply = build(work["network"], work["settings"], Path(sys.argv[2]))
    shape = input_shape(work["network"], work["batch"], work["settings"])
    return (
        parameters,
        apply,
        jnp.asarray(numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32)),
    )


def cast(tree: Any, dtype: str) -> Any:
    return jax.tree.map(lambda value: value.astype(dtype), tree)


def inference(work: dict[str, Any]) -> Prepared:
    if work["dtype"] == "int8":
        raise Unsupported("it has no int8 networks of its own")
    parameters, apply, x = setting(work)
    parameters, x = cast(parameters, work["dtype"]), cast(x, work["dtype"])
    started = time.perf_counter()
    function = jax.jit(lambda parameters, x: apply(parameters, x, False)[0])
    function(parameters, x).block_until_ready()
    first = time.perf_counter() - started

    def call() -> None:
        function(parameters, x).block_until_ready()

    call()
    return Prepared(call, first=first)


def training(work: dict[str, Any]) -> Prepared:
    parameters, apply, x = setting(work)
    count = classes(work["network"])
    labels = None if count is None else jnp.arange(x.shape[0]) % count

    def loss_of(parameters: Any, x: Any) -> Any:
        output, statistics = apply(cast(parameters, work["dtype"]), cast(x, work["dtype"]), True)
        output = output.astype(jnp.float32)
        if labels is None:
            return (output * output).mean(), statistics
        rows = jax.nn.log_softmax(output)
        return -jnp.take_along_axis(rows, labels[:, None], 1).mean(), statistics

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters: Any, momenta: Any, x: Any) -> tuple[Any, Any, Any]:
        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, x)
        momenta = jax.tree.map(lambda momentum, gradient: 0.9 * momentum + gradient, momenta, gradients)
        moved = jax.tree.map(lambda value, momentum: value - 1e-4 * momentum, parameters, momenta)
        return {**moved, **cast(statistics, "float32")} if statistics else moved, momenta, loss

    state = [parameters, jax.tree.map(jnp.zeros_like, parameters), None]

    def call() -> None:
        state[:] = step(state[0], state[1], x)

    def finish() -> None:
        jax.block_until_ready(state)

    for _ in range(2):
        call()
    finish()
    return Prepared(call, finish)


def eager(work: dict[str, Any]) -> Prepared:
    a, b = jnp.ones((4, 4)), jnp.ones((4, 4))
    return Prepared(partial(operator.add, a, b), finish=(a + b).block_until_ready)


def prepare(work: dict[str, Any]) -> Prepared:
    kinds = {"training": training, "eager": eager}
    return kinds.get(work["kind"], inference)(work)


def versions() -> dict[str, str]:
    return {"jax": jax.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
