"""Names and order of the arguments of mx.np and mx.npx: those that the originals' signatures show."""

from __future__ import annotations

import ast
import inspect
import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx

SIGNATURES = json.loads((Path(__file__).parents[1] / "golden" / "np_signatures.json").read_text())
# Arguments that are not taken, each with its reason.
LEFT_OUT = {
    ("numpy", "iinfo", "dtype"): "NumPy's own class, whose argument is by position",
    ("numpy", "std", "correction"): "understood, shown as ddof",
    ("numpy", "var", "correction"): "understood, shown as ddof",
    ("numpy", "sum", "where"): "True and None are understood, others refused",
    ("numpy", "argsort", "kind"): "2.0 has stable instead",
    ("numpy", "argsort", "order"): "2.0 has none",
    ("numpy", "sort", "kind"): "2.0 has stable instead",
    ("numpy", "sort", "order"): "2.0 has none",
    ("numpy_extension", "one_hot", "indices"): "understood, shown as data",
    ("numpy_extension", "batch_norm", "data"): "understood, shown as x",
    ("numpy_extension", "batch_norm", "moving_mean"): "understood, shown as running_mean",
    ("numpy_extension", "batch_norm", "moving_var"): "understood, shown as running_var",
    ("numpy_extension", "fully_connected", "data"): "understood, shown as x",
    ("numpy_extension", "batch_dot", "lhs"): "understood, shown as a",
    ("numpy_extension", "batch_dot", "rhs"): "understood, shown as b",
    ("numpy_extension", "nonzero", "x"): "understood, shown as a",
    ("numpy_extension", "quantized_pooling", "output_size"): "the operator of 1.9.1 has none",
    ("numpy_extension.random", "categorical", "name"): "Symbols of mx.sym.npx take it",
    ("numpy_extension.random", "multinomial", "name"): "Symbols of mx.sym.npx take it",
}
# Functions whose order is another than in 2.0.
ORDERED_ELSEHOW = {
    ("numpy_extension.image", "random_resized_crop"): "the operator has more attributes, before out",
    ("numpy.random", "seed"): "1.x has ctx second, and both say where",
}
NOT_BUILT = {"check_call", "requantize"}


def parsed(text: str, keywords: bool = True) -> list[str]:
    """The arguments that a signature shows, without ``*args`` and ``**kwargs``."""
    arguments = ast.parse(f"def f{text}: pass").body[0].args  # type: ignore[attr-defined]
    by_keyword = arguments.kwonlyargs if keywords else []
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *by_keyword)]


def functions(version: str) -> Iterator[tuple[str, str, list[str]]]:
    for place, found in SIGNATURES[version].items():
        for name, text in found.items():
            yield place, name, parsed(text)


def ours(place: str, name: str) -> Any:
    try:
        return operator.attrgetter(f"{place}.{name}")(mx)
    except AttributeError:
        return None


@pytest.mark.parametrize("version", SIGNATURES)
def test_every_argument_of_an_original_is_known(version: str) -> None:
    unknown, seen = [], 0
    for place, name, wanted in functions(version):
        function = ours(place, name)
        if function is None:
            continue
        known = inspect.signature(function).parameters
        seen += 1
        unknown += [
            f"{place}.{name}({argument}=)"
            for argument in wanted
            if argument not in known and (place, name, argument) not in LEFT_OUT
        ]
    assert not unknown
    assert seen > 250


def test_arguments_by_position_mean_what_they_mean_in_2_0() -> None:
    wrong = []
    for place, name, _ in functions("2.0.0b1"):
        function = ours(place, name)
        if function is None or (place, name) in ORDERED_ELSEHOW:
            continue
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        known = [key for key, p in inspect.signature(function).parameters.items() if p.kind in kinds]
        wanted = [
            "ddof" if argument == "correction" else argument
            for argument in parsed(SIGNATURES["2.0.0b1"][place][name], keywords=False)
            if (place, name, argument) not in LEFT_OUT or argument == "correction"
        ]
        if known[: len(wanted)] != wanted:
            wrong.append(f"{place}.{name}{tuple(wanted)}: {known}")
    assert not wrong


