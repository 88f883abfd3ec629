"""mx.operator: operators written in Python, for arrays, Symbols and hybridized blocks alike.

Write a `CustomOp` (forward and backward on arrays) and a `CustomOpProp` (names, shapes, types), put
``@register("name")`` over the second, and call ``mx.nd.Custom(..., op_type="name")``, ``mx.sym.Custom``,
``mx.npx.Custom`` or ``F.Custom``. Where the gradient follows from operators that exist, or only arrays are
computed with, `mx.autograd.Function` is less to write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

from .base import dtypes
from .ops import registry
from .ops.params import Parameter
from .runtime.custom import PROPERTIES, CustomDefinition
from .runtime.handles import kinds

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "NDArrayOp",
    "NumpyOp",
    "OperatorArguments",
    "PythonOp",
    "get_all_registered_operators",
    "get_all_registered_operators_grouped",
    "get_operator_arguments",
    "register",
]

_REQUESTS = ("null", "write", "inplace", "add")


class CustomOp:
    """The computation of a custom operator. Override `forward` and, for gradients, `backward`.

    Both write into arrays that they are given, with `assign`; what they do not write is zero. They run on the
    calling thread, without being recorded or traced: any Python may stand in them.
    """

    def forward(
        self,
        is_train: bool,
        req: list[str],
        in_data: list[Any],
        out_data: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the outputs.

        Parameters
        ----------
        is_train : bool
            Whether this is a call in train mode.
        req : list of str
            For each output, how it is to be written; hand it on to `assign`.
        in_data, out_data : list of arrays
            The arguments, and arrays for the outputs. They are ``mx.np`` arrays where the operator was called
            on such, ``mx.nd`` arrays elsewhere.
        aux : list of arrays
            The auxiliary states, which may be written to.
        """

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        """Compute the gradients of the arguments.

        Parameters
        ----------
        req : list of str
            For each argument, how its gradient is to be written; ``"null"`` where none is wanted.
        out_grad : list of arrays
            The gradients of the outputs, zeros for outputs that nothing uses.
        in_data, out_data, aux : list of arrays
            As in `forward`, after it. What `CustomOpProp.declare_backward_dependency` leaves out of
            ``out_grad``, ``in_data`` and ``out_data`` cannot be used.
        in_grad : list of arrays
            Arrays for the gradients.
        """

    def assign(self, dst: Any, req: str, src: Any) -> None:
        """Write ``src`` (an array of either kind, of NumPy, or a number) into ``dst`` as ``req`` says.

        ``"write"`` and ``"inplace"`` overwrite, ``"add"`` adds, ``"null"`` does nothing.

        Raises
        ------
        ValueError
            For another request, or when ``src`` does not broadcast to the shape of ``dst``.
        """
        if req not in _REQUESTS:
            raise ValueError(f"assign: a request is one of {', '.join(_REQUESTS)}; received {req!r}")
        if req == "null":
            return
        place = slice(None) if dst.ndim else ()
        before = dst.copy() if req == "add" else None
        dst[place] = src
        if before is not None:
            dst[place] += before


