"""OpenVINO on its CPU plugin, one stream, for latency, on the network that torch exported."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import openvino

from bench.networks.shapes import input_shape
from bench.workers.protocol import Prepared, serve, threads

# On processors with bfloat16 units the plugin would use them for float32 networks too.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


def prepare(work: dict[str, Any]) -> Prepared:
    shape = input_shape(work["network"], work["batch"], work["settings"])
    x = numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads()),
        "INFERENCE_PRECISION_HINT": PRECISIONS[work["dtype"]],
    }
    core = openvino.Core()
    started = time.perf_counter()
    model = core.compile_model(core.read_model(str(Path(sys.argv[2]) / work["file"])), "CPU", settings)
    # Neither the input nor the outputs are copied, which is its quickest way to be called from Python.
    call = partial(model.create_infer_request().infer, [x], share_inputs=True, share_outputs=True)
    call()
    first = time.perf_counter() - started
    call()
    return Prepared(call, first=first)


def versions() -> dict[str, str]:
    return {"openvino": openvino.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