ARGUMENTS = {name: parsed(text) for name, text in SIGNATURES["2.0.0b1"]["numpy"].items()}
BINARY = [name for name, found in ARGUMENTS.items() if found[:3] == ["x1", "x2", "out"]]
UNARY = [name for name, found in ARGUMENTS.items() if found[:2] == ["x", "out"]]
REDUCTIONS = [
    name
    for name, found in ARGUMENTS.items()
    if found[:2] == ["a", "axis"] and {"axis", "keepdims", "out"} <= {*found}
]
OTHER_NAMES = {
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "power",
    "product": "prod",
    "sometrue": "any",
    "round_": "round",
}
WHOLE = ("bitwise", "gcd", "lcm", "invert", "left_shift", "right_shift")


def reference(name: str) -> Any:
    return getattr(numpy, OTHER_NAMES.get(name, name))


def operand(name: str, values: list[float]) -> Any:
    """An array that the function takes, as NumPy's: whole numbers for bits, values above 1 for arccosh."""
    kind = "int32" if any(word in name for word in WHOLE) else "float32"
    if name in ("arccosh", "acosh"):
        values = [value + 1 for value in values]
    return numpy.array([round(value * 4) for value in values] if kind == "int32" else values, kind)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands_by_keyword(name: str) -> None:
    a, b = operand(name, [0.25, 0.5, 0.75]), operand(name, [0.5, 0.5, 0.25])
    if name == "ldexp":
        b = b.astype("int32")
    function, wanted = getattr(mx.np, name), reference(name)(a, b)
    first, second = mx.np.array(a, dtype=a.dtype), mx.np.array(b, dtype=b.dtype)
    numpy.testing.assert_allclose(function(x1=first, x2=second).asnumpy(), wanted, rtol=1e-5)
    numpy.testing.assert_allclose(function(first, x2=second).asnumpy(), wanted, rtol=1e-5)
    out = mx.np.zeros((3,), dtype=function(first, second).dtype)
    assert function(first, second, out) is out
    numpy.testing.assert_allclose(out.asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", UNARY)
def test_one_operand_by_keyword(name: str) -> None:
    a = operand(name, [0.25, 0.5, 0.75])
    function, wanted = getattr(mx.np, name), reference(name)(a)
    array = mx.np.array(a, dtype=a.dtype)
    numpy.testing.assert_allclose(function(x=array).asnumpy(), wanted, rtol=1e-5)
    out = mx.np.zeros((3,), dtype=function(array).dtype)
    assert function(array, out) is out
    numpy.testing.assert_allclose(out.asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_by_keyword_and_by_position(name: str) -> None:
    values = numpy.array([[1.0, 2.5], [3.0, -4.0], [0.5, 2.0]], "float32")
    array, function = mx.np.array(values), getattr(mx.np, name)
    wanted = reference(name)(values, axis=0, keepdims=True)
    numpy.testing.assert_allclose(function(a=array, axis=0, keepdims=True).asnumpy(), wanted, rtol=1e-6)
    order = ARGUMENTS[name]
    chosen = {"a": array, "axis": 0, "keepdims": True, "correction": 0}
    given = [chosen.get(argument) for argument in order[: order.index("keepdims") + 1]]
    numpy.testing.assert_allclose(function(*given).asnumpy(), wanted, rtol=1e-6)


def test_names_of_the_operators_are_understood_too() -> None:
    a = mx.np.array([1.0, 2.0])
    assert mx.np.add(lhs=a, rhs=a).asnumpy().tolist() == [2, 4]
    assert mx.np.all(data=a).item() is True
    assert mx.npx.one_hot(indices=mx.np.array([1.0]), depth=2).asnumpy().tolist() == [[0, 1]]
    assert mx.np.std(a, correction=1).item() == pytest.approx(numpy.std([1.0, 2.0], ddof=1))


def test_functions_of_npx_as_2_0_calls_them() -> None:
    x, weight = mx.np.array([[1.0, 2.0], [3.0, 4.0]]), mx.np.array([[1.0, 1.0], [0.0, 2.0]])
    plain = x.asnumpy() @ weight.asnumpy().T
    assert mx.npx.fully_connected(x=x, weight=weight, num_hidden=2).asnumpy().tolist() == plain.tolist()
    biased = mx.npx.fully_connected(x, weight, mx.np.array([1.0, 2.0]), 2, False)
    assert biased.asnumpy().tolist() == (plain + numpy.array([1, 2])).tolist()
    image = x.reshape(1, 1, 2, 2)
    assert mx.npx.pooling(image, (2, 2), (1, 1), (0, 0), "avg").item() == 2.5
    picked = mx.npx.pick(x, mx.np.array([0, 1]), 1, "clip", True)
    assert picked.asnumpy().tolist() == [[1], [4]]
    shares = numpy.exp(x.asnumpy() / 2)
    shares = numpy.log(shares / shares.sum(1, keepdims=True))
    numpy.testing.assert_allclose(mx.npx.log_softmax(x, -1, None, 2.0).asnumpy(), shares, rtol=1e-5)
    assert mx.npx.activation(mx.np.array([-1.0, 2.0])).asnumpy().tolist() == [0, 2]
    filters = mx.np.ones((1, 1, 2, 2))
    assert mx.npx.convolution(image, filters, kernel=(2, 2), num_filter=1).item() == 10
    normal = mx.npx.batch_norm(
        x=x,
        gamma=mx.np.ones(2),
        beta=mx.np.zeros(2),
        running_mean=mx.np.array([1.0, 2.0]),
        running_var=mx.np.ones(2),
        eps=1e-5,
    )
    numpy.testing.assert_allclose(normal.asnumpy(), [[0, 0], [2, 2]], rtol=1e-4)


def test_mistakes_say_what_the_function_takes() -> None:
    a = mx.np.array([1.0, 2.0])
    with pytest.raises(TypeError, match=r"add\(\) takes at most 4 positional arguments|x1, x2, out"):
        mx.np.add(a, a, None, None, None)
    with pytest.raises(TypeError, match=r"add\(\) got two values for x1"):
        mx.np.add(a, x1=a)
    with pytest.raises(TypeError, match=r"sum\(\) got two values for axis"):
        mx.np.sum(a, 0, axis=0)
    with pytest.raises(ValueError, match=r"sum\(\) takes where=True only; received where=ndarray.*np.where"):
        mx.np.sum(a, where=a > 1)
    assert mx.np.sum(a, where=True).item() == 3


def test_symbols_of_the_numpy_kind_take_names_and_attributes() -> None:
    x = mx.sym.var("x").as_np_ndarray()
    np, npx = mx.sym.np, mx.sym.npx
    named = {
        "made_of_one": np.sum(x, axis=0, name="made_of_one"),
        "with_a_number": np.add(x, 1, name="with_a_number"),
        "of_several": np.stack([x, x], name="of_several"),
        "deeper": np.linalg.norm(x, name="deeper"),
        "extension": npx.relu(x, name="extension"),
    }
    assert {name: symbol.name for name, symbol in named.items()} == {name: name for name in named}
    assert np.stack([x, x], name="s", attr={"kind": "mine"}).attr_dict()["s"]["__kind__"] == "mine"
    assert np.sum(x, name="s", attr={"kind": "mine"}).attr_dict()["s"]["__kind__"] == "mine"
    value = np.stack([x, x], name="s").eval(x=mx.np.array([1.0, 2.0]))[0]
    assert value.asnumpy().tolist() == [[1, 2], [1, 2]]
    assert mx.nd.np.stack([mx.np.ones(1)] * 2, name="s").shape == (2, 1)
    assert np.pi == numpy.pi and "stack" in dir(np)
