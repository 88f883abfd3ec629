"""mx.registry: classes of a kind by name, for libraries that let their users add some."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry"]

_REGISTRIES: dict[type, dict[str, type]] = {}


class RegistryError(ValueError, AssertionError):
    """A name or a class that a registry does not take."""


def get_registry(base_class: type) -> dict[str, type]:
    """A copy of the classes that are registered for a base class, by lower-case name."""
    return dict(_REGISTRIES.get(base_class, {}))


def get_register_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A function (and decorator) that registers subclasses of ``base_class``: ``register(klass, name=None)``.

    A name that is taken is given to the new class, with a warning.

    Raises
    ------
    ValueError
        (an AssertionError too) by that function, for a class that is no subclass.
    """
    registry = _REGISTRIES.setdefault(base_class, {})

    def register(klass: type, name: str | None = None) -> type:
        if not (isinstance(klass, type) and issubclass(klass, base_class)):
            raise RegistryError(f"Can only register subclass of {base_class.__name__}; received {klass!r}")
        key = (klass.__name__ if name is None else name).lower()
        known = registry.get(key)
        if known is not None and known is not klass:
            warnings.warn(
                f"New {nickname} {klass.__module__}.{klass.__name__} registered with name {key} is "
                f"overriding existing {nickname} {known.__module__}.{known.__name__}",
                UserWarning,
                stacklevel=2,
            )
        registry[key] = klass
        return klass

    register.__doc__ = f"Register {nickname} to the {nickname} factory."
    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A decorator that registers a class under other names: ``@alias("adam", "ADAM2")``."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[type], type]:
        def decorate(klass: type) -> type:
            for name in aliases:
                register(klass, name)
            return klass

        return decorate

    return alias


def _described(nickname: str, text: str) -> tuple[Any, dict[str, Any]]:
    """Name and arguments from JSON: ``["name", {...}]`` or ``{nickname: "name", ...}``; else a bare name."""
    if text[:1] not in ("[", "{"):
        return text, {}
    try:
        value = json.loads(text)
        if isinstance(value, list):
            name, kwargs = value
            return name, dict(kwargs)
        return value.pop(nickname), value
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryError(
            f'a {nickname} is described by ["name", {{arguments}}] or {{"{nickname}": "name", ...}}; '
            f"received {text}"
        ) from error


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A function that makes an instance: ``create(name, *args, **kwargs)``.

    Instead of a name it takes an instance (and gives that), a dict or JSON text with name and arguments, or
    ``create(nickname=name)``.

    Raises
    ------
    ValueError
        (an AssertionError too) by that function, for an unknown name or arguments that mean nothing.
    """
    registry = _REGISTRIES.setdefault(base_class, {})

    def create(*args: Any, **kwargs: Any) -> Any:
        if args:
            name, args = args[0], args[1:]
        elif nickname in kwargs:
            name = kwargs.pop(nickname)
        else:
            raise RegistryError(f"create needs the name of a {nickname}; known are {sorted(registry)}")
        if isinstance(name, base_class):
            if args or kwargs:
                raise RegistryError(f"{nickname} is already an instance. Additional arguments are invalid")
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise RegistryError(f"{nickname} must be of string type; received {type(name).__name__}")
        if not args and not kwargs:
            name, kwargs = _described(nickname, name)
        key = str(name).lower()
        if key not in registry:
            raise RegistryError(
                f"{name} is not registered. Please register with {nickname}.register first; known are "
                f"{', '.join(sorted(registry)) or 'none'}"
            )
        return registry[key](*args, **kwargs)

    create.__doc__ = f"Create a {nickname} instance from config."
    return create
