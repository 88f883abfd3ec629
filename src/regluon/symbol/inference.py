"""Shapes and types of a Symbol's variables and outputs from those of some of them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import config, dtypes
from ..base.errors import MXNetError
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, arguments_of, topological
from ..graph.types import infer_types

__all__ = ["infer_shapes", "infer_symbol_types", "is_decided", "shapes_of"]

Lists = tuple[Any, Any, Any]


def is_decided(shape: Any) -> bool:
    """Whether every size of a shape that `infer_shapes` gave is known."""
    if shape is None:
        return False
    return -1 not in shape if config.is_np_shape() else bool(shape) and 0 not in shape


def _given(
    what: str, arguments: Sequence[Node], auxiliary: Sequence[Node], args: Sequence[Any], kwargs: Any
) -> dict[str, Any]:
    """What the caller says about variables, by name."""
    names = [node.name for node in arguments]
    if args and kwargs:
        raise ValueError(
            f"Can only specify known argument {what}s either by positional or kwargs way; received both"
        )
    if len(args) > len(names):
        raise MXNetError(
            f"infer_{what}: received {len(args)} {what}s for {len(names)} arguments: {', '.join(names)}"
        )
    candidates = [*names, *(node.name for node in auxiliary)]
    unknown = [name for name in kwargs if name not in candidates]
    if unknown:
        raise MXNetError(
            f"infer_{what}: Keyword argument name {', '.join(unknown)} not found. Candidate arguments: "
            f"{', '.join(candidates)}"
        )
    known = dict(zip(names, args, strict=False))
    known.update(kwargs)
    return {name: value for name, value in known.items() if value is not None}


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"Arguments need to be shapes (tuple), but '{name}' is {type(shape)}.")
    try:
        return tuple(int(size) for size in shape)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the shape of '{name}' needs integers; received {shape!r}") from error


def _declared_dtype(node: Node) -> Any:
    code = node.user.get("__dtype__")
    return None if code in (None, "-1") else dtypes.to_torch(int(code))


def shapes_of(entries: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any]) -> GraphShapes:
    """What follows for all shapes of the graph from those of some variables."""
    arguments, auxiliary = arguments_of(topological(entries))
    known = _given("shape", arguments, auxiliary, args, kwargs)
    given = {}
    for node in arguments + auxiliary:
        shape = known.get(node.name)
        if shape is None and "__shape__" in node.user:
            shape = ast.literal_eval(node.user["__shape__"])
        checked = None if shape is None else _checked_shape(node.name, shape)
        if not config.is_np_shape() and checked == ():
            checked = None
        given[id(node)] = (checked, _declared_dtype(node))
    return GraphShapes(entries, given, zero_is_unknown=not config.is_np_shape(), assume_equal=False).run()


def infer_shapes(
    entries: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool
) -> Lists:
    """(argument, output, auxiliary shapes); see `Symbol.infer_shape`."""
    shapes = shapes_of(entries, args, kwargs)
    arguments, auxiliary = arguments_of(topological(entries))

    def of(entry: Entry) -> Any:
        shape = shapes.shapes.get((id(entry.node), entry.index))
        if config.is_np_shape():
            return shape
        return () if shape is None else tuple(max(size, 0) for size in shape)

    lists = (
        [of(Entry(node, 0)) for node in arguments],
        [of(entry) for entry in entries],
        [of(Entry(node, 0)) for node in auxiliary],
    )
    if partial or (all(shapes.spec(entry) is not None for entry in entries) and not _undecided(lists[0])):
        return lists
    missing = [
        f"{node.name}: {shape}"
        for node, shape in zip([*arguments, *auxiliary], [*lists[0], *lists[2]], strict=True)
        if not is_decided(shape)
    ]
    _warn("shape", " (0s in shape means unknown dimensions)" if not config.is_np_shape() else "", missing)
    return None, None, None


def _undecided(shapes: Sequence[Any]) -> bool:
    return any(not is_decided(shape) for shape in shapes) and not config.is_np_shape()


def _warn(what: str, note: str, missing: Sequence[str]) -> None:
    warnings.warn(
        f"Cannot decide {what} for the following arguments{note}. Consider providing them as input:\n\t"
        + "\n\t".join(missing),
        stacklevel=5,
    )


def infer_symbol_types(
    entries: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool
) -> Lists:
    """(argument, output, auxiliary types); see `Symbol.infer_type`."""
    order = topological(entries)
    arguments, auxiliary = arguments_of(order)
    known = _given("type", arguments, auxiliary, args, kwargs)
    given: dict[int, Any] = {}
    for node in arguments + auxiliary:
        dtype = dtypes.to_torch(known[node.name]) if node.name in known else _declared_dtype(node)
        if dtype is not None:
            given[id(node)] = dtype
    found = infer_types(order, given)

    def of(node: Node, index: int) -> Any:
        dtype = found.get((id(node), index))
        return None if dtype is None else dtypes.to_numpy(dtype)

    lists = (
        [of(node, 0) for node in arguments],
        [of(entry.node, entry.index) for entry in entries],
        [of(node, 0) for node in auxiliary],
    )
    if partial or all(dtype is not None for group in lists for dtype in group):
        return lists
    _warn(
        "type",
        "",
        [
            f"{node.name}: None"
            for node, dtype in zip([*arguments, *auxiliary], [*lists[0], *lists[2]], strict=True)
            if dtype is None
        ],
    )
    return None, None, None
