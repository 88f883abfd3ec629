"""Types, special points and error texts of the elementwise operators, on torch tensors.

The expected types and values were read off the originals (1.9.1 for legacy operators, 2.0.0b1 for np ones).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regluon.base.errors import MXNetError
from regluon.ops import registry
from regluon.ops.defs.dtype_rules import unify_shapes

registry.load()

NAMES = ("bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64")


def call(name: str, *tensors: torch.Tensor, **attrs: Any) -> torch.Tensor:
    definition = registry.get(name)
    return definition.function(*tensors, **definition.parse(attrs))


def ones(name: str, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (2,), dtype=getattr(torch, name))


@pytest.mark.parametrize("left", NAMES)
@pytest.mark.parametrize("right", NAMES)
def test_np_arithmetic_promotes(left: str, right: str) -> None:
    floats = [name for name in (left, right) if name.startswith("float")]
    if floats:
        expected = max(floats)[:5] + str(max(int(name[5:]) for name in floats))
    else:
        expected = np.promote_types(left, right).name
    lhs, rhs = ones(left), ones(right)
    for name in ("_npi_add", "_npi_multiply", "_npi_power", "_npi_mod"):
        assert call(name, lhs, rhs).dtype == getattr(torch, expected)
    quotient = expected if floats else "float32"
    assert call("_npi_true_divide", lhs, rhs).dtype == getattr(torch, quotient)
    assert call("_npi_equal", lhs, rhs).dtype == torch.bool


def test_zero_dimensional_arrays_promote_like_others() -> None:
    assert call("_npi_add", ones("float32"), torch.ones((), dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("data", "scalar", "is_int", "legacy", "numpy", "quotient"),
    [
        ("float16", 2.5, False, "float16", "float16", "float16"),
        ("float32", 2, True, "float32", "float32", "float32"),
        ("int32", 2, True, "int32", "int32", "float32"),
        ("int32", 2.5, False, "float64", "float64", "float32"),
        ("uint8", 2, True, "uint8", "uint8", "float32"),
        ("bool", 2, True, "int64", "int64", "float32"),
    ],
)
def test_scalar_types(data: str, scalar: float, is_int: bool, legacy: str, numpy: str, quotient: str) -> None:
    given = {"scalar": scalar, "is_int": is_int}
    assert call("_plus_scalar", ones(data), **given).dtype == getattr(torch, legacy)
    assert call("_npi_add_scalar", ones(data), **given).dtype == getattr(torch, numpy)
    assert call("_npi_true_divide_scalar", ones(data), **given).dtype == getattr(torch, quotient)
    assert call("_npi_greater_scalar", ones(data), **given).dtype == torch.bool


def test_legacy_integers_truncate_and_wrap() -> None:
    data = torch.tensor([-3, -1, 0, 2, 5], dtype=torch.int32)
    assert call("_plus_scalar", data, scalar=1.5).tolist() == [-2, 0, 1, 3, 6]
    assert call("_div_scalar", data, scalar=2).tolist() == [-1, 0, 0, 1, 2]
    assert call("_mod_scalar", data, scalar=-2).tolist() == [-1, -1, 0, 0, -1]
    assert call("_power_scalar", data, scalar=2).tolist() == [9, 1, 0, 4, 25]
    assert call("exp", data).tolist() == [0, 0, 1, 7, 148]
    byte = torch.tensor([0, 200, 255], dtype=torch.uint8)
    assert call("_plus_scalar", byte, scalar=1).tolist() == [1, 201, 0]
    assert call("negative", byte).tolist() == [0, 56, 1]
    assert call("clip", byte, a_min=-1, a_max=100).tolist() == [0, 100, 100]


def test_rounding_and_remainder_at_special_points() -> None:
    ties = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert call("rint", ties).tolist() == [-3, -2, -1, 0, 1, 2]
    assert call("round", ties).tolist() == [-3, -2, -1, 1, 2, 3]
    assert call("_npi_around", ties).tolist() == [-2, -2, 0, 0, 2, 2]
    assert call("round", torch.tensor([0.49999997, 8388609.0])).tolist() == [0.0, 8388609.0]
    assert call("rint", torch.tensor([0.49999997, 8388609.0])).tolist() == [0.0, 8388609.0]
    zero = torch.zeros(2)
    assert call("broadcast_mod", torch.tensor([3.0, -3.0]), zero).tolist() == [0, 0]
    assert call("_mod", torch.tensor([5.5]), torch.tensor([-torch.inf])).tolist() == [-torch.inf]
    assert call("sign", torch.tensor([torch.nan])).tolist() == [0]
    assert call("broadcast_maximum", torch.tensor([torch.nan]), torch.ones(1)).isnan().all()
    assert call("_npi_fmax", torch.tensor([torch.nan]), torch.ones(1)).tolist() == [1]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("_maximum", [1.0, 0.0], [0.0, 1.0]),
        ("_minimum", [1.0, 1.0], [0.0, 0.0]),
        ("_npi_fmax", [1, 0], [0, 1]),
    ],
)
def test_a_tie_sends_the_gradient_to_the_left(name: str, left: list[float], right: list[float]) -> None:
    lhs = torch.tensor([2.0, 1.0], requires_grad=True)
    rhs = torch.tensor([2.0, 3.0], requires_grad=True)
    gradients = torch.autograd.grad(call(name, lhs, rhs).sum(), (lhs, rhs))
    assert [g.tolist() for g in gradients] == [left, right]


def test_gradient_rules() -> None:
    data = torch.tensor([-5.0, 0.0, 2.5], requires_grad=True)
    for name, attrs, expected in (
        ("make_loss", {}, [1, 1, 1]),
        ("hard_sigmoid", {}, [0, 0.2, 0]),
        ("_contrib_sign_ste", {}, [3, 3, 3]),
        ("_contrib_round_ste", {}, [3, 3, 3]),
        ("relu", {}, [0, 0, 3]),
        ("abs", {}, [-3, 0, 3]),
        ("_maximum_scalar", {"scalar": 0.0}, [0, 3, 3]),
        ("clip", {"a_min": -5.0, "a_max": 1.0}, [3, 3, 0]),
    ):
        heads = torch.full((3,), 3.0) if name != "hard_sigmoid" else torch.ones(3)
        (gradient,) = torch.autograd.grad(call(name, data, **attrs), data, heads)
        torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float32))


def test_sparse_regularizer_moves_its_average_once_in_backward() -> None:
    data = torch.full((4, 2), 0.5, requires_grad=True)
    average = torch.full((2,), 0.1)
    output = call("IdentityAttachKLSparseReg", data, average, momentum=0.5)
    assert average.tolist() == pytest.approx([0.1, 0.1])
    output.sum().backward()
    assert average.tolist() == pytest.approx([0.3, 0.3])


def test_copies_do_not_share_memory() -> None:
    data = torch.ones(3)
    for name in ("_copy", "_copyto", "_npi_copy", "BlockGrad", "make_loss", "_npi_absolute", "add_n"):
        call(name, data).zero_()
        assert data.tolist() == [1, 1, 1], name
    call("Cast", data, dtype="float32").zero_()
    assert data.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "tensors", "attrs", "text"),
    [
        ("elemwise_add", (ones("float32"), ones("float64")), {}, "same dtype, received float32 and float64"),
        ("elemwise_add", (ones("float32", 2, 3), ones("float32", 3, 2)), {}, "shapes must be equal"),
        ("broadcast_add", (ones("float32", 2, 3), ones("float32", 2, 4)), {}, r"\[2, 3\] and \[2, 4\]"),
        ("_npi_add", (ones("float32", 2, 3), ones("float32", 2, 4)), {}, r"add: operands with shapes"),
        ("_npi_bitwise_and", (ones("float32"), ones("float32")), {}, "integer and boolean arrays"),
        ("_npi_gcd", (ones("int32"), ones("float32")), {}, "received float32"),
        ("_npi_bitwise_left_shift", (ones("bool"), ones("bool")), {}, "boolean"),
        ("_npi_subtract", (ones("bool"), ones("bool")), {}, "subtract"),
        ("add_n", (ones("float32"), ones("float32", 3)), {}, "add_n: all arrays"),
        ("amp_multicast", (ones("float32"),), {"num_outputs": 2}, "num_outputs is 2"),
        ("clip", (ones("float32"),), {"a_min": 1}, "a_max"),
        ("_plus_scalar", (ones("float32"),), {"scalar": "x"}, "scalar"),
        ("_npi_interp", (ones("float32"), ones("float32", 3), ones("float32")), {}, "one length"),
    ],
)
def test_errors_say_what_is_wrong(name: str, tensors: Any, attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(MXNetError, match=text):
        call(name, *tensors, **attrs)


def test_unknown_shapes_unify() -> None:
    assert unify_shapes([(2, 3), None], {}) == [(2, 3), (2, 3)]
    assert unify_shapes([(2, 0), (0, 3)], {}) == [(2, 3), (2, 3)]
    assert unify_shapes([(4, 2, 3), (0, 1)], {}) == [(4, 2, 3), (2, 1)]
    assert unify_shapes([None, None], {}) == [None, None]
