"""Gradient buffers: zeros in every way, without memory until they are written to."""

from __future__ import annotations

import copy
import gc
import mmap
import pickle
from pathlib import Path

import pytest
import torch

import regluon as mx
from regluon.base.zeros import untouched_zeros_like

STATUS = Path("/proc/self/status")


def resident() -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 5), (300, 401)], ids=str)
def test_they_are_ordinary_zeros(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    like = torch.ones(shape, dtype=dtype)
    zeros = untouched_zeros_like(like)
    assert torch.equal(zeros, torch.zeros_like(like))
    assert zeros.dtype is dtype and zeros.stride() == like.stride() and not zeros._is_view()
    zeros.add_(like)
    assert torch.equal(zeros, like)
    assert torch.equal(copy.deepcopy(zeros), like)
    assert torch.equal(pickle.loads(pickle.dumps(zeros)), like)


def test_other_memory_formats_are_kept() -> None:
    like = torch.ones(8, 64, 32, 32).contiguous(memory_format=torch.channels_last)
    zeros = untouched_zeros_like(like)
    assert zeros.stride() == like.stride()
    assert not zeros.any()


def test_memory_is_freed_with_the_last_tensor() -> None:
    zeros = untouched_zeros_like(torch.ones(100_000))
    rest = zeros[5:]
    del zeros
    gc.collect()
    assert not rest.any()


@pytest.mark.skipif(not STATUS.exists(), reason="the memory in use is read from /proc")
def test_no_memory_before_the_first_write() -> None:
    like = torch.ones(16 << 20)
    before = resident()
    zeros = untouched_zeros_like(like)
    assert not zeros[::1024].any()
    assert resident() - before < 32 << 20
    zeros.fill_(1)
    assert resident() - before > 48 << 20


def test_without_such_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise OSError("no memory map")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert torch.equal(untouched_zeros_like(torch.ones(100_000)), torch.zeros(100_000))


def test_gradients_of_parameters() -> None:
    net = mx.gluon.nn.Dense(300, in_units=400)
    net.initialize()
    x = mx.np.ones((2, 400))
    assert not net.weight.grad().asnumpy().any()
    with mx.autograd.record():
        y = net(x).sum()
    y.backward()
    assert (net.weight.grad().asnumpy() == 2).all()
    net.zero_grad()
    assert not net.weight.grad().asnumpy().any()
