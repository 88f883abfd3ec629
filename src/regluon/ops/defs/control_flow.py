"""Loops and branches in a graph: foreach, while_loop and cond.

Their bodies are graphs too. An attribute holds them (``subgraphs``), as objects with the methods of
`regluon.exec.bodies.Body`: ``bound`` makes what computes, ``infer`` and ``fill`` give shapes, ``linked``
joins gradients. All bodies of a node take the same inputs in the same order: what goes from step to step
first, then what the body uses from outside. How many steps run is decided by the values, when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...base import dtypes
from ...base.errors import MXNetError
from ..opdef import Spec, operator

__all__ = ["Graphs", "is_true"]


def _refuse(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("graphs have no string form")
    return tuple(value)


if TYPE_CHECKING:
    Graphs = tuple[Any, ...]
else:
    Graphs = ("graphs", _refuse, str)

Shapes = list[Any]


def is_true(value: Tensor, what: str) -> bool:
    """The truth value of a condition, which has one element of any type.

    Raises
    ------
    ValueError
        If it has several elements, or none.
    """
    if value.numel() != 1:
        raise ValueError(
            f"{what} needs a condition with one element; received one of shape {tuple(value.shape)}. Reduce "
            "it with sum, max or min, or choose by element with where"
        )
    return bool(value)


class _Steps:
    """Runs bodies for one call of an operator: the mode, and a random key for each step."""

    def __init__(self, inputs: Sequence[Tensor], training: bool, generator: torch.Generator | None) -> None:
        self.inputs = inputs
        self.training = training
        self.recording = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        self.key = 0 if generator is None else generator.initial_seed()
        self.used: set[int] = set()

    def holds(self, condition: Any, outside: Sequence[Tensor], what: str) -> Callable[..., bool]:
        """What a condition gives, as a function of what goes from step to step: no gradient flows."""
        run = condition.bound(outside, self.training, False)

        def holds(own: Sequence[Tensor]) -> bool:
            with torch.no_grad():
                (value,) = run(self.key, own)
            self.key += condition.draws
            return is_true(value, what)

        return holds

    def of(self, body: Any, outside: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        """A body as a function of what goes from step to step."""
        run = body.bound(outside, self.training, self.recording)
        # The tensors of a body are the last of the inputs, or take the place of the first ones.
        first = len(self.inputs) - len(body.inputs)
        places = {place + first for place in body.used}

        def step(own: Sequence[Tensor]) -> tuple[Tensor, ...]:
            self.used |= places
            results: tuple[Tensor, ...] = run(self.key, own)
            self.key += body.draws
            return results

        return step

    def finished(self, body: Any, results: Sequence[Tensor]) -> Any:
        """What the operator gives: the results (one alone) with memory of their own.

        Inputs that nothing read get gradients of zero.
        """
        known = {_memory(tensor) for tensor in self.inputs}
        apart = []
        for result in results:
            if _memory(result) in known and (result._is_view() or any(result is t for t in self.inputs)):
                result = result.clone(memory_format=torch.contiguous_format)
            known.add(_memory(result))
            apart.append(result)
        unread = [t for place, t in enumerate(self.inputs) if t.requires_grad and place not in self.used]
        if self.recording and unread:
            apart = body.linked(apart, unread)
        return apart[0] if len(apart) == 1 else tuple(apart)


def _memory(tensor: Tensor) -> int:
    return 0 if tensor.device.type == "meta" else tensor.untyped_storage().data_ptr()


def _empty(spec: Spec, rows: int, like: Tensor) -> Tensor:
    return torch.zeros((rows, *spec.shape), dtype=spec.dtype, device=like.device)


def _specs_of(tensors: Sequence[Tensor]) -> list[Spec]:
    return [Spec(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def _checked_states(what: str, before: Sequence[Spec], after: Sequence[Spec]) -> None:
    """A graph has one shape and type for every value: what goes from step to step must keep them."""
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape:
            raise MXNetError(
                f"{what}: state {place} has shape {old.shape} before a step and {new.shape} after it. States "
                "keep their shapes in a recorded loop; start with the final shape"
            )
        if old.dtype is not new.dtype:
            raise MXNetError(
                f"{what}: state {place} is {dtypes.to_name(old.dtype)} before a step and "
                f"{dtypes.to_name(new.dtype)} after it. States keep their types in a recorded loop; cast it"
            )


def _same_states(shapes: Shapes, found: Sequence[Any], results: Sequence[Any]) -> Shapes:
    """The inputs' shapes, completed for states: before and after a step they are alike."""
    filled = list(found)
    for place, after in enumerate(results):
        if filled[place] is None or -1 in filled[place]:
            filled[place] = after if after is not None else filled[place]
    return [old if new is None else new for old, new in zip(shapes, filled, strict=True)]


