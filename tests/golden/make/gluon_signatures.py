"""Record the constructor arguments of an original's layers and losses, and the arguments of its networks.

Run once with each original's Python: ``python gluon_signatures.py ../gluon_signatures.json``; results are
merged by version.
"""

import inspect
import json
import os
import sys

import mxnet as mx
from mxnet.gluon import loss, nn
from mxnet.gluon.model_zoo import vision

OURS = ("alexnet", "AlexNet", "resnet", "ResNet", "BasicBlock", "Bottleneck", "get_model", "get_resnet")


def arguments(function):
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty:
            found.append([name])
        else:
            found.append([name, repr(parameter.default).split(" object at ")[0]])
    return found


def classes(module):
    for name in sorted(vars(module)):
        item = getattr(module, name)
        if inspect.isclass(item) and issubclass(item, mx.gluon.Block) and not name.startswith("_"):
            if name not in ("Block", "HybridBlock", "SymbolBlock"):
                yield name, item


def main(path):
    known = {}
    if os.path.exists(path):
        with open(path) as file:
            known = json.load(file)
    modules = {"gluon.nn": nn, "gluon.loss": loss}
    if not mx.__version__.startswith("2"):
        from mxnet.gluon.contrib import nn as contrib

        modules["gluon.contrib.nn"] = contrib
    found = {
        f"{place}.{name}": arguments(item.__init__) for place, module in modules.items() for name, item in classes(module)
    }
    for name in sorted(vars(vision)):
        item = getattr(vision, name)
        if name.startswith(OURS) and callable(item):
            found[f"gluon.model_zoo.vision.{name}"] = arguments(item.__init__ if inspect.isclass(item) else item)
    known[mx.__version__] = found
    with open(path, "w") as file:
        json.dump(known, file, indent=0, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
