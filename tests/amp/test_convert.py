"""Converted Symbols, models and blocks: where casts go, what is stored, that the originals read the files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import amp, autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((GOLDEN_FOLDER / "amp.json").read_text())
sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))

from interop_support import Level, require  # noqa: E402

# The graph and how its casts are read are those that the originals were asked with.
_source = (GOLDEN_FOLDER / "make" / "amp_classes.py").read_text()
_source = _source[_source.index("CONVERSIONS = ") : _source.index("def main")]
ASKED: dict[str, Any] = {"os": __import__("os"), "json": json, "tempfile": __import__("tempfile")}
exec(compile(_source, "amp_classes.py", "exec"), ASKED)
# What is float32 already is not cast to it again.
NOT_CAST = {"own lists": {"elu": [None], "heads": [None, "float32", None, None]}}


def kind(array: Any) -> str:
    return str(array._t.dtype).removeprefix("torch.")


def network() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=1), nn.BatchNorm(in_channels=4), nn.Activation("tanh"))
    net.add(nn.Flatten(), nn.Dense(3, in_units=4 * 36))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def image() -> np.ndarray:
    return np.random.RandomState(0).randn(2, 1, 8, 8).astype("float32")


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0beta1"])
@pytest.mark.parametrize("case", ["float16", "bfloat16", "excluded", "own lists"])
def test_casts_are_where_the_originals_put_them(case: str, version: str) -> None:
    symbol = ASKED["graph"](mx)
    found = ASKED["casts"](amp.convert_symbol(symbol, **ASKED["CONVERSIONS"][case]))
    assert found == {**GOLDEN[version]["casts"][case], **NOT_CAST.get(case, {})}
    assert set(ASKED["casts"](symbol)["heads"]) == {None}, "the given Symbol is as it was"


def test_converting_again_starts_from_the_graph_without_casts() -> None:
    symbol = ASKED["graph"](mx)
    twice = amp.convert_symbol(amp.convert_symbol(symbol, "float16"), "bfloat16")
    assert ASKED["casts"](twice) == ASKED["casts"](amp.convert_symbol(symbol, "bfloat16"))


def test_marked_nodes_stay_in_float32() -> None:
    data = mx.sym.var("data")
    first = mx.sym.FullyConnected(data, num_hidden=2, name="first")
    second = mx.sym.FullyConnected(first, num_hidden=2, name="second", attr={"__opt_constraint__": "1"})
    found = ASKED["casts"](amp.convert_symbol(second))
    assert found["first"] == ["float16"] * 3
    assert found["second"] == ["float32", None, None]


def test_parameters_of_a_model_are_cast_where_that_is_all_they_are_for() -> None:
    data, shared = mx.sym.var("data"), mx.sym.var("shared")
    hidden = mx.sym.FullyConnected(data, shared, num_hidden=3, no_bias=True, name="fc")
    symbol = mx.sym.FullyConnected(hidden, num_hidden=2, name="last")
    symbol = mx.sym.broadcast_add(symbol, mx.sym.sum(shared))
    rng = np.random.RandomState(1)
    shapes = {"shared": (3, 4), "last_weight": (2, 3), "last_bias": (2,)}
    arguments = {name: mx.nd.array(rng.randn(*shape)) for name, shape in shapes.items()}
    new, casted, auxiliary = amp.convert_model(symbol, arguments, {}, "bfloat16", cast_optional_params=True)
    assert {name: kind(array) for name, array in casted.items()} == {
        "shared": "float32",
        "last_weight": "bfloat16",
        "last_bias": "bfloat16",
    }
    assert auxiliary == {}
    assert new.attr_dict()["last_weight"]["__dtype__"] == "12"
    plain = amp.convert_model(symbol, arguments, {}, "bfloat16")[1]
    assert {kind(array) for array in plain.values()} == {"float32"}
    x = rng.randn(5, 4).astype("float32")
    w, v, b = (arguments[name].asnumpy() for name in shapes)
    out = new.bind(mx.cpu(), {"data": mx.nd.array(x), **casted}).forward()[0]
    np.testing.assert_allclose(out.asnumpy(), x @ w.T @ v.T + b + w.sum(), rtol=0.05, atol=0.1)


def test_data_names_tell_parameters_from_inputs() -> None:
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    offline = amp.convert_symbol(symbol, data_names=["data"], cast_optional_params=True)
    assert ASKED["casts"](offline)["fc"] == ["float16", None, None]
    assert ASKED["casts"](amp.convert_symbol(symbol, cast_optional_params=True))["fc"] == ["float16"] * 3


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("offline", [False, True])
def test_a_converted_block_computes_in_the_low_precision(low: str, offline: bool) -> None:
    net, x = network(), mx.np.array(image())
    want = net(x).asnumpy()
    low_net = amp.convert_hybrid_block(net, low, cast_optional_params=offline)
    assert isinstance(low_net, gluon.SymbolBlock)
    for _ in range(3):
        out = low_net(x)
        assert type(out) is type(x) and kind(out) == "float32"
        difference = np.abs(out.asnumpy() - want).max()
        assert 0 < difference < 0.03 * np.abs(want).max() + 0.01
    kinds = {name: kind(p.data()) for name, p in low_net.collect_params().items()}
    cast = {"0.weight", "0.bias", "4.weight", "4.bias"}
    assert {name for name, found in kinds.items() if found == low} == (cast if offline else set())
    assert {kind(p.data()) for p in net.collect_params().values()} == {"float32"}
    np.testing.assert_allclose(net(x).asnumpy(), want, atol=1e-5)


def test_a_converted_block_is_trained_in_its_own_parameters() -> None:
    net, x = network(), mx.np.array(image())
    net(x)
    low_net = amp.convert_hybrid_block(net, "bfloat16")
    with autograd.record():
        loss = low_net(x).sum()
    loss.backward()
    with autograd.record():
        exact = net(x).sum()
    exact.backward()
    for name, parameter in net.collect_params().items():
        if parameter.grad_req != "null":
            got = low_net.collect_params()[name].grad()
            assert kind(got) == "float32"
            scale = np.abs(parameter.grad().asnumpy()).max() + 1.0
            np.testing.assert_allclose(
                got.asnumpy(), parameter.grad().asnumpy(), atol=0.05 * scale, err_msg=name
            )


def test_conversion_does_not_depend_on_the_mixed_precision_that_is_on() -> None:
    net, x = network(), mx.np.array(image())
    amp.init("float16")
    net(x)
    converted = amp.convert_hybrid_block(net, "bfloat16", excluded_sym_names=["4_fwd"])
    symbol, _ = converted.export(None)
    del symbol
    outputs = converted(mx.sym.var("data")).get_internals().list_outputs()
    assert not any("float16" in name.replace("bfloat16", "") for name in outputs)
    assert not any(name.startswith("4.weight_amp_cast") for name in outputs)


def test_nested_inputs_and_outputs_keep_their_structure() -> None:
    class Nested(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def forward(self, pair: Any, y: Any) -> Any:
            a, b = pair
            return {"sum": self.dense(a) + self.dense(b)}, [y * 2]

    net = Nested()
    net.initialize()
    net.hybridize()
    x = mx.np.ones((2, 3))
    want = net((x, x), x)
    got = amp.convert_hybrid_block(net, "bfloat16")((x, x), x)
    np.testing.assert_allclose(got[0]["sum"].asnumpy(), want[0]["sum"].asnumpy(), atol=0.02)
    np.testing.assert_array_equal(got[1][0].asnumpy(), 2 * np.ones((2, 3)))


def test_wrong_arguments_are_refused() -> None:
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    with pytest.raises(RuntimeError, match=r"Please first call block\.hybridize\(\)"):
        amp.convert_hybrid_block(net)
    with pytest.raises(TypeError, match="takes a HybridBlock; received Symbol"):
        amp.convert_hybrid_block(mx.sym.var("x"))
    with pytest.raises(TypeError, match="takes a Symbol; received Dense"):
        amp.convert_symbol(net)
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc1")
    with pytest.raises(MXNetError, match=r"no node of the graph is called fc2 \(nearest: fc1"):
        amp.convert_symbol(symbol, excluded_sym_names=["fc2"])


# Files ----------------------------------------------------------------------


def saved_kinds(path: Path) -> set[str]:
    return {kind(array) for array in mx.nd.load(str(path)).values()}


@pytest.mark.parametrize("offline", [False, True])
def test_an_export_is_a_float32_model_unless_casts_are_kept(tmp_path: Path, offline: bool) -> None:
    net, x = network(), mx.np.array(image())
    want = net(x).asnumpy()
    low_net = amp.convert_hybrid_block(net, "bfloat16", cast_optional_params=offline)
    low_net.export(str(tmp_path / "plain"))
    low_net.export(str(tmp_path / "kept"), remove_amp_cast=False)
    assert saved_kinds(tmp_path / "plain-0000.params") == {"float32"}
    assert saved_kinds(tmp_path / "kept-0000.params") == ({"float32", "bfloat16"} if offline else {"float32"})
    assert "amp_cast" not in (tmp_path / "plain-symbol.json").read_text()
    assert "amp_cast" in (tmp_path / "kept-symbol.json").read_text()
    for name, tolerance in (("plain", 0.02 if offline else 1e-5), ("kept", 0.05)):
        prefix = tmp_path / name
        back = gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
        np.testing.assert_allclose(back(x).asnumpy(), want, atol=tolerance)


def test_a_block_that_runs_in_mixed_precision_exports_a_float32_model(tmp_path: Path) -> None:
    net, x = network(), mx.np.array(image())
    want = net(x).asnumpy()
    amp.init("bfloat16")
    assert kind(net(x)) == "bfloat16"
    net.export(str(tmp_path / "plain"))
    net.export(str(tmp_path / "kept"), remove_amp_cast=False)
    amp.reset()
    net.export(str(tmp_path / "after"), remove_amp_cast=False)
    found = {
        name: "amp_cast" in (tmp_path / f"{name}-symbol.json").read_text()
        for name in ("plain", "kept", "after")
    }
    assert found == {"plain": False, "kept": True, "after": False}
    assert saved_kinds(tmp_path / "plain-0000.params") == {"float32"}
    back = gluon.SymbolBlock.imports(
        str(tmp_path / "plain-symbol.json"), ["data"], str(tmp_path / "plain-0000.params")
    )
    np.testing.assert_allclose(back(x).asnumpy(), want, atol=1e-5)


READER = """
import sys
import numpy
import mxnet as mx
x = numpy.load(sys.argv[1])
x = mx.nd.array(x) if mx.__version__[0] == "1" else mx.np.array(x)
for prefix in sys.argv[2:]:
    block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["data"], prefix + "-0000.params")
    numpy.save(prefix + "-out.npy", block(x).astype("float32").asnumpy())
"""


@pytest.mark.parametrize("generation", [1, 2])
def test_the_originals_read_exports_with_and_without_casts(tmp_path: Path, generation: int) -> None:
    python = require(generation)
    np.save(tmp_path / "x.npy", image())
    with Level(generation):
        net = network()
        x = mx.np.array(image()) if generation == 2 else mx.nd.array(image())
        want = net(x).asnumpy()
        low_net = amp.convert_hybrid_block(net, "bfloat16", cast_optional_params=True)
        low_net.export(str(tmp_path / "plain"))
        amp.convert_hybrid_block(net, "bfloat16").export(str(tmp_path / "kept"), remove_amp_cast=False)
    names = ["plain", "kept"]
    command = [
        python,
        "-W",
        "ignore",
        "-c",
        READER,
        str(tmp_path / "x.npy"),
        *(str(tmp_path / n) for n in names),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in names:
        np.testing.assert_allclose(np.load(tmp_path / f"{name}-out.npy"), want, atol=0.03, err_msg=name)
