"""Write an int8 copy of an ONNX file: ``python -m bench.networks.quantize_onnx FILE INT8_FILE``.

It runs in ONNX Runtime's environment; the copy has quantize and dequantize nodes, which OpenVINO reads too.
Calibration is on random images, since only speed is asked of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class RandomImages(CalibrationDataReader):  # type: ignore[misc]
    """A few random inputs of the network's own shape."""

    def __init__(self, file: Path, count: int = 4) -> None:
        entry = onnxruntime.InferenceSession(str(file)).get_inputs()[0]
        random = numpy.random.default_rng(0)
        self.batches = iter(
            [{entry.name: random.normal(size=entry.shape).astype(numpy.float32)} for _ in range(count)]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.batches, None)


def write(file: Path, int8_file: Path) -> None:
    prepared, temporary = file.with_suffix(".prepared.onnx"), int8_file.with_suffix(".part.onnx")
    quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(temporary),
        RandomImages(file),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    os.replace(temporary, int8_file)
    prepared.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
