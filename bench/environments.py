"""A virtual environment for every peer, made once and reused."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DEFAULT_FOLDER = Path.home() / ".cache" / "regluon-bench"
# torch.onnx's exporter, which makes the networks of ONNX Runtime and OpenVINO, needs onnx and onnxscript.
TORCH = ("torch==2.13.0", "numpy", "onnx", "onnxscript")
# NumPy 1.23.5 is the newest that MXNet can be imported with, and Python 3.11 the newest that has it.
MXNET_PYTHON = (3, 11)


class EnvironmentFailure(Exception):
    """A peer's environment cannot be made; the message is the reason that the report gives."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs to be installed, and an environment variable that names an interpreter having it."""

    name: str
    requirements: tuple[str, ...]
    variable: str | None = None
    newest_python: tuple[int, int] | None = None


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("mxnet-1", ("numpy==1.23.5", "mxnet==1.9.1"), "REGLUON_MXNET_1", MXNET_PYTHON),
        Environment("mxnet-2", ("numpy==1.23.5", "mxnet==2.0.0b1"), "REGLUON_MXNET_2", MXNET_PYTHON),
        Environment("torch", TORCH, "REGLUON_BENCH_TORCH"),
        Environment("jax", ("jax", "numpy"), "REGLUON_BENCH_JAX"),
        Environment("onnxruntime", ("onnxruntime", "onnx", "numpy"), "REGLUON_BENCH_ONNXRUNTIME"),
        Environment("openvino", ("openvino", "numpy"), "REGLUON_BENCH_OPENVINO"),
    )
}


def interpreter(name: str, folder: Path) -> Path:
    """The Python of a peer's environment, which is made in ``folder`` if it is not there yet.

    ``regluon`` is the interpreter that runs the benchmark.

    Raises
    ------
    EnvironmentFailure
        If the packages cannot be installed; the log of pip is in the folder.
    """
    if name == "regluon":
        return Path(sys.executable)
    environment = ENVIRONMENTS[name]
    given = os.environ.get(environment.variable or "")
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise EnvironmentFailure(f"{environment.variable} is {given!r}, which is no interpreter")
        return path
    home = folder / name
    python = home / "bin" / "python"
    done = home / "requirements.json"
    wanted = json.dumps(environment.requirements)
    if python.exists() and done.exists() and done.read_text() == wanted:
        return python
    _make(environment, home, folder / f"{name}.log")
    done.write_text(wanted)
    return python


def settle(name: str, python: Path) -> None:
    """Bring what was just installed into the state that it has on a machine in use.

    pip compiles the modules of packages, but not those of an editable regluon. Libraries that were just
    written may lie in the page cache in pieces of 2 MiB, which count as memory of a process in whole where it
    reads a byte of them (80 MiB for torch): they are read anew.
    """
    spec = importlib.util.find_spec("regluon") if name == "regluon" else None
    for package in (spec and spec.submodule_search_locations) or ():
        compileall.compile_dir(package, quiet=2)
    if not hasattr(os, "posix_fadvise"):
        return
    for library in python.parent.parent.glob("lib/python*/site-packages/**/*.so*"):
        if not library.is_file():
            continue
        file = os.open(library, os.O_RDONLY)
        try:
            # What is not on disk yet stays in the cache.
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _make(environment: Environment, home: Path, log: Path) -> None:
    base = _base_python(environment)
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"making the environment of {environment.name} in {home}", file=sys.stderr, flush=True)
    commands = (
        [base, "-m", "venv", "--clear", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "install", *environment.requirements],
    )
    with log.open("w") as output:
        for command in commands:
            if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode:
                raise EnvironmentFailure(f"the environment of {environment.name} cannot be made: see {log}")


def _base_python(environment: Environment) -> str:
    newest = environment.newest_python
    if newest is None or sys.version_info[:2] <= newest:
        return sys.executable
    for minor in (newest[1], newest[1] - 1):
        found = shutil.which(f"python{newest[0]}.{minor}")
        if found:
            return found
    raise EnvironmentFailure(
        f"{environment.name} needs Python {newest[0]}.{newest[1]} or older: put one on PATH, or name an "
        f"interpreter that has {' and '.join(environment.requirements)} in {environment.variable}"
    )
