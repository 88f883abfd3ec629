"""Symbol: outputs of a graph that has not run. The same class serves as the value inside a trace (``_s``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import torch

from ..array import arithmetic
from ..base import config, dtypes
from ..base.errors import MXNetError, NotImplementedForSymbol
from ..base.naming import current_attributes, current_manager
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, arguments_of, topological
from ..ops.opdef import OpDef
from ..ops.registry import get
from ..runtime.handles import kinds, user_location
from ..runtime.invoke import definition_attrs, invoke
from ..runtime.state import state
from . import binding, convert, inference
from .executor import Executor

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "np_symbol", "var"]


class Symbol:
    """One or several outputs of a graph.

    Made by `var` and by the functions of ``mx.sym``. Inside a block that is being recorded a Symbol also
    knows its
    shape and type, and indexing means what it means for arrays; elsewhere ``symbol[i]`` selects output ``i``.
    """

    _kind: Any = "nd"
    _entries: tuple[Entry, ...] = ()
    _s: Any = None
    __array_priority__ = 1000.0

    # Making ----------------------------------------------------------------------

    @classmethod
    def _of(cls, entries: Sequence[Entry]) -> Any:
        result = cls.__new__(cls)
        result._entries = tuple(entries)
        return result

    @classmethod
    def _traced(cls, handle: Any) -> Any:
        result = cls.__new__(cls)
        result._s = handle
        return result

    @classmethod
    def _group(cls, symbols: Sequence[Any]) -> Any:
        """Several values of a trace as one Symbol whose items they are."""
        result = cls.__new__(cls)
        result._items = list(symbols)
        result._entries = tuple(entry for symbol in symbols for entry in symbol._list())
        return result

    _items: Any = None

    @classmethod
    def _compose(
        cls, definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any], name: str | None, user: Any
    ) -> Any:
        """Apply an operator to Symbols; missing inputs become variables named after the node."""
        given = definition_attrs(definition, {k: v for k, v in attrs.items() if k[:2] != "__"})
        text = {key: str(value) for key, value in attrs.items() if key[:2] == "__"}
        text.update(current_attributes({dunder(k): str(v) for k, v in (user or {}).items()}))
        name = current_manager().get(name, definition.name.lower())
        entries: list[Entry | None] = []
        for array in arrays:
            if array is None:
                entries.append(None)
            elif isinstance(array, Symbol):
                entries.extend(array._list() if definition.variadic else [array._single()])
            else:
                raise TypeError(
                    f"type {type(array)} not supported: an operator takes all Symbols or all arrays"
                )
        full = {**definition.defaults, **given}
        if definition.variadic:
            if definition.num_args_key in definition.parameters:
                given[definition.num_args_key] = len(entries)  # type: ignore[index]
        else:
            wanted = definition.input_names(full)
            optional_from = len(definition.inputs) - len(definition.optional)
            for place, input_name in enumerate(wanted):
                if place < len(entries) and entries[place] is not None:
                    continue
                if definition.active is None and input_name in definition.optional and place >= optional_from:
                    continue
                variable = Node(None, f"{name}_{input_name}", user=dict(text))
                variable.is_aux = input_name in definition.aux
                entry = Entry(variable, 0)
                if place < len(entries):
                    entries[place] = entry
                else:
                    entries.append(entry)
            entries = entries[: len(wanted)]
        kept = [entry for entry in entries if entry is not None]
        node = Node(definition, name, kept, given, text, location=user_location())
        return cls._of([Entry(node, index) for index in range(node.visible)])

    # Entries ----------------------------------------------------------------------

    def _list(self) -> tuple[Entry, ...]:
        if self._s is not None:
            return (self._s.get(),)
        return self._entries

    def _single(self) -> Entry:
        entries = self._list()
        if len(entries) != 1:
            raise MXNetError(
                f"an operator's input is one output, but {self!r} has {len(entries)}; choose one with "
                f"symbol[i]"
            )
        return entries[0]

    def _order(self) -> list[Node]:
        return topological(self._list())

    # Identity ----------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The node's name; None for a group."""
        nodes = {id(entry.node): entry.node for entry in self._list()}
        return next(iter(nodes.values())).name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        label = "_Symbol" if self._kind == "np" else "Symbol"
        if self.name is None:
            return f"<{label} group [{', '.join(entry.node.name for entry in self._list())}]>"
        return f"<{label} {self.name}>"

    def __hash__(self) -> int:
        return id(self) >> 4

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        return type(self)._of(convert.copy_entries(self._list()))

    def __reduce__(self) -> Any:
        return _unpickle, (self.tojson(), self._kind)

    def __bool__(self) -> bool:
        if self._s is not None:
            return bool(self._s.tracer.read_value(self, "bool()"))
        raise NotImplementedForSymbol("__bool__", "bool")

    def _no_value(self, what: str) -> Any:
        if self._s is not None:
            return self._s.tracer.read_value(self, f"{what}()")
        raise NotImplementedForSymbol(what)

    def asnumpy(self) -> Any:
        """A Symbol has no value: raises NotImplementedForSymbol."""
        return self._no_value("asnumpy")

    def asscalar(self) -> Any:
        """A Symbol has no value: raises NotImplementedForSymbol."""
        return self._no_value("asscalar")

    def item(self) -> Any:
        """A Symbol has no value: raises NotImplementedForSymbol."""
        return self._no_value("item")

    def wait_to_read(self) -> Any:
        """A Symbol has no value: raises NotImplementedForSymbol."""
        return self._no_value("wait_to_read")

    # Known shapes, inside a trace ----------------------------------------------------------------------

    def _known(self, what: str) -> Any:
        if self._s is None or config.strict():
            raise AttributeError(f"'Symbol' object has no attribute '{what}'")
        return self._s.tracer

    @property
    def shape(self) -> Any:
        """Sizes of the axes, inside a block that is being recorded."""
        return self._known("shape").shape(self._s.get())

    @property
    def ndim(self) -> int:
        """Number of axes, inside a block that is being recorded."""
        return len(self._known("ndim").spec(self._s.get()).shape)

    @property
    def size(self) -> Any:
        """Number of elements, inside a block that is being recorded."""
        result: Any = 1
        for size in self._known("size").shape(self._s.get()):
            result = size * result
        return result

    @property
    def dtype(self) -> Any:
        """Type of the elements, inside a block that is being recorded."""
        kind = dtypes.to_numpy(self._known("dtype").spec(self._s.get()).dtype)
        return numpy.dtype(kind) if self._kind == "np" and not isinstance(kind, torch.dtype) else kind

    @property
    def context(self) -> Any:
        """The device, inside a block that is being recorded."""
        return self._known("context").context

    ctx = context
    device = context

    @property
    def T(self) -> Any:
        """The axes in reverse order."""
        return self.transpose()

    # Selecting ----------------------------------------------------------------------

    def __len__(self) -> int:
        if self._items is not None:
            return len(self._items)
        if self._s is not None:
            shape = self.shape
            if not shape:
                raise TypeError("len() of unsized object")
            return int(shape[0])
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if self._items is not None:
            return self._items[key]
        if self._s is not None:
            return self._index_traced(key)
        if isinstance(key, slice):
            return Group([self[i] for i in range(*key.indices(len(self._entries)))])
        if isinstance(key, str):
            return self._by_name(key)
        if not isinstance(key, int):
            raise TypeError(
                f"a Symbol is indexed by the number or name of an output; received {key!r}. To index "
                f"into its value "
                "use slice, slice_axis or take, or index inside a hybridized block"
            )
        count = len(self._entries)
        if not -count <= key < count:
            raise IndexError(f"index {key} is out of range: {self!r} has {count} output(s)")
        return type(self)._of([self._entries[key]])

    def _index_traced(self, key: Any) -> Any:
        if config.strict():
            if key == 0:
                return self
            raise TypeError(
                "indexing a Symbol with anything but an output's number is refused in strict mode"
            )
        return self._s.tracer.getitem(self, key, self._kind)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._s is None:
            raise NotImplementedForSymbol("__setitem__", "[]=")
        self._s.tracer.setitem(self, key, value, self._kind)

    def _by_name(self, name: str) -> Any:
        found = [
            entry for entry in self._entries if name in (entry.node.output_name(entry.index), entry.node.name)
        ]
        exact = [entry for entry in found if entry.node.output_name(entry.index) == name]
        found = exact or found
        if not found:
            import difflib

            near = difflib.get_close_matches(name, self.list_outputs(), n=3)
            raise ValueError(
                f"Cannot find output that matches name {name!r}"
                + (f"; near names: {', '.join(near)}" if near else "")
            )
        if len({(id(entry.node), entry.index) for entry in found}) > 1 and not exact:
            raise ValueError(
                f"There are multiple outputs with name {name!r}: use the output's full name or number"
            )
        return type(self)._of([found[0]])

    def _assign_result(self, value: Any, inplace: bool = False) -> None:
        del inplace
        if self._s is None:
            raise NotImplementedForSymbol("out")
        self._s.tracer.assign(self, value)

    # Listing ----------------------------------------------------------------------

    def list_arguments(self) -> list[str]:
        """Names of the inputs that are not auxiliary states."""
        return [node.name for node in arguments_of(self._order())[0]]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the auxiliary states (moving statistics)."""
        return [node.name for node in arguments_of(self._order())[1]]

    def list_inputs(self) -> list[str]:
        """Names of all variables."""
        return [node.name for node in self._order() if node.op is None]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return [entry.node.output_name(entry.index) for entry in self._list()]

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self._list())

    def get_internals(self) -> Any:
        """A group of every output of every node."""
        entries = []
        for node in self._order():
            entries += [Entry(node, index) for index in range(node.visible)]
        return type(self)._of(entries)

    def get_children(self) -> Any:
        """A group of the direct inputs; None for variables."""
        entries = [
            entry for head in {id(e.node): e.node for e in self._list()}.values() for entry in head.inputs
        ]
        return type(self)._of(entries) if entries else None

    def get_inputs(self) -> Any:
        """A group of the variables."""
        return type(self)._of([Entry(node, 0) for node in self._order() if node.op is None])

    def has_dynamic_shape_op(self) -> bool:
        """Whether some operator's output shape depends on data."""
        return any(node.op is not None and node.op.dynamic for node in self._order())

    # Attributes ----------------------------------------------------------------------

    def attr(self, key: str) -> str | None:
        """One attribute of the node as a string, or None."""
        return convert.attributes(self._single().node).get(key)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """The attributes of the node as strings."""
        if recursive:
            raise DeprecationWarning("list_attr(recursive=True) is replaced by attr_dict()")
        return convert.attributes(self._single().node)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """The attributes of every node that has some."""
        found = {node.name: convert.attributes(node) for node in self._order()}
        return {name: attributes for name, attributes in found.items() if attributes}

    def _set_attr(self, **kwargs: str) -> None:
        node = self._single().node
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"an attribute of a Symbol is a string; {key} is {type(value).__name__}")
            node.user = {**node.user, key: value}

    # Shapes and types ----------------------------------------------------------------------

    def infer_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes of arguments, outputs and auxiliary states, from known argument shapes.

        Inference runs both ways: what an operator's output must be tells about its inputs. A size that is not
        known is 0, or -1 under ``np_shape``.

        Raises
        ------
        MXNetError
            If shapes contradict each other (the node is named), or a name is no argument.
        TypeError
            If a shape is no tuple.

        Returns
        -------
        tuple of three lists, or (None, None, None) when some shape stays unknown (a warning names them).
        """
        return inference.infer_shapes(self._list(), args, kwargs, partial=False)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Any:
        """As `infer_shape`, with what is known: unknown shapes are ``()`` (None under ``np_shape``)."""
        return inference.infer_shapes(self._list(), args, kwargs, partial=True)

    def infer_type(self, *args: Any, **kwargs: Any) -> Any:
        """Types of arguments, outputs and auxiliary states, from known argument types.

        Returns
        -------
        tuple of three lists, or (None, None, None) when some type stays unknown (a warning names them).
        """
        return inference.infer_symbol_types(self._list(), args, kwargs, partial=False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Any:
        """As `infer_type`, with None for types that are not known."""
        return inference.infer_symbol_types(self._list(), args, kwargs, partial=True)

    # Files ----------------------------------------------------------------------

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The graph as JSON that MXNet reads."""
        return convert.to_json(self._list(), remove_amp_cast=remove_amp_cast)

    def save(self, fname: Any, remove_amp_cast: bool = True) -> None:
        """Write the JSON to a file, at once or not at all."""
        from ..serial.atomic import write_text

        write_text(fname, self.tojson(remove_amp_cast))

    def debug_str(self) -> str:
        """The graph as text, one node a paragraph."""
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{i}]={e.node.name}({e.index})" for i, e in enumerate(self._list())]
        for node in self._order():
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["-" * 20, f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            lines += [f"\targ[{i}]={e.node.name}({e.index})" for i, e in enumerate(node.inputs)]
            attributes = convert.attributes(node)
            if attributes:
                lines += ["Attrs:", *(f"\t{key}={value}" for key, value in sorted(attributes.items()))]
        return "\n".join(lines) + "\n"

    # Composing and running ----------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """This graph with variables replaced by other Symbols, by place or name."""
        kwargs.pop("name", None)
        arguments = arguments_of(self._order())[0]
        replaced = {id(node): symbol._single() for node, symbol in zip(arguments, args, strict=False)}
        named = {node.name: node for node in arguments}
        for key, symbol in kwargs.items():
            if key not in named:
                raise ValueError(f"{key!r} is no argument of this Symbol; it has {', '.join(named)}")
            replaced[id(named[key])] = symbol._single()
        return type(self)._of(convert.substitute(self._list(), replaced))

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """The outputs for named arrays, as a list.

        Raises
        ------
        MXNetError
            If a variable has no array.
        """
        return binding.evaluate(self, ctx, kwargs)

    def bind(
        self,
        ctx: Any,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: Any = None,
        shared_exec: Any = None,
    ) -> Executor:
        """An `Executor` on the given arrays; ``group2ctx`` and ``shared_exec`` are accepted and not needed.

        Parameters
        ----------
        ctx : Context
            Where results are.
        args, args_grad, aux_states : list or dict of arrays
            By place or name; the arrays are used, not copied.
        grad_req : str, list or dict
            ``"write"``, ``"add"`` or ``"null"``.
        """
        del group2ctx, shared_exec
        return Executor(self, ctx, args, args_grad, grad_req, aux_states)

    _bind = bind

    def simple_bind(
        self,
        ctx: Any,
        grad_req: Any = "write",
        type_dict: Any = None,
        stype_dict: Any = None,
        group2ctx: Any = None,
        shared_arg_names: Any = None,
        shared_exec: Any = None,
        shared_buffer: Any = None,
        **kwargs: Any,
    ) -> Executor:
        """An `Executor` with arrays of zeros for everything.

        Parameters
        ----------
        ctx : Context
            Where the arrays are.
        grad_req : str, list or dict
            ``"write"``, ``"add"`` or ``"null"``.
        type_dict : dict, optional
            Types of arguments by name.
        shared_arg_names, shared_exec
            Arguments (and all auxiliary states) taken from another executor.
        shared_buffer : dict of str to array, optional
            Memory for the other arguments, shared between executors; grows as needed.
        **kwargs : tuple
            Shapes of arguments by name; the others are inferred.

        Raises
        ------
        MXNetError
            If the shapes do not determine all others, or contradict each other.
        """
        del stype_dict, group2ctx
        return binding.simple_bind(
            self, ctx, grad_req, type_dict, shared_arg_names, shared_exec, shared_buffer, kwargs
        )

    _simple_bind = simple_bind

    def optimize_for(
        self, backend: str, args: Any = None, aux: Any = None, ctx: Any = None, **kwargs: Any
    ) -> Any:
        """The graph rewritten by a registered backend."""
        from ..exec import backends

        del args, aux, ctx
        return type(self)._of(backends.get(backend).rewrite(self._list(), kwargs))

    def as_np_ndarray(self) -> Any:
        """The same outputs as a Symbol of the NumPy kind."""
        return self._as(NpSymbol)

    def as_nd_ndarray(self) -> Any:
        """The same outputs as a Symbol of the 1.x kind."""
        return self._as(Symbol)

    def _as(self, cls: Any) -> Any:
        result = cls.__new__(cls)
        result.__dict__.update(self.__dict__)
        return result

    # Methods of arrays ----------------------------------------------------------------------

    def astype(self, dtype: Any, **keywords: Any) -> Any:
        """Convert the type."""
        return invoke(get("Cast"), (self,), {"dtype": dtypes.to_torch(dtype)})

    def copy(self) -> Any:
        """The same value."""
        return invoke(get("_copy"), (self,), {})

    def detach(self) -> Any:
        """The same value without gradient."""
        return invoke(get("BlockGrad"), (self,), {})

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        """Another shape, with the codes of arrays of this kind."""
        return (kinds.np if self._kind == "np" else kinds.nd).reshape(self, *shape, **keywords)

    def transpose(self, *axes: Any, **keywords: Any) -> Any:
        """The axes permuted."""
        return (kinds.np if self._kind == "np" else kinds.nd).transpose(self, *axes, **keywords)

    def broadcast_to(self, *shape: Any, **keywords: Any) -> Any:
        """Repeated along axes of size 1."""
        return kinds.nd.broadcast_to(self, *shape, **keywords)

    def as_in_context(self, context: Any) -> Any:
        """Symbols have no device: itself."""
        return self

    as_in_ctx = as_in_context
    to_device = as_in_context


class NpSymbol(Symbol):
    """A Symbol of the NumPy kind: its operators are those of np.ndarray."""

    _kind = "np"

    def __hash__(self) -> int:
        return id(self) >> 4


def dunder(key: str) -> str:
    return key if key.startswith("__") else f"__{key}__"


def _unpickle(text: str, kind: str) -> Any:
    symbol = load_json(text)
    return symbol.as_np_ndarray() if kind == "np" else symbol


arithmetic.install(Symbol, inplace=False)


def _inplace(name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        result = arithmetic.apply_binary(name, self, other)
        if self._s is None:
            return result
        self._s.tracer.assign(self, result)
        return self

    return method


for _name in arithmetic._INPLACE:
    setattr(Symbol, f"__i{_name}__", _inplace(_name))
kinds.symbol, kinds.np_symbol = Symbol, NpSymbol
