"""Files of blocks, and what acts on all parameters of a block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn


def network(dtype: str = "float32", init: Any = None) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.Dense(2, in_units=3))
    net.cast(dtype)
    net.initialize(init or mx.init.Uniform(1))
    return net


def values(block: Any) -> list[numpy.ndarray]:
    return [parameter.data().asnumpy() for parameter in block.collect_params().values()]


def dtypes(block: Any) -> set[str]:
    found = {numpy.dtype(p.data().dtype).name for p in block.collect_params().values()}
    assert {numpy.dtype(p.dtype).name for p in block.collect_params().values()} == found
    return found


def same(left: Any, right: Any) -> bool:
    return all(numpy.array_equal(a, b) for a, b in zip(values(left), values(right), strict=True))


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias"]


# Parameters in files ----------------------------------------------------------------------


@pytest.mark.parametrize("format", [None, "params", "npz"])
def test_round_trip_with_structural_names(style: Any, tmp_path: Path, format: str | None) -> None:
    net, other = network(), network()
    assert not same(net, other)
    net.save_parameters(tmp_path / "p", format=format)
    assert sorted(mx.nd.load(str(tmp_path / "p"))) == sorted(NAMES)
    other.load_parameters(tmp_path / "p")
    assert same(net, other)


def test_loading_into_blocks_that_are_not_initialized(style: Any, tmp_path: Path) -> None:
    net = network()
    net.save_parameters(str(tmp_path / "p"))
    other = nn.HybridSequential()
    other.add(nn.Dense(3), nn.Dense(2))
    other.load_parameters(str(tmp_path / "p"), mx.cpu(1))
    assert same(net, other)
    assert other[0].weight.list_ctx() == [mx.cpu(1)]
    other = nn.HybridSequential()
    other.add(nn.Dense(3), nn.Dense(2))
    other.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    other.load_parameters(str(tmp_path / "p"))
    assert [array.context for array in other[0].weight.list_data()] == [mx.cpu(0), mx.cpu(1)]
    for array in other[0].weight.list_data():
        numpy.testing.assert_array_equal(array.asnumpy(), values(net)[0])


@pytest.mark.parametrize("keyword", ["ctx", "device"])
def test_both_words_for_the_device(style: Any, tmp_path: Path, keyword: str) -> None:
    network().save_parameters(tmp_path / "p")
    other = nn.HybridSequential()
    other.add(nn.Dense(3), nn.Dense(2))
    other.load_parameters(tmp_path / "p", **{keyword: mx.cpu(1)})
    assert other[1].bias.list_ctx() == [mx.cpu(1)]


def test_a_hybridized_network_uses_what_was_loaded(style: Any, tmp_path: Path) -> None:
    net, other = network(), network()
    x = style.array(numpy.ones((1, 2)))
    other.hybridize(static_alloc=True, static_shape=True)
    other(x)
    net.save_parameters(tmp_path / "p")
    other.load_parameters(tmp_path / "p")
    numpy.testing.assert_allclose(other(x).asnumpy(), net(x).asnumpy(), rtol=1e-5)


def test_missing_parameters(style: Any, tmp_path: Path) -> None:
    first = network()[0]
    first.save_parameters(tmp_path / "p")
    renamed = {f"0.{name}": array for name, array in mx.nd.load(str(tmp_path / "p")).items()}
    mx.nd.save(str(tmp_path / "half"), renamed)
    net = network()
    before = values(net)
    with pytest.raises(
        AssertionError, match=r"Parameter '1\.weight' is missing in file: .*half.*allow_missing=True"
    ):
        net.load_parameters(tmp_path / "half")
    # An error changes nothing.
    assert all(numpy.array_equal(a, b) for a, b in zip(values(net), before, strict=True))
    net.load_parameters(tmp_path / "half", allow_missing=True)
    numpy.testing.assert_array_equal(values(net)[0], first.weight.data().asnumpy())
    numpy.testing.assert_array_equal(values(net)[2], before[2])


def test_extra_parameters(style: Any, tmp_path: Path) -> None:
    net = network()
    loaded = {name: array for name, array in zip(NAMES, map(style.array, values(net)), strict=True)}
    mx.nd.save(str(tmp_path / "p"), {**loaded, "2.weight": loaded["0.weight"]})
    other = network()
    with pytest.raises(ValueError, match=r"Parameter '2\.weight' loaded from file .* Set ignore_extra=True"):
        other.load_parameters(tmp_path / "p")
    other.load_parameters(tmp_path / "p", ignore_extra=True)
    assert same(net, other)


def test_wrong_shapes_name_the_parameter_and_both_shapes(style: Any, tmp_path: Path) -> None:
    network().save_parameters(tmp_path / "p")
    other = nn.HybridSequential()
    other.add(nn.Dense(3, in_units=5), nn.Dense(2, in_units=3))
    other.initialize()
    with pytest.raises(AssertionError, match=r"weight.*its shape is \(3, 5\), the file holds \(3, 2\)"):
        other.load_parameters(tmp_path / "p")


def test_an_error_in_the_last_parameter_changes_none(style: Any, tmp_path: Path) -> None:
    network().save_parameters(tmp_path / "p")
    loaded = mx.nd.load(str(tmp_path / "p"))
    for wrong in (mx.nd.ones((7,)), loaded["1.bias"].astype("float16")):
        mx.nd.save(str(tmp_path / "wrong"), {**loaded, "1.bias": wrong})
        net = network()
        before = values(net)
        with pytest.raises(ValueError, match="cannot be loaded"):
            net.load_parameters(tmp_path / "wrong")
        assert all(numpy.array_equal(a, b) for a, b in zip(values(net), before, strict=True))


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({}, None),
        ({"dtype_source": "saved"}, None),
        ({"cast_dtype": True}, "float32"),
        ({"cast_dtype": True, "dtype_source": "current"}, "float32"),
        ({"cast_dtype": True, "dtype_source": "saved"}, "float16"),
    ],
)
def test_types(style: Any, tmp_path: Path, options: dict[str, Any], result: str | None) -> None:
    saved = network("float16")
    saved.save_parameters(tmp_path / "p")
    net = network()
    if result is None:
        with pytest.raises(
            AssertionError, match=r"its dtype is float32, the file holds float16.*cast_dtype=True"
        ):
            net.load_parameters(tmp_path / "p", **options)
        return
    net.load_parameters(tmp_path / "p", **options)
    assert dtypes(net) == {result}
    for ours, theirs in zip(values(net), values(saved), strict=True):
        numpy.testing.assert_array_equal(ours, theirs.astype(result))
    with autograd.record():
        out = net(style.array(numpy.ones((1, 2)), result)).sum()
    out.backward()
    assert numpy.dtype(net[0].weight.grad().dtype).name == result


def test_dtype_source_takes_two_words(tmp_path: Path) -> None:
    network("float16").save_parameters(tmp_path / "p")
    with pytest.raises(ValueError, match="dtype_source must be 'current' or 'saved'; received 'file'"):
        network().load_parameters(tmp_path / "p", cast_dtype=True, dtype_source="file")


def shared_pair(style: Any) -> Any:
    first = nn.Dense(2, in_units=2)
    if style.level == 1:
        second = nn.Dense(2, in_units=2, params=first.params)
    else:
        second = nn.Dense(2, in_units=2).share_parameters(first.collect_params())
    net = nn.HybridSequential()
    net.add(first, second)
    net.initialize(mx.init.Uniform(1))
    return net


def test_deduplicate_writes_shared_parameters_once(style: Any, tmp_path: Path) -> None:
    net = shared_pair(style)
    net.save_parameters(tmp_path / "all")
    net.save_parameters(tmp_path / "once", deduplicate=True)
    assert sorted(mx.nd.load(str(tmp_path / "all"))) == sorted(NAMES)
    # The originals keep the last name.
    assert sorted(mx.nd.load(str(tmp_path / "once"))) == ["1.bias", "1.weight"]
    for name in ("all", "once"):
        other = shared_pair(style)
        other.load_parameters(tmp_path / name)
        numpy.testing.assert_array_equal(other[0].weight.data().asnumpy(), net[0].weight.data().asnumpy())
        assert other[0].weight is other[1].weight


def test_load_dict(style: Any) -> None:
    net, other = network(), network()
    given = dict(zip(NAMES, map(style.array, values(net)), strict=True))
    other.load_dict(given)
    assert same(net, other)
    with pytest.raises(AssertionError, match=r"Parameter '1\.bias' is missing"):
        other.load_dict({name: given[name] for name in NAMES[:3]})
    other.load_dict({name: given[name] for name in NAMES[:3]}, allow_missing=True)
    with pytest.raises(ValueError, match="Parameter 'more' loaded from"):
        other.load_dict({**given, "more": given["1.bias"]})
    other.load_dict({**given, "more": given["1.bias"]}, ignore_extra=True)
    half = {name: array.astype("float16") for name, array in given.items()}
    other.load_dict(half, cast_dtype=True, dtype_source="saved")
    assert dtypes(other) == {"float16"}
    fresh = nn.HybridSequential()
    fresh.add(nn.Dense(3), nn.Dense(2))
    fresh.load_dict({f"arg:{name}": array for name, array in given.items()}, device=mx.cpu(1))
    assert same(net, fresh) and fresh[0].weight.list_ctx() == [mx.cpu(1)]


def test_files_without_names_and_files_that_are_none(tmp_path: Path) -> None:
    net = network()
    mx.nd.save(str(tmp_path / "list"), [mx.nd.ones((1,))])
    with pytest.raises(ValueError, match="holds 1 arrays without names"):
        net.load_parameters(tmp_path / "list")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="text"):
        net.load_parameters(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        net.load_parameters(tmp_path / "none")


def test_a_failing_save_keeps_the_old_file(
    style: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network()
    net.save_parameters(tmp_path / "p")
    before = (tmp_path / "p").read_bytes()
    from regluon.serial import params

    def fail(stream: Any, records: Any) -> None:
        stream.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(params, "write", fail)
    with pytest.raises(OSError, match="No space"):
        net.save_parameters(tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_old_names_of_methods(tmp_path: Path) -> None:
    """save_params of 1.x wrote names with prefixes, without the block's own."""
    mx.set_api(1)

    def made(prefix: str) -> Any:
        net = nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            net.add(nn.Dense(3, in_units=2), nn.Dense(2, in_units=3))
        net.initialize(mx.init.Uniform(1))
        return net

    net, other = made("one_"), made("two_")
    with pytest.warns(DeprecationWarning, match="use save_parameters"):
        net.save_params(str(tmp_path / "old"))
    assert sorted(mx.nd.load(str(tmp_path / "old")))[0] == "dense0_bias"
    with pytest.warns(DeprecationWarning, match="use load_parameters"):
        other.load_params(str(tmp_path / "old"))
    assert same(net, other)
    third = made("three_")
    third.load_parameters(str(tmp_path / "old"))
    assert same(net, third)


