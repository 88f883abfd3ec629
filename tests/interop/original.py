"""The original's side of the interoperation tests.

Run with an original's Python as ``original.py JOBS RESULTS``.

JOBS is a JSON list of jobs, RESULTS becomes the list of their outcomes: "" or the text of the error. A job is
``{"do": ..., "folder": ..., "model": ..., "style": ...}``:

make      build, train and save the model into the folder
load      import the exported files that lie in the folder, run them, write ``<out>``
predict   the same through the C predict interface of 1.9.1's library
restore   build the model, load the folder's ``saved.params``, run it, write ``<out>``
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import interop_models as models
import numpy as np

EPOCH = f"{models.STEPS:04d}"


def reference(job: dict[str, Any]) -> list[np.ndarray]:
    """The inputs that the files of a job were made with."""
    with np.load(f"{job['folder']}/reference.npz") as archive:
        return [archive[name] for name in models.input_names(job["model"])]


def write(job: dict[str, Any], output: np.ndarray) -> None:
    """Hand an output back."""
    np.save(f"{job['folder']}/{job['out']}", output)


def make(job: dict[str, Any]) -> None:
    """Build, train and save."""
    import mxnet as mx

    mx.random.seed(3)
    net = models.make(mx, job["model"], job["style"])
    models.train(mx, net, job["model"], job["style"])
    models.save(mx, net, job["model"], job["style"], job["folder"])


def load(job: dict[str, Any]) -> None:
    """Import exported files and run them."""
    import mxnet as mx

    names = models.input_names(job["model"])
    path = f"{job['folder']}/model"
    # An exported graph is np or not; both releases run it with the kind of array that they use by default.
    style = 2 if mx.__version__.startswith("2") else 1
    net = mx.gluon.SymbolBlock.imports(f"{path}-symbol.json", names, f"{path}-{EPOCH}.params")
    output = net(*models.arrays(mx, style, reference(job)))
    write(job, output.asnumpy())


def restore(job: dict[str, Any]) -> None:
    """Load a file of save_parameters into a fresh net and run it."""
    import mxnet as mx

    net = models.make(mx, job["model"], job["style"])
    net.load_parameters(f"{job['folder']}/saved.params")
    write(job, net(*models.arrays(mx, job["style"], reference(job))).asnumpy())


def predict(job: dict[str, Any]) -> None:
    """Run exported files through the C predict interface, without the original's Python package."""
    location = importlib.util.find_spec("mxnet").submodule_search_locations[0]
    library = ctypes.CDLL(str(Path(location) / "libmxnet.so"))
    library.MXGetLastError.restype = ctypes.c_char_p

    def check(status: int) -> None:
        if status:
            raise RuntimeError(library.MXGetLastError().decode())

    names, values = models.input_names(job["model"]), reference(job)
    symbol = Path(f"{job['folder']}/model-symbol.json").read_bytes()
    parameters = Path(f"{job['folder']}/model-{EPOCH}.params").read_bytes()
    bounds = np.cumsum([0, *(value.ndim for value in values)]).astype("uint32")
    sizes = np.concatenate([value.shape for value in values]).astype("uint32")
    handle = ctypes.c_void_p()
    unsigned = ctypes.POINTER(ctypes.c_uint)
    keys = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    check(library.MXPredCreate(
        symbol, parameters, len(parameters), 1, 0, len(names), keys,
        bounds.ctypes.data_as(unsigned), sizes.ctypes.data_as(unsigned), ctypes.byref(handle),
    ))  # fmt: skip
    floats = ctypes.POINTER(ctypes.c_float)
    for name, value in zip(names, values, strict=True):
        value = np.ascontiguousarray(value, dtype="float32")
        check(library.MXPredSetInput(handle, name.encode(), value.ctypes.data_as(floats), value.size))
    check(library.MXPredForward(handle))
    shape, rank = unsigned(), ctypes.c_uint()
    check(library.MXPredGetOutputShape(handle, 0, ctypes.byref(shape), ctypes.byref(rank)))
    output = np.empty([shape[axis] for axis in range(rank.value)], dtype="float32")
    check(library.MXPredGetOutput(handle, 0, output.ctypes.data_as(floats), output.size))
    check(library.MXPredFree(handle))
    write(job, output)


def main(jobs: str, results: str) -> None:
    """Do every job; one that fails does not stop the others."""
    outcomes = []
    for job in json.loads(Path(jobs).read_text()):
        try:
            {"make": make, "load": load, "predict": predict, "restore": restore}[job["do"]](job)
            outcomes.append("")
        except Exception as error:
            traceback.print_exc()
            outcomes.append(f"{type(error).__name__}: {error}")
        Path(results).write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
