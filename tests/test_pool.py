"""Blocks with pages of their own: used again for their size, and given back before new memory is taken."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from regluon.base import pool
from regluon.base.memory import lies_in_large_pages
from regluon.exec.onednn.packing import Together

pytestmark = pytest.mark.skipif(not lies_in_large_pages(), reason="memory is not kept in large pages here")
MEBIBYTE = 1 << 20


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> pool._Pool:
    """A pool of the test's own, which holds 16 MiB before it gives anything back."""
    made = pool._Pool(16 * MEBIBYTE)
    monkeypatch.setattr(pool, "_pool", made)
    return made


def _bytes(size: int) -> torch.Tensor:
    return pool.empty_images((1, 1, 1, size), torch.uint8)


def _held(blocks: pool._Pool) -> tuple[int, int]:
    return blocks.held // MEBIBYTE, blocks.waiting // MEBIBYTE


def test_images_lie_channels_last_and_are_no_views(blocks: pool._Pool) -> None:
    made = pool.empty_images((2, 64, 64, 128), torch.float32)
    like = torch.empty((2, 64, 64, 128), memory_format=torch.channels_last)
    assert (made.shape, made.stride(), made.dtype) == (like.shape, like.stride(), like.dtype)
    assert not made._is_view()
    assert made.data_ptr() % (2 * MEBIBYTE) == 0
    assert _held(blocks) == (4, 0)
    beside = pool.empty_beside(made)
    assert (beside.shape, beside.stride(), beside.dtype) == (like.shape, like.stride(), like.dtype)
    assert beside.data_ptr() != made.data_ptr()


def test_small_values_lie_in_the_heap(blocks: pool._Pool) -> None:
    made = pool.empty_images((1, 3, 8, 8), torch.float32)
    assert made.stride() == torch.empty((1, 3, 8, 8), memory_format=torch.channels_last).stride()
    assert blocks.held == 0


def test_a_large_block_of_bytes_is_whole_large_pages(blocks: pool._Pool) -> None:
    assert pool.empty_bytes(9 * MEBIBYTE + 1).numel() == 10 * MEBIBYTE
    assert _held(blocks) == (10, 10)
    assert pool.empty_bytes(1000).numel() == 1000


def test_a_block_is_used_again_once_nothing_refers_to_it(blocks: pool._Pool) -> None:
    first = _bytes(4 * MEBIBYTE)
    address, part = first.data_ptr(), first[..., 100:200]
    del first
    # A view still reads it.
    assert _held(blocks) == (4, 0)
    assert _bytes(4 * MEBIBYTE).data_ptr() != address
    del part
    assert _held(blocks) == (8, 8)
    assert _bytes(4 * MEBIBYTE).data_ptr() == address


def test_waiting_blocks_go_back_before_new_memory_is_taken(blocks: pool._Pool) -> None:
    held = [_bytes(4 * MEBIBYTE) for _ in range(4)]
    # More than may wait, but in use.
    held += [_bytes(6 * MEBIBYTE)]
    assert _held(blocks) == (22, 0)
    del held[:2]
    assert _held(blocks) == (22, 8)
    # Two of 4 MiB for one of 7.
    held += [_bytes(7 * MEBIBYTE)]
    assert _held(blocks) == (21, 0)


def test_no_more_waits_than_the_pool_may_hold(blocks: pool._Pool) -> None:
    held = [_bytes(4 * MEBIBYTE) for _ in range(8)]
    assert _held(blocks) == (32, 0)
    del held
    assert _held(blocks) == (16, 16)
    pool.drop_blocks()
    assert _held(blocks) == (0, 0)


def test_without_memory_from_the_system_the_heap_is_asked(
    blocks: pool._Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(pool, "_Block", refuse)
    assert _bytes(4 * MEBIBYTE).numel() == 4 * MEBIBYTE
    assert blocks.held == 0


def test_threads_never_share_a_block(blocks: pool._Pool) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(100):
            first, second = _bytes(2 * MEBIBYTE), _bytes(3 * MEBIBYTE)
            first[..., ::4096] = number
            second[..., ::4096] = number
            if not all(bool((block[..., ::4096] == number).all()) for block in (first, second)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert blocks.held == blocks.waiting


def test_packed_weights_lie_side_by_side_and_each_version_in_memory_of_its_own() -> None:
    together = Together([100, 64, 1000])
    first = [together.part(index, size) for index, size in ((1, 64), (0, 100), (2, 1000))]
    starts = [part.data_ptr() - first[1].data_ptr() for part in first]
    assert starts == [128, 0, 192]
    second = [together.part(index, size) for index, size in ((0, 100), (1, 64))]
    # Asked for again before all were given: another thread packs as well.
    third = together.part(1, 64)
    for number, part in enumerate([*first, *second, third]):
        part.fill_(number)
    assert [int(part.sum()) // part.numel() for part in [*first, *second, third]] == list(range(6))


TRAINING = """
import sys

import numpy
import torch

import regluon as mx
from regluon.base import pool

if sys.argv[1] == "heap":
    pool._SMALLEST = 1 << 60
torch.set_num_threads(1)
mx.random.seed(0)
net = mx.gluon.nn.HybridSequential()
for channels in (8, 16, 16):
    net.add(mx.gluon.nn.Conv2D(channels, 3, padding=1), mx.gluon.nn.BatchNorm())
    net.add(mx.gluon.nn.Activation("relu"))
net.add(mx.gluon.nn.GlobalAvgPool2D(), mx.gluon.nn.Dense(3))
net.initialize(mx.init.Xavier())
net.hybridize(static_alloc=True, static_shape=True)
x = mx.np.array(numpy.random.default_rng(0).normal(size=(8, 3, 96, 96)), dtype="float32")
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
for _ in range(3):
    with mx.autograd.record():
        loss = (net(x) ** 2).mean()
    loss.backward()
    trainer.step(8)
    print(repr(float(loss)))
assert (pool._pool is not None and pool._pool.held > 0) == (sys.argv[1] == "pool")
"""


def test_training_gives_the_same_numbers_wherever_values_lie() -> None:
    def losses(kind: str) -> str:
        command = [sys.executable, "-c", TRAINING, kind]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    found = losses("pool")
    assert len(found.split()) == 3
    assert found == losses("heap")


def test_a_second_gradient_is_added_in_place(blocks: pool._Pool) -> None:
    made: list[int] = []

    class Ours(torch.autograd.Function):
        """Its gradient lies in a block."""

        @staticmethod
        def forward(context: object, data: torch.Tensor) -> torch.Tensor:
            return data.clone()

        @staticmethod
        def backward(context: object, *gradients: torch.Tensor) -> torch.Tensor:
            result = pool.empty_beside(gradients[0])
            result.copy_(gradients[0])
            made.append(result.data_ptr())
            return result

    value = torch.ones(1, 64, 128, 128, requires_grad=True) * 1
    seen: list[int] = []
    value.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
    ((Ours.apply(value) + Ours.apply(value)) * 3).sum().backward()
    assert len(made) == 2
    assert seen == made[:1]
