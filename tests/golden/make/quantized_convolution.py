"""Write quantized_convolution.npz: a convolution with BatchNorm on integers, as 1.9.1 computes it.

Run with the original's Python in this folder. The inputs are written with the results.
"""

from __future__ import annotations

import json
from pathlib import Path

import mxnet as mx
import numpy as np

FILTERS, CHANNELS, SIZE = 64, 3, 12


def graph() -> str:
    """One layer, as the original's quantization writes it to files."""
    inner = mx.sym.BatchNorm(
        mx.sym.Convolution(
            mx.sym.var("data"), num_filter=FILTERS, kernel=(3, 3), pad=(1, 1), no_bias=True, name="conv"
        ),
        fix_gamma=False,
        eps=1e-5,
        name="bn",
    )
    inner = json.loads(mx.sym.Activation(inner, act_type="relu", name="relu").tojson())
    names = ["weight", "gamma", "beta", "mean", "var", "low", "high"]
    nodes = [{"op": "null", "name": name, "inputs": []} for name in ["data", *names]]
    nodes.append(
        {
            "op": "_sg_mkldnn_conv",
            "name": "layer",
            "attrs": {
                "quantized": "true",
                "with_bn": "true",
                "with_relu": "true",
                "min_calib_range": "0.0",
                "max_calib_range": "4.0",
            },
            "inputs": [[place, 0, 0] for place in range(len(nodes))],
            "subgraphs": [inner],
        }
    )
    document = {"nodes": nodes, "arg_nodes": list(range(8)), "heads": [[8, 0, 0]]}
    return json.dumps({**document, "attrs": {"mxnet_version": ["int", 10901]}})


def main() -> None:
    rs = np.random.RandomState(7)
    values = {
        "data": rs.randint(-127, 128, (1, CHANNELS, SIZE, SIZE)).astype("int8"),
        "weight": rs.uniform(-1, 1, (FILTERS, CHANNELS, 3, 3)).astype("float32"),
        "gamma": rs.uniform(0.5, 1.5, FILTERS).astype("float32"),
        "beta": rs.uniform(-0.5, 0.5, FILTERS).astype("float32"),
        "mean": rs.uniform(-0.5, 0.5, FILTERS).astype("float32"),
        "var": rs.uniform(0.5, 1.5, FILTERS).astype("float32"),
        "low": np.array([-1.0], "float32"),
        "high": np.array([1.0], "float32"),
    }
    text = graph()
    symbol = mx.sym.load_json(text)
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}
    auxiliary = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    result = symbol.bind(mx.cpu(), arrays, aux_states=auxiliary, grad_req="null").forward()[0]
    target = Path(__file__).parents[1] / "quantized_convolution"
    np.savez_compressed(f"{target}.npz", output=result.asnumpy(), **values)
    Path(f"{target}.json").write_text(text)


main()
