"""mx.runtime, engine, log, registry, libinfo, library, executor_manager, and what is under mx.contrib."""

from __future__ import annotations

import logging
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon.contrib import autograd as old_autograd
from regluon.contrib import text


def test_features() -> None:
    features = mx.runtime.Features()
    assert features.is_enabled("cuda") == features["CUDA"].enabled == torch.cuda.is_available()
    assert (
        features.is_enabled("MKLDNN") == features.is_enabled("ONEDNN") == torch.backends.mkldnn.is_available()
    )
    assert not features.is_enabled("TENSORRT") and repr(features["TENSORRT"]) == "✖ TENSORRT"
    assert [feature.name for feature in mx.runtime.feature_list()] == list(features)
    with pytest.raises(RuntimeError, match="Feature 'XX' is unknown, known features are: \\['CUDA', "):
        features.is_enabled("XX")


def test_engine() -> None:
    before = mx.engine.set_bulk_size(10)
    with mx.engine.bulk(20):
        assert mx.engine.set_bulk_size(30) == 20
    assert mx.engine.set_bulk_size(before) == 10


def test_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = mx.log.get_logger("regluon-test-stream", level=mx.log.INFO)
    logger.info("seen %d", 3)
    logger.debug("not seen")
    form = r"I\d{4} \d\d:\d\d:\d\d \d+ \S+test_small_modules.py:test_log:\d+\] seen 3\n"
    assert re.fullmatch(form, capsys.readouterr().err)
    file = tmp_path / "log.txt"
    logger = mx.log.get_logger("regluon-test-file", file, level=mx.log.DEBUG)
    assert mx.log.get_logger("regluon-test-file", file, level=mx.log.DEBUG) is logger
    logger.debug("once")
    assert file.read_text() == "once\n"
    with pytest.warns(DeprecationWarning, match="Use get_logger instead"):
        assert mx.log.getLogger() is logging.getLogger()


def test_registry() -> None:
    class Base:
        def __init__(self, x: int = 1) -> None:
            self.x = x

    register = mx.registry.get_register_func(Base, "thing")
    alias = mx.registry.get_alias_func(Base, "thing")
    create = mx.registry.get_create_func(Base, "thing")

    @alias("first", "Other")
    @register
    class One(Base):
        pass

    assert mx.registry.get_registry(Base) == {"one": One, "first": One, "other": One}
    for how in ('["one", {"x": 5}]', '{"thing": "one", "x": 5}', {"thing": "one", "x": 5}, One(5)):
        assert type(create(how)) is One and create(how).x == 5
    assert create("OTHER", x=3).x == 3 and create(thing="first").x == 1
    for call, message in (
        (
            lambda: create("two"),
            "two is not registered. Please register with thing.register first; known are",
        ),
        (lambda: create(One(), x=1), "thing is already an instance. Additional arguments are invalid"),
        (lambda: create("[1"), "a thing is described by"),
        (lambda: create(), "create needs the name of a thing"),
        (lambda: register(int), "Can only register subclass of Base"),
    ):
        with pytest.raises(AssertionError, match=message):
            call()
    with pytest.warns(
        UserWarning, match="New thing .* registered with name one is overriding existing thing"
    ):
        register(type("Two", (Base,), {}), "one")


def test_there_is_no_library_of_mxnet(tmp_path: Path) -> None:
    for find in (mx.libinfo.find_lib_path, mx.libinfo.find_include_path, mx.libinfo.find_conf_path):
        with pytest.raises(RuntimeError, match="regluon runs on PyTorch's kernels and has no libmxnet"):
            find()
    assert mx.libinfo.__version__ == mx.__version__
    with pytest.raises(mx.MXNetError, match=r"load path nothing.so does NOT exist"):
        mx.library.load("nothing.so")
    (tmp_path / "there.so").write_bytes(b"")
    with pytest.raises(mx.MXNetError, match=r"there.so is an extension .* mx.operator.CustomOp"):
        mx.library.load(tmp_path / "there.so")


def test_splitting_of_batches() -> None:
    # As 1.9.1: in proportion, the last takes what rounding leaves.
    split = mx.executor_manager._split_input_slice
    assert split(10, [1, 1, 1]) == [slice(0, 3), slice(3, 6), slice(6, 10)]
    with pytest.raises(ValueError, match="Too many slices"):
        split(2, [1, 1, 1])


def test_contrib_namespaces() -> None:
    assert mx.contrib.symbol is mx.contrib.sym is mx.sym.contrib
    assert mx.contrib.ndarray is mx.contrib.nd is mx.nd.contrib


