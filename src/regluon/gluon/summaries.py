"""The table of layers that ``block.summary(x)`` prints."""

from __future__ import annotations

from typing import Any

from ..array import NDArray
from ..base.errors import MXNetError
from .structure import flatten

__all__ = ["print_summary"]


class HybridizedError(MXNetError, AssertionError):
    """A summary was asked of a hybridized block."""


def _shape_text(value: Any) -> str:
    flat: list[Any] = []
    flatten(value, flat)
    shapes = [str(tuple(array.shape)) for array in flat if isinstance(array, NDArray)]
    return ", ".join(shapes)


def print_summary(block: Any, inputs: tuple[Any, ...]) -> None:
    """Run the block once with hooks and print layer, output shape and number of parameters."""
    from .nn import HybridSequential, Sequential

    if _any_active(block):
        raise HybridizedError(
            f'"{block.name}" must not be hybridized to print summary: call hybridize(False) first'
        )
    rows: list[tuple[str, str, int, int, int]] = [("Input", _shape_text(inputs), 0, 0, 0)]
    seen: set[int] = set()
    handles = []

    def watch(layer: Any, arguments: Any, output: Any) -> None:
        del arguments
        trainable = shared = total = 0
        for parameter in layer._reg_params.values():
            size = 1
            for length in parameter.shape:
                size *= length
            total += size
            trainable += size if parameter.grad_req != "null" else 0
            if id(parameter) in seen:
                shared += size
            seen.add(id(parameter))
        rows.append((f"{type(layer).__name__}-{len(rows)}", _shape_text(output), total, trainable, shared))

    def hook(layer: Any) -> None:
        if not isinstance(layer, (Sequential, HybridSequential)):
            handles.append(layer.register_forward_hook(watch))

    try:
        block.apply(hook)
        block(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    _print(rows)


def _any_active(block: Any) -> bool:
    return bool(block.__dict__.get("_active")) or any(
        _any_active(child) for child in block._children.values()
    )


def _print(rows: list[tuple[str, str, int, int, int]]) -> None:
    line = "{:>20}  {:>42} {:>15}"
    print("-" * 80)
    print(line.format("Layer (type)", "Output Shape", "Param #"))
    print("=" * 80)
    for name, shape, total, _, _ in rows:
        print(line.format(name, shape, total))
    total = sum(row[2] for row in rows)
    trainable = sum(row[3] for row in rows)
    shared = sum(row[4] for row in rows)
    print("=" * 80)
    print(f"Parameters in forward computation graph, duplicate included\n   Total params: {total}")
    print(f"   Trainable params: {trainable}\n   Non-trainable params: {total - trainable}")
    print(f"Shared params in forward computation graph: {shared}")
    print(f"Unique parameters in model: {total - shared}")
    print("-" * 80)
