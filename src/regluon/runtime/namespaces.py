"""Public functions made from operator definitions: one maker for nd, sym, np and npx.

A function has the signature of its operator (inputs, then attributes, then ``out`` and ``name``) and takes
arrays and Symbols alike.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from ..base import dtypes
from ..ops.opdef import OpDef
from ..ops.public_names import DEFAULTS, public_order
from ..ops.registry import all_definitions, get
from .handles import kinds
from .invoke import invoke

__all__ = ["bound", "fill_namespace", "make_function", "public_places", "publish"]

_KINDS = inspect.Parameter
_SUBMODULES = {
    "_contrib_": "contrib",
    "_linalg_": "linalg",
    "_random_": "random",
    "_sample_": "random",
    "_image_": "image",
    "_sparse_": "sparse",
}
_NUMBERS = (int, float, bool, numpy.generic)


@functools.cache
def _signature(definition: OpDef, style: str, public: str) -> inspect.Signature:
    order = public_order(definition, style, public)[0]
    parameters: list[inspect.Parameter] = []
    for name, own in order:
        parameters.append(_parameter(definition, style, name, own, parameters))
    defaults = DEFAULTS.get((style, public), {})
    parameters = [p.replace(default=defaults[p.name]) if p.name in defaults else p for p in parameters]
    counted = None if definition.num_args_key is None else definition.num_args_key
    parameters = [p for p in parameters if p.name != counted]  # Counted, not given.
    variadic = any(p.kind is _KINDS.VAR_POSITIONAL for p in parameters)
    if variadic:
        place = next(i for i, p in enumerate(parameters) if p.kind is _KINDS.VAR_POSITIONAL) + 1
        parameters[place:] = [p.replace(kind=_KINDS.KEYWORD_ONLY) for p in parameters[place:]]
    known = {own for _, own in order} | {p.name for p in parameters}
    for name in ("out", "name", "attr"):
        if name not in known:
            parameters.append(_KINDS(name, _KINDS.KEYWORD_ONLY, default=None))
    if style in ("nd", "sym"):
        parameters.append(_KINDS("kwargs", _KINDS.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _parameter(
    definition: OpDef, style: str, name: str, own: str, before: list[inspect.Parameter]
) -> inspect.Parameter:
    """An argument of a public function; one that follows an optional one is optional too."""
    if definition.variadic and own == definition.inputs[-1]:
        return _KINDS(name, _KINDS.POSITIONAL_OR_KEYWORD if style == "np" else _KINDS.VAR_POSITIONAL)
    seen_default = any(p.default is not _KINDS.empty for p in before)
    default: Any = None
    if own in definition.inputs:
        optional = own in definition.optional or style == "sym" or (style == "nd" and bool(before))
        default = None if optional or seen_default else _KINDS.empty
    elif own in definition.parameters:
        attribute = definition.parameters[own]
        default = _KINDS.empty if attribute.required else _shown(attribute.default)
        default = None if default is _KINDS.empty and seen_default else default
    return _KINDS(name, _KINDS.POSITIONAL_OR_KEYWORD, default=default)


def _shown(default: Any) -> Any:
    """A default as a user would write it."""
    return dtypes.to_name(default) if isinstance(default, torch.dtype) else default


class _Binder:
    """Sorts a call's arguments into inputs and attributes."""

    def __init__(self, definition: OpDef, style: str, public: str) -> None:
        self.definition = definition
        self.public = public
        order, self.others = public_order(definition, style, public)
        self.own_names = dict(order)
        self.positional = tuple(name for name, _ in order)
        self.count = len(definition.inputs)
        # How many of the first positions are those of the operator's inputs.
        own = [own for _, own in order[: self.count]]
        self.direct = self.count if own == list(definition.inputs) else 0

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, those by position after the first inputs by their names."""
        if len(args) > len(self.positional):
            raise TypeError(
                f"{self.public}() takes at most {len(self.positional)} positional arguments "
                f"({', '.join(self.positional)}); received {len(args)}"
            )
        given = dict(zip(self.positional[self.direct :], args[self.direct :], strict=False))
        for key in given:
            if key in kwargs:
                raise TypeError(f"{self.public}() got two values for {key}")
        return args[: self.direct], {**given, **kwargs}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        definition = self.definition
        if definition.variadic:
            return self._bind_variadic(args, kwargs)
        attrs: dict[str, Any] = {}
        inputs: list[Any] = list(args)
        for key, value in kwargs.items():
            own = self.own_names.get(key) or self.others.get(key, key)
            if own in definition.inputs:
                place = definition.inputs.index(own)
                while len(inputs) <= place:
                    inputs.append(None)
                if inputs[place] is not None:
                    raise TypeError(f"{self.public}() got two values for {key}")
                inputs[place] = value
            else:
                attrs[own] = value
        return inputs, self._given(attrs)

    def _given(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The attributes without those that are None and mean the default."""
        parameters = self.definition.parameters
        return {
            key: value
            for key, value in attrs.items()
            if value is not None
            or (key in parameters and parameters[key].default is not None and parameters[key].optional)
        }

    def _bind_variadic(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        definition = self.definition
        name = definition.inputs[-1]
        attrs = dict(kwargs)
        if name in attrs:
            args = (*args, attrs.pop(name))
        if args and isinstance(args[0], (list, tuple)):
            inputs = list(args[0])
            attrs.update(zip(definition.parameters, args[1:], strict=False))
        else:
            inputs = list(args)
        named = [key for key, value in attrs.items() if isinstance(value, (kinds.nd, kinds.symbol))]
        inputs += [attrs.pop(key) for key in sorted(named, key=_place)]
        if definition.num_args_key and definition.num_args_key not in definition.parameters:
            attrs.pop(definition.num_args_key, None)
        elif definition.num_args_key:
            # A Symbol may be made from the number of its inputs alone.
            if inputs or definition.num_args_key not in attrs:
                attrs[definition.num_args_key] = len(inputs)
        return inputs, self._given(attrs)


def _place(name: str) -> int:
    """The number at the end of an input's name (``arg1``); inputs without one come first, as given."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else -1


def _class_for(style: str) -> Callable[[list[Any]], Any]:
    if style == "np":
        return lambda inputs: kinds.np
    if style == "npx":

        def npx_class(inputs: list[Any]) -> Any:
            arrays = [value for value in inputs if isinstance(value, (kinds.nd, kinds.symbol))]
            return None if arrays else kinds.np

        return npx_class
    if style == "sym":

        def symbol_class(inputs: list[Any]) -> Any:
            arrays = [value for value in inputs if isinstance(value, (kinds.nd, kinds.symbol))]
            return None if arrays else kinds.symbol

        return symbol_class
    return lambda inputs: None


def make_function(definition: OpDef, style: str, public: str) -> Callable[..., Any]:
    """The function ``public`` of a namespace of ``style`` nd, sym, np or npx for an operator."""
    hint = public.rsplit(".", 1)[-1]
    binder = _Binder(definition, style, hint)
    defaults = DEFAULTS.get((style, hint), {})
    numpy_like = style in ("np", "npx")
    biased = style == "npx" and "no_bias" in definition.parameters and "bias" in definition.inputs
    whole = definition.variadic or definition.specialise is not None
    class_for = _class_for(style)
    scalar = definition.scalar
    specialised = definition.specialise is not None

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > binder.direct and not whole:
            args, kwargs = binder.named(args, kwargs)
        out = kwargs.pop("out", None)
        name = kwargs.pop("name", None)
        user = kwargs.pop("attr", None)
        if numpy_like and kwargs:
            kwargs = _without_numpy_only(definition, hint, kwargs)
        if specialised:
            chosen, inputs, attrs = _specialised(definition, args, kwargs)
            return invoke(chosen, inputs, attrs, out, name, class_for(inputs), user, hint)
        inputs, attrs = binder.bind(args, kwargs)
        if defaults:
            attrs = {**defaults, **attrs}
        if biased and "no_bias" not in attrs:
            _without_bias(definition, inputs, attrs)
        context = attrs.get("ctx")
        if context is not None and not isinstance(context, str):
            attrs["ctx"] = str(context)
        if scalar is not None and len(inputs) == 2:
            numbers = [_is_number(value) for value in inputs]
            if numbers[0] != numbers[1]:
                return _with_number(definition, inputs, numbers[0], style, out, name, user)
            if all(numbers):
                inputs[0] = kinds.np._wrap_number(inputs[0]) if style == "np" else inputs[0]
        return invoke(definition, inputs, attrs, out, name, class_for(inputs), user, hint)

    function.__name__ = function.__qualname__ = hint
    function.__doc__ = definition.doc
    function.__signature__ = _signature(definition, style, hint)  # type: ignore[attr-defined]
    function.__operator__ = definition  # type: ignore[attr-defined]
    return function


def _without_numpy_only(definition: OpDef, public: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords without those of NumPy that change nothing here."""
    kept = dict(kwargs)
    for key in ("where", "order", "device"):
        if key not in kept or key in definition.parameters or key in definition.inputs:
            continue
        value = kept.pop(key)
        if key == "where" and value is not None and value is not True:
            raise ValueError(
                f"{public}() takes where=True only; received where={type(value).__name__}. Choose the "
                "elements with np.where() before or after."
            )
        if key == "device" and "ctx" in definition.parameters and value is not None:
            kept["ctx"] = str(value)
    return kept


def _without_bias(definition: OpDef, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Let a bias that is not given to a function of npx be none; Symbols make a variable for it, but for
    fully_connected."""
    place = definition.inputs.index("bias")
    missing = len(inputs) <= place or inputs[place] is None
    symbolic = any(isinstance(value, kinds.symbol) for value in inputs)
    if missing and (not symbolic or definition.name == "FullyConnected"):
        attrs["no_bias"] = True


def _specialised(
    definition: OpDef, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The definition that an operator has with the attributes of a call, and the call's arguments sorted."""
    values = (kinds.nd, kinds.symbol, kinds.sparse)
    named = {key: value for key, value in kwargs.items() if isinstance(value, values)}
    attrs = {key: value for key, value in kwargs.items() if key not in named}
    assert definition.specialise is not None
    chosen: Any = definition.specialise(attrs)
    return chosen, chosen.arrange(args, named), attrs


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) or getattr(value, "_symbolic_dimension", False)


def _with_number(
    definition: OpDef, inputs: list[Any], first: bool, style: str, out: Any, name: Any, user: Any
) -> Any:
    """A binary operator of an array and a number."""
    array, number = (inputs[1], inputs[0]) if first else (inputs[0], inputs[1])
    operator = get(definition.rscalar if first and definition.rscalar else definition.scalar)  # type: ignore[arg-type]
    if isinstance(number, numpy.generic):
        number = number.item()
    attrs: dict[str, Any] = {"scalar": int(number) if isinstance(number, bool) else number}
    if style == "np" and "is_int" in operator.parameters and not isinstance(number, (int, bool)):
        attrs["is_int"] = False
    return invoke(operator, [array], attrs, out, name, _class_for(style)([array]), user)


def public_places(definition: OpDef) -> Iterable[tuple[str, str]]:
    """(namespace, name) of every public function of an operator; submodules are dotted."""
    for name in (definition.name, *definition.aliases):
        yield "nd", f"_internal.{name}"
        yield "nd", f"op.{name}"
        for start, module in _SUBMODULES.items():
            if name.startswith(start):
                yield "nd", f"{module}.{name[len(start) :]}"
        if name.startswith("_npx_"):
            tail = name[5:]
            yield "npx", tail.replace("_image_", "image.") if tail.startswith("_image_") else tail
        if not name.startswith("_"):
            yield "nd", name
    for name in definition.nd:
        yield "nd", name
    if definition.np is not None:
        for name in (definition.np, *definition.np_aliases):
            yield "np", name
    if definition.npx is not None:
        yield "npx", definition.npx


class _Later:
    """A function of a namespace that is made when it is first asked for."""

    __slots__ = ("definition", "home", "name", "style")

    def __init__(self, definition: OpDef, style: str, name: str) -> None:
        self.definition, self.style, self.name = definition, style, name
        # The module that the function tells to be from.
        self.home = ""

    def made(self) -> Callable[..., Any]:
        """The function, the same one each time."""
        found = _made.get(self)
        if found is None:
            found = make_function(self.definition, self.style, self.name)
            found.__module__ = self.home
            # Several threads may have made one: without a lock, which a forked process could find taken.
            found = _made.setdefault(self, found)
        return found


_made: dict[_Later, Callable[..., Any]] = {}


def _give_later(module: Any) -> dict[str, _Later]:
    """Let a module make functions when they are first asked for: those that are put into what this gives."""
    later: dict[str, _Later] = {}

    def find(name: str) -> Any:
        found = later.get(name)
        if found is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return module.__dict__.setdefault(name, found.made())

    module.__getattr__ = find
    return later


def fill_namespace(module: Any, style: str) -> None:
    """Let a module and its submodules have the functions of all operators, where nothing of that name is
    there.

    Few programs use more than some of them, so that each is made when it is first asked for.
    """
    space = "nd" if style == "sym" else style
    filled: dict[str, tuple[Any, set[str], dict[str, _Later]]] = {}
    known: dict[tuple[str, str], _Later] = {}

    def of(target: Any) -> tuple[Any, set[str], dict[str, _Later]]:
        if target.__name__ not in filled:
            filled[target.__name__] = (target, set(), _give_later(target))
        return filled[target.__name__]

    of(module)
    for definition in all_definitions():
        for where, dotted in public_places(definition):
            if where != space:
                continue
            target = module
            *path, name = dotted.split(".")
            for part in path:
                of(target)[1].add(part)
                target = _submodule(target, part)
            _, names, later = of(target)
            if name in target.__dict__ or name in later:
                home = getattr(target.__dict__.get(name), "__module__", None) or ""
                if path or name not in definition.nd or home.startswith(f"{module.__name__}."):
                    continue
                target.__dict__.pop(name, None)
            found = known.setdefault((definition.name, name), _Later(definition, style, name))
            if not found.home or len(found.home) > len(target.__name__):
                found.home = target.__name__
            later[name] = found
            names.add(name)
    for target, names, _ in filled.values():
        publish(target, names)


def publish(module: Any, names: Iterable[str] = ()) -> None:
    """Let ``dir()`` and ``import *`` of a namespace give its functions and classes, and ``names``.

    What a module imports for its own use is left out.
    """
    start = module.__name__
    found = {*getattr(module, "__all__", ()), *names}
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, types.ModuleType):
            home = getattr(value, "__module__", None) or ""
            if home == start or home.startswith(f"{start}."):
                found.add(name)
    module.__all__ = sorted(found)
    listed = sorted({*found, *(name for name in vars(module) if name[:2] == "__"), "__dir__"})
    module.__dir__ = lambda: listed


def _submodule(parent: Any, name: str) -> Any:
    existing = parent.__dict__.get(name)
    if isinstance(existing, types.ModuleType):
        return existing
    full = f"{parent.__name__}.{name}"
    try:
        import importlib

        module = importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        module = types.ModuleType(full, f"Functions derived from the operator table: {name}.")
        sys.modules[full] = module
    setattr(parent, name, module)
    return module


def bound(name: str) -> Callable[..., Any]:
    """The nd function of an operator, for use as a method."""
    return make_function(get(name), "nd", name)
