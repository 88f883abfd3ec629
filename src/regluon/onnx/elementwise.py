"""ONNX mappings of elementwise operators and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..graph.node import Node
from ..ops.defs.dtype_rules import scalar_dtype
from ..ops.defs.reduce import reduced_axes
from .emitter import Emitter, Mapping, Unmapped, maps
from .layers import log_sigmoid, mish

__all__: list[str] = []


def _made(node: Node) -> torch.dtype:
    """The type of a node's first output."""
    assert node.specs is not None
    return node.specs[0].dtype


# One array ----------------------------------------------------------------------

# operator (also with the prefix _npi_) -> the one ONNX operator that it is
_UNARY = {
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "_npx_sigmoid": "Sigmoid",
    "sin": "Sin",
    "sinh": "Sinh",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
    "ceil": "Ceil",
    "floor": "Floor",
}
# Those that integers have too.
_ANY_UNARY = {
    "abs": "Abs",
    "_npi_absolute": "Abs",
    "negative": "Neg",
    "relu": "Relu",
    "_npx_relu": "Relu",
    "sign": "Sign",
}
_INTEGERS = (torch.int32, torch.int64)


def _floating(m: Emitter, node: Node, name: str) -> tuple[str, torch.dtype]:
    """The data as real numbers of the result's type.

    Raises Unmapped where the result is an integer.
    """
    have, made = m.spec(node.inputs[0]).dtype, _made(node)
    if not made.is_floating_point:
        raise Unmapped(f"{node.name} computes with {made}, for which it is not mapped to ONNX")
    return m.cast(name, have, made), made


def _define_unary(name: str, kind: str, integers: bool) -> None:
    def mapping(m: Emitter, node: Node, inputs: list[str]) -> str:
        if integers and m.spec(node.inputs[0]).dtype in _INTEGERS:
            return str(m.add(kind, inputs))
        return str(m.add(kind, [_floating(m, node, inputs[0])[0]]))

    maps(name, name if name.startswith("_") else f"_npi_{name}")(mapping)


for _name, _kind in _UNARY.items():
    _define_unary(_name, _kind, False)
for _name, _kind in _ANY_UNARY.items():
    _define_unary(_name, _kind, True)

Formula = Callable[[Emitter, str, Callable[[float], str]], str]


def _towards_zero(m: Emitter, x: str, number: Callable[[float], str]) -> str:
    return str(m.add("Mul", [m.add("Sign", [x]), m.add("Floor", [m.add("Abs", [x])])]))


def _away_from_zero(m: Emitter, x: str, number: Callable[[float], str]) -> str:
    half = m.add("Floor", [m.add("Add", [m.add("Abs", [x]), number(0.5)])])
    return str(m.add("Mul", [m.add("Sign", [x]), half]))


def _scaled(factor: float) -> Formula:
    return lambda m, x, number: str(m.add("Mul", [x, number(factor)]))


def _scaled_log(factor: float) -> Formula:
    return lambda m, x, number: str(m.add("Mul", [m.add("Log", [x]), number(factor)]))


def _cube_root(m: Emitter, x: str, number: Callable[[float], str]) -> str:
    root = m.add("Pow", [m.add("Abs", [x]), number(1 / 3)])
    return str(m.add("Mul", [m.add("Sign", [x]), root]))


_FORMULAS: dict[str, Formula] = {
    "square": lambda m, x, number: str(m.add("Mul", [x, x])),
    "rsqrt": lambda m, x, number: str(m.add("Reciprocal", [m.add("Sqrt", [x])])),
    "expm1": lambda m, x, number: str(m.add("Sub", [m.add("Exp", [x]), number(1.0)])),
    "log1p": lambda m, x, number: str(m.add("Log", [m.add("Add", [x, number(1.0)])])),
    "log2": _scaled_log(1 / math.log(2)),
    "log10": _scaled_log(1 / math.log(10)),
    "degrees": _scaled(180 / math.pi),
    "radians": _scaled(math.pi / 180),
    "cbrt": _cube_root,
    "fix": _towards_zero,
    "trunc": _towards_zero,
    "round": _away_from_zero,
    "rint": lambda m, x, number: str(m.add("Ceil", [m.add("Sub", [x, number(0.5)])])),
    "log_sigmoid": lambda m, x, number: log_sigmoid(m, x),
    "mish": lambda m, x, number: mish(m, x),
}


def _define_formula(name: str, formula: Formula) -> None:
    def mapping(m: Emitter, node: Node, inputs: list[str]) -> str:
        data, made = _floating(m, node, inputs[0])
        return formula(m, data, lambda value: m.constant(value, made))

    maps(name, f"_npi_{name}")(mapping)