# foreach ----------------------------------------------------------------------


def _part(shape: Any, np: bool) -> Any:
    """The shape of one element along the first axis; in 1.x an element of a vector has one axis."""
    if shape is None:
        return None
    return tuple(shape[1:]) if np or len(shape) > 1 else (1,)


def _infer_foreach(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    (body,), count = attrs["subgraphs"], attrs["num_data"]
    lengths = set()
    for spec in specs[:count]:
        if not spec.shape:
            raise MXNetError("foreach goes along the first axis of its data; received a value without axes")
        lengths.add(spec.shape[0])
    if len(lengths) != 1:
        raise MXNetError(f"foreach needs data of one length; received the lengths {sorted(lengths)}")
    rows = [Spec(_part(spec.shape, attrs["np"]), spec.dtype) for spec in specs[:count]]
    results = body.infer([*rows, *specs[count:]])
    outputs, states = results[: attrs["num_out_data"]], results[attrs["num_out_data"] :]
    _checked_states("foreach", specs[count : count + len(states)], states)
    return [*(Spec((*lengths, *spec.shape), spec.dtype) for spec in outputs), *states]


def _fill_foreach(shapes: Shapes, attrs: dict[str, Any]) -> Shapes:
    (body,), count = attrs["subgraphs"], attrs["num_data"]
    length = next((shape[0] for shape in shapes[:count] if shape), -1)
    parts = [_part(shape, attrs["np"]) for shape in shapes[:count]]
    for _ in range(2):
        found, results = body.fill([*parts, *shapes[count:]])
        states = _same_states(shapes[count:], found[count:], results[attrs["num_out_data"] :])
        shapes = [*shapes[:count], *states]
    rows = [
        old if old is not None or new is None else (length, *new)
        for old, new in zip(shapes[:count], found[:count], strict=True)
    ]
    return [*rows, *shapes[count:]]


@operator(
    "_foreach",
    aliases=("_npx_foreach",),
    outputs=lambda attrs: attrs["num_outputs"],
    infer=_infer_foreach,
    fill=_fill_foreach,
)
def _foreach(
    *data: Tensor,
    subgraphs: Graphs,
    num_outputs: int,
    num_out_data: int,
    num_data: int,
    np: bool = False,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Any:
    """Run a body for every element along the first axis of ``num_data`` inputs.

    The inputs are data, states and what the body uses from outside; the outputs are the body's
    ``num_out_data`` outputs of all steps, stacked, and the last states.
    """
    (body,) = subgraphs
    count = num_outputs - num_out_data
    states, outside = list(data[num_data : num_data + count]), data[num_data + count :]
    length = data[0].shape[0]
    if any(value.shape[0] != length for value in data[:num_data]):
        raise MXNetError(
            f"foreach needs data of one length; received the lengths {[v.shape[0] for v in data[:num_data]]}"
        )
    rows = [(value if np or value.dim() > 1 else value.unsqueeze(1)).unbind(0) for value in data[:num_data]]
    steps = _Steps(data, _training, _rng)
    run = steps.of(body, outside)
    collected: list[list[Tensor]] = [[] for _ in range(num_out_data)]
    for step in range(length):
        results = run([*(row[step] for row in rows), *states])
        states = list(results[num_out_data:])
        for column, value in zip(collected, results, strict=False):
            column.append(value)
    if length:
        stacked = [torch.stack(column) for column in collected]
    else:
        parts = [Spec(_part(value.shape, np), value.dtype) for value in data[:num_data]]
        specs = body.infer([*parts, *_specs_of(data[num_data:])])
        stacked = [_empty(spec, 0, data[0]) for spec in specs[:num_out_data]]
    return steps.finished(body, [*stacked, *states])


# while_loop ----------------------------------------------------------------------


def _infer_while(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    _, body = attrs["subgraphs"]
    results = body.infer(specs)
    outputs, states = results[: attrs["num_out_data"]], results[attrs["num_out_data"] :]
    _checked_states("while_loop", specs[: len(states)], states)
    return [*(Spec((attrs["max_iterations"], *spec.shape), spec.dtype) for spec in outputs), *states]


def _fill_while(shapes: Shapes, attrs: dict[str, Any]) -> Shapes:
    condition, body = attrs["subgraphs"]
    for _ in range(2):
        found, results = body.fill(shapes)
        shapes = _same_states(shapes, found, results[attrs["num_out_data"] :])
        found, _ = condition.fill(shapes)
        shapes = _same_states(shapes, found, ())
    return shapes


@operator(
    "_while_loop",
    aliases=("_npx_while_loop",),
    outputs=lambda attrs: attrs["num_outputs"],
    infer=_infer_while,
    fill=_fill_while,
)
def _while_loop(
    *data: Tensor,
    subgraphs: Graphs,
    num_outputs: int,
    num_out_data: int,
    max_iterations: int,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Any:
    """Run a body as long as a condition holds, at most ``max_iterations`` times.

    The inputs are the loop's variables and what the bodies use from outside; the outputs are the body's
    ``num_out_data`` outputs of all steps, stacked and filled up with zeros to ``max_iterations`` rows, and
    the last variables.
    """
    condition, body = subgraphs
    count = num_outputs - num_out_data
    states, outside = list(data[:count]), data[count:]
    steps = _Steps(data, _training, _rng)
    collected: list[list[Tensor]] = [[] for _ in range(num_out_data)]
    holds, run = steps.holds(condition, outside, "while_loop"), steps.of(body, outside)
    number = 0
    while number < max_iterations and holds(states):
        results = run(states)
        states = list(results[num_out_data:])
        for column, value in zip(collected, results, strict=False):
            column.append(value)
        number += 1
    if number:
        stacked = [_padded(torch.stack(column), max_iterations) for column in collected]
    else:
        specs = body.infer(_specs_of(data))
        stacked = [_empty(spec, max_iterations, data[0]) for spec in specs[:num_out_data]]
    return steps.finished(body, [*stacked, *states])


def _padded(rows: Tensor, length: int) -> Tensor:
    missing = length - rows.shape[0]
    return torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))]) if missing else rows