class CustomOpProp:
    """What the system asks of a custom operator. Override what differs from the defaults, and
    `create_operator`.

    The keywords of a call reach ``__init__`` as strings: ``Custom(x, op_type="scale", factor=2)`` makes the
    property with ``factor="2"``.

    Parameters
    ----------
    need_top_grad : bool
        Whether `CustomOp.backward` uses ``out_grad``; False for losses, whose gradient starts at them.
    """

    need_top_grad_ = True

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """Shapes from the arguments' shapes (lists of sizes; before all is known ``[]`` and -1 may stand for
        unknown ones).

        Returns
        -------
        two or three lists
            Shapes of the arguments, the outputs and, where there are any, the auxiliary states. A shape
            that the arguments have here is what an unknown one becomes.
        """
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """Types from the arguments' types (NumPy's); two or three lists as for `infer_shape`."""
        return (
            in_type,
            [in_type[0]] * len(self.list_outputs()),
            [in_type[0]] * len(self.list_auxiliary_states()),
        )

    def infer_storage_type(self, in_stype: list[str]) -> Any:
        """Storage types of the arguments, the outputs and the auxiliary states, from the first.

        Override it to receive sparse arrays in ``forward``; without that, they are made dense before.

        Raises
        ------
        AssertionError
            For a storage type other than ``"default"``.
        """
        self._refuse_sparse("in_stype", in_stype)
        outputs, states = len(self.list_outputs()), len(self.list_auxiliary_states())
        return in_stype, ["default"] * outputs, ["default"] * states

    def infer_storage_type_backward(
        self,
        ograd_stype: list[str],
        in_stype: list[str],
        out_stype: list[str],
        igrad_stype: list[str],
        aux_stype: list[str],
    ) -> Any:
        """Storage types of the five groups of arrays of ``backward``: dense, all of them.

        Raises
        ------
        AssertionError
            For a storage type other than ``"default"``.
        """
        groups = (ograd_stype, in_stype, out_stype, igrad_stype, aux_stype)
        names = ("ograd_stype", "in_stype", "out_stype", "igrad_stype", "aux_stype")
        for name, group in zip(names, groups, strict=True):
            self._refuse_sparse(name, [kind for kind in group if kind != "undefined"])
        return tuple(["default"] * len(group) for group in groups)

    @staticmethod
    def _refuse_sparse(name: str, kinds_given: Sequence[str]) -> None:
        for place, kind in enumerate(kinds_given):
            if kind != "default":
                raise AssertionError(
                    f"the default storage type inference takes dense arrays; {name}[{place}] is {kind!r}. "
                    "Override infer_storage_type (and infer_storage_type_backward) to take sparse ones"
                )

    def list_arguments(self) -> list[str]:
        """Names of the arguments."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the auxiliary states: arrays without a gradient that ``forward`` may write to."""
        return []

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """Which arrays ``backward`` uses, as those of the given numbers; the others are not kept for it."""
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

    def create_operator(self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]) -> Any:
        """The `CustomOp`: one for each call, of an executor one for its life.

        Parameters
        ----------
        ctx : Context
            The device of the call.
        in_shapes, in_dtypes : list
            Shapes and type numbers (0 is float32) of the arguments and then the auxiliary states.
        """
        return CustomOp()


def register(reg_name: str) -> Callable[[Any], Any]:
    """A decorator that registers a `CustomOpProp` class as the operator ``op_type=reg_name``.

    A later class of the same name takes the place of an earlier one.

    Raises
    ------
    TypeError
        If the name is no string, or what is decorated is no subclass of `CustomOpProp`.
    """
    if not isinstance(reg_name, str) or not reg_name:
        raise TypeError(
            f'register takes the name of the operator: @mx.operator.register("name"); received {reg_name!r}'
        )

    def put(prop_class: Any) -> Any:
        if not (isinstance(prop_class, type) and issubclass(prop_class, CustomOpProp)):
            raise TypeError(
                f"register({reg_name!r}) decorates a subclass of mx.operator.CustomOpProp; received "
                f"{getattr(prop_class, '__name__', prop_class)!r}"
            )
        before = PROPERTIES.get(reg_name)
        if before is not None and _origin(before) != _origin(prop_class):
            logging.getLogger("regluon").warning(
                "The custom operator %r of %s is replaced by that of %s.",
                reg_name,
                ".".join(_origin(before)),
                ".".join(_origin(prop_class)),
            )
        PROPERTIES[reg_name] = prop_class
        return prop_class

    return put


def _origin(cls: Any) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


# What operators there are ----------------------------------------------------------------------


class OperatorArguments(NamedTuple):
    """The arguments of an operator: how many, their names, and their types in MXNet's words."""

    narg: int
    names: list[str]
    types: list[str]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, aliases included."""
    return registry.list_names()


def get_all_registered_operators_grouped() -> dict[str, list[str]]:
    """For each operator, all its names in order."""
    return {op.name: sorted({op.name, *op.aliases}) for op in registry.all_definitions()}


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """The inputs and attributes of an operator.

    Raises
    ------
    MXNetError
        If there is no operator of that name; the message names the nearest.
    """
    definition = registry.get(op_name)
    names, types = [], []
    for name in definition.inputs:
        names.append(name)
        many = definition.variadic and name == definition.inputs[-1]
        types.append(f"NDArray-or-Symbol{'[]' if many else ''}")
    for parameter in definition.parameters.values():
        names.append(parameter.name)
        types.append(_described(parameter))
    return OperatorArguments(len(names), names, types)


_KINDS = {
    "bool": "boolean",
    "str": "string",
    "tuple of int": "Shape(tuple)",
    "tuple of float": "tuple of <float>",
    "dtype": "string",
}


def _described(parameter: Parameter) -> str:
    """An attribute in MXNet's words: type, whether it is required, default."""
    if parameter.choices is not None:
        kind = "{" + ", ".join(map(repr, sorted(map(str, parameter.choices)))) + "}"
    else:
        kind = _KINDS.get(parameter.kind, parameter.kind)
    if parameter.required:
        return kind if kind == "string" else f"{kind}, required"
    default = parameter.default
    if isinstance(default, bool):
        return f"{kind}, optional, default={int(default)}"
    text = parameter.write(default)
    return f"{kind}, optional, default={repr(text) if isinstance(default, str) else text}"


