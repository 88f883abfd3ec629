"""Symbols: variables, composition, names, attributes, selecting outputs, copies and files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.errors import MXNetError, NotImplementedForSymbol

S = mx.sym


def two_layers() -> Any:
    hidden = S.FullyConnected(S.var("data"), num_hidden=3, name="fc1")
    return S.FullyConnected(hidden, num_hidden=2, name="fc2")


def other() -> Any:
    return S.FullyConnected(S.var("data2"), num_hidden=4, name="o")


# Composition ----------------------------------------------------------------------


def test_composition_leaves_the_original_alone() -> None:
    net = two_layers()
    composed = net(data=other(), name="composed")
    assert composed.name == "composed" and net.name == "fc2"
    assert net.list_arguments() == ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert composed.list_arguments() == ["data2", "o_weight", "o_bias", *net.list_arguments()[1:]]
    assert net(other()).list_arguments() == composed.list_arguments()
    assert net().list_arguments() == net.list_arguments()


def test_a_composed_symbol_computes_the_composition() -> None:
    square = S.square(S.var("x"))
    composed = (S.var("y") + 1)(y=square)
    assert composed.eval(x=mx.nd.array([2, 3]))[0].asnumpy().tolist() == [5, 10]
    shared = S.var("w")
    twice = S.Group([square(x=shared), square(x=shared * 2)])
    assert twice.list_arguments() == ["w"]
    assert [v.asscalar() for v in twice.eval(w=mx.nd.array([3]))] == [9, 36]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda net, x: net(x, fc1_weight=x),
            TypeError,
            "either as positional or keyword arguments, not both",
        ),
        (lambda net, x: net(foo=x), MXNetError, "Keyword argument name foo not found.*data, fc1_weight"),
        (lambda net, x: net(data=3), TypeError, "Compose expect `Symbol` as arguments: data is int"),
        (lambda net, x: net(*[x] * 9), MXNetError, "has 5 arguments .*received 9"),
        (lambda net, x: net(data=S.Group([x, x])), MXNetError, r"has 2; choose one with symbol\[i\]"),
        (lambda net, x: S.relu(S.split(x, num_outputs=2)), MXNetError, r"has 2; choose one with symbol\[i\]"),
        (lambda net, x: S.split(x, num_outputs=2) + x, MXNetError, r"has 2; choose one with symbol\[i\]"),
        (
            lambda net, x: S.FullyConnected(x, num_hidden=2, foo=3),
            MXNetError,
            "no attribute 'foo'.*num_hidden",
        ),
        (lambda net, x: S.FullyConnected(x), MXNetError, "needs the attribute num_hidden"),
        (lambda net, x: x + mx.nd.ones(2), TypeError, "takes all Symbols or all arrays"),
        (lambda net, x: mx.nd.ones(2) + x, TypeError, "takes all Symbols or all arrays"),
        (lambda net, x: x + None, TypeError, "NoneType.* not supported"),
        (lambda net, x: x + "a", TypeError, "str.* not supported"),
        (
            lambda net, x: S.maximum(x, "a"),
            TypeError,
            "maximum takes Symbols and numbers; received Symbol and str",
        ),
        (lambda net, x: S.split_v2(x, 1.5), ValueError, "must be either int, or tuple/list/set of ints"),
        (lambda net, x: S.histogram(x, bins=3), ValueError, "or as an int with range"),
        (lambda net, x: S.Group([]), TypeError, "Expected a list of symbols as input"),
        (lambda net, x: S.Group([x, 3]), TypeError, "Expected a list of symbols as input"),
        (lambda net, x: net.gradient(["data"]), MXNetError, "Executor.backward"),
        (lambda net, x: net.optimize_for("nope"), ValueError, "backend 'nope' is not registered"),
        (lambda net, x: S.load_json("{"), MXNetError, "is not JSON"),
        (lambda net, x: S.load_json(3), TypeError, "reads text; received int"),
        (lambda net, x: S.load(3), TypeError, "fname need to be string; received int"),
    ],
)
def test_refusals(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(two_layers(), S.var("x"))


@pytest.mark.parametrize(
    "call",
    [bool, lambda x: x.asnumpy(), lambda x: x.asscalar(), lambda x: x.wait_to_read(), lambda x: x.backward()],
    ids=["bool", "asnumpy", "asscalar", "wait_to_read", "backward"],
)
def test_values_are_refused(call: Any) -> None:
    with pytest.raises(NotImplementedForSymbol, match="is not implemented for Symbol"):
        call(S.var("x"))
    with pytest.raises(AttributeError, match="'Symbol' object has no attribute 'shape'"):
        _ = S.var("x").shape


def test_functions_of_two_numbers_are_pythons() -> None:
    assert (S.maximum(3, 2), S.minimum(3, 2), S.power(3, 2), S.pow(2, 3)) == (3, 2, 9, 8)
    assert S.hypot(3, 4) == 5


BUILDS: dict[str, Any] = {
    "arithmetic": lambda a, b, f: 2 - a * b / 4 + a**2 - (-b),
    "reflected": lambda a, b, f: 7 % a + 2**b + 1 / a,
    "comparisons": lambda a, b, f: (a > b) * 1.0 + (2 >= a) * 10.0 + (a != 3) * 100.0,
    "functions": lambda a, b, f: f.maximum(a, b) + f.minimum(2, a) + f.hypot(a, b),
    "powers": lambda a, b, f: f.power(2.0, a) + f.power(a, b) + abs(a - b),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_operators_compute(build: Any) -> None:
    left, right = numpy.array([1.0, 2, 3], "float32"), numpy.array([3.0, 2, 1], "float32")
    result = build(S.var("a"), S.var("b"), S).eval(a=mx.nd.array(left), b=mx.nd.array(right))[0]
    numpy.testing.assert_allclose(result.asnumpy(), build(left, right, numpy), rtol=1e-5)


def test_in_place_operators_give_a_new_symbol() -> None:
    symbol = before = S.var("x")
    symbol += 2
    assert symbol is not before and before.name == "x"
    assert symbol.eval(x=mx.nd.ones(1))[0].asscalar() == 3


# Names and attributes ----------------------------------------------------------------------


def test_name_managers() -> None:
    with mx.name.Prefix("my_"):
        named, unnamed = S.FullyConnected(S.var("d"), num_hidden=2, name="fc"), S.relu(S.var("d"))
    assert named.list_arguments() == ["d", "my_fc_weight", "my_fc_bias"] and unnamed.name == "my_relu0"

    class Loud(mx.name.NameManager):
        def get(self, name: str | None, hint: str) -> str:
            return f"LOUD_{hint}"

    with Loud() as loud:
        assert mx.name.NameManager.current is loud is mx.name.current()
        assert S.relu(S.var("d")).name == "LOUD_relu"
        assert (S.var("d") * 2).name == "LOUD__mulscalar"


def test_attribute_scopes() -> None:
    with mx.AttrScope(group="4", data="great"):
        data = S.var("data", attr={"dtype": "data", "group": "1"})
        plain = S.var("plain")
        layer = S.relu(plain)
    assert (data.attr("group"), data.attr("data"), data.attr("dtype")) == ("1", "great", "data")
    assert plain.attr("group") == "4" and layer.attr("group") == "4"
    assert S.var("outside").attr("group") is None
    with mx.AttrScope(a="1"), mx.AttrScope(b="2"):
        assert (
            mx.AttrScope.current.get({"b": "3"})
            == mx.attribute.current().get({"b": "3"})
            == {"a": "1", "b": "3"}
        )
    with pytest.raises(ValueError, match="Attributes need to be string"):
        mx.AttrScope(group=4)


def test_hidden_attributes_have_two_names() -> None:
    symbol = S.var("x", lr_mult=2, wd_mult=0.5)
    assert symbol.attr("lr_mult") == symbol.attr("__lr_mult__") == "2"
    assert symbol.list_attr() == {"lr_mult": "2", "__lr_mult__": "2", "wd_mult": "0.5", "__wd_mult__": "0.5"}
    symbol._set_attr(ctx_group="dev1", mood="calm")
    assert symbol.attr("__ctx_group__") == "dev1" and symbol.attr("mood") == "calm"
    with pytest.raises(ValueError, match="only accepts string values"):
        symbol._set_attr(mood=3)
    with pytest.raises(ValueError, match="only accepts string values"):
        S.var("x", attr={"a": 3})
    with pytest.raises(DeprecationWarning, match="use attr_dict"):
        symbol.list_attr(recursive=True)


def test_wrong_variables() -> None:
    with pytest.raises(TypeError, match="Expect a string for variable `name`"):
        S.var(3)
    with pytest.raises(ValueError, match=r"start and end with double underscores, e.g, __foo__"):
        S.var("x", foo="1")
    with pytest.raises(ValueError, match="stype is one of default, row_sparse, csr; received 'dense'"):
        S.var("x", stype="dense")


def test_groups_have_no_name_and_no_attributes() -> None:
    group = S.Group([S.var("a"), S.var("b")])
    assert (group.name, group.attr("x"), group.list_attr()) == (None, None, {})
    assert repr(group) == "<Symbol group [a, b]>" and repr(S.var("a")) == "<Symbol a>"
    assert repr(S.var("a").as_np_ndarray()) == "<_Symbol a>"


# Selecting outputs ----------------------------------------------------------------------


def test_selecting() -> None:
    split = S.split(S.var("d"), num_outputs=3, name="sp")
    assert (len(split), split.num_outputs, len(split[0])) == (3, 3, 1)
    assert split[-1].list_outputs() == ["sp_output2"] == split["sp_output2"].list_outputs()
    assert split[::2].list_outputs() == ["sp_output0", "sp_output2"]
    assert [part.list_outputs() for part in split] == [["sp_output0"], ["sp_output1"], ["sp_output2"]]
    assert S.concat(*split, dim=0).list_inputs() == ["d"]
    _first, _second, third = split
    assert third.eval(d=mx.nd.array([[1, 2, 3]]))[0].asnumpy().tolist() == [[3]]


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (5, IndexError, r"index 5 is out of range: <Symbol sp> has 3 output\(s\)"),
        (-4, IndexError, "index -4 is out of range"),
        (slice(5, None), IndexError, "chooses none of the 3"),
        ("sp_output", ValueError, "Cannot find output that matches name 'sp_output'; near names: sp_output2"),
        ("sp", ValueError, "multiple outputs with name 'sp'"),
        (1.5, TypeError, "indexed by the number or name of an output; received 1.5"),
    ],
)
def test_wrong_selections(key: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        S.split(S.var("d"), num_outputs=3, name="sp")[key]
    with pytest.raises(NotImplementedForSymbol):
        S.var("d")[0] = 1


def test_walking_the_graph() -> None:
    net = two_layers()
    inner = net.get_internals()
    assert inner["fc1_output"].name == "fc1" and inner["data"].list_outputs() == ["data"]
    assert net.get_children().get_children().list_outputs() == ["data", "fc1_weight", "fc1_bias"]
    assert S.var("x").get_children() is None
    assert net.get_inputs().list_outputs() == net.list_inputs() == net.list_arguments()
    both = S.Group([net, other()])
    assert both.get_children().list_outputs() == [
        "fc1_output",
        "fc2_weight",
        "fc2_bias",
        "data2",
        "o_weight",
        "o_bias",
    ]


# Copies and files ----------------------------------------------------------------------


def test_copies_are_graphs_of_their_own() -> None:
    net = two_layers()
    for twin in (
        copy.copy(net),
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        S.fromjson(net.tojson()),
    ):
        assert twin.tojson() == net.tojson()
        twin._set_attr(mood="new")
        assert net.attr("mood") is None
    assert type(pickle.loads(pickle.dumps(net.as_np_ndarray()))) is type(net.as_np_ndarray())


def test_saving_replaces_the_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "net-symbol.json"
    two_layers().save(file)
    assert S.load(str(file)).tojson() == two_layers().tojson()
    before = file.read_text()
    monkeypatch.setattr(type(two_layers()), "tojson", lambda self, remove_amp_cast=True: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        two_layers().save(file)
    assert file.read_text() == before and len(list(tmp_path.iterdir())) == 1


def test_attributes_survive_a_file() -> None:
    with mx.AttrScope(ctx_group="dev1"):
        symbol = S.FullyConnected(S.var("x", lr_mult=3, attr={"mood": "calm"}), num_hidden=2, name="fc")
    assert S.load_json(symbol.tojson()).attr_dict() == symbol.attr_dict()


def test_backends_rewrite_a_symbol() -> None:
    from regluon.exec import backends
    from regluon.graph.node import rebuild

    @backends.register("swap_relu_for_test")
    def rewrite(entries: Any, options: Any) -> Any:
        def replace(node: Any, inputs: Any) -> Any:
            if node.op is None or node.op.name != "relu":
                return None
            return S.Symbol._of(inputs).abs()._list()

        return rebuild(entries, replace)

    try:
        symbol = S.relu(S.var("x")).optimize_for("swap_relu_for_test")
        assert symbol.eval(x=mx.nd.array([-2]))[0].asscalar() == 2
        assert S.relu(S.var("x")).get_backend_symbol("default").eval(x=mx.nd.array([-2]))[0].asscalar() == 0
    finally:
        backends.unregister("swap_relu_for_test")


def test_functions_that_make_symbols() -> None:
    made = {
        "zeros": S.zeros((2,)),
        "full": S.full((2,), 7),
        "arange": S.arange(2),
        "from two": S.arange(2, 4),
        "linspace": S.linspace(0, 1, 2),
        "eye": S.eye(2, 2, 1)[0],
        "split": S.split_v2(S.arange(4), (2,))[1],
    }
    values = {name: symbol.eval()[0].asnumpy().tolist() for name, symbol in made.items()}
    assert values == {
        "zeros": [0, 0],
        "full": [7, 7],
        "arange": [0, 1],
        "from two": [2, 3],
        "linspace": [0, 1],
        "eye": [[0, 1], [0, 0]],
        "split": [2, 3],
    }
    counts, edges = S.histogram(S.var("a"), bins=2, range=(0, 4)).eval(a=mx.nd.array([0, 1, 3]))
    assert counts.asnumpy().tolist() == [2, 1] and edges.asnumpy().tolist() == [0, 2, 4]
    sample = S.random.normal(S.var("mu"), S.var("sigma"), shape=(1000,))
    drawn = sample.eval(mu=mx.nd.array([0, 5]), sigma=mx.nd.array([1, 0.1]))[0].asnumpy()
    assert drawn.shape == (2, 1000) and abs(drawn.mean(1) - [0, 5]).max() < 0.2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: mx.sym.elemwise_add(x, 1.5),
            r"elemwise_add: argument rhs must be a Symbol; received 1\.5",
        ),
        (
            lambda x: mx.sym.FullyConnected(data=3, num_hidden=2),
            "FullyConnected: argument data must be a Symbol; received 3 of type int.*mx.sym.full",
        ),
        (lambda x: mx.sym.concat(x, 2.0, dim=0), r"Concat: argument arg1 must be a Symbol; received 2\.0"),
        (
            lambda x: mx.sym.dot(x, [1, 2]),
            r"argument rhs must be a Symbol; received \[1, 2\] of type list",
        ),
        (lambda x: mx.sym.where(x, x, mx.nd.ones(2)), "argument y of where must be a Symbol"),
    ],
)
def test_a_value_where_a_symbol_belongs_is_named(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call(mx.sym.var("x"))
