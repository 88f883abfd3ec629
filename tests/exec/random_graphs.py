"""Random networks: chains of steps over a pool of values of any shape, from a list of names and numbers.

A step is a name of `STEPS` and a number, from which it chooses its operands among the values that there are
and its attributes. A step that fits no value is left out, so that every list of steps is a network, and a
shorter list is a smaller one. The steps run once, operator by operator, as they are chosen: that gives the
shapes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import regluon as mx
from regluon.gluon import nn

from . import random_steps_of_attention, random_steps_of_shapes  # noqa: F401
from .random_steps import STEPS, Unfit

BATCH = 3
# No other size is that of the batch, so that a network can be called with another one.
INPUTS: dict[str, tuple[tuple[int, ...], str]] = {
    "image": ((BATCH, 4, 6, 5), "float32"),
    "wide": ((BATCH, 8, 4, 4), "float32"),
    "series": ((BATCH, 5, 8), "float32"),
    "rows": ((BATCH, 8), "float32"),
    "volume": ((BATCH, 2, 4, 4, 2), "float32"),
    "column": ((BATCH, 1), "float32"),
    "tokens": ((BATCH, 5), "int32"),
    "bytes": ((BATCH, 8), "int8"),
}
Step = tuple[str, int]
MOST = 1e3


class Value:
    """One value of the pool: its array while the network is being made."""

    def __init__(self, array: Any, exact: bool) -> None:
        self.array = array
        # Computed without rounding: only such a value is compared or counted, since a rounding error that
        # makes another whole number is no fault.
        self.exact = exact

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def is_float(self) -> bool:
        return np.dtype(self.array.dtype).kind == "f"


class Instruction:
    """What one step does: ``function(F, layer, *operands)``, with the layer that ``factory`` makes."""

    def __init__(
        self, name: str, function: Callable[..., Any], operands: Sequence[int], factory: Any = None
    ) -> None:
        self.name, self.function, self.operands, self.factory = name, function, tuple(operands), factory
        self.several = False


class Maker:
    """Makes a network: steps choose operands and attributes with its methods and add instructions."""

    def __init__(self, inputs: Sequence[str], style: str, np_kind: bool, seed: int = 0) -> None:
        self.inputs, self.style, self.np_kind = list(inputs), style, np_kind
        self.values = [Value(array, True) for array in self.arrays(BATCH, seed)]
        self.instructions: list[Instruction] = []
        self.random = random.Random(0)
        self.name = ""

    def arrays(self, batch: int, seed: int) -> list[Any]:
        """Inputs for a batch of any size."""
        source = np.random.RandomState(seed)
        made = []
        for name in self.inputs:
            (_, *rest), dtype = INPUTS[name]
            shape = (batch, *rest)
            data = source.randint(0, 5, shape) if "int" in dtype else source.normal(size=shape)
            array = mx.nd.array(data, dtype=dtype)
            made.append(array.as_np_ndarray() if self.np_kind else array)
        return made

    # What steps use ------------------------------------------------------------------

    def pick(self, fits: Callable[[Value], bool] = lambda value: value.is_float, late: bool = True) -> int:
        """The place of a value that fits, most often one of the latest."""
        places = [place for place, value in enumerate(self.values) if fits(value)]
        if not places:
            raise Unfit
        return self.random.choice(places[-3:] if late and self.random.random() < 0.7 else places)

    def shape(self, place: int) -> tuple[int, ...]:
        return self.values[place].shape

    def axis(self, place: int, first: int = 0) -> int:
        """One of the axes from ``first`` on."""
        axes = range(first, len(self.shape(place)))
        if not axes:
            raise Unfit
        return self.random.choice(axes)

    def choose(self, *options: Any) -> Any:
        return self.random.choice(options)

    def call(self, function: Callable[..., Any], *operands: int, exact: bool = False) -> None:
        """Add ``function(F, *operands)``."""
        self._add(
            Instruction(self.name, lambda F, _, *values: function(F, *values), operands),
            exact and all(self.values[place].exact for place in operands),
        )

    def layer(self, factory: Callable[[], Any], *operands: int, then: Any = None) -> None:
        """Add a layer on the operands, and what ``then(F, result)`` makes of its result."""

        def function(F: Any, layer: Any, *values: Any) -> Any:
            result = layer(*values)
            return result if then is None else then(F, result)

        self._add(Instruction(self.name, function, operands, factory), False)

    def write(self, function: Callable[..., Any], *operands: int) -> None:
        """Add a function that writes to its first operand."""
        if self.style != "forward":
            raise Unfit
        target = self.values[operands[0]]
        before = target.array.copy()
        try:
            self._add(Instruction(self.name, lambda F, _, *values: function(F, *values), operands), False)
        except Unfit:
            target.array[:] = before
            raise
        target.exact = False

    def _add(self, instruction: Instruction, exact: bool) -> None:
        layer = None
        if instruction.factory is not None:
            layer = instruction.factory()
            layer.initialize(mx.init.Xavier())
        results = instruction.function(
            mx.nd, layer, *(self.values[place].array for place in instruction.operands)
        )
        instruction.several = isinstance(results, (list, tuple))
        results = list(results) if instruction.several else [results]
        for result in results:
            flat = result.asnumpy().astype("float64")
            if not flat.size or flat.size > 4000 or not np.isfinite(flat).all() or np.abs(flat).max() > MOST:
                raise Unfit
        self.instructions.append(instruction)
        self.values += [Value(result, exact) for result in results]

    def run(self, steps: Sequence[Step]) -> Maker:
        for name, number in steps:
            self.name, self.random = name, random.Random(number)
            try:
                STEPS[name](self)
            except Unfit:
                pass
        return self

    def network(self, outputs: Sequence[int]) -> Network:
        """The network of all instructions; ``outputs`` chooses among the values, from the last backwards."""
        places = [-1 - number % len(self.values) for number in outputs]
        kind = ForwardNetwork if self.style == "forward" else SymbolNetwork
        return kind(self.instructions, [place + len(self.values) for place in places])


class Network(mx.gluon.HybridBlock):
    """Runs instructions; see the two styles of it below."""

    def __init__(self, instructions: Sequence[Instruction], outputs: Sequence[int]) -> None:
        super().__init__()
        self.instructions, self.outputs = tuple(instructions), tuple(outputs)
        self.layers = nn.HybridSequential()
        where: list[int] = []
        for instruction in instructions:
            where.append(len(self.layers) if instruction.factory is not None else -1)
            if instruction.factory is not None:
                self.layers.add(instruction.factory())
        self.where = tuple(where)

    def compute(self, F: Any, inputs: Sequence[Any]) -> Any:
        """The outputs."""
        values = list(inputs)
        for instruction, where in zip(self.instructions, self.where, strict=True):
            layer = self.layers[where] if where >= 0 else None
            results = instruction.function(F, layer, *(values[place] for place in instruction.operands))
            values += list(results) if instruction.several else [results]
        return [values[place] for place in self.outputs]


class ForwardNetwork(Network):
    """A network in the style of 2.0."""

    def forward(self, x: Any, *others: Any) -> Any:
        """Compute on arrays."""
        return self.compute(mx.nd, (x, *others))


class SymbolNetwork(Network):
    """A network in the style of 1.x."""

    def hybrid_forward(self, F: Any, x: Any, *others: Any) -> Any:
        """Compute on arrays or symbols."""
        return self.compute(F, (x, *others))