# cond ----------------------------------------------------------------------


def _infer_cond(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    chosen, other = (body.infer(specs[1:]) for body in attrs["subgraphs"])
    for place, (first, second) in enumerate(zip(chosen, other, strict=True)):
        if first != second:
            raise MXNetError(
                f"cond: output {place} has shape {first.shape} and type {dtypes.to_name(first.dtype)} in the "
                f"then-branch, {second.shape} and {dtypes.to_name(second.dtype)} in the else-branch. Both "
                "branches of a recorded cond give the same shapes and types"
            )
    return list(chosen)


def _fill_cond(shapes: Shapes, attrs: dict[str, Any]) -> Shapes:
    rest = shapes[1:]
    for body in attrs["subgraphs"]:
        rest = _same_states(rest, body.fill(rest)[0], ())
    return [shapes[0], *rest]


@operator(
    "_cond",
    aliases=("_npx_cond",),
    outputs=lambda attrs: attrs["num_outputs"],
    infer=_infer_cond,
    fill=_fill_cond,
)
def _cond(
    *data: Tensor,
    subgraphs: Graphs,
    num_outputs: int,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Any:
    """Run one of two bodies, as the first input, a single number, says.

    The other inputs are what the bodies use.
    """
    del num_outputs
    steps = _Steps(data, _training, _rng)
    body = subgraphs[0 if is_true(data[0], "cond") else 1]
    return steps.finished(body, steps.of(body, data[1:])(()))
