"""What is checked of a random network: hybridized, it does what it does operator by operator."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

import regluon as mx
from regluon.base.errors import MXNetError

from .random_graphs import BATCH, Maker, Network

FLAGS: list[dict[str, Any]] = [
    {},
    {"static_alloc": True},
    {"static_alloc": True, "static_shape": True},
    {"static_shape": True},
    {"inline_limit": 0, "forward_bulk_size": 1, "backward_bulk_size": 1},
    {"partition_if_dynamic": False},
]
ACTIONS = ["predict", "predict", "train", "train", "weights", "step", "write", "batch", "threads", "flags"]


class Difference(AssertionError):
    """The two networks gave different results."""


class Check:
    """Two copies of a network, one of which is hybridized, through the same calls.

    Parameters
    ----------
    maker : Maker
        The network.
    outputs : sequence of int
        Which of its values it returns.
    seed : int
        Of inputs, parameters and flags.
    dtype : str
        The type of floats that it is cast to.
    """

    def __init__(self, maker: Maker, outputs: Sequence[int], seed: int, dtype: str = "float32") -> None:
        self.maker, self.outputs, self.dtype = maker, outputs, dtype
        self.random = random.Random(seed)
        mx.random.seed(seed)
        self.plain, self.compiled = self.build(), self.build()
        for name, parameter in self.plain.collect_params().items():
            if name.endswith("running_var"):
                parameter.set_data(
                    mx.nd.random.uniform(0.5, 1.5, shape=parameter.shape).astype(parameter.dtype)
                )
            elif parameter.grad_req != "null" and name.endswith(("beta", "bias", "gamma")):
                parameter.set_data(mx.nd.random.uniform(-1, 1, shape=parameter.shape).astype(parameter.dtype))
        self.copy(self.plain, self.compiled)
        self.flags = self.random.choice(FLAGS)
        self.compiled.hybridize(**self.flags)
        self.batch, self.number = BATCH, 0
        self.trainers: list[Any] = []
        self.trained = False

    def build(self, dtype: str | None = None) -> Network:
        network = self.maker.network(self.outputs)
        network.initialize(mx.init.Xavier())
        dtype = dtype or self.dtype
        if dtype != "float32":
            network.cast(dtype)
        return network

    @staticmethod
    def copy(source: Network, target: Network) -> None:
        for one, other in zip(parameters(source), parameters(target), strict=True):
            if one._data is not None:
                other.set_data(one.data().astype(other.dtype))

    def arrays(self, dtype: str | None = None) -> list[Any]:
        made = self.maker.arrays(self.batch, self.number)
        dtype = dtype or self.dtype
        return [array.astype(dtype) if np.dtype(array.dtype).kind == "f" else array for array in made]

    # Calls ----------------------------------------------------------------------

    def run(self, actions: Sequence[str]) -> None:
        """Do these things, of `ACTIONS`, one after another.

        Raises
        ------
        Difference
            If the hybridized network gives something else.
        """
        for action in actions:
            getattr(self, "do_" + action)()

    def do_predict(self) -> None:
        self.number += 1
        self.compare(predict)

    def do_train(self) -> None:
        self.number += 1
        if self.compare(train):
            self.trained = True
            self.match(
                "parameters", *([p.data() for p in parameters(net)] for net in (self.plain, self.compiled))
            )

    def do_weights(self) -> None:
        for one, other in zip(parameters(self.plain), parameters(self.compiled), strict=True):
            if one.grad_req == "null" and "running" not in one.name:
                # The gamma of a BatchNorm without a scale, which is 1.
                continue
            value = one.data() * 0.5 + 0.1
            one.set_data(value)
            other.set_data(value)

    def do_write(self) -> None:
        for net in (self.plain, self.compiled):
            for parameter in [each for each in parameters(net) if each.grad_req != "null"][-1:]:
                parameter.data()[:] = parameter.data() * 1.25

    def do_step(self) -> None:
        if not self.trained or self.dtype != "float32" or not parameters(self.plain):
            return
        if not self.trainers:
            self.trainers = [
                mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.5})
                for net in (self.plain, self.compiled)
            ]
        for trainer in self.trainers:
            trainer.step(BATCH, ignore_stale_grad=True)
        self.copy(self.plain, self.compiled)

    def do_batch(self) -> None:
        self.batch = self.random.choice([1, 2, 7, BATCH, BATCH])

    def do_flags(self) -> None:
        self.flags = self.random.choice(FLAGS)
        self.compiled.hybridize(**self.flags)

    def do_threads(self) -> None:
        self.number += 1
        expected = attempt(predict, self.plain, self.arrays())
        found: list[Any] = [None, None]

        def work(place: int) -> None:
            for _ in range(3):
                found[place] = attempt(predict, self.compiled, self.arrays())

        threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for results in found:
            self.judge(predict, results, expected)

    def compare(self, function: Any) -> bool:
        expected = attempt(function, self.plain, self.arrays())
        return self.judge(function, attempt(function, self.compiled, self.arrays()), expected)

    def judge(self, function: Any, actual: Any, expected: Any) -> bool:
        """Whether both succeeded."""
        if isinstance(expected, Exception):
            # Hybridized, a network may succeed where it fails op by op: only what is given counts.
            return False
        if isinstance(actual, Exception):
            if "input that has a gradient buffer" in str(actual):
                # Said of writes to an input while recording; op by op they are lost without a word.
                return False
            raise Difference(f"{function.__name__}: {type(actual).__name__}: {actual}") from actual
        self.match(function.__name__, expected, actual, function)
        return True

    def match(self, what: str, expected: Sequence[Any], actual: Sequence[Any], function: Any = None) -> None:
        exact: Any = None
        # What cancels out, such as the gradient of a bias before BatchNorm, has the errors of the rest.
        largest = max([1.0, *(finite_maximum(array) for array in expected if is_float(array))])
        for place, (one, other) in enumerate(zip(expected, actual, strict=True)):
            if type(one) is not type(other) or one.dtype != other.dtype or one.shape != other.shape:
                raise Difference(f"{what} {place}: {describe(one)} became {describe(other)}")
            if close(other.asnumpy(), one.asnumpy(), self.dtype, largest):
                continue
            if function is not None and exact is None:
                exact = self.exactly(function)
            if exact is not None and place < len(exact) and excused(one, other, exact[place]):
                continue
            first, second = (array.asnumpy().astype("float64") for array in (one, other))
            raise Difference(
                f"{what} {place} of shape {one.shape} {one.dtype}: differs by "
                f"{np.nanmax(np.abs(first - second))}, of {np.abs(first).max()}; flags {self.flags}, "
                f"batch {self.batch}"
            )

    def exactly(self, function: Any) -> Any:
        """The results in double precision, op by op."""
        if "dropout" in str([i.name for i in self.maker.instructions]) and function is train:
            return None
        kind = "float64" if self.dtype in ("float32", "float64") else "float32"
        network = self.build(kind)
        self.copy(self.plain, network)
        results = attempt(function, network, self.arrays(kind))
        return None if isinstance(results, Exception) else results


def parameters(network: Network) -> list[Any]:
    return list(network.collect_params().values())


def predict(network: Network, arrays: list[Any]) -> list[Any]:
    """The outputs, and the inputs, to which the network may write."""
    return [*network(*arrays), *arrays]


def train(network: Network, arrays: list[Any]) -> list[Any]:
    """The outputs and the gradients of inputs and parameters."""
    mx.random.seed(7)
    floats = [array for array in arrays if is_float(array)]
    for array in floats:
        array.attach_grad()
    with mx.autograd.record():
        outputs = network(*arrays)
        losses = [(value * value).sum() for value in outputs if is_float(value)]
        loss = sum(losses[1:], losses[0]) if losses else None
    if loss is None:
        return outputs
    loss.backward()
    gradients = [parameter.grad() for parameter in parameters(network) if parameter.grad_req != "null"]
    return [*outputs, *(array.grad for array in floats), *gradients]


def attempt(function: Any, *arguments: Any) -> Any:
    """What a function gives, or its exception."""
    try:
        return function(*arguments)
    except (MXNetError, ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        return error


def is_float(array: Any) -> bool:
    return "float" in str(array.dtype)


def describe(array: Any) -> str:
    return f"{type(array).__name__} of shape {array.shape} and type {array.dtype}"


LIMITS = {"float64": 1e-8, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def finite_maximum(array: Any) -> float:
    values = array.asnumpy().astype("float64")
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def close(actual: np.ndarray, expected: np.ndarray, dtype: str, scale: float) -> bool:
    if expected.dtype.kind != "f" and "bfloat16" not in str(expected.dtype):
        return bool((actual == expected).all())
    actual, expected = actual.astype("float64"), expected.astype("float64")
    if not np.array_equal(np.isfinite(actual), np.isfinite(expected)):
        return False
    finite = np.isfinite(expected)
    return bool((np.abs(actual - expected)[finite] <= LIMITS[dtype] * scale).all())


def excused(plain: Any, compiled: Any, exact: Any) -> bool:
    """Whether the difference is of the size of the rounding errors that computing op by op makes."""
    one, other, best = (array.asnumpy().astype("float64") for array in (plain, compiled, exact))
    if not np.isfinite(best).all():
        return True
    allowed = 20 * np.abs(one - best).max() + 1e-6 * max(1.0, np.abs(best).max())
    return bool(np.abs(other - best).max() <= allowed)
