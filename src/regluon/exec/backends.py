"""Graph backends: named rewrites of a graph, used by ``optimize_for`` and ``hybridize(backend=...)``.

A backend is a function from the outputs of a graph to the outputs of another (`register`), or a choice of
nodes and what takes the place of each connected group of them (`register_subgraph`). See
docs/add-a-backend.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy

from ..base import dtypes
from ..base.errors import MXNetError
from ..graph.dims import evaluate
from ..graph.node import Entry, Node, topological
from ..ops.infer import infer_specs
from ..ops.opdef import Spec
from ..runtime.handles import kinds
from .engines import ENGINES, Engine
from .partition import Subgraph, make_node, partition, replace_chains

__all__ = [
    "Backend",
    "Subgraph",
    "apply",
    "constant",
    "engine_of",
    "get",
    "list_backends",
    "make_node",
    "partition",
    "register",
    "register_subgraph",
    "replace_chains",
    "unregister",
]

_BACKENDS: dict[str, Backend] = {}
_BUILT_IN = ("default", "static_shape", *ENGINES)
Rewrite = Callable[[Sequence[Entry], dict[str, Any]], Sequence[Entry]]


class Backend:
    """A named rewrite of graphs.

    Parameters
    ----------
    name : str
        What ``hybridize(backend=name)`` says.
    rewrite : callable
        ``rewrite(entries, options)`` gives the entries of a new graph; it must not change nodes in place.
        Use `partition`, or `regluon.graph.node.rebuild`.
    inference_only : bool
        Whether graphs that were recorded in train mode or under ``autograd.record()`` are left alone.
    engine : Engine, optional
        What runs the graph at prediction, in place of our own kernels.
    """

    def __init__(
        self, name: str, rewrite: Rewrite, inference_only: bool = False, engine: Engine | None = None
    ) -> None:
        self.name = name
        self.rewrite = rewrite
        self.inference_only = inference_only
        self.engine = engine

    def check(self, options: dict[str, Any]) -> None:
        """Refuse what the backend cannot do here: see `Engine.check`. A rewrite takes any options."""
        if self.engine is not None:
            self.engine.check(options)

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


def register(name: str, inference_only: bool = False) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function ``rewrite(entries, options)`` as the backend ``name``.

    A name that was registered before is replaced.

    Raises
    ------
    ValueError
        If the name is that of a backend built in.
    """

    def keep(rewrite: Rewrite) -> Rewrite:
        if name in _BUILT_IN and name in _BACKENDS:
            raise ValueError(f"the backend name {name!r} is built in; choose another name")
        _BACKENDS[name] = Backend(name, rewrite, inference_only)
        return rewrite

    return keep


