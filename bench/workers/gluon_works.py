"""The works as Gluon code, for regluon and for MXNet alike; what differs is in a `Gluon` of each worker."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from bench.networks.gluon_networks import build
from bench.networks.shapes import classes, input_shape
from bench.workers.protocol import Prepared, Unsupported


class Gluon:
    """A package that has Gluon; workers override what theirs does in another way."""

    # Calls return before their result is there.
    asynchronous = False
    # How many calls it takes until further ones run at full speed.
    calls_to_compile = 1

    def __init__(self, mx: Any, legacy: bool = False) -> None:
        self.mx = mx
        self._arrays = mx.nd if legacy else mx.np
        if not legacy:
            mx.npx.set_np()

    def array(self, values: Any) -> Any:
        """A float32 array, of the legacy kind if so asked."""
        return self._arrays.array(values, dtype="float32")

    def finish(self) -> None:
        """Wait until all that was called is done."""
        self.mx.npx.waitall()

    def repeat(self, net: Any, x: Any) -> Callable[[], Any]:
        """One call of the network that returns when its result is there."""
        if not self.asynchronous:
            return partial(net, x)

        def call() -> None:
            net(x).wait_to_read()

        return call

    def network(self, work: dict[str, Any]) -> tuple[Any, Any]:
        """An initialized network that knows its shapes, and an input."""
        mx = self.mx
        if work["network"] == "lstm" and not hasattr(mx.gluon, "rnn"):
            raise Unsupported("gluon.rnn is not there")
        net = build(mx, work["network"], work["settings"])
        net.initialize(mx.init.Xavier())
        shape = input_shape(work["network"], work["batch"], work["settings"])
        x = self.array(numpy.random.default_rng(0).normal(size=shape))
        # Operator by operator this takes more memory than compiled, which is what is measured.
        if work["kind"] not in ("graph", "memory"):
            net(x).wait_to_read()
        return net, x

    def converted(self, net: Any, x: Any, dtype: str) -> tuple[Any, Any]:
        """The network and the input for inference in ``dtype``."""
        raise NotImplementedError

    def compiled(self, net: Any, x: Any) -> Callable[[], Any]:
        """The quickest way this package has to repeat the network's prediction."""
        net.hybridize(static_alloc=True, static_shape=True)
        return self.repeat(net, x)

    def start_training(self, net: Any, dtype: str) -> None:
        """Turn mixed precision on, before a trainer exists."""
        if dtype != "float32":
            raise Unsupported(f"training in {dtype} is not there")


def inference(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    net, x = gluon.network(work)
    if work["dtype"] != "float32":
        # Converting starts from the graph that a call of a hybridized network records.
        net.hybridize()
        net(x).wait_to_read()
        net, x = gluon.converted(net, x, work["dtype"])
    if work["kind"] == "memory":
        # Trying ways out takes memory of its own.
        net.hybridize(static_alloc=True, static_shape=True)
        call = gluon.repeat(net, x)
    else:
        call = gluon.compiled(net, x)
    for _ in range(3):
        call()
    return Prepared(call)


def training(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    """Forward, loss, backward and an update by SGD with momentum."""
    mx = gluon.mx
    net, x = gluon.network(work)
    count = classes(work["network"])
    if count is None:
        loss_of, target = mx.gluon.loss.L2Loss(), gluon.array(numpy.zeros(net(x).shape))
    else:
        loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        target = gluon.array([index % count for index in range(work["batch"])])
    gluon.start_training(net, work["dtype"])
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of.hybridize()
    settings = {"learning_rate": 1e-4, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=None)
    record = mx.autograd.record

    def step() -> None:
        with record():
            loss = loss_of(net(x), target)
        loss.backward()
        trainer.step(work["batch"])

    for _ in range(3):
        step()
    gluon.finish()
    return Prepared(step, gluon.finish if gluon.asynchronous else None)


def first_call(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    """The first call, or all those that come before calls at full speed."""
    net, x = gluon.network(work)
    gluon.finish()
    started = time.perf_counter()
    net.hybridize(static_alloc=True, static_shape=True)
    call = gluon.repeat(net, x)
    for _ in range(gluon.calls_to_compile if work["kind"] == "compiled" else 1):
        call()
    return Prepared(call, first=time.perf_counter() - started)


def graph(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    """Two calls: some packages leave a part of their compilation to the second."""
    net, x = gluon.network(work)
    started = time.perf_counter()
    net.hybridize(static_alloc=True, static_shape=True)
    call = gluon.repeat(net, x)
    for _ in range(2):
        call()
    return Prepared(call, first=time.perf_counter() - started)


def eager(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    a, b = gluon.array(numpy.ones((4, 4))), gluon.array(numpy.ones((4, 4)))
    return Prepared(partial(operator.add, a, b), gluon.finish if gluon.asynchronous else None)


def prepare(gluon: Gluon, work: dict[str, Any]) -> Prepared:
    """Make a work ready, whatever its kind."""
    kind = work["kind"]
    if kind == "memory":
        kind = "training" if work["settings"].get("training") else "inference"
    kinds = {
        "inference": inference,
        "training": training,
        "first_call": first_call,
        "compiled": first_call,
        "graph": graph,
        "eager": eager,
    }
    return kinds[kind](gluon, work)
