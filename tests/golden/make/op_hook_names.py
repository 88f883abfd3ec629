"""Record the names that an original passes to the hook of a graph, for each operator of the golden cases.

Run with each original's Python: ``python op_hook_names.py ..``; merges into op_hook_names.json: the operator
and its number of inputs, then the names of its inputs and outputs without the node's. An operator that the
original cannot run alone, or on which it crashes, is left out, and so are optimizer steps and image
functions, which are in no network.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys

import mxnet as mx
import numpy
from mxnet._ctypes.symbol import _symbol_creator
from mxnet.base import _LIB, OpHandle, c_str, check_call

ROOT = os.path.abspath(sys.argv[1])
VERSION = mx.__version__
LEFT_OUT = ("_update", "_update_phase1", "_update_phase2")


def names(operator, attrs, inputs):
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(operator), ctypes.byref(handle)))
    variables = [mx.sym.var(f"v{i}") for i in range(len(inputs))]
    values = [str(value) for value in attrs.values()]
    symbol = _symbol_creator(handle.value, variables, {}, list(attrs), values, "N", False)
    graph = mx.nd.CachedOp(symbol, [])
    seen = []
    graph._register_op_hook(
        lambda name, *_: seen.append(name if isinstance(name, str) else name.decode()), True
    )
    where = {"default_device": mx.cpu()} if VERSION.startswith("2") else {}
    with mx.util.np_shape(True):
        graph(*[mx.nd.array(x, dtype=x.dtype) for x in inputs], **where)
    mx.nd.waitall()
    return " ".join(name[2:] for name in seen)


def run_family(family, progress):
    found = {}
    if os.path.exists(progress):
        with open(progress) as file:
            found = json.load(file)
    base = os.path.join(ROOT, VERSION, family)
    with open(f"{base}.json") as file:
        cases = json.load(file)
    arrays = numpy.load(f"{base}.npz", allow_pickle=False)
    for case in cases:
        call = case.get("op_call") or case["call"]
        if case["kind"] != "value" or ("op_call" not in case and call.get("api") != "op"):
            continue
        keys = [case["inputs"][i] for i in call["inputs"]] if "inputs" in call else case["inputs"]
        inputs = [arrays[key] for key in keys]
        key = f"{call.get('name') or case['op']}|{len(inputs)}"
        if key in found:
            continue
        # Should the original crash, this operator is passed over the next time.
        found[key] = None
        with open(progress, "w") as file:
            json.dump(found, file)
        try:
            found[key] = names(key.split("|")[0], call.get("attrs", case.get("attrs") or {}), inputs)
        except Exception as error:
            print(key, error)
    with open(progress, "w") as file:
        json.dump(found, file)


def main():
    target = os.path.join(ROOT, "op_hook_names.json")
    merged = {}
    if os.path.exists(target):
        with open(target) as file:
            merged = json.load(file)
    files = glob.glob(os.path.join(ROOT, VERSION, "*.json"))
    for family in sorted(os.path.splitext(os.path.basename(file))[0] for file in files):
        progress = f"{target}.{family}.part"
        while subprocess.run([sys.executable, __file__, ROOT, family, progress]).returncode:
            pass
        with open(progress) as file:
            found = json.load(file)
        os.remove(progress)
        for key, value in found.items():
            operator = key.split("|")[0]
            if value and not operator.endswith(LEFT_OUT) and not operator.startswith(("_image", "_cv")):
                merged.setdefault(key, value)
    rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(merged.items())]
    with open(target, "w") as file:
        file.write("{\n" + ",\n".join(rows) + "\n}\n")


if len(sys.argv) > 2:
    run_family(sys.argv[2], sys.argv[3])
else:
    main()
