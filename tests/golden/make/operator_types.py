"""What the originals give for every operator sample in every type.

    PROJECT/bin/python tests/golden/make/operator_types.py dump SAMPLES.npz
    OMP_NUM_THREADS=1 MXNET/bin/python tests/golden/make/operator_types.py run SAMPLES.npz OUTPUT.json

with the environments of this project and of an original. Every call runs in a forked child, because some
types end the process of the original. A call casts the inputs that have the type of the first one. The
record of a sample (its key is a digest of inputs and attributes) maps a type to null where the original
refuses it, or to the types of the outputs; small results of integer and bool calls are kept, since no
floating reference says how an original rounds them.
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

import numpy as np

TYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
MOST_KEPT = 40


def dump(target: str) -> None:
    """Write inputs and attributes of all samples to a file that NumPy 1 reads."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "ops"))
    samples = importlib.import_module("samples")
    calls, arrays = [], {}
    for module in pkgutil.iter_modules(samples.__path__):
        table = getattr(importlib.import_module(f"samples.{module.name}"), "SAMPLES", {})
        for name, cases in table.items():
            for sample in cases:
                attrs = {key: str(value) for key, value in sample.attrs.items()}
                for index, value in enumerate(sample.inputs):
                    arrays[f"{len(calls)}/{index}"] = value
                calls.append([name, sample.key(), attrs, len(sample.inputs)])
    np.savez(target, calls=np.array(json.dumps(calls)), **arrays)


def handle(name: str) -> int | None:
    """The original's handle of an operator, or None."""
    from mxnet.base import _LIB, OpHandle, c_str

    found = OpHandle()
    return found.value if _LIB.NNGetOpHandle(c_str(name), ctypes.byref(found)) == 0 else None


def outcome(name: str, values: list[np.ndarray], attrs: dict[str, str], kind: str) -> Any:
    """The types of the outputs with the small whole-number results, or None for a refusal."""
    import mxnet as mx
    from mxnet._ctypes.ndarray import _imperative_invoke

    inputs = [value.astype(kind) if value.dtype == values[0].dtype else value for value in values]
    np_kind = name.startswith("_np")
    small_shapes = any(value.ndim == 0 or 0 in value.shape for value in inputs)
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
        rows = [result.astype(np.float64).ravel().tolist() for result in results]
        if all(np.isfinite(row).all() for row in rows):
            record["values"] = [[int(v) if v == int(v) else v for v in row] for row in rows]
    return record


def in_children(name: str, values: list[np.ndarray], attrs: dict[str, str]) -> Iterator[tuple[str, Any]]:
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
                    pipe.write(json.dumps([kind, outcome(name, values, attrs, kind)]) + "\n")
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


def run(source: str, target: str) -> None:
    """Run every dumped call in the original of this environment."""
    import mxnet as mx

    if mx.__version__.startswith("2"):
        mx.npx.reset_np()
    stored = np.load(source)
    found: dict[str, Any] = {}
    for number, (name, key, attrs, count) in enumerate(json.loads(str(stored["calls"]))):
        values = [stored[f"{number}/{index}"] for index in range(count)]
        if values and handle(name) is not None:
            found.setdefault(name, {})[key] = dict(in_children(name, values, attrs))
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    Path(target).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    {"dump": dump, "run": run}[sys.argv[1]](*sys.argv[2:])
