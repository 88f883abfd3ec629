"""Freed memory that stays with the process, in large pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="settings of glibc on Linux"
)

PROGRAM = """
import resource
import sys

import regluon as mx
from regluon.base.memory import keep_freed_memory

if sys.argv[1] == "static":
    assert keep_freed_memory() == (sys.argv[3] == "kept")
size = int(sys.argv[2]) << 18  # float32 numbers in so many MiB


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def use():
    # In torch's memory: the first value of each page is written.
    array = mx.nd.empty((size,))
    array._t[::1024] = 1.0


for _ in range(3):
    use()
before = faults()
for _ in range(10):
    use()
print(faults() - before)
"""


def _faults(kind: str, mebibytes: int, keep: bool) -> int:
    environment = {**os.environ, "REGLUON_KEEP_MEMORY": "1" if keep else "0"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(mebibytes), "kept" if keep else "given back"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.parametrize(("kind", "mebibytes"), [("plain", 24), ("static", 24), ("static", 96)])
def test_a_block_that_was_freed_is_used_again_without_page_faults(kind: str, mebibytes: int) -> None:
    # A page for each 4 KiB, in ten blocks, where the kernel has to give them again.
    pages = 10 * mebibytes * 256
    kept = _faults(kind, mebibytes, keep=True)
    assert kept < pages / 20


def test_the_environment_switches_it_off() -> None:
    assert _faults("plain", 96, keep=False) > 10 * 96 * 256 / 2
    assert _faults("static", 96, keep=False) > 10 * 96 * 256 / 2


def test_blocks_larger_than_what_is_kept_go_back_by_default() -> None:
    program = """
import regluon as mx
from regluon.base.memory import most_kept


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 // 1024


mx.nd.ones((1,)).asnumpy()
before = resident()
array = mx.nd.empty((most_kept() // 4 + (100 << 18),))
# The first value of each page is written.
array._t[::1024] = 1.0
during = resident()
del array
print(during - before, resident() - before)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    during, after = map(int, result.stdout.split())
    assert during > 150
    assert after < 60, "only memory that was taken ahead stays"


def test_empty_cache_gives_memory_back() -> None:
    program = """
import regluon as mx


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 // 1024


arrays = [mx.nd.ones((20 << 18,)) for _ in range(20)]
before = resident()
del arrays
mx.cpu().empty_cache()
print(before - resident())
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(result.stdout) > 250


def test_a_block_outside_what_was_taken_ahead_lies_in_large_pages_when_asked_to() -> None:
    program = """
import sys
from pathlib import Path

import torch

import regluon as mx
from regluon.base.memory import in_large_pages, most_kept


def in_large():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) // 1024 for line in file if line.startswith("AnonHugePages"))


ahead = mx.nd.empty((most_kept() // 4,))
block = torch.empty(100 << 20, dtype=torch.uint8)
before = in_large()
if sys.argv[1] == "asked":
    in_large_pages(block.data_ptr(), len(block))
block[::4096] = 1
print(in_large() - before)
"""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[madvise]" not in setting.read_text():
        pytest.skip("large pages are not given on demand here")

    def megabytes(word: str) -> int:
        command = [sys.executable, "-c", program, word]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert megabytes("not") < 10
    assert megabytes("asked") > 50