for _name, _formula in _FORMULAS.items():
    _define_formula(_name, _formula)


@maps("hard_sigmoid")
def _hard_sigmoid(m: Emitter, node: Node, inputs: list[str]) -> str:
    return str(m.add("HardSigmoid", inputs, alpha=node.full_attrs["alpha"], beta=node.full_attrs["beta"]))


@maps("BlockGrad", "make_loss", "MakeLoss", "_copy", "_npi_copy", "_contrib_gradientmultiplier")
def _identity(m: Emitter, node: Node, inputs: list[str]) -> str:
    return str(m.add("Identity", inputs[:1]))


@maps("Cast", "amp_cast")
def _cast(m: Emitter, node: Node, inputs: list[str]) -> str:
    have, want = m.spec(node.inputs[0]).dtype, _made(node)
    return str(m.add("Identity", inputs)) if have is want else m.cast(inputs[0], have, want)


@maps("clip")
def _clip(m: Emitter, node: Node, inputs: list[str]) -> str:
    dtype = m.spec(node.inputs[0]).dtype
    if not dtype.is_floating_point:
        raise Unmapped(f"clip of {dtype} (node {node.name}) is not mapped to ONNX")
    bounds = [node.full_attrs["a_min"], node.full_attrs["a_max"]]
    return str(m.add("Clip", [*inputs, *("" if b is None else m.constant(b, dtype) for b in bounds)]))


@maps("logical_not", "_npi_logical_not")
def _logical_not(m: Emitter, node: Node, inputs: list[str]) -> str:
    truth = m.cast(inputs[0], m.spec(node.inputs[0]).dtype, torch.bool)
    return m.cast(str(m.add("Not", [truth])), torch.bool, _made(node))


@maps("smooth_l1")
def _smooth_l1(m: Emitter, node: Node, inputs: list[str]) -> str:
    data, dtype = _floating(m, node, inputs[0])
    square = float(node.full_attrs["scalar"]) ** 2
    size = m.add("Abs", [data])
    inner = m.add("Mul", [m.add("Mul", [data, data]), m.constant(0.5 * square, dtype)])
    outer = m.add("Sub", [size, m.constant(0.5 / square, dtype)])
    near = m.add("Less", [size, m.constant(1.0 / square, dtype)])
    return str(m.add("Where", [near, inner, outer]))


# Two arrays, or an array and a number ----------------------------------------------------------------------


def _remainder(m: Emitter, a: str, b: str) -> str:
    """The remainder with the sign of the divisor."""
    whole = m.add("Floor", [m.add("Div", [a, b])])
    return str(m.add("Sub", [a, m.add("Mul", [whole, b])]))


def _hypotenuse(m: Emitter, a: str, b: str) -> str:
    return str(m.add("Sqrt", [m.add("Add", [m.add("Mul", [a, a]), m.add("Mul", [b, b])])]))


def _not_equal(m: Emitter, a: str, b: str) -> str:
    return str(m.add("Not", [m.add("Equal", [a, b])]))


def _one(kind: str) -> Callable[[Emitter, str, str], str]:
    return lambda m, a, b: str(m.add(kind, [a, b]))


class _Binary:
    """A function of two values under its names.

    ``kind`` is "any" (integers too), "real", "compare" (gives booleans) or "logic" (of booleans).
    """

    def __init__(self, function: str | Callable[[Emitter, str, str], str], kind: str, names: str) -> None:
        self.function = _one(function) if isinstance(function, str) else function
        self.kind = kind
        self.names = names.split()


