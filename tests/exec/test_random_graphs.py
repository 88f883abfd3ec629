"""Random networks: what is compiled equals what runs op by op, in values and in gradients, for every flag."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regluon as mx

from .random_checks import ACTIONS, Check
from .random_graphs import INPUTS, Maker
from .random_steps import STEPS

steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 65535)), min_size=1, max_size=16)


@pytest.mark.filterwarnings("ignore:Parameter .* is not used by any computation")
@pytest.mark.filterwarnings("ignore:The .*-th input to HybridBlock is not used")
@pytest.mark.filterwarnings("ignore:.* was recorded more than")
@settings(
    max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(
    steps=steps,
    inputs=st.lists(st.sampled_from(sorted(INPUTS)), min_size=1, max_size=3, unique=True),
    outputs=st.lists(st.integers(0, 40), min_size=0, max_size=2),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=2, max_size=6),
    style=st.sampled_from(["forward", "symbol"]),
    np_kind=st.booleans(),
    dtype=st.sampled_from(["float32", "float32", "float32", "float16", "bfloat16"]),
    seed=st.integers(0, 1000),
)
def test_compiled_equals_imperative(
    steps: list[tuple[str, int]],
    inputs: list[str],
    outputs: list[int],
    actions: list[str],
    style: str,
    np_kind: bool,
    dtype: str,
    seed: int,
) -> None:
    maker = Maker(inputs, style, np_kind, seed).run(steps)
    Check(maker, [0, *outputs], seed, dtype).run(["predict", "predict", "predict", *actions])


@pytest.mark.parametrize("style", ["forward", "symbol"])
def test_a_wrong_weight_is_found(style: str) -> None:
    """The check itself: a network that computes something else is told apart."""
    maker = Maker(["image"], style, False).run([("convolution", 3)])
    check = Check(maker, [0], 1)
    check.run(["predict", "train"])
    weight = next(iter(check.compiled.collect_params().values()))
    weight.set_data(weight.data() * 1.01)
    with pytest.raises(AssertionError, match="differs by"):
        check.run(["predict"])


@pytest.mark.parametrize("np_kind", [False, True])
def test_outputs_that_dropout_only_passes_on_have_memory_of_their_own(np_kind: bool) -> None:
    """At prediction Dropout gives what it is given; a write to an output or an input reaches nothing else."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dropout(0.5))
    net.hybridize()
    x = mx.nd.ones((2, 3)).as_np_ndarray() if np_kind else mx.nd.ones((2, 3))
    for _ in range(3):
        y = net(x)
        y[:] = 7
        assert (x.asnumpy() == 1).all()
