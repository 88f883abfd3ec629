"""OpenVINO as an engine for parts of graphs. Needs the packages onnx and openvino."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["PRECISIONS", "Session"]

PRECISIONS = ("f32", "bf16", "f16")


@cache
def _core() -> Any:
    import openvino

    return openvino.Core()


class Session:
    """An ONNX model that runs in OpenVINO, on the CPU.

    Parameters
    ----------
    model : bytes
        The serialised model.
    threads : int, optional
        How many threads it uses; as many as torch by default.
    precision : {"f32", "bf16", "f16"}
        What it computes in. OpenVINO would choose a short type by itself where the processor has one;
        results would differ from those of other backends.
    """

    def __init__(self, model: bytes, threads: int | None = None, precision: str = "f32") -> None:
        core = _core()
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads or torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": precision,
        }
        self._compiled = core.compile_model(core.read_model(model), "CPU", options)
        self._count = len(self._compiled.outputs)
        # A request belongs to one thread at a time.
        self._mine = threading.local()

    def __call__(self, *tensors: Tensor) -> Any:
        """Run on tensors; a tensor, or a tuple of several."""
        request = getattr(self._mine, "request", None)
        if request is None:
            request = self._mine.request = self._compiled.create_infer_request()
        given = {place: tensor.contiguous().numpy() for place, tensor in enumerate(tensors)}
        found = request.infer(given, share_inputs=True, share_outputs=False)
        made = tuple(torch.from_numpy(found[place]) for place in range(self._count))
        return made if len(made) > 1 else made[0]
