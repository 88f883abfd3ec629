"""SymbolBlock: a block whose computation is a Symbol, from a file or from parts of another network."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..base import config, dtypes
from ..base.errors import MXNetError
from ..graph.dims import Dim, combined
from ..graph.infer import has_open_sizes
from ..graph.node import Entry, Node, arguments_of, topological
from ..ops.params import _literal
from ..runtime.handles import kinds
from ..runtime.state import state
from ..symbol import Group, Symbol, convert
from . import structure as structures
from .hybrid import HybridBlock
from .imported import are_unused_inputs, names_of_inputs, open_shapes, without_labels
from .parameter import Parameter

__all__ = ["SymbolBlock"]


class SymbolBlock(HybridBlock):
    """A block made from Symbols.

    Parameters
    ----------
    outputs : Symbol or list of Symbol
        What is computed.
    inputs : Symbol or list of Symbol
        Variables that the call's arguments are given for.
    params : dict of Parameter, optional
        Parameters by name, such as another block's ``collect_params()``; names that the graph does not use
        are left out, and variables without one get a new parameter.
    """

    _is_a_graph = True

    def __init__(self, outputs: Any, inputs: Any, params: Any = None) -> None:
        super().__init__(prefix="", params=None)
        attributes = self.__dict__
        attributes["_name"] = "symbolblock"
        outputs, out_structure = _as_symbols(outputs)
        inputs, _ = _as_symbols(inputs)
        attributes["_outputs"] = [entry for symbol in outputs for entry in symbol._list()]
        if len(attributes["_outputs"]) != len(outputs):
            out_structure = ("list", *(structures.LEAF for _ in attributes["_outputs"]))
        attributes["_out_structure"] = out_structure
        attributes["_in_structure"] = ("tuple", *(structures.LEAF for _ in inputs))
        attributes["_input_nodes"] = [_input_node(symbol) for symbol in inputs]
        attributes["_kind_symbol"] = type(outputs[0])
        self._make_parameters(params or {})

    def _make_parameters(self, given: Any) -> None:
        order = topological(self._outputs)
        arguments, auxiliary = arguments_of(order)
        inputs = {id(node) for node in self._input_nodes}
        names = {node.name for node in self._input_nodes}
        by_name = _lookup(given)
        nodes: dict[str, Any] = {}
        mapping: list[tuple[Node, str]] = []
        for group, is_aux in ((arguments, False), (auxiliary, True)):
            for node in group:
                if id(node) in inputs or node.name in names:
                    continue
                mapping.append((node, node.name))
                if node.name not in nodes:
                    parameter = by_name.get(node.name)
                    nodes[node.name] = parameter if parameter is not None else _parameter_of(node, is_aux)
        for name, parameter in nodes.items():
            dict.__setitem__(self._params, name, parameter)
            self._reg_params[name] = parameter
        self.__dict__["_variables"] = mapping

    @staticmethod
    def imports(
        symbol_file: Any,
        input_names: Any = None,
        param_file: Any = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        device: Any = None,
    ) -> SymbolBlock:
        """Load what ``export`` wrote here or in MXNet.

        Parameters
        ----------
        symbol_file : str
            The ``-symbol.json`` file.
        input_names : str or list of str, optional
            Names of the inputs; by default the variables that the parameters file has no value for (without
            the file, those that no layer uses as a parameter). Labels of output operators such as
            SoftmaxOutput are then left out: prediction does not need them.
        param_file : str, optional
            The ``.params`` file.
        ctx, device : Context, optional
            Where the parameters go.
        allow_missing, ignore_extra : bool
            Whether parameters may be missing in the file, or be there in excess.

        Raises
        ------
        MXNetError
            For a malformed file or unknown operators.
        """
        with open(symbol_file, "rb") as file:
            entries, record = convert.from_json(file.read(), str(symbol_file))
        cls = kinds.np_symbol if record.attributes.get("is_np_shape") else kinds.symbol
        loaded = None
        if param_file is not None:
            from .. import serial

            loaded = serial.load(param_file)
        names = names_of_inputs(entries, input_names, loaded, _inputs_written(record))
        if not input_names:
            entries = without_labels(entries, names, loaded or ())
        order = {node.name: node for node in topological(entries) if node.op is None}
        missing = [name for name in names if name not in order]
        if missing and are_unused_inputs(missing, order):
            order.update((name, Node(None, name)) for name in missing)
        elif missing:
            raise ValueError(
                f"{symbol_file} has no input {', '.join(missing)}; its variables are {', '.join(order)}"
            )
        outputs = [cls._of([entry]) for entry in entries]
        inputs = [cls._of([Entry(order[name], 0)]) for name in names]
        block = SymbolBlock(outputs if len(outputs) > 1 else outputs[0], inputs)
        _restore_structure(block, record, len(names), len(entries))
        if loaded is not None:
            from . import files

            files.load_imported(
                block,
                loaded,
                str(param_file),
                ctx if ctx is not None else device,
                allow_missing,
                ignore_extra,
            )
        return block

    def __repr__(self) -> str:
        group = Group([self._kind_symbol._of([entry]) for entry in self._outputs])
        return f"SymbolBlock(\n{group} : {len(self._input_nodes)} -> {len(self._outputs)}\n)"

    def _is_symbolic_style(self) -> bool:
        return False

    def _imperative(self, args: tuple[Any, ...]) -> Any:
        # Its computation is a graph already: it always runs as a program, which takes arrays only.
        self._arrays_in(args)
        return self._graph_cache()(args)

    def _arrays_in(self, args: tuple[Any, ...]) -> list[Any]:
        """The arrays among the arguments: as many as there are inputs, and nothing that is no array."""
        values: list[Any] = []
        structure = structures.flatten(_arranged(self._in_structure, args), values)
        if len(values) != len(self._input_nodes) or structures.has_objects(structure):
            names = ", ".join(node.name for node in self._input_nodes)
            received = ", ".join(type(value).__name__ for value in args)
            raise ValueError(
                f"{self.name} takes {len(self._input_nodes)} input(s) ({names}); received {len(values)} "
                f"array(s) in the arguments ({received}). Give one array for each input, and nothing else"
            )
        return values

    def forward(self, x: Any, *args: Any) -> Any:
        """Compute the Symbol's outputs for the inputs, flat or in the structure they were exported with."""
        values = self._arrays_in((x, *args))
        tracer = state.tracer
        if tracer is None:
            return self._graph_cache()((x, *args))
        replaced = {
            id(node): tracer.entry_of(value) for node, value in zip(self._input_nodes, values, strict=True)
        }
        by_name = {
            node.name: tracer.entry_of(value) for node, value in zip(self._input_nodes, values, strict=True)
        }
        for node, name in self._variables:
            replaced[id(node)] = Entry(tracer.parameter_node(self._reg_params[name]), 0)
        entries = self._replay(tracer, replaced, by_name)
        cls = type(values[0])
        made = [tracer.wrap(entry, cls) for entry in entries]
        return structures.regroup(self._out_structure, iter(made))

    def _replay(self, tracer: Any, replaced: dict[int, Entry], by_name: dict[str, Entry]) -> list[Entry]:
        """Record the graph's nodes anew in the running trace."""
        names = tracer.names
        names.prefixes.append("")
        made = self._open_shapes(tracer, replaced)
        mapping: dict[int, Sequence[Entry]] = {}

        def place(entry: Entry) -> Entry:
            return mapping[id(entry.node)][entry.index]

        try:
            for node in topological(self._outputs):
                if node.op is None:
                    found = replaced.get(id(node)) or by_name.get(node.name)
                    if found is None:
                        raise MXNetError(
                            f"the variable {node.name} of {self.name} is neither an input nor a parameter"
                        )
                    mapping[id(node)] = [found]
                    continue
                attrs = {key: _resized(value, place, tracer) for key, value in node.attrs.items()}
                if id(node) in made:
                    attrs["shape"] = made[id(node)]
                inputs = [place(entry) for entry in node.inputs]
                new = tracer.record(node.op, inputs, attrs, node.name, dict(node.user))
                mapping[id(node)] = [Entry(new, index) for index in range(new.outputs)]
        finally:
            names.prefixes.pop()
        return [place(entry) for entry in self._outputs]

    def _open_shapes(self, tracer: Any, replaced: dict[int, Entry]) -> dict[int, tuple[Any, ...]]:
        """Shapes for the arrays of unknown sizes in the graph, as sizes of the trace's inputs."""
        if config.is_np_shape() or not any(map(has_open_sizes, topological(self._outputs))):
            return {}
        entries = [replaced[id(node)] for node in self._input_nodes]
        own = {node.name: node for node in topological(self._outputs) if node.op is None}
        known = [
            (own.get(node.name, node), tuple(tracer.spec(entry).shape))
            for node, entry in zip(self._input_nodes, entries, strict=True)
        ]
        return {
            number: tuple(
                tracer.shape(entries[size[0]])[size[1]] if isinstance(size, tuple) else size for size in shape
            )
            for number, shape in open_shapes(self._outputs, known).items()
        }

    def export(
        self, path: Any, epoch: int = 0, remove_amp_cast: bool = True, format: str | None = None
    ) -> Any:
        """Write the graph and the parameters; see `HybridBlock.export`. No call is needed before."""
        from . import files

        if self._flags.get("backend_chain"):
            return super().export(path, epoch, remove_amp_cast, format)
        return files.write_export(self._as_recorded(), path, epoch, remove_amp_cast, format)

    def _as_recorded(self) -> Any:
        """The graph that this block was made from, in the form of a recorded one."""
        kind = kinds.np if issubclass(self._kind_symbol, kinds.np_symbol) else kinds.nd
        return SimpleNamespace(
            outputs=self._outputs,
            parameters=[(node, self._reg_params[name]) for node, name in self._variables],
            captured=[],
            frozen=[],
            classes=[kind],
            in_structure=self._in_structure,
            out_structure=self._out_structure,
        )