# The first form of custom operators ----------------------------------------------------------------------


class PythonOp:
    """Base of `NumpyOp` and `NDArrayOp`, which come from before `CustomOp` and make Symbols only.

    Parameters
    ----------
    need_top_grad : bool
        Whether ``backward`` uses ``out_grad``.
    """

    _operator = ""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """A Symbol of this operator on Symbols, given in order or by name, with ``name=`` for its node."""
        if not self._operator:
            raise NotImplementedError(
                f"{type(self).__name__} is no operator by itself: derive from NumpyOp or NDArrayOp"
            )
        name = kwargs.pop("name", None)
        definition = _LegacyDefinition(
            _LegacyProperty(self), f"custom operator {type(self).__name__}", {}, self._operator
        )
        inputs = definition.arrange(args, kwargs)
        return kinds.symbol._compose(definition, inputs, {}, name, None, self._operator)

    def forward(self, in_data: list[Any], out_data: list[Any]) -> None:
        """Write the outputs; by default the first is the first argument."""
        out_data[0][:] = in_data[0]

    def backward(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> None:
        """Write the gradients of the arguments; by default that of the first is one."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """Shapes of the arguments and of the outputs."""
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_arguments(self) -> list[str]:
        """Names of the arguments."""
        return ["data"]

    def need_top_grad(self) -> bool:
        """Whether ``backward`` uses ``out_grad``."""
        return self.need_top_grad_

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """Which arrays ``backward`` uses, as those of the given numbers."""
        return [*(out_grad if self.need_top_grad() else []), *in_data, *out_data]


class NumpyOp(PythonOp):
    """An operator on NumPy arrays, which ``forward`` and ``backward`` write into."""

    _operator = "_Native"


class NDArrayOp(PythonOp):
    """An operator on arrays, which ``forward`` and ``backward`` write into."""

    _operator = "_NDArray"


class _LegacyDefinition(CustomDefinition):
    """A custom operator that is an object, not a name: no file can hold it."""

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.label} cannot be pickled: register a CustomOpProp instead, which has a name")


class _LegacyProperty(CustomOpProp):
    """An object of the first form as a property that gives one operator."""

    def __init__(self, legacy: PythonOp) -> None:
        super().__init__(legacy.need_top_grad())
        self.legacy = legacy
        self.list_arguments = legacy.list_arguments  # type: ignore[method-assign]
        self.list_outputs = legacy.list_outputs  # type: ignore[method-assign]
        self.infer_shape = legacy.infer_shape  # type: ignore[method-assign]
        self.declare_backward_dependency = legacy.declare_backward_dependency  # type: ignore[method-assign]

    def create_operator(self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]) -> Any:
        cls = _OnNumpy if isinstance(self.legacy, NumpyOp) else _OnArrays
        return cls(self.legacy)


class _OnArrays(CustomOp):
    def __init__(self, legacy: PythonOp) -> None:
        self.legacy = legacy

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.legacy.forward(in_data=in_data, out_data=out_data)

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        self.legacy.backward(out_grad=out_grad, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _OnNumpy(_OnArrays):
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        with _hosted(out_data) as results:
            self.legacy.forward(in_data=_host(in_data), out_data=results)

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        given = _host(out_grad) if self.legacy.need_top_grad() else out_grad
        with _hosted(in_grad) as results:
            self.legacy.backward(
                out_grad=given, in_data=_host(in_data), out_data=_host(out_data), in_grad=results
            )


def _host(arrays: Sequence[Any]) -> list[Any]:
    """The arrays' values; an array that backward did not declare stays the placeholder that it is."""
    return [array.asnumpy() if isinstance(array, kinds.nd) else array for array in arrays]


class _hosted:
    """NumPy arrays to write to, whose values are then written into the arrays."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = arrays

    def __enter__(self) -> list[numpy.ndarray[Any, Any]]:
        self.results = [numpy.zeros(a.shape, dtypes.to_numpy(a.dtype)) for a in self.arrays]
        return self.results

    def __exit__(self, kind: Any, *exception: object) -> None:
        if kind is None:
            for array, result in zip(self.arrays, self.results, strict=True):
                array[:] = result
