"""Memory of reading large files, and what a stop at any moment leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regluon as mx
from regluon import serial
from regluon.base import atomic

# Reads small files, then large ones, and prints by how many bytes the largest resident set grew up to then.
READER = """
import resource, sys
import regluon as mx

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

small, large = sys.argv[1:3], sys.argv[3:]
for path in small:
    mx.nd.load(path)
before = peak()
for path in large:
    loaded = None
    loaded = mx.nd.load(path)
    print(peak() - before)
"""


def large(parts: int, size: int) -> dict[str, Any]:
    return {
        f"p{index}": mx.nd.from_numpy(torch.full((size,), float(index)).numpy()) for index in range(parts)
    }


def test_reading_takes_little_more_memory_than_the_file(tmp_path: Path) -> None:
    # The later file is the larger one, so that it makes the new peak.
    sizes = {"params": 2_000_000, "npz": 4_000_000}
    for name, size in sizes.items():
        serial.save(tmp_path / f"small.{name}", large(2, 1000), format=name)
        serial.save(tmp_path / f"large.{name}", large(4, size), format=name)
    files = [str(tmp_path / f"{kind}.{name}") for kind in ("small", "large") for name in sizes]
    command = [sys.executable, "-c", READER, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for growth, size in zip(done.stdout.split(), sizes.values(), strict=True):
        assert int(growth) < 1.2 * 4 * 4 * size


def test_arrays_one_after_the_other(tmp_path: Path) -> None:
    serial.save(tmp_path / "f", large(5, 10))
    assert [(name, float(value.asnumpy()[3])) for name, value in serial.iterate(tmp_path / "f")] == [
        (f"p{index}", float(index)) for index in range(5)
    ]


# Replaces a file for ever, by turns full of one byte and of another. Loaded by path: it starts at once.
WRITER = """
import importlib.util, itertools, sys
spec = importlib.util.spec_from_file_location("atomic", sys.argv[1])
atomic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(atomic)
for turn in itertools.count():
    with atomic.atomic_writer(sys.argv[2]) as stream:
        for _ in range(64):
            stream.write(bytes([turn % 2]) * 65536)
    if not turn:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 7, 13, 29])
def test_a_killed_writer_leaves_a_whole_file(milliseconds: int, tmp_path: Path) -> None:
    target = tmp_path / "model.params"
    command = [sys.executable, "-c", WRITER, atomic.__file__, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGKILL)
    content = target.read_bytes()
    assert len(content) == 64 * 65536 and content in (bytes(len(content)), b"\x01" * len(content))


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_step_leaves_the_old_file(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model.params"
    serial.save(target, {"w": mx.nd.ones((2,))})
    before = target.read_bytes()

    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        serial.save(target, {"w": mx.nd.zeros((3,))})
    monkeypatch.undo()
    assert target.read_bytes() == before and os.listdir(tmp_path) == ["model.params"]


def test_bytes_are_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def step(*arguments: Any) -> Any:
            steps.append(name)
            return real(*arguments)

        return step

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    serial.save(tmp_path / "x", [mx.nd.ones(1)])
    assert steps == ["fsync", "replace"]


def test_permissions_links_and_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "real.params", tmp_path / "link.params"
    serial.save(target, [mx.nd.ones(1)])
    target.chmod(0o640)
    link.symlink_to(target)
    serial.save(link, [mx.nd.zeros(1)])
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    assert serial.load(target)[0].asnumpy().tolist() == [0]
    serial.save("/dev/null", [mx.nd.ones(1)])
    assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match="No such file or directory"):
        serial.save(tmp_path / "absent" / "x.params", [mx.nd.ones(1)])