def _resized(value: Any, place: Any, tracer: Any) -> Any:
    """An attribute of the graph for the running trace: sizes are those of the values there."""
    if isinstance(value, Dim):
        if value.function == "size":
            entry, axis = value.arguments
            return tracer.shape(place(entry))[axis]
        left, right = (_resized(item, place, tracer) for item in value.arguments)
        return combined(value.function, left, right)
    if isinstance(value, (tuple, list)):
        return type(value)(_resized(item, place, tracer) for item in value)
    return value


def _as_symbols(value: Any) -> tuple[list[Any], Any]:
    if isinstance(value, Symbol):
        if len(value._list()) > 1:
            many = [type(value)._of([entry]) for entry in value._list()]
            return many, ("list", *(structures.LEAF for _ in many))
        return [value], structures.LEAF
    flat: list[Any] = []
    structure = structures.flatten(value, flat)
    if not flat or any(not isinstance(symbol, Symbol) for symbol in flat):
        raise TypeError(f"SymbolBlock is made from Symbols; received {value!r}")
    if len(flat) == 1:
        structure = structures.LEAF
    return flat, structure


def _input_node(symbol: Any) -> Node:
    node = symbol._single().node
    if node.op is not None:
        raise ValueError(
            f"Input symbols must be variables, but {node.name} is the output of operator {node.op.name}: cut "
            "the graph with mx.sym.var(...)"
        )
    return node  # type: ignore[no-any-return]


