"""A script of 2015 runs as it is: it trains, writes checkpoints, reads them again, predicts and scores."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from regluon.demo import digits

SCRIPT = Path(__file__).parent / "scripts" / "train_mnist.py"
EPOCHS = 12


def write_idx(folder: Path) -> None:
    """The demo's digits as MNIST's four files."""
    data = digits.load()
    for part, images, labels in (
        ("train", data.train_images, data.train_labels),
        ("t10k", data.test_images, data.test_labels),
    ):
        pixels = numpy.round(images * 255).astype(numpy.uint8)
        head = struct.pack(">IIII", 2051, len(pixels), 28, 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        head = struct.pack(">II", 2049, len(labels))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.astype(numpy.uint8).tobytes())


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The lines that the script writes, and its folder."""
    folder = tmp_path_factory.mktemp("mnist")
    write_idx(folder)
    command = [
        sys.executable,
        "-m",
        "regluon",
        "run",
        str(SCRIPT),
        "--data-dir",
        ".",
        "--model-prefix",
        "mlp",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return (done.stderr + done.stdout).splitlines(), folder


def test_script_learns_and_reloads(output: tuple[list[str], Path]) -> None:
    lines, folder = output
    last = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines[-3:]}
    assert float(last["accuracy after load_checkpoint"]) >= 0.95
    assert last["accuracy after Module.load"] == last["accuracy after load_checkpoint"]
    assert last["features"] == "(100, 128)"
    files = {path.name for path in folder.iterdir() if path.name.startswith("mlp")}
    assert files == {"mlp-symbol.json", *(f"mlp-{epoch:04d}.params" for epoch in range(1, EPOCHS + 1))}


def test_script_logs_as_it_did(output: tuple[list[str], Path]) -> None:
    """The lines that 1.9.1 writes for the same script, number by number."""
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} Node\[0\] "
    number = r"\d+\.\d+"
    epoch = [
        *(
            rf"Epoch\[0\] Batch \[{start}-{start + 20}\]\tSpeed: {number} samples/sec\taccuracy=\d\.\d{{6}}"
            for start in (0, 20, 40)
        ),
        r"Epoch\[0\] Train-accuracy=\d\.\d{6}",
        r"Epoch\[0\] Time cost=\d+\.\d{3}",
        r'Saved checkpoint to "mlp-0001\.params"',
        r"Epoch\[0\] Validation-accuracy=\d\.\d{6}",
    ]
    lines = [line for line in output[0] if re.match(stamp, line)]
    first = next(place for place, line in enumerate(lines) if "Epoch[0] Batch" in line)
    for line, pattern in zip(lines[first:], epoch, strict=False):
        assert re.fullmatch(stamp + pattern, line), (line, pattern)
    assert any(line.endswith("Update[241]: Change learning rate to 6.00000e-02") for line in lines)