# Names behind a bar are those with a number; an r in front of them exchanges the operands.
_BINARY = (
    _Binary("Add", "any", "elemwise_add broadcast_add _npi_add _grad_add | _plus_scalar _npi_add_scalar"),
    _Binary(
        "Sub",
        "any",
        "elemwise_sub broadcast_sub _npi_subtract | _minus_scalar _npi_subtract_scalar "
        "r:_rminus_scalar r:_npi_rsubtract_scalar",
    ),
    _Binary("Mul", "any", "elemwise_mul broadcast_mul _npi_multiply | _mul_scalar _npi_multiply_scalar"),
    _Binary(
        "Div",
        "real",
        "elemwise_div broadcast_div _npi_true_divide | _div_scalar _npi_true_divide_scalar "
        "r:_rdiv_scalar r:_npi_rtrue_divide_scalar",
    ),
    _Binary(
        "Pow",
        "real",
        "_power broadcast_power _npi_power | _power_scalar _npi_power_scalar "
        "r:_rpower_scalar r:_npi_rpower_scalar",
    ),
    _Binary("Max", "any", "_maximum broadcast_maximum | _maximum_scalar"),
    _Binary("Min", "any", "_minimum broadcast_minimum | _minimum_scalar"),
    _Binary(
        _remainder,
        "real",
        "_mod broadcast_mod _npi_mod | _mod_scalar _npi_mod_scalar r:_rmod_scalar r:_npi_rmod_scalar",
    ),
    _Binary(_hypotenuse, "real", "_hypot broadcast_hypot _npi_hypot | _hypot_scalar"),
    _Binary("Equal", "compare", "_equal broadcast_equal _npi_equal | _equal_scalar _npi_equal_scalar"),
    _Binary(
        _not_equal,
        "compare",
        "_not_equal broadcast_not_equal _npi_not_equal | _not_equal_scalar _npi_not_equal_scalar",
    ),
    _Binary(
        "Greater", "compare", "_greater broadcast_greater _npi_greater | _greater_scalar _npi_greater_scalar"
    ),
    _Binary(
        "GreaterOrEqual",
        "compare",
        "_greater_equal broadcast_greater_equal _npi_greater_equal | "
        "_greater_equal_scalar _npi_greater_equal_scalar",
    ),
    _Binary("Less", "compare", "_lesser broadcast_lesser _npi_less | _lesser_scalar _npi_less_scalar"),
    _Binary(
        "LessOrEqual",
        "compare",
        "_lesser_equal broadcast_lesser_equal _npi_less_equal | _lesser_equal_scalar _npi_less_equal_scalar",
    ),
    _Binary("And", "logic", "_logical_and broadcast_logical_and _npi_logical_and |"),
    _Binary("Or", "logic", "_logical_or broadcast_logical_or _npi_logical_or |"),
    _Binary("Xor", "logic", "_logical_xor broadcast_logical_xor _npi_logical_xor |"),
)


def _checked_type(row: _Binary, node: Node, dtype: torch.dtype) -> torch.dtype:
    if row.kind == "logic":
        return torch.bool
    if dtype.is_floating_point or (dtype in _INTEGERS and row.kind in ("any", "compare")):
        return dtype
    raise Unmapped(f"{node.name} computes with {dtype}, for which it is not mapped to ONNX")


def _of_arrays(row: _Binary) -> Mapping:
    def mapping(m: Emitter, node: Node, inputs: list[str]) -> str:
        left, right = (m.spec(entry).dtype for entry in node.inputs)
        common = torch.promote_types(left, right)
        if row.kind == "real" and _made(node).is_floating_point:
            common = torch.promote_types(common, _made(node))
        common = _checked_type(row, node, common)
        a, b = m.cast(inputs[0], left, common), m.cast(inputs[1], right, common)
        result = row.function(m, a, b)
        return m.cast(result, torch.bool if row.kind in ("compare", "logic") else common, _made(node))

    return mapping


def _of_number(row: _Binary, exchanged: bool) -> Mapping:
    def mapping(m: Emitter, node: Node, inputs: list[str]) -> str:
        have = m.spec(node.inputs[0]).dtype
        attrs = node.full_attrs
        common = scalar_dtype(have, attrs["is_int"])
        if row.kind == "real" and _made(node).is_floating_point:
            common = torch.promote_types(common, _made(node))
        common = _checked_type(row, node, common)
        value = attrs["scalar"]
        number = m.constant(value if common.is_floating_point else int(value), common)
        data = m.cast(inputs[0], have, common)
        result = row.function(m, number, data) if exchanged else row.function(m, data, number)
        return m.cast(result, torch.bool if row.kind == "compare" else common, _made(node))

    return mapping


for _row in _BINARY:
    _bar = _row.names.index("|")
    maps(*_row.names[:_bar])(_of_arrays(_row))
    for _name in _row.names[_bar + 1 :]:
        maps(_name.removeprefix("r:"))(_of_number(_row, _name.startswith("r:")))


@maps("add_n")
def _add_n(m: Emitter, node: Node, inputs: list[str]) -> str:
    return str(m.add("Sum", inputs))