def register_subgraph(
    name: str,
    select: Callable[[Node], bool] | Iterable[str] | None = None,
    chain: Sequence[str] | None = None,
    inference_only: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated ``replace(subgraph, options)`` as the backend ``name``.

    Parameters
    ----------
    name : str
        What ``hybridize(backend=name)`` says.
    select : callable or iterable of str, optional
        ``select(node)`` tells whether the backend takes an operator node; or the names of the operators that
        it takes. Connected groups of them are offered.
    chain : sequence of str, optional
        Instead: names of operators; every chain of them, in which each alone uses the result of the one
        before it, is offered.
    inference_only : bool
        See `Backend`.

    Raises
    ------
    TypeError
        Unless exactly one of ``select`` and ``chain`` is given.
    """
    if (select is None) == (chain is None):
        raise TypeError(f"backend {name!r}: give either select= or chain=, which say what is replaced")

    def keep(replace: Callable[..., Any]) -> Callable[..., Any]:
        def rewrite(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
            def offer(subgraph: Subgraph) -> Any:
                return replace(subgraph, options)

            if chain is not None:
                return replace_chains(entries, chain, offer)
            return partition(entries, _selection(select), offer)

        rewrite.__doc__ = replace.__doc__
        register(name, inference_only)(rewrite)
        return replace

    return keep


def _selection(select: Any) -> Callable[[Node], bool]:
    if callable(select):
        return select  # type: ignore[no-any-return]
    names = frozenset([select] if isinstance(select, str) else select)
    return lambda node: node.op is not None and node.op.name in names


def unregister(name: str) -> None:
    """Forget a backend that was registered.

    Raises
    ------
    ValueError
        If there is no such backend, or it is built in.
    """
    get(name)
    if name in _BUILT_IN:
        raise ValueError(f"the backend {name!r} is built in and stays")
    del _BACKENDS[name]


def get(name: str) -> Backend:
    """The backend with this name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    backend = _BACKENDS.get(name)
    if backend is None:
        raise ValueError(
            f"backend {name!r} is not registered; there are: {', '.join(list_backends())}. Register one "
            "with regluon.exec.backends.register (docs/add-a-backend.md)"
        )
    return backend


def list_backends() -> list[str]:
    """The names of all backends."""
    return sorted(_BACKENDS)


def constant(value: Any, name: str) -> Entry:
    """A new constant of a graph: an array, or what NumPy makes one of. Exports write it under ``name``."""
    if not isinstance(value, kinds.nd):
        value = kinds.nd._wrap(dtypes.from_numpy(numpy.array(value)))
    node = Node(None, name, specs=[Spec(tuple(value._t.shape), value._t.dtype)], value=value)
    return Entry(node, 0)


def apply(
    chain: Sequence[tuple[str, dict[str, Any]]],
    entries: Sequence[Entry],
    training: bool = False,
    recording: bool = False,
) -> list[Entry]:
    """Let backends, with their options, rewrite a graph one after another; the results are checked.

    Raises
    ------
    MXNetError
        If a backend changes the number, the shape or the type of the outputs, or makes a variable without a
        value or with the name of another.
    """
    graph = list(entries)
    for name, options in chain:
        backend = get(name)
        backend.check(options)
        if backend.inference_only and (training or recording):
            continue
        before = topological(graph)
        try:
            made = list(backend.rewrite(list(graph), dict(options)))
        except MXNetError as error:
            raise MXNetError(f"backend {name!r}: {error}") from error
        _check(name, graph, made, before, training)
        graph = made
    return graph


def _check(
    name: str, old: Sequence[Entry], new: Sequence[Any], before: Sequence[Node], training: bool
) -> None:
    if len(new) != len(old) or not all(isinstance(entry, Entry) for entry in new):
        raise MXNetError(
            f"backend {name!r} must give one graph entry for each of the {len(old)} output(s); it gave "
            f"{new!r}"
        )
    known = {id(node) for node in before}
    names = {node.name for node in before if node.op is None}
    draws = [node.draw for node in before if node.op is not None and node.op.uses_rng]
    following = max(draws, default=-1) + 1
    for node in topological(new):
        if id(node) in known:
            continue
        if node.op is None:
            _check_constant(name, node, names)
            names.add(node.name)
            continue
        if node.specs is None:
            _infer(name, node, training)
        if node.op.uses_rng and node.draw in draws and not _is_copy(node, before):
            node.draw = following
            following += 1
    for entry, was in zip(new, old, strict=True):
        if entry.spec is not None and was.spec is not None and entry.spec != was.spec:
            raise MXNetError(
                f"backend {name!r} changed the output {was.node.output_name(was.index)}: expected "
                f"{was.spec}, received {entry.spec}"
            )


def _check_constant(name: str, node: Node, names: set[str]) -> None:
    if not isinstance(node.value, kinds.nd):
        raise MXNetError(
            f"backend {name!r} made the variable {node.name} without a value: make it with "
            "regluon.exec.backends.constant(value, name)"
        )
    if node.name in names:
        raise MXNetError(f"backend {name!r} made a second variable named {node.name}: choose another name")


def _infer(name: str, node: Node, training: bool) -> None:
    specs = [entry.spec for entry in node.inputs]
    assert node.op is not None
    if node.op.dynamic or any(spec is None for spec in specs):
        return
    attrs = {key: evaluate(value) for key, value in node.full_attrs.items()}
    try:
        node.specs = infer_specs(node.op, attrs, specs, training)
    except (MXNetError, ValueError, TypeError, IndexError) as error:
        raise MXNetError(f"backend {name!r} made the node {node.name}, which cannot run: {error}") from error


def _is_copy(node: Node, before: Iterable[Node]) -> bool:
    """Whether the node stands for a random node that was there, and keeps its draw."""
    return any(old.name == node.name and old.op is node.op for old in before)


def _same(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    """The graph as it was recorded; regluon's own compiler works on it."""
    return entries


def engine_of(chain: Sequence[tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]] | None:
    """The engine, with its options, that the last backend of a chain to name one asks for."""
    for name, options in reversed(chain):
        if name in ("default", "static_shape"):
            return None
        if name in ENGINES:
            return name, options
    return None


def _inductor(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    """Predictions compiled by torch's Inductor; needs a C++ compiler."""
    return entries


def _onnxruntime(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    """Predictions in ONNX Runtime; needs the extra regluon[onnxruntime]."""
    return entries


def _openvino(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    """Predictions in OpenVINO; needs the extra regluon[openvino]."""
    return entries


def _auto(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    """The fastest of the backends that are installed, timed on the first call of each shape."""
    return entries


_REWRITES: dict[str, Rewrite] = {
    "inductor": _inductor,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "auto": _auto,
}
for _name in _BUILT_IN:
    _BACKENDS[_name] = Backend(_name, _REWRITES.get(_name, _same), engine=ENGINES.get(_name))
