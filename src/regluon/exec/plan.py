"""Plans: a recorded graph compiled for prediction on inputs of fixed shapes.

A plan is two programs. The first computes what depends on parameters only (folded and packed weights), once
per version of the parameters; the second runs at each call. A parameter that was written, by an optimizer
step, ``set_data``, ``load_parameters`` or in place, has another version, and the first program runs again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MXNetError
from ..base.sharing import is_shared
from ..graph.dims import evaluate
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, reads_sizes, rebuild, topological
from ..ops.opdef import Spec
from ..passes import Settings, Watch, optimize, protect_outputs
from ..runtime.custom import CustomOperatorError
from .bodies import plan_bodies
from .cuda import seam
from .cuda.layout import choose_operators
from .kernels import Layouts, choose_kernels, contiguous_outputs
from .onednn import region_of, use_regions
from .program import Program
from .splitting import split
from .tuning import Tuner

__all__ = ["Plan", "specialise"]

_version = operator.attrgetter("_version")


def specialise(
    variables: Sequence[Node], outputs: Sequence[Entry], tensors: Sequence[Tensor], training: bool
) -> tuple[list[Node], list[Entry]]:
    """The graph for given shapes: nodes know their outputs' shapes, and sizes among attributes are numbers.

    Returns
    -------
    (list of Node, list of Entry)
        Variables in the order of ``variables``, and the outputs. They are those that are given where the
        graph knows these shapes already.

    Raises
    ------
    MXNetError
        If a shape depends on values, or the shapes do not fit the graph.
    """
    order = topological(outputs)
    if _is_as_recorded(order, variables, tensors):
        return list(variables), list(outputs)
    given = {
        id(node): (tuple(tensor.shape), tensor.dtype) for node, tensor in zip(variables, tensors, strict=True)
    }
    shapes = GraphShapes(outputs, given, training).run()

    def size_of(entry: Any) -> tuple[int, ...]:
        spec = shapes.spec(entry)
        if spec is None:
            raise MXNetError(f"the shape of {entry.node.name} is not known before the call")
        return spec.shape

    twins: dict[int, Node] = {}
    for node in variables:
        twin = node.__copy__()
        shape, dtype = given[id(node)]
        twin.specs = [Spec(shape, dtype)]
        twins[id(node)] = twin

    def replace(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry]:
        if node.op is None:
            return [Entry(twins[id(node)], 0)]
        specs = [shapes.spec(Entry(node, index)) for index in range(node.outputs)]
        new = node.moved(inputs)
        new.specs = None if None in specs else specs  # type: ignore[assignment]
        if reads_sizes(node):
            new.attrs = {key: evaluate(value, size_of) for key, value in node.attrs.items()}
            new._full = None
        return [Entry(new, index) for index in range(new.outputs)]

    return [twins[id(node)] for node in variables], rebuild(outputs, replace, order=order)


def _is_as_recorded(order: Sequence[Node], variables: Sequence[Node], tensors: Sequence[Tensor]) -> bool:
    """Whether all shapes of a graph are known, for tensors like these, and none of them is an attribute."""
    for node, tensor in zip(variables, tensors, strict=True):
        spec = node.specs[0] if node.specs else None
        if spec is None or spec.dtype is not tensor.dtype or spec.shape != tuple(tensor.shape):
            return False
    for node in order:
        if node.op is not None:
            specs = node.specs
            if specs is None or len(specs) != node.outputs or node.op.dynamic or reads_sizes(node):
                return False
    return True


def _cannot_plan(outputs: Sequence[Entry]) -> bool:
    return _depends_on_values(topological(outputs))


def _depends_on_values(nodes: Sequence[Node]) -> bool:
    """Operators whose shapes depend on values, that write their inputs, or that run user code."""
    for node in nodes:
        op = node.op
        if op is not None and (op.dynamic or op.mutates or op.name == "_CustomFunction"):
            return True
    return False


class Plan:
    """A graph compiled for one set of input shapes.

    Parameters
    ----------
    general : Program
        The same graph for any shapes, with the same variables: it runs while a parameter's memory is shared
        with NumPy or another library, from which nothing may be kept.
    count : int
        How many of its inputs, from the first, are inputs of a call; the rest are parameters.
    tensors : sequence of Tensor
        One value for each input; shapes, types and the device are taken from them.
    tune : bool
        Measure the kernels that can compute a node, and take the fastest.
    watch : callable, optional
        ``watch(name, before, after)`` is told of what each pass did.

    Raises
    ------
    MXNetError
        If the graph cannot be planned.
    """

    def __init__(
        self,
        general: Program,
        count: int,
        tensors: Sequence[Tensor],
        tune: bool = False,
        watch: Watch | None = None,
    ) -> None:
        variables, outputs, training = general.inputs, general.outputs, general.training
        self.general = general
        if _depends_on_values(general.nodes):
            raise MXNetError("this graph has operators that are not planned ahead")
        twins, entries = specialise(variables, outputs, tensors, training)
        kind = seam.current().kind(tensors)
        settings = Settings({id(node) for node in twins[count:]}, training, kind)
        self._device = tensors[0].device if tensors else None
        entries = plan_bodies(entries, settings, Plan)
        tuner = Tuner() if tune else None
        optimized = optimize(entries, settings, watch)
        entries = self._kernels(optimized, settings, tuner)
        if watch is not None:
            watch("choose_kernels", optimized, entries)
        if tuner is not None:
            tuner.save()
        entries = contiguous_outputs(entries)
        entries, made, sources = split(entries, settings)
        entries = protect_outputs(entries, settings)
        self.count = count
        used = {id(node) for node in topological(entries)}
        needed = {id(node) for node in topological(sources)}
        # Parameters that the second program reads as they are, and those that the first one reads.
        self._direct = [i for i, node in enumerate(twins) if i >= count and id(node) in used]
        self._read = [i for i, node in enumerate(twins) if i >= count and id(node) in needed]
        self.first = Program([twins[i] for i in self._read], sources, training, False) if sources else None
        self.program = Program(
            [*twins[:count], *(twins[i] for i in self._direct), *made], entries, training, False
        )
        self._function = self.program.function
        self._prepared: tuple[list[Tensor], list[int], list[Tensor]] | None = None

    def _kernels(self, entries: list[Entry], settings: Settings, tuner: Tuner | None) -> list[Entry]:
        """The graph with a kernel for each node; an engine that takes whole graphs leaves it as it is."""
        if settings.device != "cpu":
            return choose_operators(entries, settings, self._device)
        return choose_kernels(use_regions(entries, settings, Layouts(), tuner), settings, tuner)

    def __call__(
        self, key: int, tensors: Sequence[Tensor], function: Callable[..., Any] | None = None
    ) -> tuple[Tensor, ...]:
        """Run on tensors in the order of ``variables``; ``key`` is the key of the first random draw.

        ``function`` is one that `Program.watched` made of the second program.
        """
        parameters = tensors[self.count :]
        prepared = self._prepared
        if (
            prepared is None
            or prepared[1] != list(map(_version, parameters))
            or not all(map(operator.is_, prepared[0], parameters))
        ):
            if any(map(is_shared, parameters)):
                # Memory that NumPy or another library writes to changes without a new version.
                return self.general(key, tensors)
            prepared = self._prepare(list(parameters))
        try:
            run = function or self._function
            return run(key, *tensors[: self.count], *prepared[2])  # type: ignore[no-any-return]
        except Exception as error:
            return self.recovered(error, key, tensors)

    def recovered(self, error: Exception, key: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The result after an error of the second program, or the error as it is without a plan."""
        if isinstance(error, CustomOperatorError):
            # The user's code is not run a second time.
            self.program.fail(error)
        if isinstance(error, (RuntimeError, IndexError, ValueError, TypeError)):
            # The general program says it in terms of the operators that were recorded.
            return self.general(key, tensors)
        raise error

    def _prepare(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[int], list[Tensor]]:
        # Versions are read first: a write that comes in between makes this result outdated, not wrong.
        versions = list(map(_version, parameters))
        direct, made = self.values_from(parameters)
        prepared = (parameters, versions, [*direct, *made])
        self._prepared = prepared
        return prepared

    def bound(self) -> Callable[[Tensor], Tensor] | None:
        """The second program with what is packed now, where it is one region of one input and one output."""
        prepared, program = self._prepared, self.program
        if prepared is None or self.is_opaque or self.count != 1 or len(program.nodes) != 1:
            return None
        (node,) = program.nodes
        region, places = region_of(node), {variable: i for i, variable in enumerate(program.inputs)}
        read = [places[entry.node] for entry in node.inputs]
        if region is None or len(program.outputs) != 1 or read[:1] != [0] or read.count(0) > 1:
            return None
        return region.bound(tuple([prepared[2][place - 1] for place in read[1:]]))

    def values_from(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], Sequence[Tensor]]:
        """What the second program reads besides its inputs: parameters, and what is made of them."""
        given = {self.count + i: tensor for i, tensor in enumerate(parameters)}
        made: Sequence[Tensor] = ()
        if self.first is not None:
            with torch.no_grad():
                made = self.first(0, [given[i] for i in self._read])
        return [given[i] for i in self._direct], made

    @property
    def remark(self) -> str:
        """What else there is to say about how it runs."""
        return ""

    @property
    def is_opaque(self) -> bool:
        """Whether another compiler's function runs in place of the generated program."""
        return self._function is not self.program.function

    @property
    def source(self) -> str:
        """The generated Python of both programs."""
        return f"{self.first.source if self.first is not None else ''}\n{self.program.source}"
