"""export: two files that both generations of MXNet read, and what comes back from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.gluon import nn
from regluon.serial import params


def dense_net(style: Any, hybridize: bool = True) -> tuple[Any, Any, numpy.ndarray]:
    """Dense(3) on known weights: the network, its input, and the result that NumPy computes."""
    net = nn.Dense(3)
    net.initialize()
    if hybridize:
        net.hybridize()
    host = numpy.arange(8, dtype="float32").reshape(2, 4)
    x = style.array(host)
    net(x)
    weight = numpy.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    bias = numpy.array([0.5, -0.5, 1], "float32")
    net.weight.set_data(style.array(weight))
    net.bias.set_data(style.array(bias))
    return net, x, host @ weight.T + bias


def nodes_of(path: Any) -> list[dict[str, Any]]:
    return json.loads(Path(path).read_text())["nodes"]


def names_in(path: Any) -> list[str]:
    """The names in a ``.params`` file."""
    return [name for name, _ in params.iterate(path)]


# The files ----------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "digits"), [(0, "0000"), (1, "0001"), (999, "0999"), (12345, "12345")])
def test_two_files_with_the_epoch_in_four_digits(style: Any, tmp_path: Path, epoch: int, digits: str) -> None:
    net, _, _ = dense_net(style)
    symbol, values = net.export(tmp_path / "model", epoch)
    assert (symbol, values) == (f"{tmp_path}/model-symbol.json", f"{tmp_path}/model-{digits}.params")
    assert sorted(os.listdir(tmp_path)) == sorted(["model-symbol.json", f"model-{digits}.params"])


def test_epoch_is_zero_by_default_and_is_a_number(style: Any, tmp_path: Path) -> None:
    net, _, _ = dense_net(style)
    assert net.export(str(tmp_path / "m"))[1].endswith("m-0000.params")
    for wrong in (-1, "1", 1.5, None, True):
        with pytest.raises(ValueError, match="expected an int >= 0, received"):
            net.export(str(tmp_path / "m"), wrong)


def test_export_needs_a_hybridized_call(style: Any) -> None:
    net = nn.Dense(3)
    net.initialize()
    text = (
        r"Please first call block\.hybridize\(\) and then run forward with this block at least once before "
        r"calling export"
    )
    with pytest.raises(RuntimeError, match=text):
        net.export("never")
    net.hybridize()
    with pytest.raises(RuntimeError, match=text):
        net.export("never")
    assert not Path("never-symbol.json").exists()


def test_a_call_before_hybridize_counts_in_1x_only(style: Any) -> None:
    net, _, _ = dense_net(style, hybridize=False)
    if style.level == 1:
        assert set(net.export(None)[1]) == {f"arg:{net.weight.name}", f"arg:{net.bias.name}"}
        return
    with pytest.raises(RuntimeError, match="Please first call block"):
        net.export(None)


def test_one_input_is_data_and_several_are_numbered(style: Any, tmp_path: Path) -> None:
    def inputs(count: int) -> list[str]:
        block = style.block(lambda self, F, x, *more: sum(more, x))
        block.hybridize()
        block(*[style.array([1.0, 2.0])] * count)
        files = block.export(tmp_path / f"m{count}")
        return [node["name"] for node in nodes_of(files[0]) if node["op"] == "null"]

    assert inputs(1) == ["data"]
    assert inputs(2) == ["data0", "data1"]
    assert inputs(3) == ["data0", "data1", "data2"]


def test_names_are_readable(style: Any, tmp_path: Path) -> None:
    def setup(block: Any) -> None:
        block.first = nn.Dense(4, activation="relu")
        block.second = nn.Dense(2)

    block = style.block(lambda self, F, x: self.second(self.first(x)) + 1, setup)
    block.hybridize()
    block(style.array(numpy.ones((1, 3))))
    symbol, values = block.export(tmp_path / "m")
    found = {node["name"]: node["op"] for node in nodes_of(symbol)}
    if style.level == 1:
        prefix = block.prefix
        operators = {f"{prefix}dense0_fwd", f"{prefix}dense0_relu_fwd", f"{prefix}dense1_fwd"}
        variables = [f"{prefix}dense{i}_{kind}" for i in (0, 1) for kind in ("weight", "bias")]
    else:
        operators = {"first_fwd", "first_act_fwd", "second_fwd"}
        variables = [f"{name}.{kind}" for name in ("first", "second") for kind in ("weight", "bias")]
    assert operators < {name for name, op in found.items() if op != "null"}
    assert {name for name, op in found.items() if op == "null"} == {"data", *variables}
    assert sorted(names_in(values)) == sorted(f"arg:{name}" for name in variables)


def test_moving_statistics_are_auxiliary(style: Any, tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=3))
    net.initialize()
    net.hybridize()
    net(style.array(numpy.ones((2, 3, 1, 1))))
    kinds = {name[:3] for name in names_in(net.export(tmp_path / "m")[1]) if "running" in name}
    assert kinds == {"aux"}
    assert sum(name.startswith("arg:") for name in names_in(tmp_path / "m-0000.params")) == 2


def test_shared_parameters_are_written_once(style: Any, tmp_path: Path) -> None:
    net = nn.HybridSequential()
    first = nn.Dense(4, in_units=4, use_bias=False)
    if style.level == 1:
        second = nn.Dense(4, in_units=4, use_bias=False, params=first.params)
    else:
        second = nn.Dense(4, in_units=4, use_bias=False).share_parameters(first.collect_params())
    net.add(first, second)
    net.initialize()
    net.hybridize()
    x = style.array(numpy.eye(4))
    expected = numpy.linalg.matrix_power(first.weight.data().asnumpy().T, 2)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-6)
    symbol, values = net.export(tmp_path / "m")
    assert len(names_in(values)) == 1
    assert sum(node["op"] == "null" for node in nodes_of(symbol)) == 2
    again = gluon.SymbolBlock.imports(symbol, "data", values)
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-4, atol=1e-6)


def test_unused_parameters_stay_out(style: Any, tmp_path: Path) -> None:
    def setup(block: Any) -> None:
        block.used = nn.Dense(1, in_units=2)
        block.unused = nn.Dense(1, in_units=2)

    block = style.block(lambda self, F, x: self.used(x), setup)
    block.hybridize()
    with pytest.warns(UserWarning, match="is not used by any computation"):
        block(style.array(numpy.ones((1, 2))))
    assert len(names_in(block.export(tmp_path / "m")[1])) == 2


def test_without_a_path_symbol_and_values_come_back(style: Any, tmp_path: Path) -> None:
    net, x, expected = dense_net(style)
    symbol, values = net.export(None)
    assert isinstance(symbol, mx.sym.Symbol)
    kind = mx.sym.var("x") if style.level == 1 else mx.sym.var("x").as_np_ndarray()
    assert type(symbol) is type(kind)
    keys = {name.split(":", 1)[1] for name in values}
    assert set(symbol.list_arguments()) == {"data", *keys}
    assert not list(tmp_path.iterdir())
    # They are values of this moment, not the parameters themselves.
    net.weight.set_data(net.weight.data() * 0)
    block = gluon.SymbolBlock(symbol, mx.sym.var("data"), params=values)
    numpy.testing.assert_allclose(block(x).asnumpy(), expected, rtol=1e-5)


def test_values_are_those_of_the_moment_of_export(style: Any, tmp_path: Path) -> None:
    net, x, expected = dense_net(style)
    files = net.export(tmp_path / "m")
    again = gluon.SymbolBlock.imports(files[0], "data", files[1])
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


def test_any_batch_size_works_after_export(style: Any, tmp_path: Path) -> None:
    net, _, _ = dense_net(style)
    files = net.export(tmp_path / "m")
    again = gluon.SymbolBlock.imports(files[0], "data", files[1])
    for batch in (1, 2, 7):
        assert again(style.array(numpy.ones((batch, 4)))).shape == (batch, 3)


def test_a_size_that_python_read_is_named_with_its_line(style: Any, tmp_path: Path) -> None:
    def body(self: Any, F: Any, x: Any) -> Any:
        return x * float(x.shape[0])

    block = style.block(body)
    block.hybridize()
    block(style.array(numpy.ones((3, 2))))
    where = rf"a size \(data\.shape\[0\] = 3\) was read as a number at .*{Path(__file__).name}"
    with pytest.warns(UserWarning, match=where):
        block.export(tmp_path / "m")


@pytest.mark.parametrize("format", [None, "npz"])
def test_both_containers_load(style: Any, tmp_path: Path, format: str | None) -> None:
    net, x, expected = dense_net(style)
    files = net.export(tmp_path / "m", format=format)
    assert (Path(files[1]).read_bytes()[:2] == b"PK") == (format == "npz")
    again = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


# Casts of automatic mixed precision -------------------------------------------------------------------


def test_casts_of_mixed_precision_are_left_out_of_files(style: Any, tmp_path: Path) -> None:
    data = mx.sym.var("data")
    low = mx.sym.amp_cast(data, dtype="float16", name="cast")
    block = gluon.SymbolBlock(mx.sym.amp_cast(low * 2, dtype="float32", name="back"), data)
    block.hybridize()
    block(style.array([1.0]))
    operators = lambda **options: [  # noqa: E731
        node["op"] for node in nodes_of(block.export(tmp_path / "m", **options)[0]) if node["op"] != "null"
    ]
    assert operators() == ["_mul_scalar"]
    assert operators(remove_amp_cast=False) == ["amp_cast", "_mul_scalar", "amp_cast"]


# Nothing half written ----------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["params", "symbol"])
def test_a_failing_export_leaves_the_old_files(
    style: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    net, _, _ = dense_net(style)
    files = net.export(tmp_path / "m")
    before = [Path(file).read_bytes() for file in files]
    net.weight.set_data(net.weight.data() * 2)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("No space left on device")

    from regluon.gluon import files as module

    if failing == "params":
        monkeypatch.setattr(module.serial, "write", fail)
    else:
        monkeypatch.setattr(module.convert, "to_json", fail)
    with pytest.raises(OSError, match="No space left"):
        net.export(tmp_path / "m")
    assert [Path(file).read_bytes() for file in files] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m-0000.params", "m-symbol.json"]


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    class Twice(mx.autograd.Function):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, gradient: Any) -> Any:
            return gradient * 2

    class Net(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return Twice()(x)

    net = Net()
    net.hybridize()
    net(mx.np.ones((2,)))
    with pytest.raises(mx.base.MXNetError, match=r"Python code without a name.*a file cannot hold it"):
        net.export(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(style: Any, tmp_path: Path) -> None:
    net, _, _ = dense_net(style)
    with pytest.raises(FileNotFoundError, match="missing"):
        net.export(tmp_path / "missing" / "m")


# Structures ----------------------------------------------------------------------


def test_nested_inputs_and_outputs_keep_their_structure(style: Any, tmp_path: Path) -> None:
    def body(self: Any, F: Any, pair: Any, table: Any) -> Any:
        return {"sum": pair[0] + pair[1], "rest": [table["b"] * 2, (table["a"], pair[0])]}

    block = style.block(body)
    block.hybridize()
    one, two, three, four = (style.array([float(i)]) for i in (1, 2, 3, 4))

    def check(out: Any) -> None:
        assert list(out) == ["sum", "rest"] and type(out["rest"]) is list and type(out["rest"][1]) is tuple
        assert out["sum"].asnumpy() == [3] and out["rest"][0].asnumpy() == [8]
        assert [array.asnumpy().tolist() for array in out["rest"][1]] == [[3], [1]]

    check(block([one, two], {"a": three, "b": four}))
    files = block.export(tmp_path / "m")
    names = [f"data{i}" for i in range(4)]
    for again in (gluon.SymbolBlock.imports(files[0], names), gluon.SymbolBlock.imports(files[0], names)):
        check(again([one, two], {"a": three, "b": four}))
        check(again([one, two], {"b": four, "a": three}))
        check(again(one, two, three, four))
        files = again.export(tmp_path / "again")


def test_one_output_in_a_list_stays_in_its_list(style: Any, tmp_path: Path) -> None:
    block = style.block(lambda self, F, x: [x * 2])
    block.hybridize()
    x = style.array([1.0])
    assert isinstance(block(x), list)
    files = block.export(tmp_path / "m")
    out = gluon.SymbolBlock.imports(files[0], ["data"])(x)
    assert isinstance(out, list) and out[0].asnumpy().tolist() == [2]


def test_none_among_the_arguments(style: Any, tmp_path: Path) -> None:
    block = style.block(lambda self, F, x, mask=None: x + 1 if mask is None else x * mask)
    block.hybridize()
    block(style.array([1.0]), None)
    files = block.export(tmp_path / "m")
    assert gluon.SymbolBlock.imports(files[0], ["data"])(style.array([1.0])).asnumpy().tolist() == [2]


# A chain of loads, and another process -------------------------------------------------------------------


def test_export_of_what_was_imported_is_the_same(style: Any, tmp_path: Path) -> None:
    net, x, expected = dense_net(style)
    files = net.export(tmp_path / "a")
    again = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    copies = again.export(tmp_path / "b")
    for name in ("name", "op", "inputs"):
        assert [n[name] for n in nodes_of(copies[0])] == [n[name] for n in nodes_of(files[0])]
    assert names_in(copies[1]) == names_in(files[1])
    third = gluon.SymbolBlock.imports(copies[0], ["data"], copies[1])
    numpy.testing.assert_allclose(third(x).asnumpy(), expected, rtol=1e-5)


def test_a_new_process_gives_the_same_numbers(tmp_path: Path) -> None:
    expected = []
    for level in (1, 2):
        mx.set_api(level)
        net, _, numbers = dense_net(SimpleNamespace(array=mx.nd.array if level == 1 else mx.np.array))
        net.export(tmp_path / f"m{level}", 7)
        expected.append(numbers)
    code = (
        "import regluon as mx, numpy, json\n"
        "x = mx.nd.array(numpy.arange(8).reshape(2, 4))\n"
        "nets = [mx.gluon.SymbolBlock.imports(f'm{i}-symbol.json', ['data'], f'm{i}-0007.params')"
        " for i in (1, 2)]\n"
        "print(json.dumps([net(x).asnumpy().tolist() for net in nets]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    numpy.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-5)


def test_export_after_a_change_of_structure_records_again(style: Any, tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    net(style.array(numpy.ones((2, 4))))
    with pytest.warns(UserWarning, match="hybridization is switched off"):
        net.add(nn.Dense(2, in_units=3))
    net[1].initialize()
    assert len(names_in(net.export(tmp_path / "m")[1])) == 4


def test_train_mode_graphs_are_not_what_is_exported(style: Any, tmp_path: Path) -> None:
    """A graph recorded in train mode has Dropout on: the file holds the one of predict mode."""
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.Dense(2, in_units=3))
    net.initialize()
    net.hybridize()
    x = style.array(numpy.ones((1, 3)))
    with mx.autograd.record():
        net(x)
    files = net.export(tmp_path / "m")
    again = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    numpy.testing.assert_allclose(again(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)
    # Still a Dropout, which train mode switches on.
    with mx.autograd.train_mode():
        rows = again(style.array(numpy.ones((64, 3)))).asnumpy()
    assert len({tuple(row) for row in rows.tolist()}) > 1
