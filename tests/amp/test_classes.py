"""Classes of operators against the lists of the originals, and the lists that users see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regluon import amp
from regluon.base.errors import MXNetError
from regluon.ops import registry

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "amp.json").read_text())

# Where a class is not that of some original, and why.
_PRODUCTS = "a matrix product is as fast in the low precision as the layer that is one"
_NOT_COMPUTED = "it moves elements, and computes nothing"
_MIXED = "data in the low precision, parameters and statistics in float32, as BatchNorm"
_ONE = "one operator here serves the names of another class too"
DEVIATIONS = {
    **dict.fromkeys(("dot", "batch_dot", "_sparse_dot", "_npi_dot"), _PRODUCTS),
    **dict.fromkeys(("_npi_tensordot", "_npi_tensordot_int_axes"), _PRODUCTS),
    **dict.fromkeys(("_linalg_gemm", "_linalg_gemm2", "linalg_gemm", "linalg_gemm2"), _PRODUCTS),
    "Convolution_v1": "it is Convolution",
    "_sparse_FullyConnected": "it is FullyConnected",
    **{
        f"{prefix}{name}": _NOT_COMPUTED
        for prefix in ("_linalg_", "linalg_")
        for name in ("extractdiag", "extracttrian", "makediag", "maketrian")
    },
    "_contrib_SyncBatchNorm": _MIXED,
    "_contrib_calibrate_entropy": "it reads a histogram, whose counts are never in the low precision",
    **dict.fromkeys(("_hypot", "_Hypot", "broadcast_hypot", "_hypot_scalar"), "the originals disagree"),
    **dict.fromkeys(("_add", "_sparse_concat", "_sparse_sinh", "_sparse_sum"), _ONE),
    **{
        f"_npi_{name}_scalar": "it is the operator on two arrays with a number on one side"
        for name in ("copysign", "fmax", "fmin", "fmod", "rcopysign", "rfmod")
    },
}


def different(version: str) -> set[str]:
    found = set()
    for kind, names in GOLDEN[version]["classes"].items():
        wanted = None if kind == "any" else kind
        # Operators that fusion made (_sg_...) are only in files of quantized networks: nothing converts them.
        known = [name for name in names if registry.exists(name) and not name.startswith("_sg_")]
        found.update(name for name in known if registry.get(name).amp != wanted)
    return found


def test_operators_have_the_classes_of_the_originals() -> None:
    found = different("1.9.1") | different("2.0.0beta1")
    assert found == set(DEVIATIONS)


def test_lists_are_about_names_that_exist_and_do_not_overlap() -> None:
    lists = [
        amp.list_lp16_ops("bfloat16"),
        amp.list_fp32_ops("bfloat16"),
        amp.list_widest_type_cast("bfloat16"),
        amp.list_lp16_fp32_ops("bfloat16"),
    ]
    together = [name for names in lists for name in names]
    assert sorted(together) == sorted(set(together)) == registry.list_names()
    assert {"Convolution", "FullyConnected", "RNN", "_npi_matmul"} <= set(lists[0])
    assert {"softmax", "log_softmax", "LayerNorm", "exp", "mean"} <= set(lists[1])


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0beta1"])
def test_conditional_list_is_that_of_the_originals(version: str) -> None:
    assert [list(rule) for rule in amp.list_conditional_fp32_ops("float16")] == GOLDEN[version]["conditional"]


def test_other_lists() -> None:
    # As list_loss_output_functions("float16") and list_lp16_use_fp32_params(bfloat16) of 1.9.1 say.
    assert amp.list_loss_output_functions("float16") == [
        "SoftmaxOutput",
        "LinearRegressionOutput",
        "LogisticRegressionOutput",
        "MAERegressionOutput",
    ]
    assert amp.list_lp16_use_fp32_params("bfloat16")["BatchNorm"] == [
        "",
        "gamma",
        "beta",
        "moving_mean",
        "moving_var",
    ]


def test_only_two_types_have_lists() -> None:
    with pytest.raises(MXNetError, match=r"only float16 or bfloat16 as a target_dtype; received 'float64'"):
        amp.list_lp16_ops("float64")
