"""The files that peers read: descriptions of networks, ONNX files and their int8 copies, made once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .networks.shapes import IMAGES
from .peer import ROOT, PeerFailure
from .works import ENGINES, Work

LIMIT = 900


def prepare_files(work: Work, peers: list[str], pythons: dict[str, Path], models: Path) -> dict[str, str]:
    """Make what the peers need for a work; ``pythons`` has the interpreter of each environment.

    Returns
    -------
    dict
        For each peer that reads a file, its name in ``models``.

    Raises
    ------
    PeerFailure
        If a file cannot be made; the message tells which.
    """
    others = [peer for peer in peers if peer in (*ENGINES, "torch", "torch.compile", "jax")]
    if work.network in IMAGES and others:
        _make(models / f"{work.network}.json", pythons, "regluon", "describe", work.network)
    engines = [peer for peer in peers if peer in ENGINES]
    if not engines or (work.dtype == "bfloat16" and engines == ["onnxruntime"]):
        return {}
    file = models / f"{work.network}-b{work.batch}.onnx"
    settings = json.dumps(work.settings)
    _make(file, pythons, "torch", "export_onnx", work.network, str(work.batch), settings, str(models))
    if work.dtype == "int8":
        whole, file = file, models / f"{work.network}-b{work.batch}-int8.onnx"
        _make(file, pythons, "onnxruntime", "quantize_onnx", str(whole))
    return dict.fromkeys(engines, file.name)


def _make(file: Path, pythons: dict[str, Path], environment: str, module: str, *arguments: str) -> None:
    if file.exists():
        return
    if environment not in pythons:
        raise PeerFailure(f"{file.name} is made in the environment of {environment}, which is missing")
    file.parent.mkdir(parents=True, exist_ok=True)
    log = file.with_suffix(".log")
    command = [str(pythons[environment]), "-m", f"bench.networks.{module}", *arguments, str(file)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("w") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=output, env=variables, cwd=file.parent, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            raise PeerFailure(f"{file.name} was not made in {LIMIT} s") from None
    if done.returncode:
        raise PeerFailure(f"{file.name} cannot be made: see {log}")