def test_exported_parameters_load_into_the_network(style: Any, tmp_path: Path) -> None:
    net = network()
    net.hybridize()
    net(style.array(numpy.ones((1, 2))))
    _, file = net.export(tmp_path / "m")
    other = network()
    other.load_parameters(file)
    assert same(net, other)


def test_parameters_of_the_dict_in_files(style: Any, tmp_path: Path) -> None:
    net, other = network(), network()
    net.collect_params().save(str(tmp_path / "p"))
    names = sorted(mx.nd.load(str(tmp_path / "p")))
    assert names == sorted(net.collect_params())
    if style.level == 2:
        other.collect_params().load(str(tmp_path / "p"))
        assert same(net, other)
    net.collect_params().load(str(tmp_path / "p"))


# Structures ----------------------------------------------------------------------


def test_save_and_load_of_a_whole_block(style: Any, tmp_path: Path) -> None:
    net, other = network(), network()
    net.save(str(tmp_path / "model"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model-model.json", "model-model.params"]
    json.loads((tmp_path / "model-model.json").read_text())
    other.load(str(tmp_path / "model"))
    assert same(net, other)
    different = nn.HybridSequential()
    different.add(nn.Dense(3, in_units=2))
    different.initialize()
    with pytest.raises(ValueError, match="the saved model has HybridSequential with children"):
        different.load(str(tmp_path / "model"))


# Acting on all parameters ----------------------------------------------------------------------


def test_share_parameters() -> None:
    net, other = network(), network()
    assert other.share_parameters(net.collect_params()) is other
    assert other[0].weight is net[0].weight and other[1].bias is net[1].bias
    some = network()
    some.share_parameters({"0.weight": net[0].weight})
    assert some[0].weight is net[0].weight and some[1].weight is not net[1].weight
    assert list(some.collect_params()) == NAMES
    for wrong in (3, [net[0].weight], None):
        with pytest.raises(ValueError, match="the dict that collect_params\\(\\) gives; received"):
            some.share_parameters(wrong)
    x = mx.np.ones((1, 2))
    with autograd.record():
        loss = (net(x) + other(x)).sum()
    loss.backward()
    once = net[1].bias.grad().asnumpy()
    numpy.testing.assert_allclose(once, [2, 2])


def test_apply_goes_below_first(style: Any) -> None:
    net = network()
    seen: list[str] = []
    assert net.apply(lambda block: seen.append(type(block).__name__)) is net
    assert seen == ["Dense", "Dense", "HybridSequential"]


def test_zero_grad(style: Any) -> None:
    net = network()
    net.setattr("grad_req", "add")
    for _ in range(2):
        with autograd.record():
            loss = net(style.array(numpy.ones((3, 2)))).sum()
        loss.backward()
    numpy.testing.assert_allclose(net[1].bias.grad().asnumpy(), [6, 6])
    net.zero_grad()
    assert all(not p.grad().asnumpy().any() for p in net.collect_params().values())
    net.collect_params().zero_grad()


def test_setattr(style: Any) -> None:
    net = network()
    net.setattr("grad_req", "null")
    assert {p.grad_req for p in net.collect_params().values()} == {"null"}
    net.setattr("lr_mult", 0.5)
    assert {p.lr_mult for p in net.collect_params().values()} == {0.5}
    with pytest.raises(ValueError, match="received 'wrong'"):
        net.setattr("grad_req", "wrong")


@pytest.mark.parametrize("move", ["reset_ctx", "reset_device"])
@pytest.mark.parametrize("hybridize", [False, True])
def test_moving_a_block(style: Any, move: str, hybridize: bool) -> None:
    net, host = network(), numpy.ones((1, 2))
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    expected = net(style.array(host)).asnumpy()
    getattr(net, move)(mx.cpu(1))
    x = style.array(host).as_in_context(mx.cpu(1))
    out = net(x)
    assert out.context == mx.cpu(1)
    numpy.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-6)
    with pytest.raises(RuntimeError, match=r"was not initialized on cpu\(0\); it is on \[cpu\(1\)\]"):
        net(style.array(host))
    getattr(net, move)([mx.cpu(0), mx.cpu(1)])
    for context in (mx.cpu(0), mx.cpu(1)):
        numpy.testing.assert_allclose(net(x.as_in_context(context)).asnumpy(), expected, rtol=1e-6)
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    assert net[1].bias.grad(mx.cpu(1)).asnumpy().tolist() == [1, 1]


# summary ----------------------------------------------------------------------

# What 2.0.0b1 prints; 1.9.1 has the same rows, and one more with a Symbol for each activation.
SUMMARY = """\
--------------------------------------------------------------------------------
        Layer (type)                                Output Shape         Param #
================================================================================
               Input                                (2, 3, 8, 8)               0
        Activation-1                                (2, 4, 6, 6)               0
            Conv2D-2                                (2, 4, 6, 6)             112
         BatchNorm-3                                (2, 4, 6, 6)              16
         MaxPool2D-4                                (2, 4, 3, 3)               0
           Flatten-5                                     (2, 36)               0
        Activation-6                                      (2, 5)               0
             Dense-7                                      (2, 5)             185
           Dropout-8                                      (2, 5)               0
             Dense-9                                      (2, 2)              12
            Dense-10                                      (2, 2)               6
================================================================================
Parameters in forward computation graph, duplicate included
   Total params: 331
   Trainable params: 323
   Non-trainable params: 8
Shared params in forward computation graph: 0
Unique parameters in model: 331
--------------------------------------------------------------------------------
"""


def test_summary(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2), nn.Dense(2))
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, activation="relu"),
        nn.BatchNorm(),
        nn.MaxPool2D(),
        nn.Flatten(),
        nn.Dense(5, activation="tanh"),
        nn.Dropout(0.5),
        inner,
    )
    net.initialize()
    x = style.array(numpy.ones((2, 3, 8, 8)))
    net.summary(x)
    assert capsys.readouterr().out == SUMMARY
    # It leaves no hooks behind, and is refused once layers are not called any more.
    net(x)
    assert capsys.readouterr().out == ""
    net.hybridize()
    with pytest.raises(AssertionError, match="must not be hybridized to print summary"):
        net.summary(x)


def test_summary_of_several_inputs_and_shared_parameters(
    style: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = shared_pair(style)

    class Two(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pair[0], pair[1]

        def forward(self, x: Any, y: Any) -> Any:
            return self.second(self.first(x)), y

    Two().summary(style.array(numpy.ones((3, 2))), style.array([1.0]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Input", "(3,", "2),", "(1,)", "0"] in lines
    assert ["Two-3", "(3,", "2),", "(1,)", "0"] in lines
    assert ["Total", "params:", "12"] in lines
    assert "Shared params in forward computation graph: 6".split() in lines
    assert "Unique parameters in model: 6".split() in lines
