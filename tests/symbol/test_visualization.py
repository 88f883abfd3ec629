"""The table and the drawing of a network; the table's text is compared with the original's elsewhere."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import regluon as mx

S = mx.sym


class Digraph:
    """Stands for graphviz.Digraph and notes what is drawn."""

    def __init__(self, name: str, format: str) -> None:
        self.name, self.format = name, format
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str, str]] = []

    def node(self, name: str, label: str, **attributes: str) -> None:
        self.nodes[name] = {"label": label, **attributes}

    def edge(self, tail_name: str, head_name: str, label: str, **attributes: str) -> None:
        self.edges.append((tail_name, head_name, label))


@pytest.fixture
def graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("graphviz")
    module.Digraph = Digraph
    monkeypatch.setitem(sys.modules, "graphviz", module)


def network() -> Any:
    data = S.Convolution(S.var("data"), kernel=(3, 3), stride=(2, 2), num_filter=8, name="conv")
    pooled = S.Pooling(S.Activation(data, act_type="relu", name="act"), kernel=(2, 2), name="pool")
    return S.SoftmaxOutput(S.FullyConnected(pooled, num_hidden=10, name="fc"), name="softmax")


@pytest.mark.usefixtures("graphviz")
def test_the_drawing() -> None:
    drawing = mx.viz.plot_network(network(), title="t", save_format="png", shape={"data": (2, 1, 9, 9)})
    assert (drawing.name, drawing.format) == ("t", "png")
    # Labels, shapes and edges as MXNet 1.9.1 draws them.
    assert {name: node["label"] for name, node in drawing.nodes.items()} == {
        "data": "data",
        "conv": "Convolution\n3x3/2x2, 8",
        "act": "Activation\nrelu",
        "pool": "Pooling\nmax, 2x2/1",
        "fc": "FullyConnected\n10",
        "softmax_label": "softmax_label",
        "softmax": "softmax",
    }
    assert drawing.nodes["data"]["shape"] == "oval" and drawing.nodes["fc"]["shape"] == "box"
    assert drawing.edges == [
        ("conv", "data", "1x9x9"),
        ("act", "conv", "8x4x4"),
        ("pool", "act", "8x4x4"),
        ("fc", "pool", "8x3x3"),
        ("softmax", "fc", "10"),
        ("softmax", "softmax_label", ""),
    ]


@pytest.mark.usefixtures("graphviz")
def test_options_of_the_drawing() -> None:
    drawing = mx.viz.plot_network(network(), node_attrs={"fixedsize": "false"}, hide_weights=False)
    assert {"conv_weight", "conv_bias", "fc_weight", "fc_bias"} <= set(drawing.nodes)
    assert {node["fixedsize"] for node in drawing.nodes.values()} == {"false"}
    assert ("fc", "fc_weight", "") in drawing.edges


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="pip install graphviz"):
        mx.viz.plot_network(network())
    for function in (mx.viz.plot_network, mx.visualization.print_summary):
        with pytest.raises(TypeError, match=r"symbol must be (a )?Symbol; received int"):
            function(3)
    with pytest.raises(ValueError, match=r"Input shape is incomplete: the shapes of data, .* stay unknown"):
        mx.viz.print_summary(network(), shape={})


def test_the_table_counts_every_layer_that_learns(capsys: pytest.CaptureFixture[str]) -> None:
    embedded = S.LayerNorm(S.Embedding(S.var("x"), input_dim=5, output_dim=3, name="emb"), name="ln")
    mx.viz.print_summary(embedded, shape={"x": (2, 7)})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["emb(Embedding)", "7x3", "15", "x"] in rows
    assert ["ln(LayerNorm)", "7x3", "6", "emb"] in rows
    assert ["Total", "params:", "21"] in rows
