"""What the originals give for every operator sample in every type: run by an original's own Python.

    OMP_NUM_THREADS=1 <environment with mxnet>/bin/python tests/golden/make/operator_types.py OUTPUT.json

Every call runs in a forked child, because some types end the process of the original. A call casts the inputs that
have the type of the first one. The record of a sample (its key is a digest of inputs and attributes) maps a type
to null where the original refuses it, or to the types of the outputs; small results of integer and bool calls
are kept, since no floating reference says how an original rounds them.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, OpHandle, c_str

sys.path.insert(0, str(Path(__file__).parents[2] / "ops"))
samples = importlib.import_module("samples")
TYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
MOST_KEPT = 40


def handle(name: str) -> int | None:
    """The original's handle of an operator, or None."""
    found = OpHandle()
    return found.value if _LIB.NNGetOpHandle(c_str(name), ctypes.byref(found)) == 0 else None


def outcome(name: str, sample: Any, kind: str) -> Any:
    """The types of the outputs with the small whole-number results, or None for a refusal."""
    base = sample.inputs[0].dtype
    inputs = [value.astype(kind) if value.dtype == base else value for value in sample.inputs]
    np_kind = name.startswith("_np")
    small_shapes = any(value.ndim == 0 or 0 in value.shape for value in inputs)
    attrs = {key: str(value) for key, value in sample.attrs.items()}
    with mx.util.np_shape(bool(np_kind or small_shapes)):
        arrays = [mx.nd.array(value, dtype=value.dtype) for value in inputs]
        if np_kind:
            arrays = [array.as_np_ndarray() for array in arrays]
        try:
            made = _imperative_invoke(
                handle(name), arrays, list(attrs), list(attrs.values()), None, np_kind, True
            )
            results = [array.asnumpy() for array in made]
        except Exception:
            return None
    record: dict[str, Any] = {"types": [str(result.dtype) for result in results]}
    if not kind.startswith("float") and all(result.size <= MOST_KEPT for result in results):
        values = [result.astype(np.float64).ravel().tolist() for result in results]
        record["values"] = [[int(v) if v == int(v) else v for v in row] for row in values] if all(
            np.isfinite(row).all() for row in values
        ) else None
    return record


def in_children(name: str, sample: Any) -> Iterator[tuple[str, Any]]:
    """The outcome in every type; a type that ends the child is refused."""
    left = list(TYPES)
    while left:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                signal.alarm(40)
                for kind in left:
                    pipe.write(json.dumps([kind, outcome(name, sample, kind)]) + "\n")
                    pipe.flush()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            done = [json.loads(line) for line in pipe]
        os.waitpid(child, 0)
        yield from done
        left = left[len(done) :]
        if left:
            yield left.pop(0), None


def main(target: str) -> None:
    if mx.__version__.startswith("2"):
        mx.npx.reset_np()
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(samples.__path__):
        table = getattr(importlib.import_module(f"samples.{module.name}"), "SAMPLES", {})
        for name, cases in table.items():
            for sample in cases if handle(name) is not None else ():
                if sample.inputs:
                    found.setdefault(name, {})[sample.key()] = dict(in_children(name, sample))
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    Path(target).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