@maps("where", "_npi_where")
def _where(m: Emitter, node: Node, inputs: list[str]) -> str:
    specs = [m.spec(entry) for entry in node.inputs]
    if len(specs[0].shape) < len(specs[1].shape) and node.op is not None and node.op.name == "where":
        raise Unmapped(f"where with a condition of rows (node {node.name}) is not mapped to ONNX")
    condition = m.cast(inputs[0], specs[0].dtype, torch.bool)
    chosen = [m.cast(name, spec.dtype, _made(node)) for name, spec in zip(inputs[1:], specs[1:], strict=True)]
    return str(m.add("Where", [condition, *chosen]))


# Reductions ----------------------------------------------------------------------

_REDUCTIONS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
}


def _reduce(m: Emitter, kind: str, name: str, axes: Sequence[int], keepdims: bool) -> str:
    if not axes:
        return str(m.add("Identity", [name]))
    if kind == "ReduceSum":
        return str(m.add(kind, [name, m.ints(axes)], keepdims=int(keepdims)))
    return str(m.add(kind, [name], axes=list(axes), keepdims=int(keepdims)))


def _axes(m: Emitter, node: Node) -> tuple[int, ...]:
    attrs = node.full_attrs
    rank = len(m.spec(node.inputs[0]).shape)
    if attrs["axis"] == () and node.op is not None and node.op.name.startswith("_npi_"):
        return ()
    return reduced_axes(rank, attrs["axis"], attrs.get("exclude", False), node.name)


def _shaped(m: Emitter, node: Node, name: str, axes: Sequence[int]) -> str:
    """A legacy reduction of everything gives one element along one axis."""
    assert node.specs is not None
    whole = len(axes) == len(m.spec(node.inputs[0]).shape) and not node.full_attrs["keepdims"]
    return m.reshape(name, [1]) if whole and len(node.specs[0].shape) == 1 else name


def _define_reduction(name: str, kind: str) -> None:
    def mapping(m: Emitter, node: Node, inputs: list[str]) -> str:
        if node.full_attrs.get("initial") is not None:
            raise Unmapped(f"a reduction with an initial value (node {node.name}) is not mapped to ONNX")
        have, made = m.spec(node.inputs[0]).dtype, _made(node)
        if not made.is_floating_point and (made not in _INTEGERS or kind == "ReduceMean"):
            raise Unmapped(f"{node.name} computes with {made}, for which it is not mapped to ONNX")
        axes = _axes(m, node)
        data = m.cast(inputs[0], have, made)
        return _shaped(m, node, _reduce(m, kind, data, axes, node.full_attrs["keepdims"]), axes)

    maps(name, f"_npi_{name}")(mapping)


for _name, _kind in _REDUCTIONS.items():
    _define_reduction(_name, _kind)


@maps("norm")
def _norm(m: Emitter, node: Node, inputs: list[str]) -> str:
    data, _ = _floating(m, node, inputs[0])
    axes = _axes(m, node)
    kind = "ReduceL1" if node.full_attrs["ord"] == 1 else "ReduceL2"
    return _shaped(m, node, _reduce(m, kind, data, axes, node.full_attrs["keepdims"]), axes)


@maps("_npi_var", "_npi_std")
def _variance(m: Emitter, node: Node, inputs: list[str]) -> str:
    data, made = _floating(m, node, inputs[0])
    axes = _axes(m, node)
    shape = m.shape(node.inputs[0])
    count = math.prod(shape[axis] for axis in axes) - node.full_attrs["ddof"]
    if any(shape[axis] < 0 for axis in axes) or count <= 0:
        raise Unmapped(f"the number of elements of {node.name} is not known before the call")
    centred = m.add("Sub", [data, _reduce(m, "ReduceMean", data, axes, True)])
    total = _reduce(m, "ReduceSum", str(m.add("Mul", [centred, centred])), axes, node.full_attrs["keepdims"])
    result = m.add("Div", [total, m.constant(count, made)])
    return str(m.add("Sqrt", [result])) if node.op is not None and node.op.name == "_npi_std" else str(result)


@maps("argmax", "argmin", "_npi_argmax", "_npi_argmin")
def _position(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.op is not None
    attrs: dict[str, Any] = node.full_attrs
    if attrs["axis"] is None:
        raise Unmapped(f"{node.op.name} over all axes (node {node.name}) is not mapped to ONNX")
    rank = len(m.spec(node.inputs[0]).shape)
    kind = "ArgMax" if node.op.name.endswith("argmax") else "ArgMin"
    found = m.add(kind, inputs, axis=int(attrs["axis"]) % rank, keepdims=int(attrs["keepdims"]))
    if rank == 1 and not attrs["keepdims"] and node.specs and len(node.specs[0].shape) == 1:
        found = m.reshape(found, [1])
    return m.cast(str(found), torch.int64, _made(node))