def test_zipfian_symbol_draws_as_the_array_function_does() -> None:
    target = mx.nd.array([3, 7])
    symbols = mx.sym.Group(list(mx.sym.contrib.rand_zipfian(mx.sym.var("target"), 50, 20)))
    mx.random.seed(4)
    found = [array.asnumpy() for array in symbols.eval(target=target)]
    mx.random.seed(4)
    for array, wanted in zip(found, mx.nd.contrib.rand_zipfian(target, 50, 20), strict=True):
        numpy.testing.assert_array_equal(array, wanted.asnumpy())
    # The probability of class k is log((k + 2) / (k + 1)) / log(21).
    numpy.testing.assert_allclose(found[1], 50 * numpy.log([5 / 4, 9 / 8]) / numpy.log(21))
    assert found[0].dtype == numpy.int64 and 0 <= found[0].min() <= found[0].max() < 20


def test_autograd_of_2016() -> None:
    def loss(x: Any, w: Any) -> Any:
        assert mx.autograd.is_training() and mx.autograd.is_recording()
        return (x * x * w).sum()

    x, w = mx.nd.array([1, 2, 3]), mx.nd.array([2, 2, 5])
    (dx, dw), value = old_autograd.grad_and_loss(loss)(x, w)
    assert dx.asnumpy().tolist() == [4, 8, 30] and dw.asnumpy().tolist() == [1, 4, 9]
    assert value.asscalar() == 55
    (dw,) = old_autograd.grad(loss, argnum=1)(x, w)
    assert dw.asnumpy().tolist() == [1, 4, 9]
    gradient = mx.nd.zeros(3)
    old_autograd.mark_variables([x], [gradient])
    with old_autograd.train_section():
        y = x * 3
        with old_autograd.test_section():
            assert not mx.autograd.is_recording()
            y[:] = y * 1
    assert not mx.autograd.is_training()
    old_autograd.backward([y], [mx.nd.array([1, 10, 100])])
    assert gradient.asnumpy().tolist() == [3, 30, 300]
    old_autograd.set_is_training(True)
    assert mx.autograd.is_recording() and old_autograd.set_is_training(False)
    with pytest.raises(TypeError, match="type of autograd input should be NDArray; received float"):
        old_autograd.grad(lambda x: x)(1.0)


def test_iterator_over_a_loader() -> None:
    data = numpy.arange(10, dtype="float32").reshape(5, 2)
    loader = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(data, numpy.arange(5)), batch_size=3)
    iterator = mx.contrib.io.DataLoaderIter(loader, label_name="y")
    assert iterator.provide_data[0].shape == (3, 2) and iterator.provide_label[0].name == "y"
    for _ in range(2):
        first, second = list(iterator)
        numpy.testing.assert_array_equal(first.data[0].asnumpy(), data[:3])
        numpy.testing.assert_array_equal(second.data[0].asnumpy(), data[[3, 4, 3]])
        assert second.label[0].asnumpy().tolist() == [3, 4, 3] and (first.pad, second.pad) == (0, 1)
        iterator.reset()


def test_tensorboard_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float, int]] = []
    writer = SimpleNamespace(
        SummaryWriter=lambda folder: SimpleNamespace(add_scalar=lambda *a: seen.append(a))
    )
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", writer)
    callback = mx.contrib.tensorboard.LogMetricsCallback(tmp_path, prefix="train")
    metric = mx.metric.Accuracy()
    metric.update(mx.nd.array([1, 0]), mx.nd.array([[0, 1], [0, 1]]))
    callback(SimpleNamespace(eval_metric=metric))
    callback(SimpleNamespace(eval_metric=None))
    assert seen == [("train-accuracy", 0.5, 1)]
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        mx.contrib.tensorboard.LogMetricsCallback(tmp_path)


# Expectations of the following tests are what 1.9.1 gave.


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, ["<unk>", "c", "b", "a", "some_word$"]),
        ({"most_freq_count": 2}, ["<unk>", "c", "b"]),
        ({"min_freq": 2}, ["<unk>", "c", "b"]),
        ({"reserved_tokens": ["b"]}, ["<unk>", "b", "c", "a", "some_word$"]),
        (
            {"reserved_tokens": ["<pad>"], "unknown_token": "<u>"},
            ["<u>", "<pad>", "c", "b", "a", "some_word$"],
        ),
    ],
)
def test_vocabulary(settings: dict[str, Any], tokens: list[str]) -> None:
    counter = Counter(["a", "b", "b", "c", "c", "c", "some_word$"])
    vocabulary = text.vocab.Vocabulary(counter, **settings)
    assert vocabulary.idx_to_token == tokens and len(vocabulary) == len(tokens)
    assert vocabulary.token_to_idx == {token: number for number, token in enumerate(tokens)}
    assert vocabulary.to_indices(["c", "zz"]) == [tokens.index("c"), 0]
    assert vocabulary.to_tokens(1) == tokens[1] and vocabulary.to_tokens([0, 1]) == tokens[:2]
    with pytest.raises(ValueError, match="Token index 100 in the provided `indices` is invalid"):
        vocabulary.to_tokens(100)


