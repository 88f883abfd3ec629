"""SymbolBlock: from files, and from parts of other networks."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn


@pytest.fixture
def saved(style: Any, tmp_path: Path) -> Any:
    """Two Dense layers in files: (symbol file, parameters file, input, expected output, names)."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="relu"), nn.Dense(2))
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    host = numpy.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    net(style.array(host))
    value = [p.data().asnumpy() for p in net.collect_params().values()]
    expected = numpy.maximum(host @ value[0].T + value[1], 0) @ value[2].T + value[3]
    symbol, values = net.export(tmp_path / "net", 2)
    return symbol, values, style.array(host), expected, list(net.collect_params())


def close(actual: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-4, atol=1e-5)


# imports ----------------------------------------------------------------------


@pytest.mark.parametrize("names", ["data", ["data"], ("data",), None])
def test_imports(saved: Any, names: Any) -> None:
    symbol, values, x, expected, parameters = saved
    block = gluon.SymbolBlock.imports(symbol, names, values)
    assert isinstance(block, gluon.HybridBlock)
    assert list(block.collect_params()) == parameters
    close(block(x), expected)
    for flags in ({}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}):
        block.hybridize(**flags)
        close(block(x), expected)
    block.hybridize(False)
    close(block(x), expected)


def test_signature_of_imports() -> None:
    import inspect

    parameters = inspect.signature(gluon.SymbolBlock.imports).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert list(defaults)[:3] == ["symbol_file", "input_names", "param_file"]
    assert defaults["param_file"] is None
    assert defaults["allow_missing"] is False and defaults["ignore_extra"] is False
    assert defaults["ctx"] is None and defaults["device"] is None


@pytest.mark.parametrize("keyword", ["ctx", "device"])
def test_parameters_go_where_they_are_asked_for(saved: Any, keyword: str) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, "data", values, **{keyword: mx.cpu(1)})
    assert {context for p in block.collect_params().values() for context in p.list_ctx()} == {mx.cpu(1)}
    close(block(x.as_in_context(mx.cpu(1))), expected)
    block = gluon.SymbolBlock.imports(symbol, "data", values, **{keyword: [mx.cpu(0), mx.cpu(1)]})
    for context in (mx.cpu(0), mx.cpu(1)):
        close(block(x.as_in_context(context)), expected)


def test_the_fourth_place_is_the_device(saved: Any) -> None:
    block = gluon.SymbolBlock.imports(saved[0], "data", saved[1], mx.cpu(2))
    assert next(iter(block.collect_params().values())).list_ctx() == [mx.cpu(2)]


def test_missing_and_extra_parameters(saved: Any, tmp_path: Path) -> None:
    symbol, values, x, expected, parameters = saved
    loaded = mx.nd.load(values)
    few = {name: array for name, array in loaded.items() if not name.endswith(parameters[0])}
    mx.nd.save(str(tmp_path / "few.params"), few)
    with pytest.raises(AssertionError, match=rf"Parameter '{parameters[0]}' is missing in file.*few\.params"):
        gluon.SymbolBlock.imports(symbol, "data", str(tmp_path / "few.params"))
    block = gluon.SymbolBlock.imports(symbol, "data", str(tmp_path / "few.params"), allow_missing=True)
    with pytest.raises(RuntimeError, match=f"{parameters[0]}.* has not been initialized"):
        block(x)
    mx.nd.save(str(tmp_path / "many.params"), {**loaded, "arg:more": x})
    with pytest.raises(ValueError, match=r"Parameter 'more' loaded from file.*Set ignore_extra=True"):
        gluon.SymbolBlock.imports(symbol, "data", str(tmp_path / "many.params"))
    block = gluon.SymbolBlock.imports(symbol, "data", str(tmp_path / "many.params"), ignore_extra=True)
    close(block(x), expected)


def test_without_a_parameters_file(saved: Any) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"])
    with pytest.raises(RuntimeError, match="has not been initialized"):
        block(x)
    block.load_parameters(values)
    close(block(x), expected)
    block = gluon.SymbolBlock.imports(symbol)
    block.initialize(mx.init.One())
    block(x)
    assert [p.shape for p in block.collect_params().values()] == [(3, 4), (3,), (2, 3), (2,)]


def test_wrong_names_and_files(saved: Any, tmp_path: Path) -> None:
    symbol, values, x, *_ = saved
    with pytest.raises(ValueError, match="has no input image; its variables are data, "):
        gluon.SymbolBlock.imports(symbol, ["image"], values)
    with pytest.raises(FileNotFoundError):
        gluon.SymbolBlock.imports(str(tmp_path / "none.json"), ["data"])
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(mx.base.MXNetError, match=r"bad\.json is not JSON"):
        gluon.SymbolBlock.imports(str(tmp_path / "bad.json"), ["data"])
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    with pytest.raises(ValueError, match=r"takes 1 input\(s\) \(data\); received 2"):
        block(x, x)


