"""What an executor's monitor callback is told: the arrays of every operator, forward and backward.

Names are those of 1.9.1's executor. An output is ``<node>_output`` (or the operator's own word, as
``<node>_mean``), an input ``<node>_<input>``, the gradient that an operator passes to its inputs
``<node>_backward_output``, numbered where there are several inputs, and the gradients that it gets
``<node>_backward_input<number>``. What the original's backward operators take besides (values that they keep
from the forward), and its nodes that only copy or add gradients, have no counterpart here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Node
from ..graph.tensor_names import input_names

__all__ = ["Watcher"]

# Operators whose gradients carry the names of their inputs.
_NAMED_GRADIENTS = frozenset(
    """ BilinearSampler Correlation Crop GridGenerator IdentityAttachKLSparseReg InstanceNorm L2Normalization
    MakeLoss Pad ROIPooling SVMOutput SequenceLast SequenceMask SequenceReverse SliceChannel
    SpatialTransformer SwapAxis """.split()
)
# Sums pass their gradient on as it is: the original has no operator for that.
_PASSES_ON = frozenset({"elemwise_add", "add_n"})


class Watcher:
    """Calls ``callback(name, array)``; ``wrap`` makes the array of a tensor.

    Parameters
    ----------
    callback : callable
        Takes a name and an array.
    everything : bool
        Tell inputs too.
    wrap : callable
        From a tensor to an array.
    """

    def __init__(
        self, callback: Callable[[str, Any], Any], everything: bool, wrap: Callable[[Tensor], Any]
    ) -> None:
        self._callback, self._everything, self._wrap = callback, everything, wrap
        self._passed: dict[tuple[int, int], Tensor] = {}
        self._got: dict[tuple[int, int], Tensor] = {}
        self._shapes: dict[int, list[Tensor]] = {}

    def begin(self) -> None:
        """Forget the run before."""
        self._passed, self._got, self._shapes = {}, {}, {}

    def before(self, node: Node, inputs: list[Tensor]) -> list[Tensor]:
        """Inputs of their own for a node, so that its share of their gradients can be told."""
        found = []
        for place, tensor in enumerate(inputs):
            if tensor.requires_grad:
                tensor = tensor.view_as(tensor)
                tensor.register_hook(_keeping(self._passed, (id(node), place)))
            found.append(tensor)
        return found

    def after(self, node: Node, inputs: list[Tensor], outputs: tuple[Tensor, ...]) -> None:
        """Tell a node's inputs and outputs."""
        if self._everything:
            names = input_names(node, len(inputs))
            for entry, name, tensor in zip(node.inputs, names, inputs, strict=False):
                if entry.node.op is None:
                    self._tell(entry.node.name, tensor)
                self._tell(name, tensor)
        for index, tensor in enumerate(outputs):
            self._tell(node.output_name(index), tensor)
            if tensor.requires_grad:
                tensor.register_hook(_keeping(self._got, (id(node), index)))
        self._shapes[id(node)] = [tensor.detach() for tensor in inputs]

    def _tell(self, name: str, tensor: Tensor) -> None:
        self._callback(name, self._wrap(tensor.detach()))

    def backward(self, order: Sequence[Node]) -> None:
        """Tell the gradients of the last backward, from the last node to the first."""
        touched = {node for node, _ in (*self._passed, *self._got)}
        for node in reversed(order):
            if node.op is None or id(node) not in touched or node.op.name in _PASSES_ON:
                continue
            if self._everything:
                for (owner, index), gradient in sorted(self._got.items(), key=lambda item: item[0][1]):
                    if owner == id(node):
                        self._tell(f"{node.name}_backward_input{index}", gradient)
            self._tell_passed(node)
        self._passed, self._got = {}, {}

    def _tell_passed(self, node: Node) -> None:
        assert node.op is not None
        inputs = self._shapes.get(id(node), [])
        names = input_names(node, len(inputs))
        count = sum(not _is_auxiliary(node, name) for name in names)
        for place, (tensor, name) in enumerate(zip(inputs[:count], names, strict=False)):
            gradient = self._passed.get((id(node), place))
            if node.op.name in _NAMED_GRADIENTS:
                told = f"{node.name}_backward_{name.removeprefix(node.name + '_')}"
            else:
                told = f"{node.name}_backward_output{place if count > 1 else ''}"
            self._tell(told, torch.zeros_like(tensor) if gradient is None else gradient)


def _is_auxiliary(node: Node, name: str) -> bool:
    assert node.op is not None
    return name.removeprefix(f"{node.name}_") in node.op.aux


def _keeping(where: dict[tuple[int, int], Tensor], key: tuple[int, int]) -> Callable[[Tensor], None]:
    def keep(gradient: Tensor) -> None:
        where[key] = gradient

    return keep