def _lookup(given: Any) -> dict[str, Any]:
    """Parameters by every name that a graph may use for them."""
    found: dict[str, Any] = {}
    for key, parameter in given.items():
        name = key.split(":", 1)[1] if key[:4] in ("arg:", "aux:") else key
        if not isinstance(parameter, Parameter):
            array = parameter
            parameter = Parameter(name, shape=array.shape, dtype=array.dtype)
            parameter._load_init(array, None)
        found[name] = parameter
    for parameter in list(found.values()):
        found.setdefault(parameter.name, parameter)
        if parameter._structural_name:
            found.setdefault(parameter._structural_name, parameter)
    return found


def _parameter_of(node: Node, is_aux: bool) -> Parameter:
    """A new parameter for a variable of the graph, from its attributes."""
    user = node.user
    shape = None
    if "__shape__" in user:
        literal = _literal(user["__shape__"])
        shape = None if literal is None else tuple(-1 if s is None or s <= 0 else s for s in literal)
    code = user.get("__dtype__")
    return Parameter(
        node.name,
        grad_req="null" if is_aux else "write",
        shape=shape,
        dtype=dtypes.to_numpy(int(code)) if code not in (None, "-1", "None") else "float32",
        lr_mult=float(user.get("__lr_mult__", 1.0)),
        wd_mult=float(user.get("__wd_mult__", 1.0)),
        allow_deferred_init=True,
        init=_initializer(user.get("__init__"), is_aux, node.name),
    )


def _initializer(text: str | None, is_aux: bool, name: str) -> Any:
    """What a variable's attribute says, a name or JSON text; running statistics begin with 0 and 1."""
    if text is None and is_aux:
        return "ones" if name.endswith("var") else "zeros"
    return text


def _restore_structure(block: SymbolBlock, record: Any, inputs: int, outputs: int) -> None:
    """The nesting of inputs and outputs, where the file has it."""
    for attribute, key, count in (
        ("_in_structure", "regluon_in", inputs),
        ("_out_structure", "regluon_out", outputs),
    ):
        text = record.attributes.get(key)
        structure = structures.from_text(text) if isinstance(text, str) else None
        if structure is not None and _count(structure) == count:
            block.__dict__[attribute] = structure


def _inputs_written(record: Any) -> int:
    """How many inputs the exported block had, 0 where the file does not say it."""
    text = record.attributes.get("regluon_in")
    structure = structures.from_text(text) if isinstance(text, str) else None
    return 0 if structure is None else _count(structure)


def _arranged(structure: Any, value: Any) -> Any:
    """The value with its dicts in the order of the structure, where the two are alike."""
    if not isinstance(structure, tuple):
        return value
    if structure[0] == "dict" and isinstance(value, dict):
        if {key for key, _ in structure[1:]} == set(value):
            return {key: _arranged(item, value[key]) for key, item in structure[1:]}
    elif structure[0] in ("list", "tuple") and isinstance(value, (list, tuple)):
        if len(structure) - 1 == len(value):
            return [_arranged(item, part) for item, part in zip(structure[1:], value, strict=True)]
    return value


def _count(structure: Any) -> int:
    if isinstance(structure, structures.Leaf):
        return 1
    if structure[0] == "dict":
        return sum(_count(item) for _, item in structure[1:])
    return sum(_count(item) for item in structure[1:]) if structure[0] in ("list", "tuple") else 0
