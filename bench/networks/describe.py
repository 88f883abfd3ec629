"""The layers of a feed-forward network, taken from its Gluon block's symbol.

Twins for other peers are built from this list, so that they have exactly the layers and shapes of the Gluon
network.
``python -m bench.networks.describe NETWORK FILE`` writes the list, in an environment that has regluon.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """One operator: the steps (or "data") that it reads, its attributes, and its weights' shapes."""

    name: str
    op: str
    inputs: list[str]
    attributes: dict[str, Any]
    shapes: dict[str, list[int]]


def load(file: str | Path) -> list[Step]:
    """The steps in a file that this module wrote; the last one is the network's output."""
    return [Step(**step) for step in json.loads(Path(file).read_text())]


def steps_of(symbol: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> list[Step]:
    """The steps of a symbol file's contents, given the shapes of its parameters.

    The weights of a step are named by their last word (weight, bias, gamma, beta, running_mean, running_var).
    """
    nodes = symbol["nodes"]
    steps = []
    for node in nodes:
        if node["op"] == "null":
            continue
        reads = [nodes[source[0]]["name"] for source in node["inputs"]]
        steps.append(
            Step(
                name=node["name"],
                op=node["op"],
                inputs=[name for name in reads if name not in shapes],
                attributes={name: _value(text) for name, text in (node.get("attrs") or {}).items()},
                shapes={_last_word(name): list(shapes[name]) for name in reads if name in shapes},
            )
        )
    return steps


def _last_word(name: str) -> str:
    for word in ("running_mean", "running_var"):
        if name.endswith(word):
            return word
    return name.replace(".", "_").rsplit("_", 1)[-1]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def write(network: str, file: Path) -> None:
    """Write the steps of a network of the table, in an environment that has regluon."""
    import regluon as mx

    from .gluon_networks import build
    from .shapes import input_shape

    net = build(mx, network, {})
    net.initialize()
    net(mx.np.ones(input_shape(network, 1, {})))
    symbol = json.loads(net(mx.sym.var("data")).tojson())
    shapes = {name: parameter.shape for name, parameter in net.collect_params().items()}
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps([asdict(step) for step in steps_of(symbol, shapes)]))
    os.replace(temporary, file)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
