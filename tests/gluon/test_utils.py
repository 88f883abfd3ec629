"""gluon.utils against NumPy."""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy
import pytest

import regluon as mx
from regluon.base import config
from regluon.gluon import utils


def test_split_data() -> None:
    array = mx.nd.arange(10).reshape((5, 2))
    parts = utils.split_data(array, 3, even_split=False)
    assert [part.shape for part in parts] == [(2, 2), (2, 2), (1, 2)]
    numpy.testing.assert_array_equal(numpy.concatenate([p.asnumpy() for p in parts]), array.asnumpy())
    columns = utils.split_data(array, 2, batch_axis=1)
    numpy.testing.assert_array_equal(columns[1].asnumpy(), array.asnumpy()[:, 1:])
    assert [p.shape for p in utils.split_data(array, 6, even_split=False)][-1] == (0, 2)
    with pytest.raises(ValueError, match=r"shape \(5, 2\) cannot be evenly split into 2 slices along axis 0"):
        utils.split_data(array, 2)


def test_split_and_load() -> None:
    parts = utils.split_and_load(mx.nd.arange(4), [mx.cpu(0), mx.cpu(1)])
    assert [part.asnumpy().tolist() for part in parts] == [[0, 1], [2, 3]]
    assert [part.context for part in parts] == [mx.cpu(0), mx.cpu(1)]
    (whole,) = utils.split_and_load(numpy.arange(4), [mx.cpu(0)])
    assert whole.asnumpy().dtype == "float32"
    with pytest.raises(ValueError, match="one or more devices"):
        utils.split_and_load(mx.nd.arange(4), [])


def test_split_and_load_is_differentiable() -> None:
    x = mx.nd.arange(4)
    x.attach_grad()
    with mx.autograd.record():
        first, second = utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)])
        loss = (first * 2).sum() + (second.as_in_context(mx.cpu(0)) * 3).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [2, 2, 3, 3]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("max_norm", [1.0, 100.0])
def test_clip_global_norm(check: bool, max_norm: float) -> None:
    arrays = [mx.nd.ones(4) * 3, mx.nd.ones((1, 1)) * 4]
    before = [array.asnumpy() for array in arrays]
    norm = utils.clip_global_norm(arrays, max_norm, check_isfinite=check)
    expected = numpy.sqrt(4 * 9 + 16)
    assert float(norm if check else norm.asscalar()) == pytest.approx(expected, rel=1e-6)
    for array, old in zip(arrays, before, strict=True):
        numpy.testing.assert_allclose(array.asnumpy(), old * min(1, max_norm / expected), rtol=1e-6)


def test_clip_global_norm_complains() -> None:
    with pytest.warns(UserWarning, match="nan or inf is detected"):
        utils.clip_global_norm([mx.nd.array([float("nan")])], 1.0)
    with pytest.raises(ValueError, match="at least one array"):
        utils.clip_global_norm([], 1.0)


def test_check_sha1_and_replace_file(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"hello")
    digest = hashlib.sha1(b"hello").hexdigest()
    assert utils.check_sha1(str(file), digest) and utils.check_sha1(str(file), digest[:8])
    assert not utils.check_sha1(str(file), "0" * 40)
    other.write_bytes(b"old")
    utils.replace_file(str(file), str(other))
    assert other.read_bytes() == b"hello" and not file.exists()


def test_download_from_a_local_address_and_without_a_network(tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"content")
    digest = hashlib.sha1(b"content").hexdigest()
    folder = tmp_path / "folder"
    folder.mkdir()
    target = utils.download(source.as_uri(), str(folder), sha1_hash=digest)
    assert Path(target) == folder / "source.bin" and Path(target).read_bytes() == b"content"
    with pytest.raises(OSError, match=r"(?s)Could not download.*digest is not.*yourself"):
        utils.download(source.as_uri(), str(tmp_path / "wrong"), sha1_hash="0" * 40, retries=0)
    with pytest.raises(OSError, match=r"Could not download http://127\.0\.0\.1:9/x"):
        utils.download("http://127.0.0.1:9/x", str(tmp_path / "x"), retries=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "source.bin"]


def test_shape_is_known() -> None:
    config.set_api(2)
    assert [utils.shape_is_known(s) for s in ((1, 2), (0, 1), (-1, 2), None, ())] == [
        True,
        True,
        False,
        False,
        True,
    ]
    config.set_api(1)
    assert not utils.shape_is_known((0, 1)) and not utils.shape_is_known(())


def test_hook_handle() -> None:
    hooks: OrderedDict[int, object] = OrderedDict()
    handle = utils.HookHandle()
    handle.attach(hooks, print)
    assert list(hooks.values()) == [print]
    with pytest.raises(RuntimeError, match="holds a hook"):
        handle.attach(hooks, print)
    handle.detach()
    handle.detach()
    assert not hooks
    with utils.HookHandle() as handle:
        handle.attach(hooks, print)
        assert hooks
    assert not hooks
    assert pickle.loads(pickle.dumps(utils.HookHandle()))._id is None
