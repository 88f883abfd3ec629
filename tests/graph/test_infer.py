"""Inference over graphs: what MXNet infers forward and backward, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.errors import MXNetError

S = mx.sym


def partial(symbol: Any, **known: Any) -> Any:
    return symbol.infer_shape_partial(**known)


def test_partial_shapes_tell_more_than_the_original_says() -> None:
    # MXNet gives up on a whole shape where one size is unknown; the known sizes follow from the rules.
    assert partial(S.flatten(S.var("a")), a=(0, 3, 4))[1] == [(0, 12)]
    assert partial(S.flatten(S.var("a")), a=(2, 0, 4))[1] == [(2, 0)]
    assert partial(S.concat(S.var("a"), S.var("b"), dim=1), a=(2, 3))[:2] == ([(2, 3), (2, 0)], [(2, 0)])


@pytest.mark.parametrize(
    ("build", "known", "expected"),
    [
        (lambda x: S.sqrt(S.sin(x)), (2, 3), (2, 3)),
        (lambda x: S.softmax(x * 2 - 1), (2, 3), (2, 3)),
        (lambda x: S.clip(S.LeakyReLU(x), 0, 1), (4, 1), (4, 1)),
        (lambda x: S.Dropout(x, p=0.5), (4, 5), (4, 5)),
        (lambda x: S.broadcast_add(x, S.ones((1, 3))), (2, 3), ()),
        (lambda x: S.reshape(x, shape=(6,)), (6,), ()),
        (lambda x: S.transpose(x), (2, 3), ()),
        (lambda x: S.sum(x, axis=0), (2, 3), ()),
    ],
    ids=["unary", "scalars", "attributes", "dropout", "broadcast", "reshape", "transpose", "reduction"],
)
def test_backward_goes_through_what_keeps_the_shape_only(build: Any, known: Any, expected: Any) -> None:
    arguments, outputs, _ = partial(build(S.var("x")) + S.var("y"), y=known)
    assert arguments[0] == expected
    assert outputs == [known]


def test_backward_meets_forward() -> None:
    both = S.relu(S.var("a")) + S.FullyConnected(S.var("d"), num_hidden=3, name="fc")
    assert both.infer_shape(d=(2, 5)) == ([(2, 3), (2, 5), (3, 5), (3,)], [(2, 3)], [])
    assert partial(both, a=(7, 0), d=(0, 5)) == ([(7, 3), (7, 5), (3, 5), (3,)], [(7, 3)], [])


def test_labels_are_not_taken_for_data() -> None:
    # Labels of classes have another shape than data; probabilities as labels have the same.
    symbol = S.SoftmaxOutput(S.Flatten(S.FullyConnected(S.var("d"), num_hidden=3, name="fc")), name="s")
    again = S.relu(symbol) + S.ones((2, 3))
    assert again.infer_shape(d=(2, 5), s_label=(2,))[0] == [(2, 5), (3, 5), (3,), (2,)]
    assert partial(again, s_label=(2,))[0][-1] == (2,)


def test_contradictions_name_the_node() -> None:
    with pytest.raises(MXNetError, match=r"weight.*\(2, 4\).*\(3, 5\).*in node fc"):
        S.FullyConnected(S.var("data"), num_hidden=3, name="fc").infer_shape(data=(2, 4), fc_weight=(3, 5))
    with pytest.raises(MXNetError, match="in node both"):
        S.elemwise_add(S.var("a"), S.var("b"), name="both").infer_shape(a=(2, 3), b=(2, 4))
    product = S.dot(S.var("a"), S.var("w"), name="product")
    later = S.Group([S.relu(product) + S.var("y"), S.relu(product.get_inputs()[1]) + S.var("v")])
    with pytest.raises(MXNetError, match=r"product_output has shape \(2, 5\).*\(9, 9\).*in node product"):
        later.infer_shape(a=(2, 3), v=(3, 5), y=(9, 9))


def test_an_operator_whose_shape_depends_on_values_stays_unknown() -> None:
    symbol = S.contrib.boolean_mask(S.var("a"), S.var("m")) * 2
    assert symbol.has_dynamic_shape_op()
    assert partial(symbol, a=(3, 2), m=(3,))[1] == [()]


def test_np_shape_takes_zero_for_a_size_and_minus_one_for_unknown() -> None:
    dense = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    with mx.util.np_shape(True):
        assert dense.infer_shape(data=(0, 4)) == ([(0, 4), (3, 4), (3,)], [(0, 3)], [])
        assert partial(dense, data=(-1, 4)) == ([(-1, 4), (3, 4), (3,)], [(-1, 3)], [])
        assert partial(dense) == ([None, None, None], [None], [])
        assert (S.var("a") + S.var("b")).infer_shape(a=()) == ([(), ()], [()], [])
        with pytest.warns(UserWarning, match=r"Cannot decide shape.*\n\tdata: \(-1, 4\)"):
            assert dense.infer_shape(data=(-1, 4)) == (None, None, None)
    with pytest.warns(UserWarning, match=r"0s in shape means unknown dimensions.*\n\tdata: \(0, 4\)"):
        assert dense.infer_shape(data=(0, 4)) == (None, None, None)


def test_wrong_arguments_of_inference() -> None:
    dense = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    with pytest.raises(MXNetError, match=r"Keyword argument name dataz not found.*data, fc_weight, fc_bias"):
        dense.infer_shape(dataz=(2, 4))
    with pytest.raises(ValueError, match="either by positional or kwargs"):
        dense.infer_shape((2, 4), fc_weight=(3, 4))
    with pytest.raises(TypeError, match=r"need to be shapes \(tuple\), but 'data' is <class 'int'>"):
        dense.infer_shape(data=3)
    with pytest.raises(MXNetError, match="received 4 shapes for 3 arguments"):
        dense.infer_shape((2, 4), (3, 4), (3,), (1,))
    with pytest.raises(TypeError, match="'flo' is not a data type"):
        dense.infer_type(data="flo")
    with pytest.raises(MXNetError, match="Keyword argument name z not found"):
        dense.infer_type(z="float32")
    assert dense.infer_shape((2, 4)) == dense.infer_shape(data=(2, 4))


def test_types_that_do_not_go_together() -> None:
    with mx.name.NameManager(), pytest.raises(MXNetError, match=r"node _plus0.*float32, float64.*cast"):
        (S.var("a") + S.var("b")).infer_type(a="float32", b="float64")
    with pytest.warns(UserWarning, match="Cannot decide type.*\n\ta: None"):
        assert S.cast(S.var("a"), dtype="int32").infer_type() == (None, None, None)


def test_types_go_both_ways() -> None:
    symbol = S.FullyConnected(S.exp(S.var("a")), num_hidden=2, name="fc") * S.var("b")
    assert symbol.infer_type(b=numpy.float64)[0] == [numpy.float64] * 4
    assert S.cast(S.var("a") * S.var("c"), dtype="float16").infer_type(a="int32") == (
        [numpy.int32, numpy.int32],
        [numpy.float16],
        [],
    )
