"""Record what the originals' mixed precision does: the classes of operators, and the casts in a graph.

Run with each original's Python: ``python make/amp_classes.py ..``; writes amp.json, merged by version.
"""

import json
import os
import sys
import tempfile

import mxnet as mx

try:
    from mxnet import amp
except ImportError:
    from mxnet.contrib import amp

LISTS = {
    "low": "list_lp16_ops",
    "float32": "list_fp32_ops",
    "widest": "list_widest_type_cast",
    "any": "list_lp16_fp32_ops",
}
CONVERSIONS = {
    "float16": {},
    "bfloat16": {"target_dtype": "bfloat16"},
    "excluded": {"excluded_sym_names": ["fc2"]},
    "own lists": {"target_dtype_ops": ["FullyConnected"], "fp32_ops": ["softmax"]},
}


def graph(mx):
    """Dense and convolutional layers with activations of every class; also used by the test."""
    fc1 = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc1")
    soft = mx.sym.Activation(fc1, act_type="softrelu", name="soft")
    relu = mx.sym.Activation(fc1, act_type="relu", name="relu")
    total = mx.sym.Flatten(mx.sym.broadcast_add(soft, relu, name="add"), name="flat")
    fc2 = mx.sym.FullyConnected(total, num_hidden=3, name="fc2")
    chosen = mx.sym.softmax(fc2, name="sm")
    conv = mx.sym.Convolution(mx.sym.var("image"), kernel=(3, 3), num_filter=4, name="conv")
    norm = mx.sym.BatchNorm(conv, name="bn")
    elu = mx.sym.LeakyReLU(norm, act_type="elu", name="elu")
    pool = mx.sym.Pooling(elu, kernel=(2, 2), pool_type="max", name="pool")
    mean = mx.sym.mean(pool, axis=(1, 2, 3), name="mean")
    return mx.sym.Group([chosen, fc1, mean, norm])


def casts(symbol):
    """By node the types that its inputs are cast to right before it; the outputs under ``heads``."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "symbol.json")
        symbol.save(path, remove_amp_cast=False)
        with open(path) as file:
            content = json.load(file)
    nodes = content["nodes"]

    def cast_of(place):
        node = nodes[place]
        return node["attrs"]["dtype"] if node["op"] == "amp_cast" else None

    found = {
        node["name"]: [cast_of(entry[0]) for entry in node["inputs"]]
        for node in nodes
        if node["op"] not in ("null", "amp_cast")
    }
    return {**found, "heads": [cast_of(entry[0]) for entry in content["heads"]]}


def main():
    target = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "..", "amp.json")
    content = {}
    if os.path.exists(target):
        with open(target) as file:
            content = json.load(file)
    content[mx.__version__] = {
        "classes": {key: sorted(getattr(amp, name)("float16")) for key, name in LISTS.items()},
        "conditional": [list(rule) for rule in amp.list_conditional_fp32_ops("float16")],
        "casts": {key: casts(amp.convert_symbol(graph(mx), **kw)) for key, kw in CONVERSIONS.items()},
    }
    with open(target, "w") as file:
        json.dump(content, file, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
