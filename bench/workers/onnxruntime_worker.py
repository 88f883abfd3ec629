"""ONNX Runtime on its default CPU provider, on the network that torch exported."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import onnxruntime

from bench.networks.shapes import input_shape
from bench.workers.protocol import Prepared, Unsupported, serve, threads


def prepare(work: dict[str, Any]) -> Prepared:
    if work["dtype"] == "bfloat16":
        raise Unsupported("its CPU provider has no bfloat16 kernels")
    shape = input_shape(work["network"], work["batch"], work["settings"])
    x = numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    started = time.perf_counter()
    session = onnxruntime.InferenceSession(
        str(Path(sys.argv[2]) / work["file"]), options, providers=["CPUExecutionProvider"]
    )
    call = partial(session.run, None, {session.get_inputs()[0].name: x})
    call()
    first = time.perf_counter() - started
    call()
    return Prepared(call, first=first)


def versions() -> dict[str, str]:
    return {"onnxruntime": onnxruntime.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
