"""The key-value store of one process."""

from __future__ import annotations

import pytest

import regluon as mx


def ones(factor=1.0):
    return mx.nd.ones((2,)) * factor


@pytest.mark.parametrize("kind", ["local", "device"])
def test_push_and_pull(kind):
    store = mx.kv.create(kind)
    assert (store.type, store.rank, store.num_workers) == (kind, 0, 1)
    assert store.is_capable("optimizer")
    out = mx.nd.zeros((2,))
    store.init("3", ones())
    store.pull("3", out=out)
    assert out.asnumpy().tolist() == [1, 1]
    store.push("3", [ones(2), ones(3)])
    both = [mx.nd.zeros((2,)), mx.nd.zeros((2,))]
    store.pull("3", out=both)
    assert [array.asnumpy().tolist() for array in both] == [[5, 5], [5, 5]]
    store.pushpull("3", ones(7), out=out)
    assert out.asnumpy().tolist() == [7, 7]
    store.broadcast("9", ones(4), out=out)
    assert out.asnumpy().tolist() == [4, 4]


def test_several_keys():
    store = mx.kv.create()
    store.init([1, 2], [ones(), ones(2)])
    outs = [mx.nd.zeros((2,)), mx.nd.zeros((2,))]
    store.pushpull([1, 2], [[ones(3), ones(1)], [ones(5)]], out=outs)
    assert [array.asnumpy()[0] for array in outs] == [4, 5]


def test_with_an_optimizer(tmp_path):
    store = mx.kv.create()
    store.init(0, ones())
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.5))
    out = mx.nd.zeros((2,))
    store.push(0, [ones(), ones()])
    store.pull(0, out=out)
    assert out.asnumpy().tolist() == [0, 0]
    store.save_optimizer_states(str(tmp_path / "states"))
    store.load_optimizer_states(str(tmp_path / "states"))
    store.pushpull(0, ones(0), out=out)
    assert out.asnumpy().tolist() == [-0.5, -0.5]


def test_mistakes():
    store = mx.kv.create()
    store.init("a", ones())
    with pytest.raises(RuntimeError, match="The store has no key 'b'"):
        store.pull("b", out=ones())
    with pytest.raises(RuntimeError, match="Key 'a' is in the store already"):
        store.init("a", ones())
    with pytest.raises(ValueError, match="There is no key-value store named 'zzz'"):
        mx.kv.create("zzz")
    with pytest.raises(TypeError, match="must be a str; received 3"):
        mx.kv.create(3)
    with pytest.raises(ValueError, match="pull needs out="):
        store.pull("a")
    with pytest.raises(RuntimeError, match="Gradient compression is for stores"):
        store.set_gradient_compression({"type": "2bit"})
    with pytest.raises(RuntimeError, match="call set_optimizer first"):
        store.save_optimizer_states("x")
    with pytest.raises(NotImplementedError, match="must define broadcast"):
        mx.kv.KVStoreBase().broadcast(0, None, None)
