"""Habits of programs written for 1.x: each was found by running such a program here and in the original."""

from __future__ import annotations

import numpy
import pytest

import regluon as mx

S, nd = mx.sym, mx.nd


def classifier() -> mx.sym.Symbol:
    layer = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    return S.SoftmaxOutput(layer, name="softmax")


def data(count: int = 8) -> mx.io.NDArrayIter:
    values = numpy.sin(numpy.arange(count * 4.0)).reshape(count, 4)
    return mx.io.NDArrayIter(values, numpy.arange(count) % 3, 4)


def test_a_checkpoint_loads_into_a_module_without_labels() -> None:
    """``label_names=None`` makes the label a parameter, which no checkpoint has."""
    trained = mx.mod.Module(classifier())
    trained.bind(data().provide_data, data().provide_label)
    trained.init_params(mx.init.One())
    trained.save_checkpoint("net", 1)
    loaded = mx.mod.Module.load("net", 1, label_names=None)
    loaded.bind([("data", (4, 4))], for_training=False)
    numpy.testing.assert_allclose(
        loaded.predict(data()).asnumpy(), trained.predict(data()).asnumpy(), rtol=1e-6
    )
    weights = nd.load("net-0001.params")
    del weights["arg:fc_weight"]
    nd.save("net-0001.params", weights)
    broken = mx.mod.Module.load("net", 1, label_names=None)
    with pytest.raises(RuntimeError, match="fc_weight is not presented"):
        broken.bind([("data", (4, 4))], for_training=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_feed_forward_trains_on_the_iterator_that_it_evaluates_on() -> None:
    """Evaluation leaves the iterator at its end: it is reset before training and after each evaluation."""

    def trained(**keywords: object) -> numpy.ndarray:
        made = mx.model.FeedForward(
            classifier(), num_epoch=2, initializer=mx.init.Zero(), learning_rate=0.5, numpy_batch_size=4
        )
        made.fit(batches, **keywords)
        return made.arg_params["fc_weight"].asnumpy()

    batches = data()
    expected = trained()
    numpy.testing.assert_allclose(trained(eval_data=batches), expected)
    assert len(list(batches)) == 2
    numpy.testing.assert_allclose(trained(), expected)


def test_module_outputs_stay_what_they_were() -> None:
    module = mx.mod.Module(classifier())
    module.bind(data().provide_data, data().provide_label)
    module.init_params(mx.init.One())
    first, second = list(data())
    module.forward(first, is_train=False)
    (kept,) = module.get_outputs()
    before = kept.asnumpy()
    module.set_params({"fc_weight": nd.array(numpy.eye(3, 4)), "fc_bias": nd.zeros(3)}, {})
    module.forward(second, is_train=False)
    numpy.testing.assert_array_equal(kept.asnumpy(), before)
    assert abs(module.get_outputs()[0].asnumpy() - before).max() > 0.1


def test_bilinear_upsampling_makes_and_initializes_its_weight() -> None:
    for counted in ({}, {"num_args": 2}):
        symbol = S.UpSampling(
            S.var("data"), scale=2, sample_type="bilinear", num_filter=2, name="up", **counted
        )
        assert symbol.list_arguments() == ["data", "up_weight"]
        shapes, outputs, _ = symbol.infer_shape(data=(1, 2, 3, 3))
        assert shapes == [(1, 2, 3, 3), (2, 1, 4, 4)] and outputs == [(1, 2, 6, 6)]
        assert S.load_json(symbol.tojson()).list_arguments() == ["data", "up_weight"]
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", (1, 2, 3, 3))])
    module.init_params(mx.init.Zero())
    weight = module.get_params()[0]["up_weight"].asnumpy()
    numpy.testing.assert_allclose(weight[1, 0], numpy.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 16)
    with pytest.raises(mx.base.MXNetError, match="2 inputs"):
        nd.UpSampling(nd.ones((1, 2, 3, 3)), scale=2, sample_type="bilinear")


def test_moving_statistics_say_how_they_start() -> None:
    attributes = S.BatchNorm(S.var("data"), name="bn").attr_dict()
    assert attributes["bn_moving_mean"]["__init__"] == '["zero", {}]'
    assert attributes["bn_moving_var"]["__init__"] == '["one", {}]'
    assert "__init__" not in attributes.get("bn_gamma", {})


def test_labels_of_places_are_one_row_by_default() -> None:
    symbol = S.SoftmaxOutput(S.var("data"), multi_output=True, name="softmax")
    assert symbol.infer_shape(data=(2, 3, 4, 5))[0][1] == (2, 20)
    assert symbol.infer_shape(data=(2, 3, 4, 5), softmax_label=(2, 4, 5))[0][1] == (2, 4, 5)


@pytest.mark.parametrize(("shape", "expected"), [((4,), 2.0), ((4, 1), 0.5), ((4, 3), 0.5)])
def test_a_loss_of_one_axis_is_one_sample(shape: tuple[int, ...], expected: float) -> None:
    symbol = S.MakeLoss(S.var("data"), normalization="batch", grad_scale=2.0)
    executor = symbol.simple_bind(mx.cpu(), data=shape)
    executor.forward(is_train=True)
    executor.backward()
    numpy.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), numpy.full(shape, expected))


def test_names_of_outputs_that_are_not_called_output() -> None:
    x = S.var("x")
    found = [
        S.make_loss(x, name="a"), S.CTCLoss(x, S.var("y"), name="b"), S.sort(x, name="c"),
        S.split(x, num_outputs=1, name="d"), S.split(x, num_outputs=2, name="e"), S.MakeLoss(x, name="f"),
    ]  # fmt: skip
    assert [symbol.list_outputs() for symbol in found] == [
        ["a_loss"], ["b_output0"], ["c_output0"], ["d_output0"], ["e_output0", "e_output1"], ["f_output"],
    ]  # fmt: skip
