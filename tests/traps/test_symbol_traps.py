"""Symbols, executors, Module and files of old scripts: what must never go wrong without a word."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

equal = numpy.testing.assert_allclose


def bound(symbol: Any, grad_req: str = "write", **arrays: Any) -> Any:
    values = {name: mx.nd.array(value) for name, value in arrays.items()}
    grads = {name: mx.nd.zeros(value.shape) for name, value in values.items()}
    return symbol.bind(mx.cpu(), values, args_grad=grads, grad_req=grad_req)


def test_the_order_of_inputs_survives_a_file(tmp_path: Path) -> None:
    a, b = mx.sym.var("a"), mx.sym.var("b")
    (a / (a - b)).save(str(tmp_path / "s.json"))
    back = mx.sym.load(str(tmp_path / "s.json"))
    assert back.list_arguments() == ["a", "b"]
    out = bound(back, a=[6.0], b=[4.0]).forward()[0]
    assert out.asnumpy().tolist() == [3.0]


def test_attributes_survive_a_file() -> None:
    x = mx.sym.var("x", lr_mult=2.0, shape=(0, 3))
    y = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc", attr={"mood": "good"})
    back = mx.sym.load_json(y.tojson())
    assert back.attr("mood") == "good" and back.attr_dict()["x"]["__lr_mult__"] == "2.0"
    assert back.list_arguments() == ["x", "fc_weight"]
    arguments, outputs, _ = back.infer_shape(x=(5, 3))
    assert arguments == [(5, 3), (4, 3)] and outputs == [(5, 4)]


def test_shapes_are_inferred_backward_through_a_graph() -> None:
    x, w = mx.sym.var("x"), mx.sym.var("w")
    arguments, _, _ = (x * w).infer_shape(x=(2, 3))
    assert arguments == [(2, 3), (2, 3)]


def test_an_executor_writes_and_adds_gradients() -> None:
    x = mx.sym.var("x")
    for request, expected in (("write", [6.0]), ("add", [12.0])):
        executor = bound(x * x, request, x=[3.0])
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward(mx.nd.ones((1,)))
        assert executor.grad_dict["x"].asnumpy().tolist() == expected


def test_an_executor_takes_head_gradients_and_the_train_flag() -> None:
    x = mx.sym.var("x")
    executor = bound(mx.sym.Dropout(x * 2, p=0.5), x=numpy.ones(200))
    assert executor.forward(is_train=False)[0].asnumpy().tolist() == [2.0] * 200
    out = executor.forward(is_train=True)[0].asnumpy()
    assert set(out.tolist()) == {0.0, 4.0}
    executor.backward(mx.nd.full((200,), 3.0))
    equal(executor.grad_dict["x"].asnumpy(), 3 * out)


def test_internals_by_name() -> None:
    net = mx.sym.relu(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc"), name="act")
    internals = net.get_internals()
    assert internals.list_outputs() == ["data", "fc_weight", "fc_bias", "fc_output", "act_output"]
    assert internals["fc_output"].list_outputs() == ["fc_output"]
    assert net.get_children().list_outputs() == ["fc_output"]


def softmax_net() -> Any:
    data = mx.sym.var("data")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="fc"), name="softmax")


def test_the_gradient_of_a_softmax_output_is_that_of_the_loss() -> None:
    symbol = mx.sym.SoftmaxOutput(mx.sym.var("data"), mx.sym.var("label"), grad_scale=2.0, name="softmax")
    executor = bound(symbol, data=[[0.0, 0.0], [0.0, 0.0]], label=[0.0, 1.0])
    out = executor.forward(is_train=True)[0]
    equal(out.asnumpy(), numpy.full((2, 2), 0.5))
    executor.backward()
    equal(executor.grad_dict["data"].asnumpy(), [[-1.0, 1.0], [1.0, -1.0]])


def module_and_batch() -> tuple[Any, Any]:
    module = mx.mod.Module(softmax_net(), label_names=["softmax_label"])
    module.bind(data_shapes=[("data", (2, 3))], label_shapes=[("softmax_label", (2,))])
    module.init_params(mx.init.Zero())
    batch = mx.io.DataBatch([mx.nd.array([[1.0, 0, 0], [0, 1, 0]])], [mx.nd.array([0.0, 1.0])])
    return module, batch


def test_a_module_updates_by_the_mean_over_the_batch() -> None:
    module, batch = module_and_batch()
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1.0})
    module.forward_backward(batch)
    module.update()
    weight = module.get_params()[0]["fc_weight"].asnumpy()
    equal(weight, [[0.25, -0.25, 0], [-0.25, 0.25, 0]])


def test_a_module_continues_from_its_checkpoint(tmp_path: Path) -> None:
    module, batch = module_and_batch()
    settings = {"learning_rate": 0.5, "momentum": 0.9}
    module.init_optimizer(optimizer="sgd", optimizer_params=settings)

    def step(one: Any) -> None:
        one.forward_backward(batch)
        one.update()

    step(module)
    module.save_checkpoint(str(tmp_path / "m"), 1, save_optimizer_states=True)
    again = mx.mod.Module.load(
        str(tmp_path / "m"), 1, load_optimizer_states=True, label_names=["softmax_label"]
    )
    again.bind(data_shapes=[("data", (2, 3))], label_shapes=[("softmax_label", (2,))])
    again.init_optimizer(optimizer="sgd", optimizer_params=settings)
    for one in (module, again):
        step(one)
    for name, value in module.get_params()[0].items():
        equal(again.get_params()[0][name].asnumpy(), value.asnumpy(), rtol=1e-6)


def test_the_last_batch_is_padded_and_predict_takes_the_padding_off() -> None:
    rows = numpy.arange(15, dtype="float32").reshape(5, 3)
    iterator = mx.io.NDArrayIter(rows, numpy.zeros(5), batch_size=2, label_name="softmax_label")
    pads = [batch.pad for batch in iterator]
    assert pads == [0, 0, 1]
    module, _ = module_and_batch()
    iterator.reset()
    out = module.predict(iterator)
    assert out.shape == (5, 2)


def test_dtypes_and_names_of_a_binary_file(tmp_path: Path) -> None:
    arrays = {
        name: mx.nd.array(numpy.array([[1, 2, 3]], dtype=name), dtype=name)
        for name in ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")
    }
    mx.nd.save(str(tmp_path / "a"), arrays)
    loaded = mx.nd.load(str(tmp_path / "a"))
    assert list(loaded) == list(arrays)
    for name, value in loaded.items():
        assert value.asnumpy().dtype == name and value.asnumpy().tolist() == [[1, 2, 3]]


def test_a_cut_file_is_refused_with_its_name(tmp_path: Path) -> None:
    mx.nd.save(str(tmp_path / "a"), {"x": mx.nd.ones((4, 4))})
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:60])
    with pytest.raises(MXNetError, match=r"/a'.*offset|/a.*byte"):
        mx.nd.load(str(tmp_path / "a"))


def test_nothing_in_a_states_file_runs(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "harmed").write_text, ("x",))

    (tmp_path / "states").write_bytes(pickle.dumps({0: Harm()}))
    net = nn.Dense(1, in_units=1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    with pytest.raises(MXNetError):
        trainer.load_states(str(tmp_path / "states"))
    assert not (tmp_path / "harmed").exists()


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regluon.serial import params

    mx.nd.save(str(tmp_path / "a"), {"x": mx.nd.ones((2,))})
    write = params._write_array

    def interrupted(stream: Any, array: Any) -> None:
        write(stream, array)
        raise KeyboardInterrupt

    monkeypatch.setattr(params, "_write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mx.nd.save(str(tmp_path / "a"), {"x": mx.nd.zeros((2,))})
    monkeypatch.undo()
    assert mx.nd.load(str(tmp_path / "a"))["x"].asnumpy().tolist() == [1.0, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_exported_file_has_the_moving_statistics_as_auxiliary(tmp_path: Path) -> None:
    net = nn.BatchNorm(in_channels=2)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 2)))
    net.export(str(tmp_path / "bn"), epoch=7)
    names = set(mx.nd.load(str(tmp_path / "bn-0007.params")))
    assert {name[:4] for name in names if "running" in name} == {"aux:"} and len(names) == 4
    graph = json.loads((tmp_path / "bn-symbol.json").read_text())
    assert [node["op"] for node in graph["nodes"]].count("null") == 5
    symbol, arguments, auxiliary = mx.model.load_checkpoint(str(tmp_path / "bn"), 7)
    assert symbol.list_arguments()[0] == "data" and len(arguments) == len(auxiliary) == 2


def test_bucketing_shares_parameters_between_lengths() -> None:
    def make(length: int) -> Any:
        data = mx.sym.var("data")
        mean = mx.sym.mean(mx.sym.reshape(data, shape=(0, length)), axis=1, keepdims=True)
        out = mx.sym.FullyConnected(mean, num_hidden=2, name="fc")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ["data"], ["softmax_label"]

    module = mx.mod.BucketingModule(make, default_bucket_key=4)

    def shapes(length: int) -> tuple[Any, Any]:
        return [("data", (2, length))], [("softmax_label", (2,))]

    module.bind(*shapes(4))
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1.0})
    for length in (4, 2, 3):
        batch = mx.io.DataBatch(
            [mx.nd.ones((2, length))],
            [mx.nd.zeros((2,))],
            bucket_key=length,
            provide_data=shapes(length)[0],
            provide_label=shapes(length)[1],
        )
        module.forward(batch)
        before = module.get_outputs()[0].asnumpy()[0, 0]
        module.backward()
        module.update()
        module.forward(batch, is_train=False)
        assert module.get_outputs()[0].asnumpy()[0, 0] > before
    # Each step saw what the steps before it had learnt.
    assert before > 0.7
