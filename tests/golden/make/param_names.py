"""Record names and shapes of the parameters of the model zoo's networks, by running an original.

Run once with each original's Python: ``python param_names.py ../param_names.json``; results are merged by
version.
Some networks are written out, for the others there is a digest of the list.
"""

import hashlib
import json
import os
import sys

import mxnet as mx
from mxnet.gluon.model_zoo import model_store, vision

WRITTEN_OUT = [
    ("alexnet", {}, 224),
    ("resnet18_v1", {}, 64),
    ("resnet50_v1", {}, 64),
    ("resnet18_v2", {}, 64),
    ("resnet50_v2", {}, 64),
    ("resnet18_v1", {"thumbnail": True, "classes": 10}, 32),
    ("resnet18_v2", {"thumbnail": True, "classes": 10}, 32),
    ("resnet50_v1", {"prefix": "model_"}, 64),
]
NEW = mx.__version__.startswith("2")


def parameters(name, arguments, size):
    if NEW:
        net = vision.get_model(name, **arguments)
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
    if NEW:
        mx.npx.set_np()
    known = {}
    if os.path.exists(path):
        with open(path) as file:
            known = json.load(file)
    digests = {}
    for name in sorted(model_store._model_sha1):
        size = 299 if name == "inceptionv3" else 224
        text = json.dumps(parameters(name, {}, size))
        digests[name] = hashlib.sha1(text.encode()).hexdigest()
    known[mx.__version__] = {
        "networks": [
            {"name": name, "arguments": arguments, "parameters": parameters(name, arguments, size)}
            for name, arguments, size in WRITTEN_OUT
            if not (NEW and "prefix" in arguments)
        ],
        "digests": digests,
        "short_hashes": {name: model_store.short_hash(name) for name in digests},
    }
    with open(path, "w") as file:
        json.dump(known, file, separators=(",", ":"), sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
