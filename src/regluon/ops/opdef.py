"""What an operator is: one record made by a decorator over a typed function on torch tensors.

Everything a user sees of an operator is derived from this record: functions in the namespaces, Symbols, JSON
attributes, shape inference, documentation. See docs/add-an-operator.md.

Parameters of the decorated function
  * positional ones are the tensor inputs, with MXNet's names; ``x: Tensor | None = None`` is optional, and
    ``*data: Tensor`` takes any number;
  * keyword-only ones are the attributes; the annotation decides how MXNet's strings are read (`params.py`);
  * keyword-only ``_training`` (train mode flag) and ``_rng`` (a generator, None on the meta device) are
    injected.

``active=`` says which inputs are in use with some attributes: how many of the first, or a list of names.

``commit=`` belongs to operators with auxiliary inputs: ``commit(aux_tensors, output_tensors, attrs)`` writes
the new auxiliary values in place. It runs once for each recorded training forward, when that one is
differentiated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..base.errors import MXNetError
from .params import DType, Floats, Parameter, Shape, Shapes, parameter_of

__all__ = ["DType", "Floats", "OpDef", "Shape", "Shapes", "Spec", "operator"]

_REGISTRY: dict[str, OpDef] = {}
_GRADIENTS = ("torch", "zero", "identity")


class Spec(NamedTuple):
    """Shape and torch type of a value."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Count = int | Callable[[dict[str, Any]], int]


