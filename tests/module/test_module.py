"""Module: stages, parameters, shapes, devices, states, files and errors."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.module import ModuleStateError

X = numpy.random.RandomState(0).rand(50, 8).astype("f")
Y = (X.sum(1) > 4).astype("f")


def network(**first: Any) -> Any:
    hidden = mx.sym.FullyConnected(
        mx.sym.Variable("data"), weight=mx.sym.Variable("fc1_weight", **first), num_hidden=6, name="fc1"
    )
    hidden = mx.sym.Activation(hidden, act_type="relu", name="act1")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax")


def batches(size: int = 10) -> Any:
    return mx.io.NDArrayIter(X, Y, size)


def bound(symbol: Any = None, **options: Any) -> Any:
    module = mx.mod.Module(network() if symbol is None else symbol)
    data = batches()
    module.bind(data.provide_data, data.provide_label, **options)
    return module


def values(module: Any) -> dict[str, numpy.ndarray]:
    return {name: array.asnumpy() for group in module.get_params() for name, array in group.items()}


def test_stages_come_in_their_order() -> None:
    module = mx.mod.Module(network())
    batch = next(batches())
    for call in (
        lambda: module.data_shapes,
        lambda: module.forward(batch),
        module.get_params,
        module.init_params,
        module.update,
    ):
        with pytest.raises(ModuleStateError, match="bind"):
            call()
    with pytest.raises(AssertionError):
        module.init_params()
    module.bind(batches().provide_data, batches().provide_label)
    for call in (module.get_params, lambda: module.forward(batch), module.init_optimizer):
        with pytest.raises(ModuleStateError, match=r"call init_params\(\) before"):
            call()
    module.init_params()
    with pytest.raises(ModuleStateError, match=r"call init_optimizer\(\) before"):
        module.update()
    with pytest.raises(ModuleStateError, match="inputs_need_grad=True"):
        module.get_input_grads()
    with pytest.raises(ModuleStateError, match="number of epochs"):
        module.fit(batches())
    assert (module.binded, module.params_initialized, module.optimizer_initialized) == (True, True, False)


def test_names_must_be_the_symbols() -> None:
    with pytest.raises(ValueError, match=r"data_names=\['foo'\].*'foo' is not found(?s:.)*\tdata\n"):
        mx.mod.Module(network(), data_names=["foo"])
    with pytest.raises(ValueError, match="fixed_param_names"):
        mx.mod.Module(network(), fixed_param_names=["foo"])
    with pytest.warns(UserWarning, match=r"label_names=\['foo'\]"):
        mx.mod.Module(network(), label_names=["foo"])
    with pytest.raises(ValueError, match="don't match names specified by data_names"):
        mx.mod.Module(network()).bind([("x", (10, 8))], [("softmax_label", (10,))])
    assert mx.mod.Module(network(), label_names=None).label_names == []


def test_init_params_takes_values_and_initializes_the_rest() -> None:
    module = bound()
    given = {"fc1_weight": mx.nd.full((6, 8), 3)}
    with pytest.raises(RuntimeError, match=r"fc1_bias is not presented.*allow_missing=True"):
        module.init_params(mx.init.One(), arg_params=given)
    module.init_params(mx.init.One(), arg_params=given, allow_missing=True)
    means = {name: float(array.mean()) for name, array in values(module).items()}
    assert means == {"fc1_weight": 3, "fc1_bias": 0, "fc2_weight": 1, "fc2_bias": 0}
    with pytest.warns(UserWarning, match="already initialized and force_init=False"):
        module.init_params(mx.init.Zero())
    assert float(values(module)["fc2_weight"].mean()) == 1
    # Parameters that the symbol does not have are left out, as for fine-tuning.
    module.init_params(
        mx.init.Zero(), arg_params={"other": mx.nd.ones(1)}, allow_missing=True, force_init=True
    )
    assert not values(module)["fc2_weight"].any()
    with pytest.raises(ValueError, match=r"fc1_weight has shape \(6, 8\); the given value has \(3, 3\)"):
        module.init_params(
            None, arg_params={"fc1_weight": mx.nd.ones((3, 3))}, allow_missing=True, force_init=True
        )


def test_set_params() -> None:
    module = bound()
    module.init_params(mx.init.One())
    one = {"fc1_bias": mx.nd.full(6, 7)}
    with pytest.raises(RuntimeError, match="fc1_weight is not presented"):
        module.set_params(one, {})
    module.set_params(one, {}, allow_missing=True)
    assert values(module)["fc1_bias"].tolist() == [7] * 6 and values(module)["fc2_weight"].mean() == 1
    with pytest.raises(ValueError, match=r'Find name "q" that is not in the arguments'):
        module.set_params({"q": mx.nd.ones(1)}, {}, allow_missing=True)
    module.set_params({"q": mx.nd.ones(1)}, {}, allow_missing=True, allow_extra=True)
    with pytest.warns(UserWarning, match="set_params call ignored"):
        module.set_params({"fc1_bias": mx.nd.zeros(6)}, {}, allow_missing=True, force_init=False)
    arguments, auxiliary = module.get_params()
    arguments["fc1_bias"][:] = 5
    module.set_params(arguments, auxiliary)
    module.forward(next(batches()))
    assert values(module)["fc1_bias"].tolist() == [5] * 6


def test_initializers_see_names_and_attributes() -> None:
    module = bound(network(init=mx.init.Constant(4)))
    module.init_params(mx.init.Mixed([".*bias", ".*"], [mx.init.Constant(2), mx.init.Xavier()]))
    found = values(module)
    assert (found["fc1_weight"] == 4).all()
    assert found["fc2_bias"].tolist() == [2, 2] or found["fc2_bias"].tolist() == [0, 0]
    assert 0 < numpy.abs(found["fc2_weight"]).max() < 1
    loaded = bound()
    load = mx.init.Load({"arg:fc1_weight": mx.nd.full((6, 8), 9)}, default_init=mx.init.One())
    loaded.init_params(load)
    assert (values(loaded)["fc1_weight"] == 9).all() and (values(loaded)["fc2_weight"] == 1).all()


def test_optimizer_settings() -> None:
    module = bound(network(lr_mult=0.5, wd_mult=3.0))
    module.init_params()
    module.init_optimizer(optimizer_params={"learning_rate": 0.1, "wd": 0.1})
    optimizer = module._optimizer
    assert optimizer.rescale_grad == 0.1
    assert optimizer.lr_mult == {"fc1_weight": 0.5}
    assert optimizer.wd_mult == {"fc1_weight": 3.0, "fc1_bias": 0.0, "fc2_bias": 0.0}
    assert optimizer.idx2name[2] == "fc2_weight"
    with pytest.warns(UserWarning, match="rescale_grad is not normalized"):
        module.init_optimizer(optimizer=mx.optimizer.SGD(learning_rate=0.1), force_init=True)
    with pytest.raises(ValueError, match="nope"):
        module.init_optimizer(optimizer="nope", force_init=True)
    with pytest.raises(ValueError, match="nope"):
        module.init_optimizer(kvstore="nope", force_init=True)


def test_decay_leaves_biases_out_at_every_level() -> None:
    mx.set_api(2)
    module = bound()
    module.init_params()
    module.init_optimizer(optimizer_params={"wd": 0.1})
    assert module._optimizer.wd_mult["fc1_bias"] == 0


def test_second_calls_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    module = bound()
    module.init_params()
    module.init_optimizer()
    with caplog.at_level(logging.WARNING):
        module.bind(batches().provide_data, batches().provide_label)
        module.init_optimizer()
    messages = [record.message for record in caplog.records]
    assert messages == ["Already bound, ignoring bind()", "optimizer already initialized, ignoring..."]


def test_rebinding_keeps_the_parameters() -> None:
    module = bound()
    module.init_params(mx.init.Xavier())
    module.init_optimizer()
    module.forward_backward(next(batches()))
    module.update()
    before = values(module)
    module.bind([("data", (4, 8))], [("softmax_label", (4,))], force_rebind=True)
    module.forward(next(batches(4)))
    assert module.get_outputs()[0].shape == (4, 2)
    after = values(module)
    assert all((after[name] == before[name]).all() for name in before)


def test_batches_of_other_shapes_are_followed() -> None:
    module = bound()
    module.init_params(mx.init.Xavier())
    module.init_optimizer()
    batch = mx.io.DataBatch([mx.nd.array(X[:4])], [mx.nd.array(Y[:4])])
    module.forward_backward(batch)
    module.update()
    assert module.get_outputs()[0].shape == (4, 2) and module.data_shapes[0].shape == (4, 8)
    weight = values(module)["fc1_weight"]
    # Without labels, and back: the parameters are the same arrays.
    whole = module.predict(X).asnumpy()
    module.forward(next(batches()), is_train=False)
    numpy.testing.assert_allclose(module.get_outputs()[0].asnumpy(), whole[:10], rtol=1e-5)
    assert (values(module)["fc1_weight"] == weight).all()
    assert len(module._groups) == 3
    with pytest.raises(ValueError, match=r"inputs data; the batch has 2 array"):
        module.forward(mx.io.DataBatch([mx.nd.array(X)] * 2))
    with pytest.raises(mx.MXNetError, match="fc1_weight"):
        module.forward(mx.io.DataBatch([mx.nd.ones((4, 9))]))


def test_a_batch_may_be_any_object_with_data() -> None:
    batch_type = collections.namedtuple("Batch", ["data"])
    module = bound(for_training=False)
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(X[:10])]))
    expected = module.get_outputs()[0].asnumpy()
    module.forward(batch_type([mx.nd.array(X[:10])]))
    numpy.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), expected)
    module.forward(batch_type([mx.nd.array(X[:3])]))
    numpy.testing.assert_allclose(module.get_outputs()[0].asnumpy(), expected[:3], rtol=1e-5)
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3), label_names=None))
    chain.add(mx.mod.Module(mx.sym.softmax(mx.sym.var("data")), label_names=None), auto_wiring=True)
    chain.bind([("data", (10, 8))], for_training=False)
    chain.init_params()
    chain.forward(batch_type([mx.nd.array(X[:10])]))
    numpy.testing.assert_allclose(chain.get_outputs()[0].asnumpy().sum(1), numpy.ones(10), rtol=1e-5)


def test_reshape_and_images_of_another_size() -> None:
    layer = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=2, kernel=(3, 3), name="conv")
    layer = mx.sym.Flatten(mx.sym.Pooling(layer, global_pool=True, kernel=(1, 1), pool_type="avg"))
    module = mx.mod.Module(mx.sym.SoftmaxOutput(layer, name="softmax"))
    module.bind([("data", (2, 3, 8, 8))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    module.reshape([("data", (5, 3, 12, 6))], [("softmax_label", (5,))])
    module.forward(mx.io.DataBatch([mx.nd.ones((5, 3, 12, 6))], [mx.nd.zeros(5)]))
    assert module.output_shapes == [("softmax_output", (5, 2))]


def test_fixed_parameters_and_gradient_requests() -> None:
    module = mx.mod.Module(network(), fixed_param_names=["fc1_weight"])
    module.bind(batches().provide_data, batches().provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 1.0})
    before = values(module)
    module.forward_backward(next(batches()))
    module.update()
    after = values(module)
    assert (after["fc1_weight"] == before["fc1_weight"]).all()
    assert (after["fc1_bias"] != before["fc1_bias"]).any() and (
        after["fc2_weight"] != before["fc2_weight"]
    ).any()

    adding = bound(inputs_need_grad=True, grad_req="add")
    adding.init_params(mx.init.Xavier())
    adding.forward_backward(next(batches()))
    once = adding.get_input_grads()[0].asnumpy().copy()
    adding.forward_backward(next(batches()))
    numpy.testing.assert_allclose(adding.get_input_grads()[0].asnumpy(), 2 * once, rtol=1e-5)

    single = bound(grad_req={"fc2_weight": "null"})
    single.init_params()
    assert single._exec_group.execs[0].grad_dict["fc2_weight"] is None
    assert single._exec_group.execs[0].grad_dict["fc1_weight"] is not None


def test_predicting_module_has_no_gradients() -> None:
    module = bound(for_training=False)
    module.init_params()
    module.forward(next(batches()))
    with pytest.raises(ModuleStateError, match="for_training=False"):
        module.backward()
    with pytest.raises(ValueError, match="needs for_training=True"):
        mx.mod.Module(network()).bind([("data", (1, 8))], for_training=False, inputs_need_grad=True)


def test_devices_share_the_batch_and_end_equal() -> None:
    runs = []
    for context, loads in ((mx.cpu(), None), ([mx.cpu(0), mx.cpu(1), mx.cpu(2)], [1, 2, 1])):
        module = mx.mod.Module(network(), context=context, work_load_list=loads)
        module.bind(batches().provide_data, batches().provide_label, inputs_need_grad=True)
        mx.random.seed(3)
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
        metric = mx.metric.create("acc")
        for batch in batches():
            module.forward_backward(batch)
            module.update()
            module.update_metric(metric, batch.label)
        runs.append((module, metric.get()[1]))
    (single, one), (several, other) = runs
    assert one == other and several._exec_group.slices == [slice(0, 2), slice(2, 7), slice(7, 10)]
    for name, value in values(single).items():
        numpy.testing.assert_allclose(values(several)[name], value, rtol=1e-4, atol=1e-6)
    assert [part.shape for part in several.get_outputs(False)[0]] == [(2, 2), (5, 2), (3, 2)]
    assert several.get_outputs()[0].shape == (10, 2) and several.get_input_grads()[0].shape == (10, 8)
    assert [str(part.context) for part in several.get_outputs(False)[0]] == ["cpu(0)", "cpu(1)", "cpu(2)"]
    with pytest.raises(ValueError, match="Too many slices"):
        mx.mod.Module(network(), context=[mx.cpu(i) for i in range(11)]).bind(batches().provide_data)


def test_batch_axis_follows_the_layout() -> None:
    data = mx.sym.Variable("data")
    total = mx.sym.sum(mx.sym.FullyConnected(data, num_hidden=2, flatten=False, name="fc"), axis=0)
    module = mx.mod.Module(total, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    module.bind([mx.io.DataDesc("data", (3, 4, 5), layout="TNC")], for_training=False)
    module.init_params(mx.init.One())
    sequence = numpy.random.rand(3, 4, 5).astype("f")
    module.forward(mx.io.DataBatch([mx.nd.array(sequence)]))
    wanted = numpy.repeat(sequence.sum((0, 2))[:, None], 2, 1)
    numpy.testing.assert_allclose(module.get_outputs()[0].asnumpy(), wanted, rtol=1e-5)


def test_states_stay_from_batch_to_batch() -> None:
    total = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc") + mx.sym.Variable("state")
    module = mx.mod.Module(
        mx.sym.Group([mx.sym.MakeLoss(total), mx.sym.BlockGrad(total)]),
        label_names=None,
        state_names=["state"],
        context=[mx.cpu(0), mx.cpu(1)],
    )
    module.bind([("data", (4, 5))])
    module.init_params(mx.init.One())
    assert not module.get_states()[0].asnumpy().any()
    module.set_states(value=2)
    batch = mx.io.DataBatch([mx.nd.ones((4, 5))])
    module.forward(batch)
    assert (module.get_outputs()[1].asnumpy() == 7).all()
    module.set_states(module.get_outputs(False)[1:])
    module.forward(batch)
    assert (module.get_outputs()[1].asnumpy() == 12).all() and (module.get_states()[0].asnumpy() == 7).all()
    with pytest.raises(ValueError, match="either states= or value="):
        module.set_states()


def test_gradients_of_outputs_that_are_no_losses() -> None:
    module = mx.mod.Module(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"),
        label_names=None,
        context=[mx.cpu(0), mx.cpu(1)],
    )
    module.bind([("data", (4, 3))], inputs_need_grad=True)
    module.init_params(mx.init.One())
    module.forward(mx.io.DataBatch([mx.nd.ones((4, 3))]))
    head = numpy.arange(8, dtype="f").reshape(4, 2)
    module.backward([mx.nd.array(head)])
    wanted = numpy.repeat(head.sum(1)[:, None], 3, 1)
    assert module.get_input_grads()[0].asnumpy().tolist() == wanted.tolist()


def test_predict_and_score_take_padding_away() -> None:
    module = bound()
    module.init_params(mx.init.Xavier())
    data = mx.io.NDArrayIter(X[:23], Y[:23], 10)
    whole = module.predict(X[:23]).asnumpy()
    merged = module.predict(data)
    numpy.testing.assert_allclose(merged.asnumpy(), whole, rtol=1e-5)
    assert [[out.shape for out in outs] for outs in module.predict(data, merge_batches=False)] == [
        [(10, 2)],
        [(10, 2)],
        [(3, 2)],
    ]
    assert isinstance(module.predict(data, always_output_list=True), list)
    assert module.predict(data, num_batch=1).shape == (10, 2)
    assert [(outs[0].shape, number, batch.pad) for outs, number, batch in module.iter_predict(data)] == [
        ((10, 2), 0, 0),
        ((10, 2), 1, 0),
        ((3, 2), 2, 7),
    ]
    data.reset()
    next(data)
    assert module.predict(data, reset=False).shape == (13, 2)
    exact = mx.io.NDArrayIter(X[:20], Y[:20], 10)
    wanted = float((whole[:20].argmax(1) == Y[:20]).mean())
    seen: list[Any] = []
    score = module.score(exact, ["acc", "ce"], batch_end_callback=seen.append, score_end_callback=seen.append)
    assert score[0] == ("accuracy", pytest.approx(wanted)) and score[1][0] == "cross-entropy"
    assert [(param.nbatch, param.epoch) for param in seen] == [(0, 0), (1, 0), (2, 0)]
    assert "eval_batch" in seen[0].locals
    # A callback that resets the metric does not change the result.
    again = module.score(exact, "acc", batch_end_callback=mx.callback.Speedometer(10, 1))
    assert again == [("accuracy", pytest.approx(wanted))]
    with pytest.raises(TypeError, match="expected an array or a DataIter, got int"):
        module.predict(3)


def test_fit_runs_callbacks_monitors_and_own_metrics(caplog: pytest.LogCaptureFixture) -> None:
    class Count(mx.metric.EvalMetric):
        def __init__(self) -> None:
            super().__init__("count")

        def update(self, labels: Any, preds: Any) -> None:
            self.sum_metric += 3
            self.num_inst += 1

    calls: list[Any] = []
    module = mx.mod.Module(network())
    data = batches()
    # Data that another loop used up begin anew.
    list(data)
    caplog.set_level(logging.INFO)
    module.fit(
        data,
        num_epoch=2,
        begin_epoch=1,
        eval_metric=Count(),
        epoch_end_callback=lambda *call: calls.append(call),
        batch_end_callback=[calls.append, mx.callback.Speedometer(10, 2)],
        monitor=mx.mon.Monitor(3, pattern=".*weight"),
    )
    params, ends = calls[:-1], calls[-1]
    assert [param.nbatch for param in params] == [0, 1, 2, 3, 4] and params[0].epoch == 1
    assert params[0].locals["self"] is module and params[0].locals["train_data"] is data
    assert ends[0] == 1 and ends[1] is module.symbol and sorted(ends[2]) == sorted(values(module))
    # A metric without sums of its own for the whole epoch is read before callbacks reset it.
    lines = [record.message for record in caplog.records]
    assert "Epoch[1] Train-count=3.000000" in lines
    assert sum(line.startswith("Batch:") and "fc1_weight" in line for line in lines) == 2


def test_empty_data_are_refused() -> None:
    class Nothing(mx.io.DataIter):
        provide_data = batches().provide_data
        provide_label = batches().provide_label

        def next(self) -> Any:
            raise StopIteration

    with pytest.raises(ValueError, match="at least one batch"):
        mx.mod.Module(network()).fit(Nothing(), num_epoch=1)


def trained(optimizer: str = "adam") -> Any:
    module = bound()
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer=optimizer, optimizer_params={"learning_rate": 0.05})
    for batch in batches():
        module.forward_backward(batch)
        module.update()
    return module


def test_checkpoint_with_states_continues_the_training(caplog: pytest.LogCaptureFixture) -> None:
    module = trained()
    with caplog.at_level(logging.INFO):
        module.save_checkpoint("model", 7, save_optimizer_states=True)
    assert [record.message for record in caplog.records] == [
        'Saved checkpoint to "model-0007.params"',
        'Saved optimizer state to "model-0007.states"',
    ]
    assert sorted(path.name for path in Path().iterdir()) == [
        "model-0007.params",
        "model-0007.states",
        "model-symbol.json",
    ]
    again = mx.mod.Module.load("model", 7, load_optimizer_states=True)
    assert again.params_initialized and sorted(again.get_params()[0]) == sorted(values(module))
    again.bind(batches().provide_data, batches().provide_label)
    again.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.05})
    # Adam corrects its bias by the number of updates, which 1.x keeps with the optimizer, not in the file.
    again._optimizer._index_update_count.update(module._optimizer._index_update_count)
    for which in (module, again):
        which.forward_backward(next(batches()))
        which.update()
    for name, value in values(module).items():
        numpy.testing.assert_allclose(values(again)[name], value, rtol=1e-6)
    symbol, arguments, auxiliary = mx.model.load_checkpoint("model", 7)
    assert symbol.list_outputs() == ["softmax_output"] and "fc1_weight" in arguments and auxiliary == {}


def test_states_of_several_devices_by_name(tmp_path: Path) -> None:
    from regluon.serial import states

    module = trained("sgd")
    file = tmp_path / "by_name.states"
    file.write_bytes(states.dumps({"fc2_bias": mx.nd.full(2, 5)}, None))
    module.load_optimizer_states(file)
    assert list(module._updater.states) == [3] and module._updater.states[3].asnumpy().tolist() == [5, 5]


def test_parameters_to_a_file_and_back() -> None:
    module = trained()
    before = values(module)
    module.save_params("only.params")
    assert sorted(mx.nd.load("only.params")) == sorted(f"arg:{name}" for name in before)
    module.init_params(mx.init.Zero(), force_init=True)
    module.load_params("only.params")
    assert all((values(module)[name] == value).all() for name, value in before.items())


def test_shared_modules_train_the_same_parameters() -> None:
    first = trained("sgd")
    second = mx.mod.Module(network())
    second.bind([("data", (4, 8))], [("softmax_label", (4,))], shared_module=first)
    assert second.params_initialized
    second.borrow_optimizer(first)
    second.forward_backward(next(batches(4)))
    second.update()
    assert all((values(first)[name] == value).all() for name, value in values(second).items())
    first.forward(next(batches()), is_train=False)
    second.forward(next(batches()), is_train=False)
    assert (first.get_outputs()[0].asnumpy() == second.get_outputs()[0].asnumpy()).all()
    with pytest.raises(ModuleStateError, match="shared module"):
        mx.mod.Module(network()).bind([("data", (4, 8))], shared_module=mx.mod.Module(network()))


def test_symbols_that_take_labels_as_parameters() -> None:
    """The usual way to predict: no labels, parameters from a checkpoint, allow_missing."""
    module = trained()
    arguments, auxiliary = module.get_params()
    predictor = mx.mod.Module(network(), label_names=None)
    predictor.bind([("data", (10, 8))], for_training=False)
    assert predictor.label_shapes is None
    with pytest.raises(RuntimeError, match="softmax_label is not presented"):
        predictor.set_params(arguments, auxiliary)
    predictor.set_params(arguments, auxiliary, allow_missing=True)
    numpy.testing.assert_allclose(
        predictor.predict(X[:10]).asnumpy(), module.predict(X[:10]).asnumpy(), rtol=1e-5
    )


def test_own_store_sums_the_gradients() -> None:
    seen: list[Any] = []

    class Recorder(mx.kv.KVStoreBase):
        num_workers = 2
        broadcast: Callable[..., None] = staticmethod(lambda key, value, out, priority=0: seen.append(key))

        def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
            for array in out:
                array[:] = 0

    module = bound()
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=Recorder(), optimizer_params={"learning_rate": 1.0})
    before = values(module)
    module.forward_backward(next(batches()))
    module.update()
    assert sorted(seen) == sorted(before) and module._optimizer.rescale_grad == 0.05
    assert all((values(module)[name] == value).all() for name, value in before.items())
