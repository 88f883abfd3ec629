"""ParameterDict: the ordered mapping from names to parameters that both generations of Gluon use.

In 1.x it also makes parameters (``params.get("weight", shape=...)``), completing their names with its prefix.
In 2.0 ``collect_params()`` answers a plain mapping of structural names; here both are this class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from regluon.gluon.parameter_errors import ParameterValueError
from regluon.gluon.parameter_support import load_all

if TYPE_CHECKING:
    from regluon.gluon.parameter import Parameter

_SHOWN_NAMES = 12


class ParameterDict(dict[str, Any]):
    """Parameters by name, in the order in which they were made.

    Parameters
    ----------
    prefix : str
        Put before the names given to :meth:`get` and :meth:`get_constant`.
    shared : ParameterDict, optional
        Where :meth:`get` looks for a parameter before it makes one.
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        super().__init__()
        self._prefix = prefix
        self._shared = shared
        #: True for the answer of collect_params() at API level 2, where keys are structural names.
        self.structural = False

    @property
    def prefix(self) -> str:
        """Prefix of the parameters made here."""
        return self._prefix

    @property
    def _params(self) -> ParameterDict:
        return self

    def __repr__(self) -> str:
        if self.structural:
            return super().__repr__()
        heading = f"{self._prefix} (" if self._prefix else "("
        lines = [f"  {parameter!r}".replace("\n", "\n  ") for parameter in self.values()]
        return "\n".join([heading, *lines, ")"])

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"structural": self.structural}
        return type(self), (self._prefix, self._shared), state, None, iter(self.items())

    def copy(self) -> ParameterDict:
        """A second mapping to the same parameters."""
        result = ParameterDict(self._prefix, self._shared)
        result.structural = self.structural
        dict.update(result, self)
        return result

    # Making parameters ----------------------------------------------------------------------

    def _find(self, name: str) -> Parameter | None:
        if name in self:
            return self[name]
        if self._shared is not None and name in self._shared:
            self[name] = self._shared[name]
            return self[name]
        return None

    def get(self, name: str, *default: Any, **kwargs: Any) -> Any:
        """Find the parameter ``prefix + name``, or make it with the given arguments of :class:`Parameter`.

        With a second positional argument, or on the answer of ``collect_params()`` at API level 2, this is
        the ``get`` of any mapping.

        Raises
        ------
        ValueError
            If the parameter exists with other properties.
        """
        if default or (self.structural and not kwargs):
            return super().get(name, *default)
        from regluon.gluon.parameter import Parameter

        full_name = self._prefix + name
        parameter = self._find(full_name)
        if parameter is None:
            parameter = Parameter(full_name, **kwargs)
            self[full_name] = parameter
            return parameter
        for key, value in kwargs.items():
            self._reconcile(parameter, key, value)
        return parameter

    @staticmethod
    def _reconcile(parameter: Parameter, key: str, value: Any) -> None:
        """Check a property asked for against an existing parameter; fill unknown sizes."""
        existing = getattr(parameter, key, None)
        if existing is None:
            setattr(parameter, key, value)
            return
        if value is None or existing == value:
            return
        if key == "shape":
            parameter.shape = value
            return
        if key == "dtype":
            from regluon.base import dtypes

            if dtypes.to_torch(existing) == dtypes.to_torch(value):
                return
        raise ParameterValueError(
            f"Parameter '{parameter.name}' exists with {key}={existing!r}, but {key}={value!r} was asked "
            "for. Shared parameters must agree; use another name or prefix for a parameter of its own."
        )

    def get_constant(self, name: str, value: Any = None) -> Any:
        """Find the constant ``prefix + name``, or make it with ``value``.

        Raises
        ------
        KeyError
            If it does not exist and no value was given.
        ValueError
            If it exists with another value, or is not a constant.
        """
        import numpy as np

        from regluon.gluon.parameter import Constant

        full_name = self._prefix + name
        parameter = self._find(full_name)
        if parameter is None:
            if value is None:
                raise KeyError(f"There is no constant named '{full_name}'; give a value to make one.")
            parameter = Constant(full_name, value)
            self[full_name] = parameter
            return parameter
        if value is not None:
            if not isinstance(parameter, Constant):
                raise ParameterValueError(f"'{full_name}' exists, but it is a Parameter and not a Constant.")
            given = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
            if parameter.value.shape != given.shape or not bool((parameter.value.asnumpy() == given).all()):
                raise ParameterValueError(f"Constant '{full_name}' exists with another value.")
        return parameter

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Take over all parameters of ``other``.

        Raises
        ------
        ValueError
            If a name stands for another parameter here (not at API level 2, where the new one replaces it).
        """
        incoming = dict(other, **more)
        if not self.structural:
            for name, parameter in incoming.items():
                if name in self and self[name] is not parameter:
                    raise ParameterValueError(
                        f"Parameter '{name}' exists here and is not the one that would be added. Give the "
                        "blocks different prefixes, or share the parameter with params=."
                    )
        super().update(incoming)

    # Acting on all parameters ---------------------------------------------------------------------

    def _distinct(self) -> list[Parameter]:
        """Every parameter once, even if several names share it."""
        return list({id(parameter): parameter for parameter in self.values()}.values())

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        *,
        device: Any = None,
    ) -> None:
        """Initialize every parameter; ``init`` (Uniform(0.07)) is for those without an initializer of their
        own."""
        from regluon import initializer

        init = initializer.Uniform() if init is None else init
        if verbose and hasattr(init, "set_verbosity"):
            init.set_verbosity(verbose=verbose)
        for parameter in self._distinct():
            parameter.initialize(None, ctx, init, force_reinit=force_reinit, device=device)

    def zero_grad(self) -> None:
        """Fill all gradients with zeros."""
        for parameter in self._distinct():
            parameter.zero_grad()

    def reset_ctx(self, ctx: Any = None, *, device: Any = None) -> None:
        """Move every parameter to other contexts."""
        for parameter in self._distinct():
            parameter.reset_ctx(ctx, device=device)

    def reset_device(self, device: Any = None, *, ctx: Any = None) -> None:
        """The same as :meth:`reset_ctx`."""
        self.reset_ctx(device if device is not None else ctx)

    def list_ctx(self) -> list[Any]:
        """All contexts that hold some parameter."""
        seen: dict[Any, None] = {}
        for parameter in self._distinct():
            seen.update(dict.fromkeys(parameter.list_ctx()))
        return list(seen)

    list_device = list_ctx

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute on every parameter, such as ``setattr("grad_req", "null")``."""
        for parameter in self._distinct():
            setattr(parameter, name, value)

    # Files ----------------------------------------------------------------------

    def save(self, filename: str, strip_prefix: str = "") -> None:
        """Write all values to a .params file, leaving ``strip_prefix`` off the names.

        Raises
        ------
        ValueError
            If a name does not begin with ``strip_prefix``.
        """
        from regluon import serial

        arrays = {}
        for name, parameter in self.items():
            full_name = name if self.structural else parameter.name
            if not full_name.startswith(strip_prefix):
                raise ParameterValueError(
                    f"Parameter '{full_name}' does not begin with strip_prefix='{strip_prefix}'. Save with "
                    "the block's own prefix, or use Block.save_parameters, whose names need no prefix."
                )
            arrays[full_name[len(strip_prefix) :]] = parameter._reduce()
        serial.save(filename, arrays)

    def load(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
        *,
        device: Any = None,
    ) -> None:
        """Read values from a .params or .npz file; ``restore_prefix`` is put before the names in the file."""
        from regluon import serial

        loaded = serial.load(filename)
        if not isinstance(loaded, dict):
            raise ParameterValueError(
                f"File '{filename}' holds arrays without names; parameters can only be loaded by name."
            )
        self.load_dict(
            loaded,
            ctx if ctx is not None else device,
            allow_missing,
            ignore_extra,
            restore_prefix,
            filename,
            cast_dtype,
            dtype_source,
        )

    def load_dict(
        self,
        param_dict: dict[str, Any],
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Take values from a mapping of names (with or without ``arg:`` and ``aux:``) to arrays.

        Raises
        ------
        ValueError
            If a parameter is missing (unless ``allow_missing``), or a name is unknown (unless
            ``ignore_extra``).
        """
        if restore_prefix:
            for name in self:
                if not name.startswith(restore_prefix):
                    raise ParameterValueError(
                        f"restore_prefix is '{restore_prefix}' but parameter '{name}' does not begin with it."
                    )
        source = f"file '{filename}'" if filename else "the given mapping"
        values = {restore_prefix + _untagged(name): array for name, array in param_dict.items()}
        if not allow_missing:
            missing = [name for name in self if name not in values]
            if missing:
                raise ParameterValueError(
                    f"Parameter {_listed(missing)} is missing in {source}, which holds {_listed(values)}. "
                    "Pass allow_missing=True to keep the present value, or restore_prefix= if a prefix was "
                    "left off."
                )
        extra = [name for name in values if name not in self]
        if extra and not ignore_extra:
            raise ParameterValueError(
                f"Parameter {_listed(extra)} in {source} has no counterpart here; there are {_listed(self)}. "
                "Pass ignore_extra=True to leave it out."
            )
        pairs = [(self[name], array) for name, array in values.items() if name in self]
        load_all(pairs, ctx, cast_dtype, dtype_source)


def _untagged(name: str) -> str:
    """Name without the ``arg:`` or ``aux:`` that exported files carry."""
    return name[4:] if name.startswith(("arg:", "aux:")) else name


def _listed(names: Iterable[str]) -> str:
    """Names for a message: quoted, and not more than fit."""
    shown = [f"'{name}'" for name in names]
    rest = len(shown) - _SHOWN_NAMES
    return ", ".join(shown[:_SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")
