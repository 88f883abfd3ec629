"""Symbol JSON records: every old form is read, what is written reads back, broken files say where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regluon.base.errors import MXNetError
from regluon.graph.json import GraphRecord, NodeRecord, parse, portable, render, restored


def document(*nodes: dict[str, Any], heads: Any = ((0, 0),), **more: Any) -> str:
    return json.dumps({"nodes": list(nodes), "heads": heads, **more})


VARIABLE = {"op": "null", "name": "data", "inputs": []}
TEXT = st.text(max_size=8)


@st.composite
def graphs(draw: st.DrawFn) -> GraphRecord:
    nodes: list[NodeRecord] = []
    for index in range(draw(st.integers(1, 6))):
        before = st.tuples(st.integers(0, index - 1), st.integers(0, 2)) if index else st.nothing()
        inputs = draw(st.lists(before, max_size=3)) if index else []
        attributes = draw(st.dictionaries(TEXT.map(lambda text: f"a{text}"), TEXT, max_size=3))
        nodes.append(NodeRecord(draw(st.sampled_from(["null", "relu", "x"])), draw(TEXT), attributes, inputs))
    heads = draw(
        st.lists(st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, 2)), min_size=1, max_size=3)
    )
    return GraphRecord(nodes, heads, {"mxnet_version": draw(st.integers(0, 10**6)), "k": draw(TEXT)})


@given(graphs())
def test_written_graphs_read_back(graph: GraphRecord) -> None:
    assert parse(render(graph)) == graph


def test_layout_is_the_one_of_the_originals() -> None:
    graph = GraphRecord(
        [NodeRecord("null", "data"), NodeRecord("split", "s", {"num_outputs": "2"}, [(0, 0)], outputs=2)],
        [(1, 0), (1, 1)],
        {"is_np_shape": 1, "signature": "(x)"},
    )
    loaded = json.loads(render(graph))
    assert loaded["arg_nodes"] == [0]
    assert loaded["node_row_ptr"] == [0, 1, 3]
    assert loaded["heads"] == [[1, 0, 0], [1, 1, 0]]
    assert loaded["nodes"][0] == {"op": "null", "name": "data", "inputs": []}
    assert loaded["nodes"][1] == {
        "op": "split", "name": "s", "attrs": {"num_outputs": "2"}, "inputs": [[0, 0, 0]],
    }  # fmt: skip
    assert loaded["attrs"] == {
        "is_np_shape": ["int", 1], "mxnet_version": ["int", 10901], "signature": ["str", "(x)"],
    }  # fmt: skip


@pytest.mark.parametrize("key", ["param", "attr", "attrs"])
def test_attributes_are_read_under_every_key(key: str) -> None:
    node = {"op": "FullyConnected", "name": "fc", "inputs": [[0, 0]], key: {"num_hidden": "3"}}
    assert parse(document(VARIABLE, node, heads=[[1, 0]])).nodes[1].attributes == {"num_hidden": "3"}


def test_oldest_form_with_param_and_attr_together() -> None:
    node = {
        "op": "FullyConnected", "name": "fc", "inputs": [[0, 0]], "backward_source_id": -1,
        "param": {"num_hidden": "3"}, "attr": {"ctx_group": "g", "lr_mult": "2"},
    }  # fmt: skip
    graph = parse(document(VARIABLE, node, heads=[[1, 0]]))
    assert graph.nodes[1].attributes == {"num_hidden": "3", "__ctx_group__": "g", "__lr_mult__": "2"}
    assert graph.version == 0


@pytest.mark.parametrize(
    "written, read",
    [("(8L, 3L, 3L)", "(8, 3, 3)"), ("-1", "(-1,)"), (" 5 ", "(5,)"), ("(2, 0)", "(2, 0)"), ("None", "None")],
)
def test_shapes_of_old_files(written: str, read: str) -> None:
    graph = parse(document({**VARIABLE, "attr": {"__shape__": written}}))
    assert graph.nodes[0].attributes == {"__shape__": read}


def test_a_shape_of_an_operator_stays_a_parameter() -> None:
    node = {"op": "Reshape", "name": "r", "inputs": [[0, 0, 0]], "attrs": {"shape": "(0, -1)"}}
    assert parse(document(VARIABLE, node, heads=[[1, 0, 0]])).nodes[1].attributes == {"shape": "(0, -1)"}


def test_windows_line_ends() -> None:
    text = json.dumps({"nodes": [VARIABLE], "heads": [[0, 0, 0]]}, indent=2).replace("\n", "\r\n")
    assert parse(text.encode()).heads == [(0, 0)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a symbol: expected an object with the keys nodes and heads, received list"),
        ("{}", "is not a symbol"),
        (document({"op": 3, "name": "x"}), "node 0 of the file is malformed"),
        (document({"op": "null"}), "expected an object with op and name"),
        (
            document({**VARIABLE, "attrs": []}, {**VARIABLE, "attrs": [1]}),
            "expected its attrs to be an object",
        ),
        (document(VARIABLE, heads=[[1, 0, 0]]), "the heads of the file name node 1"),
        (
            document(VARIABLE, heads=[[-1, 0, 0]]),
            r"the heads of the file are malformed: expected \[node, output\]",
        ),
        (document(VARIABLE, heads=[[True, 0, 0]]), "the heads of the file are malformed"),
        (document({**VARIABLE, "inputs": [[0, 0, 0]]}), "the inputs of node 0 of the file name node 0"),
        (document({**VARIABLE, "inputs": 7}), "expected a list, received 7"),
    ],
)
def test_broken_files_say_where(text: str, expected: str) -> None:
    with pytest.raises(MXNetError, match=expected):
        parse(text, "the file")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda x: st.lists(x) | st.dictionaries(TEXT, x)
    )
)
def test_any_json_gives_a_graph_or_the_error(value: Any) -> None:
    for text in (json.dumps(value), document(heads=value), json.dumps({"nodes": [value], "heads": [[0, 0]]})):
        try:
            parse(text)
        except MXNetError as error:
            assert str(error)


@pytest.mark.parametrize(
    "operator, attributes, ranks, spelled",
    [
        (
            "_npi_sum",
            {"axis": "(1,)", "keepdims": "True"},
            [2],
            ("sum", {"axis": "(1,)", "keepdims": "True"}),
        ),
        ("_np_max", {"axis": "0", "initial": "None"}, [2], ("max", {"axis": "0"})),
        ("_npi_transpose", {"axes": "None"}, [2], ("transpose", {})),
        ("_npi_dot", {}, [3, 2], ("_npi_tensordot_int_axes", {"axes": "1"})),
        ("_npi_any", {"axis": "1"}, [2], ("_np_sometrue", {"axis": "1"})),
        ("Pooling", {"kernel": "(2, 2)", "output_size": "None"}, [4], ("Pooling", {"kernel": "(2, 2)"})),
    ],
)
def test_both_generations_know_what_is_written(
    operator: str, attributes: dict[str, str], ranks: list[int], spelled: tuple[str, dict[str, str]]
) -> None:
    node = NodeRecord(operator, "n", {**attributes, "__lr_mult__": "1"}, [(0, 0)] * len(ranks))
    written = portable(node, ranks)
    visible = {key: value for key, value in written.attributes.items() if key != "__regluon_op__"}
    assert (written.operator, visible) == (spelled[0], {**spelled[1], "__lr_mult__": "1"})
    if "__regluon_op__" in written.attributes:
        assert restored(written) == node


@pytest.mark.parametrize(
    "operator, attributes, ranks",
    [
        ("_npi_sum", {"axis": "None"}, [2]),  # Over all axes the generations give different ranks.
        ("_npi_sum", {"axis": "1", "dtype": "int64"}, [2]),
        ("_npi_dot", {}, [2, 3]),
        ("_npi_dot", {}, [2, None]),
        ("relu", {}, [2]),
        ("Pooling", {"output_size": "(1, 1)"}, [4]),
    ],
)
def test_what_has_no_shared_spelling_stays(
    operator: str, attributes: dict[str, str], ranks: list[int | None]
) -> None:
    node = NodeRecord(operator, "n", attributes, [(0, 0)] * len(ranks))
    assert portable(node, ranks) == node
    assert restored(node) == node


def test_a_broken_original_name_is_an_error() -> None:
    node = NodeRecord("sum", "n", {"__regluon_op__": "[1"})
    with pytest.raises(MXNetError, match="node 'n': its __regluon_op__ is malformed"):
        restored(node)


def test_unknown_sizes_are_written_as_zero() -> None:
    graph = GraphRecord([NodeRecord("null", "w", {"__shape__": "(3, -1, -12)"})], [(0, 0)])
    assert json.loads(render(graph))["nodes"][0]["attrs"] == {"__shape__": "(3, 0, -12)"}