def test_the_order_of_names_is_that_of_arguments(style: Any, tmp_path: Path) -> None:
    block = style.block(lambda self, F, a, b: a - b)
    block.hybridize()
    one, three = style.array([1.0]), style.array([3.0])
    block(one, three)
    symbol, _ = block.export(tmp_path / "m")
    assert gluon.SymbolBlock.imports(symbol, ["data0", "data1"])(one, three).asnumpy() == [-2]
    assert gluon.SymbolBlock.imports(symbol, ["data1", "data0"])(one, three).asnumpy() == [2]


def test_both_kinds_of_arrays_go_in(saved: Any) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    for array in (mx.nd.array(x.asnumpy()), mx.np.array(x.asnumpy())):
        out = block(array)
        assert type(out) is type(array)
        close(out, expected)


def test_imported_networks_train(saved: Any) -> None:
    symbol, values, x, *_ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    trainer = gluon.Trainer(block.collect_params(), "sgd", {"learning_rate": 0.1})
    losses = []
    for _ in range(5):
        with autograd.record():
            loss = (block(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asnumpy().item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.9 * losses[0]
    first = next(iter(block.collect_params().values()))
    assert numpy.abs(first.grad().asnumpy()).sum() > 0


def test_copies_and_pickles(saved: Any) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    for twin in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        first = next(iter(twin.collect_params().values()))
        close(twin(x), expected)
        first.set_data(first.data() * 0)
        assert not numpy.allclose(twin(x).asnumpy(), expected)
        close(block(x), expected)


def test_save_and_load_parameters(saved: Any, tmp_path: Path) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    block.save_parameters(tmp_path / "own.params")
    other = gluon.SymbolBlock.imports(symbol, ["data"])
    other.load_parameters(tmp_path / "own.params")
    close(other(x), expected)


def test_a_cast_block_computes_in_its_type(saved: Any) -> None:
    symbol, values, x, expected, _ = saved
    block = gluon.SymbolBlock.imports(symbol, ["data"], values)
    block.cast("float64")
    out = block(x.astype("float64"))
    assert str(out.dtype) in ("float64", "<class 'numpy.float64'>")
    close(out, expected)


def test_half_precision_files_load_as_they_are(saved: Any, tmp_path: Path) -> None:
    symbol, values, x, expected, _ = saved
    half = {name: array.astype("float16") for name, array in mx.nd.load(values).items()}
    mx.nd.save(str(tmp_path / "half.params"), half)
    block = gluon.SymbolBlock.imports(symbol, ["data"], str(tmp_path / "half.params"))
    assert {numpy.dtype(p.dtype) for p in block.collect_params().values()} == {numpy.dtype("float16")}
    numpy.testing.assert_allclose(block(x.astype("float16")).asnumpy(), expected, rtol=0.02, atol=0.02)


def test_inside_another_network(style: Any, saved: Any) -> None:
    symbol, values, x, expected, parameters = saved

    def setup(block: Any) -> None:
        block.body = gluon.SymbolBlock.imports(symbol, ["data"], values)

    outer = style.block_class(lambda self, F, x: self.body(x) * 2, setup)()
    close(outer(x), expected * 2)
    outer.hybridize()
    close(outer(x), expected * 2)
    names = list(outer.collect_params())
    assert names == (parameters if style.level == 1 else [f"body.{name}" for name in parameters])
    assert len(outer.export(None)[1]) == 4


def test_repr_counts_inputs_and_outputs(saved: Any) -> None:
    text = repr(gluon.SymbolBlock.imports(saved[0], "data", saved[1]))
    assert text.startswith("SymbolBlock(\n<") and text.endswith("> : 1 -> 1\n)")


# From internals ----------------------------------------------------------------------


def activations(net: Any, x: Any) -> list[numpy.ndarray]:
    """What the two hidden Dense layers of an alexnet give, from its layers called one by one."""
    found = []
    for index, layer in enumerate(net.features):
        x = layer(x)
        if index in (9, 11):
            found.append(x.asnumpy())
    return found


def test_features_of_alexnet_as_described_for_2() -> None:
    """The originals refuse their own example, which passes parameters that the part does not use."""
    alexnet = gluon.model_zoo.vision.alexnet()
    alexnet.initialize()
    inputs = mx.sym.var("data")
    out = alexnet(inputs)
    internals = out.get_internals()
    outputs = [internals["features_9_act_fwd_output"], internals["features_11_act_fwd_output"]]
    x = mx.np.random.uniform(size=(1, 3, 224, 224))
    alexnet(x)
    features = gluon.SymbolBlock(outputs, inputs, params=alexnet.collect_params())
    got = features(x)
    assert isinstance(got, list) and [a.shape for a in got] == [(1, 4096), (1, 4096)]
    for array, expected in zip(got, activations(alexnet, x), strict=True):
        close(array, expected)
    names = list(features.collect_params())
    assert len(names) == 14 and not any(name.startswith("output") for name in names)
    # The parameters are shared with the network, not copies.
    assert features.collect_params()["features.0.weight"] is alexnet.features[0].weight


def test_features_of_alexnet_as_in_1x() -> None:
    mx.set_api(1)
    alexnet = gluon.model_zoo.vision.alexnet(prefix="model_")
    alexnet.initialize()
    inputs = mx.sym.var("data")
    internals = alexnet(inputs).get_internals()
    outputs = [internals["model_dense0_relu_fwd_output"], internals["model_dense1_relu_fwd_output"]]
    x = mx.nd.random.uniform(shape=(1, 3, 224, 224))
    alexnet(x)
    features = gluon.SymbolBlock(outputs, inputs, params=alexnet.collect_params())
    for array, expected in zip(features(x), activations(alexnet, x), strict=True):
        close(array, expected)
    assert repr(features).endswith("> : 1 -> 2\n)")


def test_parameters_that_are_still_deferred_are_finished_by_the_part(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="relu"), nn.Dense(2))
    net.initialize()
    data = mx.sym.var("data")
    internals = net(data).get_internals()
    name = next(n for n in internals.list_outputs() if n.endswith(("act_fwd_output", "relu_fwd_output")))
    part = gluon.SymbolBlock(internals[name], data, params=net.collect_params())
    x = numpy.random.uniform(-1, 1, (2, 5)).astype("float32")
    out = part(style.array(x))
    weight, bias = net[0].weight.data().asnumpy(), net[0].bias.data().asnumpy()
    assert weight.shape == (3, 5)
    close(out, numpy.maximum(x @ weight.T + bias, 0))


def test_without_parameters_new_ones_are_made(style: Any) -> None:
    data = mx.sym.var("data")
    out = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    block = gluon.SymbolBlock(out, data)
    assert list(block.collect_params()) == ["fc_weight", "fc_bias"]
    block.initialize(mx.init.One())
    x = numpy.array([[1.0, 2.0]], "float32")
    close(block(style.array(x)), [[4, 4, 4]])


def test_parameters_given_as_arrays(style: Any) -> None:
    data = mx.sym.var("data")
    out = mx.sym.FullyConnected(data, num_hidden=1, no_bias=True, name="fc")
    for key in ("fc_weight", "arg:fc_weight"):
        block = gluon.SymbolBlock(out, data, params={key: style.array([[2.0, 3.0]])})
        close(block(style.array([[1.0, 1.0]])), [[5]])


def test_several_inputs_and_outputs(style: Any) -> None:
    a, b = mx.sym.var("a"), mx.sym.var("b")
    block = gluon.SymbolBlock([a + b, a * b], [a, b])
    total, product = block(style.array([2.0]), style.array([5.0]))
    assert total.asnumpy() == [7] and product.asnumpy() == [10]
    grouped = gluon.SymbolBlock(mx.sym.Group([a + b, a * b]), [a, b])
    assert [array.asnumpy().tolist() for array in grouped(style.array([2.0]), style.array([5.0]))] == [
        [7],
        [10],
    ]


def test_two_nodes_of_one_name_share_their_value() -> None:
    """Files of 2015 have such graphs."""
    first, second = (mx.sym.var("w") for _ in range(2))
    data = mx.sym.var("data")
    block = gluon.SymbolBlock(data * first + second, data)
    assert list(block.collect_params()) == ["w"]
    block.collect_params()["w"].shape = (1,)
    block.initialize(mx.init.One())
    assert block(mx.nd.array([4.0])).asnumpy() == [5]


def test_what_a_symbol_block_cannot_be_made_from() -> None:
    data = mx.sym.var("data")
    with pytest.raises(ValueError, match="Input symbols must be variables, but hidden is the output of"):
        gluon.SymbolBlock(data * 2, mx.sym.relu(data, name="hidden"))
    with pytest.raises(TypeError, match="SymbolBlock is made from Symbols; received 'x'"):
        gluon.SymbolBlock("x", data)


def test_auxiliary_states_are_not_trained(style: Any) -> None:
    data = mx.sym.var("data")
    block = gluon.SymbolBlock(mx.sym.BatchNorm(data, fix_gamma=False, name="bn"), data)
    block.initialize()
    x = numpy.random.normal(3, 2, (64, 2)).astype("float32")
    with autograd.record():
        out = block(style.array(x))
    out.backward()
    requests = {name: p.grad_req for name, p in block.collect_params().items()}
    assert requests == {
        "bn_gamma": "write",
        "bn_beta": "write",
        "bn_moving_mean": "null",
        "bn_moving_var": "null",
    }
    mean = block.collect_params()["bn_moving_mean"].data().asnumpy()
    numpy.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-4)


def test_sizes_stay_symbolic_without_a_file(style: Any) -> None:
    """What export(None) gives works for other sizes, as the network does."""

    def body(self: Any, F: Any, x: Any) -> Any:
        y = x.exp()
        return y.reshape((y.shape[0] * y.shape[1], -1)) * (y.shape[2] // 2)

    block = style.block(body)
    block.hybridize()
    block(style.array(numpy.ones((2, 3, 4))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        symbol, _ = block.export(None)
    again = gluon.SymbolBlock(symbol, mx.sym.var("data"))
    for shape in ((2, 3, 4), (5, 1, 6)):
        x = numpy.random.uniform(0, 1, shape).astype("float32")
        expected = numpy.exp(x).reshape(shape[0] * shape[1], -1) * (shape[2] // 2)
        close(again(style.array(x)), expected)
