"""Write a network as an ONNX file.

``python -m bench.networks.export_onnx NETWORK BATCH SETTINGS MODELS FILE`` runs in torch's environment and
writes the torch twin with the batch's size fixed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from .shapes import input_shape
from .torch_networks import build


def write(network: str, batch: int, settings: dict[str, int], models: Path, file: Path) -> None:
    module = build(network, settings, models).eval()
    example = torch.randn(input_shape(network, batch, settings))
    temporary = file.with_suffix(".part.onnx")
    program = torch.onnx.export(module, (example,), dynamo=True, opset_version=20, verbose=False)
    program.save(str(temporary), external_data=False)
    os.replace(temporary, file)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