def test_vocabulary_mistakes() -> None:
    for settings, message in (
        ({"min_freq": 0}, "must be set to a positive value; received 0"),
        ({"reserved_tokens": ["<unk>"]}, "cannot contain `unknown_token`"),
        ({"reserved_tokens": ["x", "x"]}, "cannot contain duplicate"),
    ):
        with pytest.raises(AssertionError, match=message):
            text.vocab.Vocabulary(Counter("a"), **settings)  # type: ignore[arg-type]


def test_counting_tokens() -> None:
    found = text.utils.count_tokens_from_str("Life is great ! \n life is good .  \n", to_lower=True)
    assert found == {"life": 2, "is": 2, "great": 1, "!": 1, "good": 1, ".": 1}
    counter = Counter({"x": 1})
    assert text.utils.count_tokens_from_str("*a*b*<n>*a*", "*", "<n>", counter_to_update=counter) is counter
    assert counter == {"a": 2, "x": 1, "b": 1}


def test_embeddings(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("a 0.5 0.25 3\nb 1 2 3\n<unk> 9 9 9\nb 5 5 5\n")
    with pytest.warns(UserWarning, match="At line 4 .* token b has been loaded and a duplicate"):
        full = text.embedding.CustomEmbedding(file)
    assert full.idx_to_vec.asnumpy().tolist() == [[9, 9, 9], [0.5, 0.25, 3], [1, 2, 3]]
    assert full.idx_to_token == ["<unk>", "a", "b"] and full.vec_len == 3
    found = full.get_vecs_by_tokens(["a", "A", "zz"], lower_case_backup=True).asnumpy()
    assert found.tolist() == [[0.5, 0.25, 3], [0.5, 0.25, 3], [9, 9, 9]]
    assert full.get_vecs_by_tokens("A").asnumpy().tolist() == [9, 9, 9]
    full.update_token_vectors(["b", "<unk>"], mx.nd.array([[1, 1, 1], [0, 0, 0]]))
    assert full.idx_to_vec.asnumpy().tolist() == [[0, 0, 0], [0.5, 0.25, 3], [1, 1, 1]]
    with pytest.raises(ValueError, match="Token zz is unknown"):
        full.update_token_vectors("zz", mx.nd.zeros(3))
    with pytest.raises(AssertionError, match=re.escape("expected (1, 3), received (1, 2)")):
        full.update_token_vectors("a", mx.nd.zeros(2))
    folder = tmp_path / "glove"
    folder.mkdir()
    (folder / "glove.6B.50d.txt").write_text("a 1 2\nc 3 4\n")
    vocabulary = text.vocab.Vocabulary(Counter("aab"))
    glove = text.embedding.create(
        "glove",
        pretrained_file_name="glove.6B.50d.txt",
        embedding_root=tmp_path,
        init_unknown_vec=mx.nd.ones,
        vocabulary=vocabulary,
    )
    assert glove.idx_to_token == ["<unk>", "a", "b"]
    assert glove.idx_to_vec.asnumpy().tolist() == [[1, 1], [1, 2], [1, 1]]
    both = text.embedding.CompositeEmbedding(vocabulary, [glove, full])
    assert both.vec_len == 5 and both.idx_to_vec.asnumpy()[1].tolist() == [1, 2, 0.5, 0.25, 3]


def test_embedding_files_that_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("2 3\na 1 2 3\nb 1 2\n")
    with (
        pytest.warns(UserWarning, match=r"token 2 with 1-dimensional vector \[3.0\] is likely a header"),
        pytest.raises(AssertionError, match=r"At line 3 .* the dimension of token b is 2 but"),
    ):
        text.embedding.CustomEmbedding(file)
    file.write_text("a 1 x\n")
    with pytest.raises(AssertionError, match=r"At line 1 of .* could not convert string to float: 'x'"):
        text.embedding.CustomEmbedding(file)
    with pytest.raises(ValueError, match="must be a valid path"):
        text.embedding.CustomEmbedding(tmp_path / "nothing")
    with pytest.raises(KeyError, match=r"Cannot find pretrained file nope.txt for token embedding glove"):
        text.embedding.create("glove", pretrained_file_name="nope.txt", embedding_root=tmp_path)
    with pytest.raises(FileNotFoundError, match="Embeddings are not downloaded"):
        text.embedding.create("fasttext", embedding_root=tmp_path)
    with pytest.raises(AssertionError, match="zzz is not registered"):
        text.embedding.create("zzz")
    assert "glove.6B.50d.txt" in text.embedding.get_pretrained_file_names("glove")


def test_registered_embedding() -> None:
    @text.embedding.register
    class OwnVectors(text.embedding._TokenEmbedding):
        pass

    assert type(text.embedding.create("ownvectors", counter=Counter("ab"))) is OwnVectors
