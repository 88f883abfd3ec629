"""Initializers: values, statistics, names and texts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import regluon as mx
from regluon import initializer

Desc = initializer.InitDesc


def filled(init, shape, name="x_weight", **attributes):
    array = mx.nd.zeros(shape)
    initializer.create(init)(Desc(name, attributes), array)
    return array.asnumpy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a_weight", 7),
        ("a_bias", 0),
        ("a_gamma", 1),
        ("a_beta", 0),
        ("a_moving_mean", 0),
        ("a_running_var", 1),
        ("a_min", 0),
        ("a_max", 1),
    ],
)
def test_the_end_of_the_name_decides(name, value):
    assert (filled(initializer.Constant(7), (2, 2), name) == value).all()


def test_an_explicit_initializer_goes_before_the_name():
    assert (filled("zeros", (2,), "a_bias", __init__=initializer.One()) == 1).all()
    assert (filled("zeros", (2,), "a_bias", __init__='["constant", {"value": 3}]') == 3).all()


def test_unknown_names():
    with pytest.raises(ValueError, match="no default initialization for a parameter named 'foo'"):
        filled("ones", (2,), "foo")


@pytest.mark.parametrize(
    ("init", "text"),
    [
        (initializer.Zero(), '["zero", {}]'),
        (initializer.Constant(3), '["constant", {"value": 3}]'),
        (initializer.Uniform(), '["uniform", {"scale": 0.07}]'),
        (initializer.Normal(0.5), '["normal", {"sigma": 0.5}]'),
        (initializer.Xavier(), '["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 3}]'),
        (initializer.MSRAPrelu(), '["msraprelu", {"factor_type": "avg", "slope": 0.25}]'),
        (initializer.Orthogonal(), '["orthogonal", {"scale": 1.414, "rand_type": "uniform"}]'),
        (initializer.LSTMBias(2.0), '["lstmbias", {"forget_bias": 2.0}]'),
    ],
)
def test_texts(init, text):
    assert init.dumps() == text
    assert initializer.create(text) == init
    assert init != initializer.Bilinear() and hash(init) == hash(initializer.create(text))


def test_create():
    for name in ("zeros", "one", "xavier", "msraprelu", "uniform", "normal", "orthogonal", "bilinear"):
        assert isinstance(initializer.create(name.upper()), initializer.Initializer)
    assert initializer.create("constant", 3).value == 3
    with pytest.raises(ValueError, match=r"No initializer is registered under 'nope'. Known are .*xavier"):
        initializer.create("nope")
    with pytest.raises(ValueError, match="is not valid JSON"):
        initializer.create("[nope")
    with pytest.raises(ValueError, match="received 3"):
        initializer.create(3)


@pytest.mark.parametrize("factor_type", ["avg", "in", "out"])
@pytest.mark.parametrize("rnd_type", ["uniform", "gaussian"])
def test_xavier(factor_type, rnd_type):
    shape = (400, 300, 2)
    fans = {"in": 600, "out": 800, "avg": 700}
    scale = math.sqrt(2 / fans[factor_type])
    values = filled(initializer.Xavier(rnd_type, factor_type, 2), shape)
    if rnd_type == "uniform":
        assert np.abs(values).max() <= scale + 1e-7
        assert values.std() == pytest.approx(scale / math.sqrt(3), rel=0.01)
    else:
        assert values.std() == pytest.approx(scale, rel=0.01)
    assert abs(values.mean()) < scale * 0.01


def test_xavier_mistakes():
    with pytest.raises(
        ValueError, match="needs an array of at least 2 dimensions; 'x_weight' has shape \\(3,\\)"
    ):
        filled("xavier", (3,))
    with pytest.raises(ValueError, match="factor_type must be"):
        filled(initializer.Xavier(factor_type="x"), (2, 2))
    with pytest.raises(ValueError, match="rnd_type must be"):
        filled(initializer.Xavier(rnd_type="x"), (2, 2))


def test_other_statistics():
    assert filled(initializer.MSRAPrelu(), (400, 300)).std() == pytest.approx(0.0733, rel=0.02)
    assert filled(initializer.Normal(0.5), (300, 300)).std() == pytest.approx(0.5, rel=0.02)
    values = filled(initializer.Uniform(0.3), (300, 300))
    assert np.abs(values).max() <= 0.3 and values.std() == pytest.approx(0.3 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("rand_type", ["uniform", "normal"])
def test_orthogonal(rand_type):
    wide = filled(initializer.Orthogonal(2.0, rand_type), (5, 12))
    np.testing.assert_allclose(wide @ wide.T, 4 * np.eye(5), atol=1e-5)
    tall = filled(initializer.Orthogonal(2.0, rand_type), (12, 2, 3)).reshape(12, 6)
    np.testing.assert_allclose(tall.T @ tall, 4 * np.eye(6), atol=1e-5)


def test_bilinear():
    row = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(filled("bilinear", (2, 1, 4, 4))[1, 0], np.outer(row, row))


def test_lstm_bias():
    assert filled(initializer.LSTMBias(2.0), (8,)).tolist() == [0, 0, 2, 2, 0, 0, 0, 0]


def test_seed_reproduces():
    mx.random.seed(5)
    first = filled("xavier", (3, 3))
    second = filled("xavier", (3, 3))
    mx.random.seed(5)
    np.testing.assert_array_equal(filled("xavier", (3, 3)), first)
    assert not (first == second).any()


def parts(values, sizes):
    edges = np.cumsum([0, *sizes])
    return [sorted(set(values[start:stop].tolist())) for start, stop in itertools.pairwise(edges)]


def test_fused_rnn_of_2_0():
    init = initializer.RNNFused(
        "lstm",
        2,
        4,
        projection_size=2,
        i2h_weight_initializer=initializer.Constant(1),
        h2h_weight_initializer=initializer.Constant(2),
        i2h_bias_initializer=initializer.Constant(3),
        h2h_bias_initializer=initializer.LSTMBias(9.0),
        h2r_weight_initializer="ones",
    )
    sizes = [16 * 3, 16 * 2, 8, 16 * 2, 16 * 2, 8]
    values = filled(init, (sum(sizes) + 64,), "rnn_param", __init__=init)
    assert parts(values, sizes) == [[1], [2], [1], [1], [2], [1]]
    assert parts(values[sum(sizes) :], [16, 4, 4, 8, 16, 16]) == [[3], [0], [9], [0], [3], [0, 9]]
    with pytest.raises(ValueError, match="cannot have 7 elements"):
        filled(init, (7,), "rnn_param", __init__=init)


def test_fused_rnn_of_1_x():
    init = initializer.FusedRNN(initializer.Constant(3.0), 4, 1, "lstm", bidirectional=True, forget_bias=5.0)
    values = filled(init, (2 * 16 * 7 + 64,), "lstm_parameters")
    assert parts(values, [2 * 16 * 7, 4, 4, 8]) == [[3], [0], [5], [0]]
    assert initializer.create(init.dumps()).dumps() == init.dumps()
    with pytest.raises(ValueError, match="mode must be one of"):
        initializer.FusedRNN("ones", 4, 1, "transformer")


def test_mixed():
    init = initializer.Mixed([".*bias", ".*"], ["ones", initializer.Constant(7)])
    assert (filled(init, (2,), "x_weight") == 7).all()
    assert (filled(initializer.Mixed([".*a_weight"], ["ones"]), (2,), "a_weight") == 1).all()
    with pytest.raises(ValueError, match="matches none of the patterns"):
        filled(initializer.Mixed([".*bias"], ["ones"]), (2,))
    with pytest.raises(ValueError, match="one initializer for each pattern"):
        initializer.Mixed(["a"], [])


def test_load(tmp_path):
    stored = {"arg:w": mx.nd.ones((2,)) * 4}
    mx.nd.save(str(tmp_path / "p"), stored)
    for source in (stored, str(tmp_path / "p")):
        assert (filled(initializer.Load(source), (2,), "w") == 4).all()
    assert (filled(initializer.Load(stored, "ones"), (2,), "other_weight") == 1).all()
    with pytest.raises(ValueError, match="has shape \\(3,\\), but \\(2,\\) was loaded"):
        filled(initializer.Load(stored), (3,), "w")
    with pytest.raises(ValueError, match="Nothing was loaded for parameter 'v'"):
        filled(initializer.Load(stored), (3,), "v")


def test_own_class():
    @initializer.register
    class Sevens(initializer.Initializer):
        def _init_weight(self, name, array):
            array[:] = 7

    assert (filled("sevens", (2,)) == 7).all()
    assert Sevens(a=1).dumps() == '["sevens", {"a": 1}]'
    with pytest.raises(NotImplementedError, match="has no _init_weight"):
        filled(initializer.Initializer(), (2,))


def test_every_precision():
    for dtype in ("float16", "float32", "float64"):
        array = mx.nd.zeros((50, 50), dtype=dtype)
        initializer.Xavier()(Desc("w_weight"), array)
        assert array.dtype == np.dtype(dtype) and array.asnumpy().std() > 0.1
