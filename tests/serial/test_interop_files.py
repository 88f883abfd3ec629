"""Files of arrays between regluon and the originals, both ways: all types, sparse storage, states."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon.serial import conversion, states

ORIGINALS = {
    "1.9.1": ("REGLUON_MXNET_1", "REGLUON_ORACLE1", "~/oracle1/bin/python"),
    "2.0.0b1": ("REGLUON_MXNET_2", "REGLUON_ORACLE2", "~/oracle2/bin/python"),
}
EVERYWHERE = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]
# 1.9.1 has no such types; NumPy has no bfloat16, so its bits are looked at.
LATER = ["int16", "uint16", "uint32", "uint64"]

# Runs in the original: reads every file of the folder, then writes files of its own.
SCRIPT = """
import glob, json, sys
import numpy as np
import mxnet as mx

second = mx.__version__.startswith("2")
if second:
    mx.npx.reset_np()
found = {}
for path in sorted(glob.glob("ours-*")):
    try:
        loaded = mx.nd.load(path)
        items = loaded.items() if isinstance(loaded, dict) else enumerate(loaded)
        found[path] = {}
        for name, value in items:
            values = value.asnumpy()
            if values.dtype.names:
                values = values.view("uint16")
            found[path][str(name)] = [value.stype, list(value.shape), str(values.dtype), values.tolist()]
    except Exception as error:
        found[path] = str(error)
json.dump(found, open("found.json", "w"))
for kind in sys.argv[1].split(","):
    mx.nd.save("theirs-%s" % kind, {"x": mx.nd.array([0, 1, 3], dtype=kind)})
sparse = mx.nd.sparse
mx.nd.save("theirs-csr", [sparse.csr_matrix(np.array([[1, 0, 2], [0, 3, 0]], "float32"))])
mx.nd.save("theirs-row_sparse", [sparse.row_sparse_array(np.array([[0, 0], [1, 2]], "float16"))])
updater = mx.optimizer.get_updater(mx.optimizer.create("adam", learning_rate=0.1))
updater(0, mx.nd.ones((3, 2)), mx.nd.ones((3, 2)))
open("theirs.states", "wb").write(updater.get_states(dump_optimizer=True))
"""


@pytest.fixture(scope="module", params=list(ORIGINALS))
def exchange(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(version, folder, what the original found in our files)"""
    first, second, usual = ORIGINALS[request.param]
    python = os.path.expanduser(os.environ.get(first) or os.environ.get(second) or usual)
    if not os.access(python, os.X_OK):
        pytest.skip(f"no MXNet {request.param}: {first} is not set and {usual} is not there")
    folder = tmp_path_factory.mktemp("exchange")
    types = EVERYWHERE + (LATER if request.param != "1.9.1" else [])
    for kind in [*types, "bfloat16"]:
        mx.nd.save(str(folder / f"ours-{kind}"), {"x": mx.nd.array([0, 1, 3], dtype=kind)})
    dense = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]], "float32")
    for storage in ("csr", "row_sparse"):
        array = mx.nd.array(dense).tostype(storage)
        mx.nd.save(str(folder / f"ours-{storage}"), {"x": array, "none": mx.nd.sparse.zeros(storage, (2, 3))})
    mx.nd.save(str(folder / "plain.npz"), {"arg:w": mx.nd.array(dense)}, format="npz")
    conversion.convert(folder / "plain.npz", folder / "plain.safetensors")
    conversion.convert(folder / "plain.safetensors", folder / "ours-converted", format="params")
    command = [python, "-W", "ignore", "-c", SCRIPT, ",".join(types)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return request.param, folder, json.loads((folder / "found.json").read_text())


def test_the_original_reads_our_files(exchange: Any) -> None:
    version, folder, found = exchange
    dense = [[1, 0, 2], [0, 0, 0], [0, 3, 0]]
    for path in sorted(folder.glob("ours-*")):
        kind, got = path.name.removeprefix("ours-"), found[path.name]
        assert isinstance(got, dict), f"{version} refused {path.name}: {got}"
        if kind == "converted":
            assert got == {"arg:w": ["default", [3, 3], "float32", dense]}
        elif kind in ("csr", "row_sparse"):
            assert got["x"] == [kind, [3, 3], "float32", dense]
            assert got["none"] == [kind, [2, 3], "float32", [[0, 0, 0], [0, 0, 0]]]
        elif kind == "bfloat16":
            # The upper halves of the float32 numbers 0, 1 and 3.
            assert got["x"] == ["default", [3], "uint16", [0, 0x3F80, 0x4040]]
        else:
            assert got["x"] == ["default", [3], kind, [0, 1, 1] if kind == "bool" else [0, 1, 3]]


def test_we_read_the_original_s_files(exchange: Any) -> None:
    version, folder, _ = exchange
    for kind in EVERYWHERE + (LATER if version != "1.9.1" else []):
        value = mx.nd.load(str(folder / f"theirs-{kind}"))["x"].asnumpy()
        assert (str(value.dtype), value.astype(int).tolist()) == (kind, [0, 1, 1 if kind == "bool" else 3])
    (csr,) = mx.nd.load(str(folder / "theirs-csr"))
    assert csr.stype == "csr" and csr.asnumpy().tolist() == [[1, 0, 2], [0, 3, 0]]
    (rows,) = mx.nd.load(str(folder / "theirs-row_sparse"))
    assert rows.stype == "row_sparse" and rows.asnumpy().tolist() == [[0, 0], [1, 2]]
    loaded, optimizer = states.loads((folder / "theirs.states").read_bytes())
    assert type(optimizer).__name__ == "Adam" and optimizer.lr == 0.1
    # Adam's averages after one step with gradient 1: 1 - beta1 and 1 - beta2.
    mean, variance = (part.asnumpy() for part in loaded[0])
    np.testing.assert_allclose(mean, np.full((3, 2), 0.1), rtol=1e-6)
    np.testing.assert_allclose(variance, np.full((3, 2), 0.001), rtol=1e-4)
