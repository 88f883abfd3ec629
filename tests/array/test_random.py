"""Samplers: distributions against theory, the seed, shapes and types, errors, gradients, Symbols."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon.gluon import HybridBlock

COUNT = 40_000
EULER = 0.5772156649015329


def numbers(array: Any) -> np.ndarray:
    return np.asarray(array.asnumpy(), dtype=np.float64)


def within(values: np.ndarray, mean: float, variance: float, kurtosis: float = 3.0) -> None:
    """Six standard errors of the sample mean and of the sample variance."""
    assert abs(values.mean() - mean) < 6 * math.sqrt(variance / values.size)
    assert abs(values.var() - variance) < 6 * variance * math.sqrt((kurtosis - 1) / values.size)


def follows(values: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray]) -> None:
    """The Kolmogorov-Smirnov distance; a right sampler fails with a probability of 1e-8."""
    ordered = np.sort(values)
    steps = np.arange(1, ordered.size + 1) / ordered.size
    distance = np.abs(distribution(ordered) - steps).max()
    assert distance < math.sqrt(-math.log(0.5e-8) / 2 / ordered.size)


CONTINUOUS: dict[str, tuple[tuple[float, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "uniform": ((-1.0, 3.0), lambda x: (x + 1) / 4),
    "normal": ((1.0, 2.0), lambda x: np.vectorize(math.erf)((x - 1) / 2 / math.sqrt(2)) / 2 + 0.5),
    "laplace": (
        (1.0, 2.0),
        lambda x: np.where(x < 1, np.exp(np.minimum(x - 1, 0) / 2) / 2, 1 - np.exp(-(x - 1) / 2) / 2),
    ),
    "logistic": ((1.0, 2.0), lambda x: 1 / (1 + np.exp(-(x - 1) / 2))),
    "gumbel": ((1.0, 2.0), lambda x: np.exp(-np.exp(-(x - 1) / 2))),
    "exponential": ((2.0,), lambda x: 1 - np.exp(-x / 2)),
    "rayleigh": ((2.0,), lambda x: 1 - np.exp(-(x**2) / 8)),
    "weibull": ((1.5,), lambda x: 1 - np.exp(-(x**1.5))),
    "pareto": ((3.0,), lambda x: 1 - (1 + x) ** -3.0),
    "power": ((3.0,), lambda x: x**3),
    "gamma": ((2.0, 3.0), lambda x: 1 - np.exp(-x / 3) * (1 + x / 3)),
    "chisquare": ((4.0,), lambda x: 1 - np.exp(-x / 2) * (1 + x / 2)),
    "beta": ((2.0, 1.0), lambda x: x**2),
    "f": ((2.0, 6.0), lambda x: 1 - (1 + x / 3) ** -3.0),
    "lognormal": ((0.5, 1.0), lambda x: np.vectorize(math.erf)((np.log(x) - 0.5) / math.sqrt(2)) / 2 + 0.5),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_np_distribution(name: str) -> None:
    parameters, distribution = CONTINUOUS[name]
    function = getattr(mx.np.random, name)
    follows(numbers(function(*parameters, size=COUNT)), distribution)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_np_distribution_of_arrays(name: str) -> None:
    parameters, distribution = CONTINUOUS[name]
    arrays = [mx.np.array([value, 2 * value]) for value in parameters]
    values = getattr(mx.np.random, name)(*arrays, size=(COUNT, 2))
    assert values.shape == (COUNT, 2)
    assert values.dtype == np.float32
    follows(numbers(values)[:, 0], distribution)


MOMENTS: dict[str, tuple[dict[str, float], float, float]] = {
    "uniform": ({"low": -1, "high": 3}, 1.0, 16 / 12),
    "normal": ({"loc": 1, "scale": 2}, 1.0, 4.0),
    "exponential": ({"scale": 2}, 2.0, 4.0),
    "gamma": ({"alpha": 2, "beta": 3}, 6.0, 18.0),
    "poisson": ({"lam": 4}, 4.0, 4.0),
    "negative_binomial": ({"k": 3, "p": 0.4}, 4.5, 11.25),
    "generalized_negative_binomial": ({"mu": 2, "alpha": 0.5}, 2.0, 4.0),
    "binomial": ({"n": 5, "p": 0.3}, 1.5, 1.05),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_nd_moments_of_numbers_and_arrays(kind: str) -> None:
    parameters, mean, variance = MOMENTS[kind]
    function = getattr(mx.nd.random, kind)
    values = function(**parameters, shape=(COUNT,))
    assert type(values) is mx.nd.NDArray
    within(numbers(values), mean, variance, 9.0)
    arrays = {name: mx.nd.array([[value]]) for name, value in parameters.items()}
    values = function(**arrays, shape=COUNT)
    assert values.shape == (1, 1, COUNT)
    within(numbers(values), mean, variance, 9.0)


def test_generalized_negative_binomial_without_dispersion_is_poisson() -> None:
    values = mx.nd.random.generalized_negative_binomial(mx.nd.array([3]), mx.nd.array([0]), shape=COUNT)
    within(numbers(values), 3.0, 3.0, 4.0)


def test_small_gamma_shapes_stay_finite() -> None:
    values = numbers(mx.np.random.gamma(0.01, size=COUNT))
    within(values, 0.01, 0.01, 700.0)
    ratios = numbers(mx.np.random.beta(0.01, 0.01, size=COUNT))
    assert np.isfinite(ratios).all()
    within(ratios, 0.5, 0.25 / 1.02)


def test_equal_seeds_give_equal_draws_whatever_ran_between() -> None:
    mx.random.seed(3)
    first = [mx.nd.random.normal(shape=(5,)).asnumpy(), mx.np.random.uniform(size=(5,)).asnumpy()]
    mx.random.seed(3)
    np.random.uniform(size=10)
    mx.nd.ones((3, 3)).sum().wait_to_read()
    second = [mx.nd.random.normal(shape=(5,)).asnumpy(), mx.np.random.uniform(size=(5,)).asnumpy()]
    np.testing.assert_array_equal(first, second)
    mx.np.random.seed(4)
    other = mx.nd.random.normal(shape=(5,)).asnumpy()
    assert not np.array_equal(first[0], other)
    mx.npx.random.seed(4, ctx=mx.cpu())
    np.testing.assert_array_equal(mx.nd.random.normal(shape=(5,)).asnumpy(), other)


def test_a_draw_depends_on_its_number_alone() -> None:
    mx.random.seed(5)
    mx.np.random.uniform(size=(100,))
    after_large = mx.np.random.normal(size=(3,)).asnumpy()
    mx.random.seed(5)
    mx.nd.random.poisson(3)
    np.testing.assert_array_equal(mx.np.random.normal(size=(3,)).asnumpy(), after_large)


@pytest.mark.parametrize("value", ["x", 3.5, None])
def test_a_seed_is_an_integer(value: Any) -> None:
    with pytest.raises(ValueError, match="the seed is an integer"):
        mx.random.seed(value)


class _Noise(HybridBlock):
    def forward(self, x: Any) -> Any:
        noise = mx.np.random.normal(x, 2.0) + mx.np.random.uniform(size=(2, 3))
        return noise * mx.npx.random.bernoulli(0.5, size=(2, 3))


def test_a_hybridized_block_draws_the_same() -> None:
    x = mx.np.zeros((2, 3))
    net = _Noise()
    mx.random.seed(7)
    eager = [net(x).asnumpy() for _ in range(2)]
    net.hybridize()
    mx.random.seed(7)
    compiled = [net(x).asnumpy() for _ in range(2)]
    np.testing.assert_allclose(eager, compiled, rtol=1e-6)
    assert not np.array_equal(eager[0], eager[1])


def _two() -> Any:
    return mx.nd.array([1.0, 2.0])


ND_SHAPES: list[tuple[Callable[[], Any], tuple[int, ...], str]] = [
    (lambda: mx.nd.random.uniform(), (1,), "float32"),
    (lambda: mx.nd.random.uniform(0, 1, 2), (2,), "float32"),
    (lambda: mx.nd.random.uniform(0, 1, (2, 3), "float16"), (2, 3), "float16"),
    (lambda: mx.nd.random.uniform(shape=(0, 2), dtype=np.float64), (0, 2), "float64"),
    (lambda: mx.nd.random.uniform(_two(), _two() + 1), (2,), "float32"),
    (lambda: mx.nd.random.uniform(_two().astype("float64"), _two().astype("float64")), (2,), "float32"),
    (lambda: mx.nd.random.uniform(_two(), _two() + 1, shape=(4, 3)), (2, 4, 3), "float32"),
    (lambda: mx.nd.random.randn(2, 3, loc=5.0, dtype="float64"), (2, 3), "float64"),
    (lambda: mx.nd.random.randn(3, loc=_two(), scale=_two()), (2, 3), "float32"),
    (lambda: mx.nd.random.exponential(_two(), shape=3), (2, 3), "float32"),
    (lambda: mx.nd.random.randint(0, 5), (1,), "int32"),
    (lambda: mx.nd.random.randint(0, 2**40, (2,), dtype="int64"), (2,), "int64"),
    (lambda: mx.nd.random.multinomial(_two()), (1,), "int32"),
    (lambda: mx.nd.random.multinomial(mx.nd.ones((4, 2)), dtype="float64"), (4,), "float64"),
    (lambda: mx.nd.random.multinomial(mx.nd.ones((4, 2)), shape=(2, 3)), (4, 2, 3), "int32"),
    (lambda: mx.nd.random.multinomial(_two(), mx.nd.ones((2, 3)), shape=(5,)), (2, 5, 3), "float32"),
    (lambda: mx.nd.random.categorical(mx.nd.ones((4, 2)), shape=3), (4, 3), "int32"),
    (lambda: mx.nd.random.uniform_like(_two().astype("float64")), (2,), "float64"),
    (lambda: mx.nd.random_normal(shape=3), (3,), "float32"),
    (lambda: mx.nd.sample_gamma(_two(), _two(), shape=3), (2, 3), "float32"),
    (lambda: mx.nd.normal(loc=1, shape=(2,)), (2,), "float32"),
    (lambda: mx.random.uniform(shape=(2,), ctx=mx.cpu()), (2,), "float32"),
]


@pytest.mark.parametrize("number", range(len(ND_SHAPES)))
def test_nd_shapes_and_types(number: int) -> None:
    call, shape, dtype = ND_SHAPES[number]
    result = call()
    assert type(result) is mx.nd.NDArray
    assert (result.shape, np.dtype(result.dtype).name) == (shape, dtype)


def _np(values: Any) -> Any:
    return mx.np.array(values)


NP_SHAPES: list[tuple[Callable[[Any, Any], Any], tuple[int, ...], str]] = [
    (lambda r, x: r.uniform(), (), "float32"),
    (lambda r, x: r.uniform(size=3, dtype="float64"), (3,), "float64"),
    (lambda r, x: r.uniform(_np([1, 2]), 3.0), (2,), "float32"),
    (lambda r, x: r.uniform(_np([[1], [2]]), _np([3, 4])), (2, 2), "float32"),
    (lambda r, x: r.normal([1.0, 2.0], 1, size=(3, 2)), (3, 2), "float32"),
    (lambda r, x: r.normal(size=(2,), dtype=np.float16, device=mx.cpu()), (2,), "float16"),
    (lambda r, x: r.rand(), (), "float32"),
    (lambda r, x: r.randn(2, 3, dtype="float64"), (2, 3), "float64"),
    (lambda r, x: r.randint(5), (), "int64"),
    (lambda r, x: r.randint(2, 5, (2, 3), "int32"), (2, 3), "int32"),
    (lambda r, x: r.choice(5), (), "int64"),
    (lambda r, x: r.choice(_np([[1.0, 2.0]]), 3), (3, 2), "float32"),
    (lambda r, x: r.choice(5, 0), (0,), "int64"),
    (lambda r, x: r.permutation(5), (5,), "int64"),
    (lambda r, x: r.multinomial(5, [0.2, 0.8]), (2,), "int64"),
    (lambda r, x: r.multinomial(5, _np([0.2, 0.8]), size=(2, 3)), (2, 3, 2), "int64"),
    (lambda r, x: r.multivariate_normal(mx.np.zeros(2), mx.np.eye(2), size=3), (3, 2), "float32"),
    (
        lambda r, x: r.multivariate_normal(mx.np.zeros(2), mx.np.ones((4, 1, 1)) * mx.np.eye(2), size=(5, 1)),
        (5, 1, 4, 2),
        "float32",
    ),
    (lambda r, x: r.beta(1, 2, (3,), "float64"), (3,), "float64"),
    (lambda r, x: x.uniform_n(_np([1, 2]), 3.0, (4, 3)), (4, 3, 2), "float32"),
    (lambda r, x: x.normal_n(_np([[1], [2]]), _np([1, 1]), 3, "float64"), (3, 2, 2), "float64"),
    (lambda r, x: x.normal_n(), (), "float32"),
    (lambda r, x: x.bernoulli(logit=_np([1, 2]), size=(3, 2), dtype="bool"), (3, 2), "bool"),
    (lambda r, x: x.categorical(_np([[0.2, 0.8]]), shape=(3,)), (1, 3), "int32"),
    (lambda r, x: x.multinomial(_np([3, 4]), _np([[0.2, 0.8], [1, 0]]), shape=3), (2, 3, 2), "float32"),
]


@pytest.mark.parametrize("number", range(len(NP_SHAPES)))
def test_np_shapes_and_types(number: int) -> None:
    call, shape, dtype = NP_SHAPES[number]
    result = call(mx.np.random, mx.npx.random)
    assert type(result) is mx.np.ndarray
    assert (result.shape, np.dtype(result.dtype).name) == (shape, dtype)


def test_np_default_type_can_be_double() -> None:
    mx.npx.set_np(dtype=True)
    for values in (mx.np.random.uniform(), mx.np.random.gamma(2.0), mx.npx.random.bernoulli(0.5)):
        assert values.dtype == np.float64


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: mx.nd.random.uniform(3, 1), mx.MXNetError, "low must not be larger than high; received low=3"),
    (lambda: mx.nd.random.uniform(_two(), 3), ValueError, "all arrays or all numbers; received low NDArray"),
    (
        lambda: mx.nd.random.uniform(dtype="int32"),
        mx.MXNetError,
        "of a floating type; received dtype='int32'",
    ),
    (
        lambda: mx.nd.random.uniform(_two(), mx.nd.ones(3)),
        mx.MXNetError,
        r"one shape; received \(2,\), \(3,\)",
    ),
    (lambda: mx.nd.random.uniform(shape=(2,), out=mx.nd.ones(3)), mx.MXNetError, "cannot be written"),
    (lambda: mx.nd.random.uniform(foo=3), TypeError, "unexpected keyword argument 'foo'"),
    (lambda: mx.nd.random.uniform(0, low=3), TypeError, "multiple values for argument 'low'"),
    (lambda: mx.nd.random.normal(0, -1), mx.MXNetError, "scale must be positive"),
    (lambda: mx.nd.random.exponential(0), mx.MXNetError, "scale must be positive"),
    (lambda: mx.nd.random.exponential(-1), mx.MXNetError, "lam must be positive"),
    (lambda: mx.nd.random.gamma(0, 1), mx.MXNetError, "alpha and beta must be positive"),
    (lambda: mx.nd.random.poisson(-1), mx.MXNetError, "lam must not be negative"),
    (lambda: mx.nd.random.negative_binomial(2.5, 0.5), mx.MXNetError, "k expects int"),
    (lambda: mx.nd.random.randn((2, 3)), mx.MXNetError, "sizes are arguments of their own"),
    (lambda: mx.nd.random.randint(5, 5), mx.MXNetError, "high must be larger than low"),
    (lambda: mx.nd.random.randint(0, 2.5), mx.MXNetError, "high is an integer; received 2.5"),
    (lambda: mx.nd.random.randint(0, 5, dtype="float32"), mx.MXNetError, "int32 or int64"),
    (lambda: mx.nd.random.normal_like(mx.nd.ones(2, dtype="int32")), mx.MXNetError, "floating type"),
    (lambda: mx.np.random.uniform("a", 1), ValueError, "low must be a number or an array; received 'a'"),
    (lambda: mx.np.random.uniform(0, _np([1, 2]), size=(2, 3)), mx.MXNetError, "does not fit"),
    (lambda: mx.np.random.normal(0, -1), ValueError, "scale must not be negative; received -1"),
    (lambda: mx.np.random.normal(0, _np([1, -1])), ValueError, "scale must not be negative; received -1"),
    (lambda: mx.np.random.power(-1), ValueError, "random.power: a must be positive"),
    (lambda: mx.np.random.gamma(1.0, 0.0), ValueError, "scale must be positive"),
    (lambda: mx.np.random.choice(3, 5, replace=False), mx.MXNetError, "cannot take 5 of 3"),
    (lambda: mx.np.random.choice(0, 5), mx.MXNetError, "something to choose from"),
    (lambda: mx.np.random.choice(3, p=_np([0.5, 0.5])), mx.MXNetError, r"needs the shape \(3,\)"),
    (lambda: mx.np.random.multinomial(3, [0.9, 0.9]), mx.MXNetError, "sum to 1"),
    (lambda: mx.np.random.multinomial(-1, [0.9, 0.1]), mx.MXNetError, "n must not be negative"),
    (lambda: mx.np.random.rand(2, size=3), TypeError, "sizes are the positional arguments"),
    (lambda: mx.npx.random.bernoulli(0.5, 0.5), ValueError, "either prob or logit"),
    (lambda: mx.npx.random.bernoulli(1.5), ValueError, r"prob must be in \[0, 1\]; received 1.5"),
    (lambda: mx.npx.random.multinomial(_np([3]), _np([0.5, 0.5])), mx.MXNetError, "one axis more than n"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, text = ERRORS[number]
    with pytest.raises(kind, match=text):
        call()


def test_out_is_written_and_gives_shape_and_type() -> None:
    target = mx.nd.zeros((2, 3), dtype="float64")
    assert mx.nd.random.normal(3, 0.1, out=target) is target
    assert target.dtype == np.float64
    assert (target.asnumpy() > 1).all()
    target = mx.np.zeros((4,))
    assert mx.np.random.uniform(2, 3, out=target) is target
    assert (target.asnumpy() >= 2).all()
    mx.np.random.lognormal(5.0, 0.1, out=target)
    assert (target.asnumpy() > 50).all()


def test_choice_follows_its_probabilities() -> None:
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    drawn = mx.np.random.choice(4, COUNT, p=chances).asnumpy()
    shares = np.bincount(drawn, minlength=4) / COUNT
    np.testing.assert_allclose(shares, chances, atol=6 * 0.5 / math.sqrt(COUNT))
    assert shares[1] == 0
    assert sorted(mx.np.random.choice(6, 6, replace=False).asnumpy()) == list(range(6))
    kept = mx.np.random.choice(4, 3, replace=False, p=chances).asnumpy()
    assert sorted(kept) == [0, 2, 3]


def test_shuffle_and_permutation_keep_the_rows() -> None:
    rows = np.arange(60, dtype=np.float32).reshape(20, 3)
    data = mx.nd.array(rows)
    shuffled = mx.nd.random.shuffle(data).asnumpy()
    assert not np.array_equal(shuffled, rows)
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), rows)
    np.testing.assert_array_equal(data.asnumpy(), rows)
    place = mx.np.array(rows)
    assert mx.np.random.shuffle(place) is None
    assert not np.array_equal(place.asnumpy(), rows)
    np.testing.assert_array_equal(np.sort(place.asnumpy(), axis=0), rows)
    np.testing.assert_array_equal(np.sort(mx.np.random.permutation(30).asnumpy()), np.arange(30))


@pytest.mark.parametrize("given", [list, _np])
def test_multinomial_counts(given: Any) -> None:
    counts = mx.np.random.multinomial(10, given([0.2, 0.5, 0.3]), size=COUNT).asnumpy()
    assert (counts.sum(-1) == 10).all()
    for column, chance in enumerate((0.2, 0.5, 0.3)):
        within(counts[:, column].astype(float), 10 * chance, 10 * chance * (1 - chance))
    # The covariance of two counts is -n p q.
    covariance = np.cov(counts[:, 0], counts[:, 1])[0, 1]
    assert covariance == pytest.approx(-1.0, abs=0.06)


def test_multinomial_gives_the_rest_to_the_last_category() -> None:
    counts = mx.np.random.multinomial(10, [0.2, 0.2], size=COUNT).asnumpy()
    within(counts[:, 1].astype(float), 8.0, 1.6)


def test_categorical_probabilities_have_a_gradient() -> None:
    data = mx.nd.array([[0.25, 0.75], [1.0, 0.0]])
    data.attach_grad()
    with mx.autograd.record():
        index, logarithm = mx.nd.random.multinomial(data, shape=(COUNT,), get_prob=True)
    logarithm.backward()
    picked = index.asnumpy()
    assert (picked[1] == 0).all()
    within(picked[0].astype(float), 0.75, 0.1875)
    np.testing.assert_allclose(logarithm.asnumpy()[0], np.log(np.where(picked[0], 0.75, 0.25)), rtol=1e-6)
    ones = picked[0].sum()
    np.testing.assert_allclose(data.grad.asnumpy()[0], [(COUNT - ones) / 0.25, ones / 0.75], rtol=1e-4)


def test_multivariate_normal_has_its_covariance() -> None:
    mean, covariance = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
    values = numbers(mx.np.random.multivariate_normal(mean, covariance, size=COUNT))
    np.testing.assert_allclose(values.mean(0), mean, atol=6 * math.sqrt(2 / COUNT))
    np.testing.assert_allclose(np.cov(values.T), covariance, atol=6 * 3 / math.sqrt(COUNT))


def test_unique_zipfian() -> None:
    values, tries = mx.nd._internal._sample_unique_zipfian(range_max=40, shape=(2000, 3))
    values, tries = values.asnumpy(), tries.asnumpy()
    assert all(len(set(row)) == 3 for row in values)
    assert values.min() >= 0
    assert values.max() < 40
    assert (tries >= 3).all()
    # The first number of a row is a plain draw.
    share = (values[:, 0] == 0).mean()
    expected = math.log(2) / math.log(41)
    assert abs(share - expected) < 6 * math.sqrt(expected / 2000)
    with pytest.raises(mx.MXNetError, match="only 3 numbers below 3; asked for 4"):
        mx.nd._internal._sample_unique_zipfian(range_max=3, shape=(1, 4))


def _gradients(function: Callable[..., Any], *values: Any) -> tuple[list[np.ndarray], np.ndarray]:
    arrays = [mx.np.array(value) for value in values]
    for array in arrays:
        array.attach_grad()
    with mx.autograd.record():
        result = function(*arrays)
    result.backward()
    return [array.grad.asnumpy() for array in arrays], result.asnumpy()


@pytest.mark.parametrize("name", ["normal", "logistic", "gumbel"])
def test_location_and_scale_have_gradients(name: str) -> None:
    loc, scale = np.array([2.0, 4.0]), np.array([3.0, 1.0])
    (first, second), values = _gradients(getattr(mx.np.random, name), loc, scale)
    np.testing.assert_allclose(first, [1, 1])
    np.testing.assert_allclose(second, (values - loc) / scale, rtol=1e-4)


@pytest.mark.parametrize("name", ["exponential", "rayleigh"])
def test_scale_has_a_gradient(name: str) -> None:
    (gradient,), values = _gradients(getattr(mx.np.random, name), [2.0, 4.0])
    np.testing.assert_allclose(gradient, values / [2.0, 4.0], rtol=1e-5)


def test_shapes_of_weibull_and_pareto_have_gradients() -> None:
    a = np.array([2.0, 4.0])
    (gradient,), values = _gradients(mx.np.random.weibull, a)
    np.testing.assert_allclose(gradient, -values * np.log(values) / a, rtol=1e-4)
    (gradient,), values = _gradients(mx.np.random.pareto, a)
    np.testing.assert_allclose(gradient, -(values + 1) * np.log1p(values) / a, rtol=1e-4)


def test_the_mean_of_the_gamma_gradient_is_that_of_the_mean() -> None:
    # The mean of gamma variates is shape * scale.
    (shape, scale), values = _gradients(mx.np.random.gamma, [2.0] * COUNT, [3.0] * COUNT)
    assert shape.mean() == pytest.approx(3.0, rel=0.02)
    np.testing.assert_allclose(scale, values / 3, rtol=1e-5)


@pytest.mark.parametrize("name", ["uniform", "laplace"])
def test_no_gradient_where_the_original_has_none(name: str) -> None:
    gradients, _ = _gradients(getattr(mx.np.random, name), [2.0, 4.0], [3.0, 5.0])
    np.testing.assert_array_equal(gradients, np.zeros((2, 2)))


def test_symbols_are_composed() -> None:
    symbol = mx.sym.random.normal(mx.sym.var("a"), mx.sym.var("b"), shape=(2,), name="noise")
    nodes = {node["name"]: node for node in json.loads(symbol.tojson())["nodes"]}
    assert nodes["noise"]["op"] == "_sample_normal"
    assert nodes["noise"]["attrs"]["shape"] == "(2,)"
    symbol = mx.sym.random.uniform(0, 1, (2, 3))
    (node,) = json.loads(symbol.tojson())["nodes"]
    assert node["op"] == "_random_uniform"
    (result,) = symbol.eval()
    assert result.shape == (2, 3)
    assert type(mx.sym.random.multinomial(mx.sym.var("p"))) is mx.sym.Symbol
    assert json.loads(mx.sym.random.randint(0, 5, shape=3).tojson())["nodes"][0]["attrs"]["high"] == "5"


def test_the_samplers_of_the_namespaces_agree() -> None:
    for name in MOMENTS:
        assert callable(getattr(mx.random, name))
        assert callable(getattr(mx.sym.random, name))
    mx.random.seed(1)
    one = mx.random.normal(shape=(3,)).asnumpy()
    mx.random.seed(1)
    np.testing.assert_array_equal(mx.nd.random.normal(shape=(3,)).asnumpy(), one)
