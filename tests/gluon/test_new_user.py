"""What new users tried and tripped over: odd arguments, folders that are not there, seeds without workers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import data, nn


@pytest.fixture
def imported(tmp_path: Path) -> gluon.SymbolBlock:
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    net(mx.np.ones((1, 3)))
    symbol, values = net.export(tmp_path / "net")
    return gluon.SymbolBlock.imports(symbol, ["data"], values)


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(
    "arguments", [(), (None,), (2.0,), (torch.ones(1, 3),), (mx.np.ones((1, 3)), bytearray(3))]
)
def test_symbol_block_refuses_what_is_no_array(
    imported: gluon.SymbolBlock, arguments: tuple[Any, ...], active: bool
) -> None:
    imported.hybridize(active)
    with pytest.raises(ValueError, match=r"takes 1 input\(s\) \(data\); received [01] array\(s\) in"):
        imported(*arguments)


def test_symbol_block_takes_its_input_in_containers(imported: gluon.SymbolBlock) -> None:
    x = mx.np.ones((1, 3))
    numpy.testing.assert_array_equal(imported([x]), imported(x))
    numpy.testing.assert_array_equal(imported({"a": x}), imported(x))


class _Penalty(gluon.HybridBlock):
    def forward(self, x: Any) -> Any:
        with autograd.record():
            y = (x**3).sum()
            gradient = autograd.grad(y, [x], create_graph=True)[0]
        return gradient * x


def test_gradients_inside_a_hybridized_forward_say_the_way_out() -> None:
    net = _Penalty()
    x = mx.np.array([1.0, 2.0])
    x.attach_grad()
    net.hybridize()
    with pytest.raises(mx.MXNetError, match=r"while the hybridized block is recorded, at .*test_new_user"):
        net(x)
    net.hybridize(on_value_read="break")
    with autograd.record():
        out = net(x)
    out.backward()
    numpy.testing.assert_allclose(out, [3, 24], rtol=1e-6)  # 3 x^3
    numpy.testing.assert_allclose(x.grad, [9, 36], rtol=1e-6)  # 9 x^2


@pytest.mark.parametrize("read", [torch.as_tensor, copy.deepcopy, numpy.asarray])
def test_reads_through_libraries_name_the_users_line(read: Any) -> None:
    class Reads(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            read(x)
            return x * 2

    net = Reads()
    net.hybridize()
    with pytest.raises(mx.MXNetError, match=r"at .*test_new_user\.py:\d+"):
        net(mx.np.ones(2))


class _Noisy(data.Dataset):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return mx.nd.random.uniform(shape=(2,)) + index


def test_random_batches_are_the_same_with_and_without_workers() -> None:
    def epochs(**how: Any) -> list[list[float]]:
        mx.random.seed(6)
        loader = data.DataLoader(_Noisy(), batch_size=3, shuffle=True, **how)
        return [batch.asnumpy().ravel().tolist() for _ in range(2) for batch in loader]

    here = epochs()
    assert here[:3] != here[3:]
    assert epochs() == here
    assert epochs(num_workers=2) == here
    assert epochs(num_workers=2, thread_pool=True) == here


class _Reseeding(data.Dataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        mx.random.seed(index)
        return mx.nd.random.uniform(shape=(2,))


def test_a_dataset_may_seed_by_itself() -> None:
    expected = []
    for index in range(3):
        mx.random.seed(index)
        expected.append(mx.nd.random.uniform(shape=(2,)).asnumpy())
    for batch in (next(iter(data.DataLoader(_Reseeding(), 3, num_workers=n))) for n in (0, 1)):
        numpy.testing.assert_array_equal(batch.asnumpy(), expected)
