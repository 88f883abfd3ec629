"""Record names and shapes of the parameters of the model zoo's networks, by running an original.

Run once with each original's Python: ``python param_names.py ../param_names.json``; results are merged by
version.
"""

import json
import os
import sys

import mxnet as mx
from mxnet.gluon.model_zoo import vision

NETWORKS = [
    ("alexnet", {}, 224),
    ("resnet18_v1", {}, 64),
    ("resnet50_v1", {}, 64),
    ("resnet18_v2", {}, 64),
    ("resnet50_v2", {}, 64),
    ("resnet18_v1", {"thumbnail": True, "classes": 10}, 32),
    ("resnet18_v2", {"thumbnail": True, "classes": 10}, 32),
    ("resnet50_v1", {"prefix": "model_"}, 64),
]


def parameters(name, arguments, size):
    if mx.__version__.startswith("2") and "prefix" in arguments:
        return None
    if mx.__version__.startswith("2"):
        net = vision.get_model(name, **arguments)
        mx.npx.set_np()
        image = mx.np.zeros((1, 3, size, size))
    else:
        with mx.name.NameManager():
            net = vision.get_model(name, **arguments)
        image = mx.nd.zeros((1, 3, size, size))
    net.initialize()
    net(image)
    collected = net.collect_params()
    return [[key, list(collected[key].shape)] for key in collected.keys()]


def main(path):
    known = {}
    if os.path.exists(path):
        with open(path) as file:
            known = json.load(file)
    known[mx.__version__] = [
        {"name": name, "arguments": arguments, "parameters": parameters(name, arguments, size)}
        for name, arguments, size in NETWORKS
        if not (mx.__version__.startswith("2") and "prefix" in arguments)
    ]
    with open(path, "w") as file:
        json.dump(known, file, separators=(",", ":"), sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
