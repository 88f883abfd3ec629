"""ONNX Runtime as an engine for parts of graphs. Needs the packages onnx and onnxruntime."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Session"]


class Session:
    """An ONNX model that runs in ONNX Runtime, on the CPU.

    Parameters
    ----------
    model : bytes
        The serialised model; its inputs are ``input0``, ``input1``, ...
    threads : int, optional
        How many threads one operator uses; as many as torch by default.
    """

    def __init__(self, model: bytes, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._execute = self._session.run

    def __call__(self, *tensors: Tensor) -> Any:
        """Run on tensors; a tensor, or a tuple of several."""
        given = {
            name: tensor.contiguous().numpy() for name, tensor in zip(self._inputs, tensors, strict=True)
        }
        made = tuple(torch.from_numpy(array) for array in self._execute(self._outputs, given))
        return made if len(made) > 1 else made[0]
