"""Operators written in Python by the user: what `regluon.operator` registers, as operators of the table.

``Custom`` is one name for many operators: which inputs and outputs it has depends on its attributes. For each
call, and for each node of a graph, `specialise` makes a definition of its own, as it has a property object of
its own. The user's code runs at once on the calling thread, neither recorded nor traced, on arrays that share
the operator's memory.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor

from ..base import config, dtypes
from ..base.device import current_context
from ..base.errors import MXNetError
from ..graph.dims import Dim
from ..ops.opdef import OpDef, Spec
from ..ops.params import Parameter
from .autograd import _Scope, _Suspended
from .handles import kinds
from .state import state

__all__ = ["PROPERTIES", "CustomDefinition", "CustomOperatorError", "specialise"]

# The registered property classes by ``op_type``.
PROPERTIES: dict[str, Any] = {}
# Left as they are: nothing about the user's code is wrong.
_PASSED_ON = (RecursionError, MemoryError, torch.OutOfMemoryError)


class CustomOperatorError(MXNetError):
    """Code of a custom operator raised, or gave something that does not fit; the cause is chained."""


class _calling:
    """Names the operator and the method in errors of the user's code.

    A class, since a generator would let a StopIteration pass: `contextlib` takes an error raised from it for
    what Python makes of a StopIteration that leaves a generator.
    """

    __slots__ = ("label", "what")

    def __init__(self, label: str, what: str) -> None:
        self.label, self.what = label, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, _PASSED_ON):
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise CustomOperatorError(f"{self.label}: {self.what} raised {text}") from error


def specialise(attributes: Mapping[str, Any]) -> CustomDefinition:
    """The definition of ``Custom`` with these attributes; those between double underscores are not the
    operator's.

    Raises
    ------
    MXNetError
        If ``op_type`` is missing or not registered, or the property cannot be made.
    """
    texts = {key: _text(value) for key, value in attributes.items() if key[:2] != "__"}
    op_type = texts.get("op_type")
    if not op_type:
        raise MXNetError(
            "Custom needs op_type=..., the name that was given to mx.operator.register; registered are "
            f"{_listed(sorted(PROPERTIES))}"
        )
    found = PROPERTIES.get(op_type)
    label = f"Custom operator {op_type!r}"
    if found is None:
        near = difflib.get_close_matches(op_type, PROPERTIES, n=3)
        raise MXNetError(
            f"{label} is not registered. "
            + (f"Near names: {', '.join(near)}. " if near else f"Registered: {_listed(sorted(PROPERTIES))}. ")
            + "Import the module that registers it with mx.operator.register before it is used or loaded"
        )
    with _calling(label, f"{found.__name__}()"):
        made = found(**{key: value for key, value in texts.items() if key != "op_type"})
    return CustomDefinition(made, label, texts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none"


def _text(value: Any) -> str:
    """An attribute as the string that the property receives, and that a file holds."""
    return value if isinstance(value, str) else str(_plain(value))


def _plain(value: Any) -> Any:
    """Sizes of a trace as the numbers that they are (with a guard on each), NumPy's numbers as Python's."""
    if isinstance(value, Dim):
        return value._known()
    if isinstance(value, numpy.generic):
        return value.item()
    if type(value) in (tuple, list):
        return type(value)(_plain(item) for item in value)
    return value


class Withheld:
    """Stands for an array that backward did not declare to need; any use of it is an error."""

    __slots__ = ("_text",)

    def __init__(self, label: str, name: str) -> None:
        self._text = (
            f"{label}: {name} is not there in backward. It is kept only if declare_backward_dependency names "
            "it; that of CustomOpProp leaves out_grad out with need_top_grad=False"
        )

    def __getattr__(self, name: str) -> Any:
        raise MXNetError(self._text)

    def _refuse(self, *args: Any) -> Any:
        raise MXNetError(self._text)

    __array__ = __getitem__ = __len__ = __bool__ = __neg__ = __iter__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse

    def __repr__(self) -> str:
        return f"<withheld: {self._text}>"


class CustomDefinition(OpDef):
    """A custom operator with its attributes.

    Parameters
    ----------
    prop : object
        The property: lists names, infers shapes and types, creates operators.
    label : str
        How messages call the operator.
    attributes : dict of str to str
        What the node has in a file.
    name : str
        The operator's name in a graph.
    """

    def __init__(self, prop: Any, label: str, attributes: dict[str, str], name: str = "Custom") -> None:
        super().__init__(name, self._run, {"amp": "float32", "opaque": True})
        self.prop, self.label, self.attributes = prop, label, attributes
        self.arguments = self._names("list_arguments")
        self.aux = self._names("list_auxiliary_states")
        self.inputs = (*self.arguments, *self.aux)
        repeated = sorted({name for name in self.inputs if self.inputs.count(name) > 1})
        if repeated:
            raise CustomOperatorError(
                f"{label}: inputs have one name each; {', '.join(repeated)} is repeated"
            )
        self.output_names = self._names("list_outputs")
        if not self.output_names:
            raise CustomOperatorError(f"{label}: list_outputs gave no output")
        self.outputs = len(self.output_names)
        self.variadic = self.plain = False
        self.uses_training = True
        self.optional = self.required = ()
        self.defaults = {}
        self.parameters = {key: _parameter(key) for key in attributes}
        self.infer, self.fill = self._infer, self._fill
        # Where arrays of the calls are, and of which kind: told by the arrays of the call that made this.
        self.context: Any = None
        self.cls: Any = None
        # Operator objects that outlive a call, by what they were created for; None: each call has its own.
        self.kept: dict[Any, Any] | None = None
        self._remembered: tuple[Any, list[Spec]] | None = None
        self._needed: tuple[list[int], list[int], list[int]] | None = None

    def _names(self, method: str) -> tuple[str, ...]:
        with _calling(self.label, method):
            found = tuple(getattr(self.prop, method)())
        for name in found:
            if not isinstance(name, str):
                raise CustomOperatorError(f"{self.label}: {method} must give strings; received {name!r}")
        return found

    def __reduce__(self) -> Any:
        return _restored, (self.attributes, self.cls is not None and self.cls is kinds.np)

    def __copy__(self) -> CustomDefinition:
        return self

    def __deepcopy__(self, memory: Any) -> CustomDefinition:
        return self

    def bound(self, context: Any) -> CustomDefinition:
        """A twin for one executor: its operator objects live as long as it does."""
        twin = type(self)(self.prop, self.label, self.attributes, self.name)
        twin.context, twin.cls, twin.kept = context, self.cls, {}
        return twin

    # Calls ----------------------------------------------------------------------

    def parse(self, given: dict[str, Any]) -> dict[str, Any]:
        """The attributes: strings all of them."""
        return {key: _text(value) for key, value in given.items() if key in self.parameters}

    def arrange(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs of a call in order; None for those that a Symbol makes variables for.

        Raises
        ------
        MXNetError
            For too many inputs, unknown names, or missing arrays.
        """
        takes = f"{self.label} takes the inputs {', '.join(self.inputs) or '(none)'}"
        if len(args) > len(self.inputs):
            raise MXNetError(f"{takes}; received {len(args)}")
        inputs = [*args, *[None] * (len(self.inputs) - len(args))]
        for key, value in named.items():
            if key not in self.inputs:
                raise MXNetError(f"{takes}; received one named {key!r}. Attributes are no arrays")
            place = self.inputs.index(key)
            if inputs[place] is not None:
                raise MXNetError(f"{takes}; received two values for {key}")
            inputs[place] = value
        if not any(isinstance(value, kinds.symbol) for value in inputs):
            missing = [n for n, value in zip(self.inputs, inputs, strict=True) if value is None]
            if missing and (args or named):
                raise MXNetError(f"{takes}; missing: {', '.join(missing)}")
        for value in inputs:
            if isinstance(value, (kinds.np, kinds.np_symbol)):
                self.cls = kinds.np
            if isinstance(value, kinds.nd) and self.context is None:
                self.context = value.context
        if self.cls is None:
            self.cls = kinds.np if config.is_np_array() else kinds.nd
        return inputs

    # Shapes and types ----------------------------------------------------------------------

    def _shapes(self, given: list[list[int]]) -> tuple[list[Any], list[Any], list[Any]]:
        """What ``infer_shape`` gives: shapes of arguments, outputs and auxiliary states."""
        with _calling(self.label, "infer_shape"):
            found = self.prop.infer_shape(given)
            lists = [[_sizes(shape) for shape in group] for group in found]
        return self._counted("infer_shape", "shapes", lists)

    def _counted(self, method: str, what: str, lists: list[Any]) -> tuple[Any, Any, Any]:
        if len(lists) not in (2, 3):
            raise CustomOperatorError(
                f"{self.label}: {method} must return 2 or 3 lists ({what} of the arguments, the outputs and, "
                f"where there are any, the auxiliary states); received {len(lists)}"
            )
        arguments, outputs, auxiliary = [*lists, []][:3]
        for label, group, names in (
            ("arguments", arguments, self.arguments),
            ("outputs", outputs, self.output_names),
            ("auxiliary states", auxiliary, self.aux),
        ):
            if len(group) != len(names):
                raise CustomOperatorError(
                    f"{self.label}: {method} must return {len(names)} {what} for the {label} "
                    f"({', '.join(names) or 'none'}); received {len(group)}"
                )
        return arguments, outputs, auxiliary

    def _fill(self, shapes: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        """Complete shapes of inputs from those that are known; an unknown size is -1, an unknown shape []."""
        count = len(self.arguments)
        given = [[] if shape is None else list(shape) for shape in shapes[:count]]
        try:
            arguments, _, auxiliary = self._shapes(given)
        except CustomOperatorError:
            if all(shape is not None and all(size >= 0 for size in shape) for shape in shapes[:count]):
                raise
            # More may be known later, as when the layers before have their shapes.
            return list(shapes)
        found = [
            None if shape is None and not new else new
            for shape, new in zip(shapes[:count], arguments, strict=False)
        ]
        return [*found, *auxiliary]

    def _infer(self, specs: Sequence[Any], attrs: dict[str, Any]) -> list[Spec]:
        """Shapes and types of the outputs."""
        count = len(self.arguments)
        arguments, outputs, auxiliary = self._shapes([list(spec.shape) for spec in specs[:count]])
        for name, spec, wanted in zip(self.inputs, specs, (*arguments, *auxiliary), strict=True):
            if tuple(spec.shape) != wanted:
                raise CustomOperatorError(
                    f"{self.label}: infer_shape wants shape {wanted} for {name}; received {tuple(spec.shape)}"
                )
        for name, shape in zip(self.output_names, outputs, strict=True):
            if any(size < 0 for size in shape):
                raise CustomOperatorError(
                    f"{self.label}: infer_shape gave shape {shape} for the output {name}, from inputs whose "
                    "shapes are known"
                )
        with _calling(self.label, "infer_type"):
            found = self.prop.infer_type([dtypes.to_numpy(spec.dtype) for spec in specs[:count]])
            lists = [[dtypes.to_torch(dtype) for dtype in group] for group in found]
        if len(lists) == 2:
            lists.append([spec.dtype for spec in specs[count:]])
        types = self._counted("infer_type", "types", lists)[1]
        return [Spec(shape, dtype) for shape, dtype in zip(outputs, types, strict=True)]

    def _specs(self, tensors: Sequence[Tensor]) -> list[Spec]:
        given = [Spec(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        remembered = self._remembered
        if remembered is None or remembered[0] != given:
            remembered = self._remembered = given, self._infer(given, {})
        return remembered[1]

    # Running ----------------------------------------------------------------------

    def _create(self, context: Any, tensors: Sequence[Tensor]) -> Any:
        shapes = [list(tensor.shape) for tensor in tensors]
        flags = [dtypes.TORCH_TO_FLAG.get(tensor.dtype, -1) for tensor in tensors]
        key = str((context, shapes, flags))
        if self.kept is not None and key in self.kept:
            return self.kept[key]
        with _calling(self.label, "create_operator"):
            made = self.prop.create_operator(context, shapes, flags)
        if not callable(getattr(made, "forward", None)) or not callable(getattr(made, "backward", None)):
            raise CustomOperatorError(
                f"{self.label}: create_operator must give a CustomOp; received {type(made).__name__}"
            )
        if self.kept is not None:
            self.kept[key] = made
        return made

    def _place(self, tensors: Sequence[Tensor]) -> Any:
        """The context of a call on these tensors."""
        if not tensors:
            return self.context or current_context()
        if self.context is not None and self.context.torch == tensors[0].device:
            return self.context
        return kinds.nd._wrap(tensors[0]).context

    def _run(self, *tensors: Tensor, _training: bool = False, **attrs: Any) -> Any:
        connected = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        values = [tensor.detach() for tensor in tensors]
        context, specs = self._place(values), self._specs(values)
        call = Call(self, self._create(context, values), context, self._class())
        outputs = call.on_tensors(values, specs, bool(_training))
        if connected:
            outputs = list(_Connect.apply(call, outputs, *tensors))  # type: ignore[no-untyped-call]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run_stored(self, arrays: Sequence[Any], cast: Callable[[Any, str], Any]) -> Any:
        """The outputs for arrays some of which are sparse, with the storage types of ``infer_storage_type``.

        None where that takes dense arrays only. ``cast(array, stype)`` gives an array in a storage type.
        """
        count = len(self.arguments)
        try:
            with _calling(self.label, "infer_storage_type"):
                lists = list(self.prop.infer_storage_type([array.stype for array in arrays[:count]]))
        except CustomOperatorError as error:
            if isinstance(error.__cause__, AssertionError):
                return None
            raise
        wanted, given, _ = self._counted("infer_storage_type", "storage types", lists)
        if {*wanted, *given} == {"default"}:
            return None
        data = [a if a.stype == s else cast(a, s) for a, s in zip(arrays[:count], wanted, strict=True)]
        inputs = [*data, *arrays[count:]]
        specs = self._infer([Spec(tuple(a.shape), dtypes.to_torch(a.dtype)) for a in inputs], {})
        context = inputs[0].context
        call = Call(self, self._create(context, [a._t for a in inputs]), context, kinds.nd)
        results = [cast(zeros, s) for zeros, s in zip(call.zeros(specs), given, strict=True)]
        call.forward(data, results, inputs[count:], state.training)
        return results[0] if len(results) == 1 else results

    def _class(self) -> Any:
        """The kind of the arrays that the user's code sees; a graph from a file goes by the mode."""
        if self.cls is not None:
            return self.cls
        return kinds.np if config.is_np_array() else kinds.nd

    def dependencies(self) -> tuple[list[int], list[int], list[int]]:
        """The places of the output gradients, the arguments and the outputs that backward needs."""
        if self._needed is None:
            count, outputs = len(self.arguments), len(self.output_names)
            numbers = [*range(outputs)], [*range(outputs, outputs + count)]
            last = [*range(outputs + count, 2 * outputs + count)]
            with _calling(self.label, "declare_backward_dependency"):
                needed = set(self.prop.declare_backward_dependency(*map(list, numbers), list(last)))
            self._needed = tuple(  # type: ignore[assignment]
                [place for place, number in enumerate(group) if number in needed]
                for group in (*numbers, last)
            )
        assert self._needed is not None
        return self._needed


def _restored(attributes: dict[str, str], np_kind: bool) -> CustomDefinition:
    definition = specialise(attributes)
    definition.cls = kinds.np if np_kind else None
    return definition


def _parameter(name: str) -> Parameter:
    return Parameter(name, "str", inspect.Parameter.empty, False, None, _text, str)


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(-1 if size is None else int(size) for size in shape)


class Call:
    """One forward of a custom operator, and what its backward needs apart from tensors."""

    __slots__ = ("auxiliary", "cls", "context", "count", "definition", "inputs", "operator", "outputs")

    def __init__(self, definition: CustomDefinition, operator: Any, context: Any, cls: Any) -> None:
        self.definition, self.operator = definition, operator
        self.context, self.cls = context, cls
        self.count = len(definition.arguments)
        self.auxiliary: list[Any] = []
        self.inputs: list[Spec] = []
        self.outputs: list[Spec] = []

    def _arrays(self, tensors: Sequence[Tensor]) -> list[Any]:
        return [self.cls._wrap(tensor, self.context) for tensor in tensors]

    def zeros(self, specs: Sequence[Spec]) -> list[Any]:
        return [self.cls.zeros_on(spec.shape, spec.dtype, self.context) for spec in specs]

    def on_tensors(self, tensors: Sequence[Tensor], specs: list[Spec], training: bool) -> list[Tensor]:
        """The outputs. What the user's code does not write is zero."""
        self.inputs = [Spec(tuple(t.shape), t.dtype) for t in tensors[: self.count]]
        self.outputs = specs
        results = self.zeros(specs)
        states = self._arrays(tensors[self.count :])
        self.forward(self._arrays(tensors[: self.count]), results, states, training)
        return self._checked(results, specs, self.definition.output_names)

    def forward(self, data: list[Any], results: list[Any], states: Sequence[Any], training: bool) -> None:
        """Let the user's code write the results."""
        self.auxiliary = list(states)
        with _user_code(training), _calling(self.definition.label, "forward"):
            self.operator.forward(
                is_train=training,
                req=["write"] * len(results),
                in_data=data,
                out_data=list(results),
                aux=list(self.auxiliary),
            )

    def _checked(self, arrays: list[Any], specs: Sequence[Spec], names: Sequence[str]) -> list[Tensor]:
        """The arrays' tensors: whatever was done to them, shapes and types are the inferred ones."""
        for array, spec, name in zip(arrays, specs, names, strict=True):
            if tuple(array._t.shape) != tuple(spec.shape) or array._t.dtype is not spec.dtype:
                raise CustomOperatorError(
                    f"{self.definition.label}: {name} has shape {tuple(spec.shape)} and type "
                    f"{dtypes.to_name(spec.dtype)}; forward or backward left one of shape "
                    f"{tuple(array._t.shape)} and type {dtypes.to_name(array._t.dtype)} in its place"
                )
        return [array._t for array in arrays]

    def backward(
        self, gradients: Sequence[Tensor], data: Sequence[Any], results: Sequence[Any], wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Gradients of the arguments and None for auxiliary states; withheld tensors are None."""
        definition = self.definition
        found = self.zeros(self.inputs)
        heads = [
            gradient.detach().to(spec.dtype) for gradient, spec in zip(gradients, self.outputs, strict=True)
        ]
        needed = definition.dependencies()[0]
        kept = [head if place in needed else None for place, head in enumerate(heads)]
        with _user_code(True), _calling(definition.label, "backward"):
            self.operator.backward(
                req=["write" if want else "null" for want in wanted[: self.count]],
                out_grad=self._or_withheld(kept, "out_grad"),
                in_data=self._or_withheld(data, "in_data"),
                out_data=self._or_withheld(results, "out_data"),
                in_grad=list(found),
                aux=list(self.auxiliary),
            )
        names = [f"the gradient of {name}" for name in definition.arguments]
        tensors = self._checked(found, self.inputs, names)
        chosen = [tensor if want else None for tensor, want in zip(tensors, wanted, strict=False)]
        return [*chosen, *[None] * len(definition.aux)]

    def _or_withheld(self, tensors: Sequence[Tensor | None], name: str) -> list[Any]:
        return [
            Withheld(self.definition.label, f"{name}[{place}]")
            if tensor is None
            else self.cls._wrap(tensor.detach(), self.context)
            for place, tensor in enumerate(tensors)
        ]


@contextmanager
def _user_code(training: bool) -> Iterator[None]:
    """Neither recorded nor traced by us; torch's own recording is on, for code that uses it inside."""
    with _Suspended(), _Scope(None, training), torch.enable_grad():
        yield


class _Connect(torch.autograd.Function):
    """Connects a call's outputs to its inputs in torch's graph."""

    @staticmethod
    def forward(context: Any, call: Call, outputs: Sequence[Tensor], *handles: Tensor) -> Any:
        context.call = call
        _, arguments, results = call.definition.dependencies()
        context.save_for_backward(
            *(handles[place] if place in arguments else None for place in range(call.count)),
            *(output if place in results else None for place, output in enumerate(outputs)),
        )
        given = [output.view_as(output) for output in outputs]
        context.mark_non_differentiable(*(value for value in given if not value.is_floating_point()))
        return tuple(given)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        call: Call = context.call
        saved = context.saved_tensors
        again = torch.is_grad_enabled()
        found = call.backward(
            gradients, saved[: call.count], saved[call.count :], context.needs_input_grad[2:]
        )
        if again:
            sources = [t for t in (*gradients, *saved) if t is not None and t.requires_grad]
            found = [
                None if value is None else _Once.apply(call.definition.label, value, *sources)  # type: ignore[no-untyped-call]
                for value in found
            ]
        return None, None, *found


class _Once(torch.autograd.Function):
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(context: Any, label: str, value: Tensor, *sources: Tensor) -> Tensor:
        context.label = label
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise MXNetError(
            f"{context.label}: the gradient of its gradient is not known, because backward writes arrays in "
            "place. Write it as an mx.autograd.Function of recorded operators for gradients of higher order"
        )
