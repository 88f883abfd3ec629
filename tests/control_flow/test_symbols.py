"""Loops and branches as Symbols and in files, against files that MXNet 1.9.1 and 2.0.0b1 wrote and ran.

``golden/control_flow`` is made by ``golden/make/control_flow.py``.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon.base.errors import MXNetError

GOLDEN = Path(__file__).parents[1] / "golden" / "control_flow"
VERSIONS = ("1.9.1", "2.0.0b1")
C, V = mx.sym.contrib, mx.sym.var
NAMES = tuple(json.loads((GOLDEN / "1.9.1.json").read_text()))


def golden(version: str, name: str) -> tuple[Any, dict[str, dict[str, np.ndarray]]]:
    found: dict[str, dict[str, np.ndarray]] = {"in": {}, "out": {}, "head": {}, "gradient": {}}
    with np.load(GOLDEN / f"{version}.npz") as arrays:
        for key in arrays:
            case, kind, item = key.split("|")
            if case == name:
                found[kind][item] = arrays[key]
    return json.loads((GOLDEN / f"{version}.json").read_text())[name], found


def run_as_golden(symbol: Any, known: dict[str, dict[str, np.ndarray]]) -> None:
    """Bind, run and differentiate; rows of steps that did not run are zeros."""
    arrays = {name: mx.nd.array(value) for name, value in known["in"].items()}
    gradients = {name: mx.nd.zeros(value.shape) for name, value in known["gradient"].items()}
    executor = symbol.bind(mx.cpu(), arrays, gradients)
    outputs = executor.forward(is_train=bool(gradients))
    for place, output in enumerate(outputs):
        expected = known["out"][str(place)]
        found = output.asnumpy()
        np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-5, atol=1e-6)
        assert not found[len(expected) :].any()
    if gradients:
        executor.backward([mx.nd.array(known["head"][str(i)]) for i in range(len(outputs))])
    for name, expected in known["gradient"].items():
        np.testing.assert_allclose(gradients[name].asnumpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_originals(version: str, name: str, tmp_path: Path) -> None:
    loaded, known = golden(version, name)
    symbol = mx.sym.load_json(json.dumps(loaded))
    assert symbol.list_outputs() == mx.sym.load_json(symbol.tojson()).list_outputs()
    shapes = {key: value.shape for key, value in known["in"].items()}
    inferred = symbol.infer_shape(**shapes)
    assert [tuple(s)[1:] for s in inferred[1]] == [v.shape[1:] for v in known["out"].values()]
    run_as_golden(symbol, known)
    run_as_golden(mx.sym.load_json(symbol.tojson()), known)
    symbol.save(tmp_path / "s.json")
    net = mx.gluon.SymbolBlock.imports(str(tmp_path / "s.json"), list(known["in"]))
    for hybrid in (False, True, True):
        net.hybridize(hybrid)
        found = net(*(mx.nd.array(value) for value in known["in"].values()))
        for place, output in enumerate(found):
            expected = known["out"][str(place)]
            np.testing.assert_allclose(output.asnumpy()[: len(expected)], expected, rtol=1e-5, atol=1e-6)


def structure(node: dict[str, Any], nodes: list[dict[str, Any]]) -> Any:
    """What a file says of a node, without names of its own and without marks that only tools read."""
    attributes = {k: v for k, v in node.get("attrs", {}).items() if not k.startswith("__")}
    attributes = {k: float(v) if k == "scalar" else v for k, v in attributes.items()}
    names = [
        (nodes[entry[0]]["name"] if nodes[entry[0]]["op"] == "null" else entry[0], entry[1])
        for entry in node["inputs"]
    ]
    graphs = [
        ([structure(inner, graph["nodes"]) for inner in graph["nodes"]], graph["heads"])
        for graph in node.get("subgraphs", [])
    ]
    return node["op"], attributes, names, graphs


@pytest.mark.parametrize("name", ("sum_of_products", "two_of_each", "vector", "layers"))
def test_written_files_have_the_layout_of_the_original(name: str) -> None:
    loaded, _ = golden("1.9.1", name)

    def layers() -> Any:
        def body(x: Any, s: Any) -> Any:
            S = mx.sym
            h = S.FullyConnected(x, num_hidden=3, name="in") + S.FullyConnected(s, num_hidden=3, name="back")
            return S.Activation(h, act_type="tanh"), S.Activation(h, act_type="tanh")

        return C.foreach(body, V("d"), V("s"))

    made = {
        "sum_of_products": lambda: C.foreach(lambda x, s: (x * V("w") + s, s + x), V("d"), V("s")),
        "two_of_each": lambda: C.foreach(
            lambda x, s: ([x[0] + s[0], x[1]], [s[1], s[0] * x[1]]), [V("d"), V("e")], [V("s"), V("t")]
        ),
        "vector": lambda: C.foreach(lambda x, s: (x + s, x * s), V("d"), V("s")),
        "layers": layers,
    }[name]()
    flat = [leaf for part in made for leaf in (part if isinstance(part, list) else [part])]
    written = json.loads(mx.sym.Group(flat).tojson())
    assert [structure(n, written["nodes"]) for n in written["nodes"]] == [
        structure(n, loaded["nodes"]) for n in loaded["nodes"]
    ]
    assert written["heads"] == loaded["heads"] and written["arg_nodes"] == loaded["arg_nodes"]


# Symbols ----------------------------------------------------------------------


def test_arguments_outputs_and_inference() -> None:
    d, s, w = V("d"), V("s"), V("w")
    outputs, state = C.foreach(
        lambda x, t: (mx.sym.FullyConnected(x, num_hidden=3, name="f") + t, t * w), d, s
    )
    group = mx.sym.Group([outputs, state])
    assert group.list_arguments() == ["d", "s", "f_weight", "f_bias", "w"]
    assert [name.split("_")[-1] for name in group.list_outputs()] == ["output0", "output1"]
    arguments, found, auxiliary = group.infer_shape(d=(5, 2, 4))
    assert arguments == [(5, 2, 4), (2, 3), (3, 4), (3,), (2, 3)] and auxiliary == []
    assert found == [(5, 2, 3), (2, 3)]
    types = group.infer_type(d="float64")
    assert types[0] == [np.float64] * 5 and types[1] == [np.float64] * 2
    executor = group.simple_bind(mx.cpu(), d=(5, 2, 4))
    executor.arg_dict["w"][:] = 1
    assert [o.shape for o in executor.forward()] == [(5, 2, 3), (2, 3)]
    with pytest.raises(MXNetError, match=r"contradict|needs|shape"):
        group.infer_shape(d=(5, 2, 4), s=(2, 7))
    assert outputs.list_attr()["in_data_locs"] == "[0]" and outputs.attr("num_out_data") == "1"


def test_while_loop_and_cond_as_symbols() -> None:
    i, s, w = V("i"), V("s"), V("w")
    outputs, variables = C.while_loop(lambda i, s: i < w, lambda i, s: (s * 2, [i + 1, s * w]), [i, s], 4)
    chosen = C.cond(w > 2, lambda: variables[1] + 1, lambda: variables[1] * 0)
    group = mx.sym.Group([outputs, *variables, chosen])
    assert group.list_arguments() == ["i", "s", "w"]
    assert group.infer_shape(i=(1,), s=(1,), w=(1,))[1] == [(4, 1), (1,), (1,), (1,)]
    assert group.infer_type(i="int32", s="float32", w="float32")[1] == [
        np.float32, np.int32, np.float32, np.float32,
    ]  # fmt: skip
    for text in (None, group.tojson()):
        graph = group if text is None else mx.sym.load_json(text)
        values = {"i": mx.nd.array([0.0]), "s": mx.nd.array([1.0]), "w": mx.nd.array([3.0])}
        found = [o.asnumpy().ravel().tolist() for o in graph.eval(**values)]
        assert found == [[2, 6, 18, 0], [3], [27], [28]]
        values["w"] = mx.nd.array([2.0])
        assert [o.asnumpy().ravel().tolist() for o in graph.eval(**values)] == [[2, 4, 0, 0], [2], [4], [0]]


def test_blocks_compose_loops() -> None:
    class Net(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.dense = mx.gluon.nn.Dense(3, flatten=False)

        def hybrid_forward(self, F: Any, x: Any, s: Any) -> Any:
            return F.contrib.foreach(lambda e, t: (self.dense(e), t + F.sum(e)), x, s)

    net = Net()
    net.initialize()
    outputs, state = net(V("x"), V("s"))
    group = mx.sym.Group([outputs, state])
    x, s = mx.nd.ones((4, 2, 3)), mx.nd.zeros((1,))
    expected = net(x, s)
    assert group.list_arguments()[:2] == ["x", "s"]
    weights = {name: p.data() for name, p in net.collect_params().items()}
    found = group.eval(x=x, s=s, **{n: weights[n] for n in group.list_arguments()[2:]})
    np.testing.assert_allclose(found[0].asnumpy(), expected[0].asnumpy(), rtol=1e-6)
    assert found[1].asscalar() == expected[1].asscalar() == 24


def test_what_a_body_reads_nowhere_is_written_so_that_the_originals_read_it() -> None:
    """They want every data and state input in the graph of the body."""
    d, s, w = V("d"), V("s"), V("w")
    outputs, state = C.foreach(lambda x, t: (w * 2, w + 1), d, s)
    text = mx.sym.Group([outputs, state]).tojson()
    node = next(n for n in json.loads(text)["nodes"] if n["op"] == "_foreach")
    count = sum(n["op"] == "null" for n in node["subgraphs"][0]["nodes"])
    places = [json.loads(node["attrs"][key]) for key in ("in_data_locs", "in_state_locs", "remain_locs")]
    assert [len(group) for group in places] == [1, 1, 1]
    assert sorted(place for group in places for place in group) == list(range(count))
    values = {"d": mx.nd.array([[math.nan, 1.0]]), "s": mx.nd.zeros((2,)), "w": mx.nd.array([1.0, 2.0])}
    for output in mx.sym.load_json(text).eval(**values):
        assert np.isfinite(output.asnumpy()).all()


# Malformed files ----------------------------------------------------------------------


def broken(name: str, change: Any) -> str:
    loaded, _ = golden("1.9.1", name)
    node = next(n for n in loaded["nodes"] if n["op"] in ("_foreach", "_while_loop", "_cond"))
    change(node)
    return json.dumps(loaded)


BROKEN = {
    "no graph": ("vector", lambda n: n.pop("subgraphs"), "needs 1 subgraph(s) and has 0"),
    "no place": ("vector", lambda n: n["attrs"].pop("in_data_locs"), "it has no attribute in_data_locs"),
    "place": ("vector", lambda n: n["attrs"].update(in_data_locs="[7]"), "not places below 2"),
    "place text": ("vector", lambda n: n["attrs"].update(in_data_locs="[x"), "cannot be read"),
    "place twice": ("vector", lambda n: n["attrs"].update(in_state_locs="[0]"), "are not those of 2 inputs"),
    "outputs": ("vector", lambda n: n["attrs"].update(num_outputs="3"), "num_outputs is 3"),
    "more out": ("vector", lambda n: n["attrs"].update(num_out_data="0"), "1 data inputs and 1 states"),
    "graph": ("vector", lambda n: n["subgraphs"].__setitem__(0, 5), "is not a symbol"),
    "operator": (
        "vector", lambda n: n["subgraphs"][0]["nodes"][-1].update(op="nonsense"),
        "operator(s) that are not here",
    ),
    "most": ("counting", lambda n: n["attrs"].update(max_iterations="0"), "not a number from 1"),
    "most huge": ("counting", lambda n: n["attrs"].pop("max_iterations"), "no attribute max_iterations"),
    "variables": ("counting", lambda n: n["attrs"].update(func_var_locs="[0, 0]"), "loop variables"),
    "condition": ("counting", lambda n: n["attrs"].update(cond_input_locs="[0]"), "but places for 1"),
    "branches": ("then", lambda n: n["attrs"].update(num_outputs="1"), "its graphs have [1, 2, 2] outputs"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_nodes_are_errors(name: str) -> None:
    case, change, text = BROKEN[name]
    with pytest.raises(MXNetError) as caught:
        mx.sym.load_json(broken(case, change))
    assert text in str(caught.value) and ("node" in str(caught.value) or "subgraph" in str(caught.value))


def test_deep_nesting_is_an_error() -> None:
    loaded, _ = golden("1.9.1", "vector")
    node = next(n for n in loaded["nodes"] if n["op"] == "_foreach")
    inner = json.dumps(node)
    for _ in range(90):
        graph = json.loads(json.dumps(node["subgraphs"][0]))
        deeper = json.loads(inner)
        deeper["inputs"] = [[0, 0, 0], [1, 0, 0]]
        graph["nodes"] = [n for n in graph["nodes"] if n["op"] == "null"] + [deeper]
        graph["heads"] = [[2, 0, 0], [2, 1, 0]]
        inner = json.dumps({**node, "subgraphs": [graph]})
        if len(inner) > 1_000_000:
            break
    loaded["nodes"] = [n for n in loaded["nodes"] if n["op"] == "null"] + [json.loads(inner)]
    with pytest.raises(MXNetError, match="nested"), warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.sym.load_json(json.dumps(loaded))