class OpDef:
    """One operator; see the module's description. Made by `operator` only."""

    __slots__ = (
        "active",
        "aliases",
        "amp",
        "aux",
        "commit",
        "defaults",
        "doc",
        "dynamic",
        "fill",
        "function",
        "gradient",
        "infer",
        "initial",
        "inputs",
        "mutates",
        "name",
        "nd",
        "np",
        "np_aliases",
        "npx",
        "num_args_key",
        "opaque",
        "optional",
        "output_names",
        "outputs",
        "parameters",
        "plain",
        "renamed",
        "required",
        "rscalar",
        "scalar",
        "sequence",
        "specialise",
        "uses_rng",
        "uses_training",
        "variadic",
        "visible",
    )

    def __init__(self, name: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.name = name
        self.function = function
        self.doc = inspect.getdoc(function) or ""
        self.aliases: tuple[str, ...] = tuple(options.pop("aliases", ()))
        self.outputs: Count = options.pop("outputs", 1)
        self.visible: Count | None = options.pop("visible", None)
        self.output_names: tuple[str, ...] = tuple(options.pop("output_names", ()))
        self.aux: tuple[str, ...] = tuple(options.pop("aux", ()))
        self.mutates: tuple[str, ...] = tuple(options.pop("mutates", ()))
        self.gradient: str = options.pop("gradient", "torch")
        self.amp: str | None = options.pop("amp", None)
        self.dynamic: bool = bool(options.pop("dynamic", False))
        # It runs Python of the user: never merged with another, moved out of a call, or remembered.
        self.opaque: bool = bool(options.pop("opaque", False))
        # The definition that an operator whose inputs and outputs depend on its attributes has with some.
        self.specialise: Callable[[Mapping[str, Any]], OpDef] | None = options.pop("specialise", None)
        # Further public names of one operator (``np=("absolute", "abs")``) are ``np_aliases``.
        np_names = _names(options.pop("np", ()))
        self.np: str | None = np_names[0] if np_names else None
        self.np_aliases: tuple[str, ...] = np_names[1:]
        self.npx: str | None = options.pop("npx", None)
        self.nd: tuple[str, ...] = _names(options.pop("nd", ()))
        self.scalar: str | None = options.pop("scalar", None)
        self.rscalar: str | None = options.pop("rscalar", None)
        self.sequence: bool = bool(options.pop("sequence", True))
        self.commit: Callable[..., None] | None = options.pop("commit", None)
        self.active: Callable[[dict[str, Any]], int | list[str]] | None = options.pop("active", None)
        self.fill: Callable[..., Any] | None = options.pop("fill", None)
        self.infer: Callable[..., Any] | None = options.pop("infer", None)
        self.num_args_key: str | None = options.pop("num_args_key", None)
        # How the variables made for missing inputs are initialized: input to a Symbol's ``__init__``.
        self.initial: dict[str, str] = dict(options.pop("initial", {}))
        self.renamed: dict[str, str] = dict(options.pop("renamed", {}))  # other spellings of attributes
        if options:
            raise TypeError(f"operator {name!r}: unknown option(s) {', '.join(options)}")
        if self.gradient not in _GRADIENTS:
            raise TypeError(f"operator {name!r}: gradient is one of {_GRADIENTS}, not {self.gradient!r}")
        self._read_signature()

    def _read_signature(self) -> None:
        signature = inspect.signature(self.function)
        inputs: list[str] = []
        optional: list[str] = []
        parameters: dict[str, Parameter] = {}
        self.variadic = self.uses_training = self.uses_rng = False
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                self.variadic = True
                inputs.append(parameter.name)
            elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                inputs.append(parameter.name)
                if parameter.default is None:
                    optional.append(parameter.name)
            elif parameter.name == "_training":
                self.uses_training = True
            elif parameter.name == "_rng":
                self.uses_rng = True
            else:
                parameters[parameter.name] = parameter_of(
                    parameter, _annotation(self.function, parameter.annotation), self.name
                )
        self.inputs, self.optional, self.parameters = tuple(inputs), tuple(optional), parameters
        self.defaults = {p.name: p.default for p in parameters.values() if not p.required}
        self.required = tuple(p.name for p in parameters.values() if p.required)
        # The short way of `runtime.invoke`: nothing but inputs in and one output out.
        self.plain = (
            not self.uses_training
            and not self.uses_rng
            and not self.mutates
            and not self.aux
            and self.outputs == 1
            and self.gradient == "torch"
            and not self.variadic
        )

    def __repr__(self) -> str:
        return f"<operator {self.name}({', '.join((*self.inputs, *self.parameters))})>"

    def __reduce__(self) -> tuple[Any, ...]:
        from .registry import get

        return get, (self.name,)

    def bound(self, context: Any) -> OpDef:
        """What an executor on a context runs: itself, unless the operator keeps state between runs."""
        del context
        return self

    def parse(self, given: dict[str, Any]) -> dict[str, Any]:
        """All attributes, typed, from typed or string values.

        Raises
        ------
        MXNetError
            For an attribute that the operator does not have, that is missing, or that cannot be read.
        """
        result = dict(self.defaults)
        parameters = self.parameters
        for key, value in given.items():
            key = self.renamed.get(key, key)
            parameter = parameters.get(key)
            if parameter is None:
                if key[:2] == "__" or key == self.num_args_key:
                    continue
                raise self._unknown(key)
            result[key] = parameter.read(value, self.name)
        for key in self.required:
            if key not in result:
                raise MXNetError(
                    f"operator {self.name} needs the attribute {key} ({parameters[key].describe()}); "
                    f"received {sorted(given) or 'none'}"
                )
        return result

    def _unknown(self, key: str) -> MXNetError:
        import difflib

        near = difflib.get_close_matches(key, self.parameters, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return MXNetError(
            f"operator {self.name} has no attribute {key!r}; it takes "
            f"{', '.join(self.parameters) or 'none'}{hint}"
        )

    def format(self, attrs: dict[str, Any]) -> dict[str, str]:
        """The given typed attributes as MXNet's strings; graphs have none."""
        return {
            key: self.parameters[key].write(value)
            for key, value in attrs.items()
            if key in self.parameters and self.parameters[key].kind != "graphs"
        }

    def number_of_outputs(self, attrs: dict[str, Any]) -> int:
        """How many outputs there are with these attributes."""
        return self.outputs if isinstance(self.outputs, int) else self.outputs(attrs)

    def number_visible(self, attrs: dict[str, Any]) -> int:
        """How many outputs a user sees with these attributes."""
        if self.visible is None:
            return self.number_of_outputs(attrs)
        return self.visible if isinstance(self.visible, int) else self.visible(attrs)

    def input_names(self, attrs: dict[str, Any], given: int | None = None) -> list[str]:
        """The names of the inputs in use with these attributes; ``given`` counts those of a variadic
        operator, which ``active`` may name for some attributes."""
        if self.variadic:
            named = None if self.active is None else self.active(attrs)
            if isinstance(named, list):
                return named
            fixed = list(self.inputs[:-1])
            base = self.inputs[-1]
            count = (given if given is not None else len(fixed) + 1) - len(fixed)
            return [*fixed, *(f"{base}{i}" if base != "data" else f"arg{i}" for i in range(count))]
        if self.active is not None:
            active = self.active(attrs)
            return list(self.inputs[:active]) if isinstance(active, int) else active
        return list(self.inputs)

    def in_use(self, values: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        """Those of the given inputs that are in use with these attributes.

        ``values`` has a place for every input of the signature, or only for those in use.
        """
        if self.active is None or self.variadic:
            return list(values)
        names = self.input_names(attrs)
        places = [self.inputs.index(name) for name in names]
        skips = places != list(range(len(names)))
        if skips and len(values) > len(names):
            return [values[place] for place in places if place < len(values)]
        return list(values)[: len(names)]


_annotations: dict[tuple[str, int], Any] = {}


def _annotation(function: Callable[..., Any], text: Any) -> Any:
    """What an annotation stands for; hundreds of operators share a few dozen annotations, each read once."""
    if text is inspect.Parameter.empty:
        return str
    if not isinstance(text, str):
        return text
    key = (text, id(function.__globals__))
    if key not in _annotations:
        # The source of this package, not a user's text.
        _annotations[key] = eval(text, function.__globals__)
    return _annotations[key]


def _names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def operator(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the operator ``name``; see the module's description for the
    options."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        definition = OpDef(name, function, options)
        for known in (name, *definition.aliases):
            if known in _REGISTRY and _REGISTRY[known].name != name:
                raise TypeError(
                    f"operator name {known!r} is taken by {_REGISTRY[known].name!r} (defining {name!r})"
                )
            _REGISTRY[known] = definition
        return function

    return register


def run(
    definition: OpDef, tensors: Sequence[Any], attrs: dict[str, Any], training: bool, key: int | None
) -> Any:
    """Call an operator's function with what it wants injected. ``key`` is the key of its random draw."""
    extra: dict[str, Any] = {}
    if definition.uses_training:
        extra["_training"] = training
    if definition.uses_rng:
        from ..base import rng

        extra["_rng"] = None
        if key is not None:
            device = tensors[0].device if tensors and tensors[0] is not None else _device_of(attrs)
            if device.type != "meta":
                extra["_rng"] = rng.generator(key, device)
    return definition.function(*tensors, **attrs, **extra)


def _device_of(attrs: dict[str, Any]) -> torch.device:
    from ..base.device import torch_device

    return torch_device(attrs.get("ctx") or None)
