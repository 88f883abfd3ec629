"""Losses against the originals' values (tests/golden/make/gluon_cases.py), and what they promise beyond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.gluon import loss

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "gluon_loss.json").read_text())
VALUES = dict(numpy.load(GOLDEN / "gluon_loss.npz"))
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
ALL = [
    pytest.param(version, case, id=f"{version}-{case['key'].split('/')[1]}-{case['expression']}")
    for version in VERSIONS
    for case in CASES[version]
]


def arguments(version: str, case: dict[str, Any]) -> list[Any]:
    array = mx.nd.array if version == "1.9.1" else mx.np.array
    return [
        None if item is None else array(VALUES[f"{case['key']}/input{place}"])
        for place, item in enumerate(case["inputs"])
    ]


@pytest.mark.parametrize("hybridize", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("version", "case"), ALL)
def test_values_are_the_originals(version: str, case: dict[str, Any], hybridize: bool) -> None:
    mx.set_api(VERSIONS[version])
    function = eval("loss." + case["expression"], {"loss": mx.gluon.loss})
    assert repr(function) == case["repr"]
    if hybridize:
        function.hybridize()
    values = arguments(version, case)
    values[0].attach_grad()
    with mx.autograd.record():
        found = function(*values)
    found.backward()
    assert type(found) is type(values[0])
    expected = VALUES[f"{case['key']}/value"]
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    if f"{case['key']}/grad" in VALUES:
        gradient = VALUES[f"{case['key']}/grad"]
        numpy.testing.assert_allclose(values[0].grad.asnumpy(), gradient, rtol=1e-3, atol=1e-5)


@pytest.fixture(params=[1, 2], ids=["level 1", "level 2"], autouse=True)
def level(request: Any) -> int:
    mx.set_api(request.param)
    return int(request.param)


WEIGHTED = [
    loss.L1Loss, loss.L2Loss, loss.SigmoidBCELoss, loss.HuberLoss, loss.HingeLoss, loss.SquaredHingeLoss,
    loss.LogisticLoss, loss.KLDivLoss,
]  # fmt: skip


@pytest.mark.parametrize("cls", WEIGHTED, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("kind", [mx.nd.array, mx.np.array], ids=["nd", "np"])
def test_sample_weights_scale_every_sample(cls: Any, kind: Any) -> None:
    function = cls()
    pred, label = kind([[0.5, 0.2], [1.5, 0.3], [0.7, 0.9]]), kind([[1.0, 0.5], [1.0, 0.2], [0.1, 1.0]])
    plain = function(pred, label).asnumpy()
    weighted = function(pred, label, kind([[0.0], [1.0], [3.0]])).asnumpy()
    numpy.testing.assert_allclose(weighted, plain * [0, 1, 3], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hybridize", [False, True])
def test_triplet_loss_takes_sample_weights(hybridize: bool) -> None:
    function = loss.TripletLoss()
    if hybridize:
        function.hybridize()
    anchor, near, far = (mx.nd.array(value) for value in ([[0.0], [1.0]], [[1.0], [1.0]], [[0.0], [1.5]]))
    numpy.testing.assert_allclose(function(anchor, near, far).asnumpy(), [2.0, 0.75], rtol=1e-6)
    weights = mx.nd.array([0.5, 2.0])
    numpy.testing.assert_allclose(function(anchor, near, far, weights).asnumpy(), [1.0, 1.5], rtol=1e-6)


def test_cross_entropy_is_that_of_numpy() -> None:
    scores = numpy.random.RandomState(0).randn(4, 5).astype("float32")
    labels = numpy.asarray([0, 3, 4, 1])
    logs = scores - numpy.log(numpy.exp(scores).sum(1, keepdims=True))
    found = loss.SoftmaxCELoss()(mx.nd.array(scores), mx.nd.array(labels, dtype="int64"))
    numpy.testing.assert_allclose(found.asnumpy(), -logs[numpy.arange(4), labels], rtol=1e-5)


def test_sigmoid_loss_is_finite_for_large_scores() -> None:
    found = loss.SigmoidBCELoss()(mx.nd.array([[200.0, -200.0]]), mx.nd.array([[1.0, 1.0]]))
    numpy.testing.assert_allclose(found.asnumpy(), [100.0], rtol=1e-6)


def test_sdml_loss_needs_no_batch_size_in_its_graph() -> None:
    function = loss.SDMLLoss()
    function.hybridize()
    random = numpy.random.RandomState(1)
    for size in (3, 5):
        x, y = (mx.nd.array(random.randn(size, 2)) for _ in range(2))
        expected = loss.SDMLLoss()(x, y)
        numpy.testing.assert_allclose(function(x, y).asnumpy(), expected.asnumpy(), rtol=1e-5)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(
        ValueError, match="Only 'NTC' and 'TNC' layouts for pred are supported; received 'CNT'"
    ):
        loss.CTCLoss("CNT")
    with pytest.raises(ValueError, match="Only 'NT' and 'TN' layouts for label are supported; received 'N'"):
        loss.CTCLoss(label_layout="N")
    with pytest.raises(ValueError, match="label_format can only be signed or binary, received x"):
        loss.LogisticLoss(label_format="x")
    with pytest.raises(TypeError, match="the weight of a loss is a number; received 'a'"):
        loss.L1Loss(weight="a")(mx.nd.ones((1, 1)), mx.nd.ones((1, 1)))  # type: ignore[arg-type]


def test_losses_compose_on_symbols() -> None:
    symbol = loss.L2Loss()(mx.sym.var("pred"), mx.sym.var("label"))
    assert symbol.list_arguments() == ["label", "pred"]


BINARY, SIGNED = [[1, 0, 1], [0, 0, 1]], [[1, -1, 1], [-1, -1, 1]]
TYPED = [
    *[(cls(), BINARY) for cls in (loss.L1Loss, loss.L2Loss, loss.HuberLoss, loss.SigmoidBCELoss)],
    *[(cls(), SIGNED) for cls in (loss.HingeLoss, loss.SquaredHingeLoss, loss.LogisticLoss)],
    (loss.LogisticLoss(label_format="binary"), BINARY),
    (loss.SigmoidBCELoss(from_sigmoid=True), BINARY),
    (loss.SoftmaxCELoss(sparse_label=False), BINARY),
    (loss.KLDivLoss(), BINARY),
    (loss.KLDivLoss(from_logits=False), BINARY),
    (loss.PoissonNLLLoss(), [[1, 3, 2], [4, 100, 1]]),
    (loss.PoissonNLLLoss(compute_full=True), [[1, 3, 2], [4, 100, 1]]),
]


@pytest.mark.parametrize("hybridize", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("label_type", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("pred_type", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("function", "labels"), TYPED, ids=lambda value: str(value)[:24])
def test_integer_labels_leave_the_type_of_the_predictions(
    function: Any, labels: Any, pred_type: str, label_type: str, hybridize: bool
) -> None:
    if numpy.min(labels) < 0 and label_type == "uint8":
        pytest.skip("labels of -1 have a sign")
    function.hybridize(hybridize)
    pred = mx.np.array([[0.5, 0.25, 0.125], [0.75, 0.5, 0.25]], dtype="float32").astype(pred_type)
    label = mx.np.array(labels, dtype=label_type)
    weights = mx.np.array([[1], [3]], dtype=label_type)
    # The same numbers where nothing is rounded, as MXNet 2.0.0b1 computes them (its losses are float32).
    exact = [value.astype("float64") for value in (pred, label, weights)]
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5}[pred_type]
    for count in (2, 3):
        found = function(*(pred, label, weights)[:count])
        assert found.dtype == pred.dtype
        expected = function(*exact[:count]).asnumpy()
        numpy.testing.assert_allclose(found.astype("float64").asnumpy(), expected, rtol=tolerance)


@pytest.mark.parametrize("hybridize", [False, True], ids=["imperative", "hybridized"])
def test_weights_of_np_arrays_may_be_of_another_type(hybridize: bool) -> None:
    # As in both originals; nd arrays have one type in an operation.
    function = loss.SigmoidBCELoss()
    function.hybridize(hybridize)
    pred, label = mx.np.array([[0.5], [1.5]]), mx.np.array([[1.0], [0.0]])
    plain = function(pred, label).asnumpy()
    for kind, result in (("int32", "float32"), ("float16", "float32"), ("float64", "float64")):
        weighted = function(pred, label, mx.np.array([[2], [3]], dtype=kind))
        assert weighted.dtype == result
        numpy.testing.assert_allclose(weighted.asnumpy(), plain * [2, 3], rtol=1e-6)
    x, z, factor = pred.asnumpy(), label.asnumpy(), 3
    expected = (x - x * z + (1 + (factor - 1) * z) * numpy.log1p(numpy.exp(-x)))[:, 0]
    found = function(pred, label, None, mx.np.array([factor], dtype="int32"))
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)
    with pytest.raises(mx.MXNetError, match="must have the same dtype, received float32 and int32"):
        function(pred.as_nd_ndarray(), label.as_nd_ndarray(), mx.nd.array([[2], [3]], dtype="int32"))
