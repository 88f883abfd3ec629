"""Every pass on a small graph: what it writes, when it must not, and that values stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch

import regluon as mx
from regluon import passes
from regluon.exec import interpret
from regluon.exec.plan import specialise
from regluon.graph.node import Entry, Node, topological
from regluon.ops.internal import AFFINE, CONVOLUTION, DENSE, UNARY
from regluon.passes import Settings, cleanup, fuse, layers, strides

INPUT, WEIGHTS = 1, None


class Case:
    """A Symbol's graph with tensors for its variables; everything but the inputs is a parameter."""

    def __init__(self, symbol: mx.sym.Symbol, inputs: Sequence[str], **shapes: tuple[int, ...]) -> None:
        generator = torch.Generator().manual_seed(1)
        entries = list(symbol._entries)
        variables = [node for node in topological(entries) if node.op is None]
        self.tensors = [torch.rand(shapes[node.name], generator=generator) + 0.5 for node in variables]
        self.expected = self._values(variables, entries)
        twins, self.entries = specialise(variables, entries, self.tensors, False)
        self.variables = twins
        self.settings = Settings({id(node) for node in twins if node.name not in inputs})

    def _values(self, variables: Sequence[Node], entries: Sequence[Entry]) -> list[torch.Tensor]:
        values = {id(n): t for n, t in zip(variables, self.tensors, strict=True)}
        return [value.clone() for value in interpret(entries, values, False, 0)]

    def run(self, *chosen: passes.Pass) -> list[str]:
        """Apply passes, check the values, and give the operators' names that are left on the data's way."""
        for each in chosen:
            before = [(node, node.inputs, dict(node.attrs)) for node in topological(self.entries)]
            self.entries = each(self.entries, self.settings)
            passes.lint(self.entries, each.__name__)
            for node, inputs, attrs in before:
                assert node.inputs is inputs and node.attrs == attrs, "a pass changed a node in place"
        for value, expected in zip(self._values(self.variables, self.entries), self.expected, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
        order = topological(self.entries)
        return [n.op.name for n in order if n.op is not None and not self.settings.is_constant(Entry(n, 0))]

    @property
    def last(self) -> Node:
        return self.entries[0].node


x = mx.sym.var("x")
CONV_SHAPES = {
    "x": (2, 3, 8, 8),
    "c_weight": (4, 3, 3, 3),
    "c_bias": (4,),
    "b_gamma": (4,),
    "b_beta": (4,),
    "b_moving_mean": (4,),
    "b_moving_var": (4,),
}


def conv_bn(**options: object) -> mx.sym.Symbol:
    conv = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="c", **options)
    return mx.sym.BatchNorm(conv, name="b", fix_gamma=False, eps=1e-3)


def test_dropout_copies_and_casts_that_do_nothing_go() -> None:
    symbol = mx.sym.Cast(
        mx.sym.Dropout(mx.sym.BlockGrad(mx.sym.identity(mx.sym.exp(x))), p=0.5), dtype="float32"
    )
    assert Case(symbol, ["x"], x=(2, 3)).run(cleanup.remove_identities) == ["exp"]


def test_dropout_stays_in_train_mode_and_when_it_always_drops() -> None:
    case = Case(mx.sym.Dropout(x, p=0.0), ["x"], x=(2, 3))
    case.settings.training = True
    assert case.run(cleanup.remove_identities) == ["Dropout"]
    always = Case(mx.sym.Dropout(x, p=0.0, mode="always"), ["x"], x=(2, 3))
    assert always.run(cleanup.remove_identities) == ["Dropout"]


def test_a_cast_to_another_type_stays() -> None:
    assert Case(mx.sym.Cast(x, dtype="float64"), ["x"], x=(2, 3)).run(cleanup.remove_identities) == ["Cast"]


def test_repeated_expressions_are_computed_once() -> None:
    symbol = mx.sym.exp(x * 2) + mx.sym.exp(x * 2)
    assert Case(symbol, ["x"], x=(2, 3)).run(cleanup.merge_repeats) == ["_mul_scalar", "exp", "elemwise_add"]


def test_attributes_tell_expressions_apart() -> None:
    symbol = mx.sym.broadcast_add(
        mx.sym.sum(x, axis=0) + mx.sym.sum(x, axis=1), (x * 1).sum() + (x * True).sum()
    )
    case = Case(symbol, ["x"], x=(3, 3))
    assert case.run(cleanup.merge_repeats).count("sum") >= 3


def test_random_operators_are_never_merged() -> None:
    a, b = (mx.sym.random.uniform(shape=(2, 3)) for _ in range(2))
    entries = list((a - b)._entries)
    merged = cleanup.merge_repeats(entries, Settings())
    assert sum(n.op is not None and n.op.uses_rng for n in topological(merged)) == 2


def test_reshapes_that_do_nothing_go_and_chains_become_one() -> None:
    symbol = mx.sym.expand_dims(mx.sym.Flatten(mx.sym.reshape(mx.sym.exp(x), shape=(2, 12))), axis=0)
    assert Case(symbol, ["x"], x=(2, 3, 4)).run(cleanup.simplify_shapes) == ["exp", "Reshape"]
    back = mx.sym.reshape(mx.sym.reshape(x, shape=(12, 2)), shape=(2, 3, 4))
    assert Case(back, ["x"], x=(2, 3, 4)).run(cleanup.simplify_shapes) == []


def test_transposes_cancel_or_join() -> None:
    cancel = mx.sym.exp(mx.sym.swapaxes(mx.sym.transpose(x, axes=(0, 2, 1)), dim1=1, dim2=2))
    assert Case(cancel, ["x"], x=(2, 3, 4)).run(cleanup.simplify_shapes) == ["exp"]
    joined = mx.sym.transpose(mx.sym.transpose(x, axes=(1, 2, 0)), axes=(0, 2, 1))
    assert Case(joined, ["x"], x=(2, 3, 4)).run(cleanup.simplify_shapes) == ["transpose"]


@pytest.mark.parametrize("no_bias", [False, True])
def test_batch_norm_goes_into_the_convolution_before_it(no_bias: bool) -> None:
    shapes = {k: v for k, v in CONV_SHAPES.items() if not (no_bias and k == "c_bias")}
    case = Case(conv_bn(no_bias=no_bias), ["x"], **shapes)
    assert case.run(layers.use_common_forms, layers.fold_batch_norm) == ["convolution"]


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_the_transposed_convolution_before_it(groups: int) -> None:
    conv = mx.sym.Deconvolution(
        x, kernel=(3, 3), num_filter=4, num_group=groups, name="c", no_bias=True, adj=(1, 1), stride=(2, 2)
    )
    symbol = mx.sym.BatchNorm(conv, name="b", fix_gamma=True)
    shapes = {k: v for k, v in CONV_SHAPES.items() if k != "c_bias"}
    shapes.update(x=(2, 6, 5, 5), c_weight=(6, 4 // groups, 3, 3))
    case = Case(symbol, ["x"], **shapes)
    assert case.run(layers.use_common_forms, layers.fold_batch_norm) == ["convolution"]


def test_batch_norm_goes_into_the_dense_layer_before_it() -> None:
    symbol = mx.sym.BatchNorm(mx.sym.FullyConnected(x, num_hidden=4, name="c"), name="b", fix_gamma=False)
    shapes = {**CONV_SHAPES, "x": (2, 3, 2), "c_weight": (4, 6)}
    assert Case(symbol, ["x"], **shapes).run(layers.use_common_forms, layers.fold_batch_norm) == ["dense"]


@pytest.mark.parametrize("pad", [0, 1])
def test_batch_norm_goes_into_the_convolution_after_it_unless_zeros_are_padded(pad: int) -> None:
    norm = mx.sym.BatchNorm(mx.sym.exp(x), name="b", fix_gamma=False)
    symbol = mx.sym.Convolution(norm, kernel=(3, 3), num_filter=4, pad=(pad, pad), name="c")
    shapes = {**CONV_SHAPES, **{k: (3,) for k in CONV_SHAPES if k.startswith("b_")}}
    names = Case(symbol, ["x"], **shapes).run(layers.use_common_forms, layers.fold_batch_norm)
    assert names == (["exp", "affine", "convolution"] if pad else ["exp", "convolution"])


def test_batch_norm_stays_where_the_layer_before_it_is_used_elsewhere() -> None:
    conv = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="c")
    symbol = mx.sym.Group([mx.sym.BatchNorm(conv, name="b", fix_gamma=False), conv * 2])
    names = Case(symbol, ["x"], **CONV_SHAPES).run(layers.use_common_forms, layers.fold_batch_norm)
    assert names.count("affine") == 1


def test_batch_norm_of_the_batch_is_left_alone_in_train_mode() -> None:
    case = Case(conv_bn(), ["x"], **CONV_SHAPES)
    case.settings.training = True
    case.entries = layers.use_common_forms(case.entries, case.settings)
    assert "BatchNorm" in [n.op.name for n in topological(case.entries) if n.op is not None]


def test_weights_that_depend_on_an_input_are_not_folded() -> None:
    case = Case(conv_bn(), ["x", "c_weight"], **CONV_SHAPES)
    assert case.run(layers.use_common_forms, layers.fold_batch_norm) == ["convolution", "affine"]


@pytest.mark.parametrize(
    ("activate", "kind"),
    [
        (lambda s: mx.sym.Activation(s, act_type="relu"), "relu"),
        (lambda s: mx.sym.relu(s), "relu"),
        (lambda s: mx.sym.sigmoid(s), "sigmoid"),
        (lambda s: mx.sym.tanh(s), "tanh"),
        (lambda s: mx.sym.clip(s, 0, 6), "clip"),
        (lambda s: mx.sym.LeakyReLU(s, act_type="leaky", slope=0.1), "leaky"),
        (lambda s: mx.sym.LeakyReLU(s, act_type="gelu"), "gelu"),
    ],
)
def test_activations_join_the_layer_before_them(activate, kind: str) -> None:
    case = Case(activate(conv_bn()), ["x"], **CONV_SHAPES)
    assert case.run(layers.use_common_forms, layers.fold_batch_norm, fuse.fuse_activations) == ["convolution"]
    assert case.last.op is CONVOLUTION and case.last.attrs["kind"] == kind


def test_a_residual_addition_joins_the_later_convolution() -> None:
    shapes = {**CONV_SHAPES, "d_weight": (4, 4, 3, 3), "d_bias": (4,)}
    first = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="c")
    second = mx.sym.Convolution(first, kernel=(3, 3), pad=(1, 1), num_filter=4, name="d")
    symbol = mx.sym.relu(second + first)
    shapes = {k: v for k, v in shapes.items() if not k.startswith("b_")}
    case = Case(symbol, ["x"], **shapes)
    assert case.run(layers.use_common_forms, fuse.fuse_activations) == ["convolution", "convolution"]
    assert case.last.attrs["residual"] and case.last.attrs["kind"] == "relu"


def test_an_addition_that_broadcasts_is_no_residual() -> None:
    shapes = {"x": (2, 3), "w": (4, 3), "b": (4,), "y": (1, 4)}
    dense = mx.sym.FullyConnected(x, mx.sym.var("w"), mx.sym.var("b"), num_hidden=4)
    symbol = mx.sym.broadcast_add(dense, mx.sym.var("y"))
    case = Case(symbol, ["x", "y"], **shapes)
    assert case.run(layers.use_common_forms, fuse.fuse_activations) == ["dense", "broadcast_add"]
    assert case.entries[0].node.inputs[0].node.op is DENSE


def test_the_same_layer_added_to_itself_stays() -> None:
    shapes = {"x": (2, 3), "w": (4, 3), "b": (4,)}
    dense = mx.sym.FullyConnected(x, mx.sym.var("w"), mx.sym.var("b"), num_hidden=4)
    assert Case(dense + dense, ["x"], **shapes).run(layers.use_common_forms, fuse.fuse_activations) == [
        "dense",
        "add",
    ]


def test_zeros_padded_before_a_convolution_become_its_padding() -> None:
    shapes = {k: v for k, v in CONV_SHAPES.items() if not k.startswith("b_")}
    padded = mx.sym.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 2, 2, 1, 1), constant_value=0)
    symbol = mx.sym.Convolution(padded, kernel=(3, 3), num_filter=4, name="c")
    case = Case(symbol, ["x"], **shapes)
    assert case.run(layers.use_common_forms, fuse.fuse_padding) == ["convolution"]
    assert case.last.attrs["pad"] == (2, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "constant", "pad_width": (0, 0, 0, 0, 2, 2, 1, 1), "constant_value": 1},
        {"mode": "reflect", "pad_width": (0, 0, 0, 0, 2, 2, 1, 1)},
        {"mode": "constant", "pad_width": (0, 0, 0, 0, 2, 1, 1, 1), "constant_value": 0},
    ],
)
def test_other_padding_stays(options: dict) -> None:
    shapes = {k: v for k, v in CONV_SHAPES.items() if not k.startswith("b_")}
    symbol = mx.sym.Convolution(mx.sym.Pad(x, **options), kernel=(3, 3), num_filter=4, name="c")
    assert Case(symbol, ["x"], **shapes).run(layers.use_common_forms, fuse.fuse_padding) == [
        "Pad",
        "convolution",
    ]


def convolution(data: mx.sym.Symbol, name: str, size: int, step: int = 1, **more: object) -> mx.sym.Symbol:
    """A convolution of 4 channels that keeps the size, but for its stride."""
    usual = {"kernel": (size,) * 2, "pad": (size // 2,) * 2, "stride": (step,) * 2, "num_filter": 4}
    return mx.sym.Convolution(data, name=name, no_bias=True, **{**usual, **more})


def run_strides(symbol: mx.sym.Symbol, size: tuple[int, int] = (9, 8), **shapes: tuple[int, ...]) -> Case:
    """Checked values after the pass, and a weight for every convolution called by one letter."""
    known = {name: (4, 4, *((3, 3) if name[0] in "km" else (1, 1))) for name in symbol.list_arguments()}
    case = Case(symbol, ["x"], **{**known, "x": (2, 4, *size), **shapes})
    case.run(layers.use_common_forms, layers.fold_batch_norm, strides.stride_early)
    return case


def strides_of(case: Case) -> dict[str, tuple[int, ...]]:
    return {n.name: n.attrs["stride"] for n in topological(case.entries) if n.op is CONVOLUTION}


def picked(case: Case) -> int:
    return sum(n.op is not None and n.op.name == "Pooling" for n in topological(case.entries))


def test_a_stride_goes_to_the_layer_before() -> None:
    norm = mx.sym.BatchNorm(convolution(x, "k", 3), name="b", fix_gamma=False)
    vectors = {f"b_{name}": (4,) for name in ("gamma", "beta", "moving_mean", "moving_var")}
    case = run_strides(convolution(mx.sym.relu(norm), "p", 1, 2), **vectors)
    assert strides_of(case) == {"k": (2, 2), "p": (1, 1)}
    assert picked(case) == 0


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 8), (16, 5)])
def test_a_bottleneck_before_strides_computes_a_quarter(size: tuple[int, int]) -> None:
    start = mx.sym.relu(convolution(x, "a", 1))
    end = mx.sym.relu(convolution(convolution(start, "k", 3), "b", 1) + start)
    symbol = mx.sym.Group([convolution(end, "p", 1, 2), convolution(end, "q", 1, 2)])
    case = run_strides(symbol, size)
    assert strides_of(case) == {"a": (1, 1), "k": (2, 2), "b": (1, 1), "p": (1, 1), "q": (1, 1)}
    assert picked(case) == 1
    assert case.run(fuse.fuse_activations).count("Pooling") == 1


def test_strides_one_after_another_multiply() -> None:
    case = run_strides(convolution(convolution(convolution(x, "k", 3, 2), "p", 1, 2), "q", 1, 3), (25, 26))
    assert strides_of(case) == {"k": (12, 12), "p": (1, 1), "q": (1, 1)}


def test_a_stride_along_one_axis_goes_alone() -> None:
    case = run_strides(convolution(convolution(x, "k", 3), "p", 1, stride=(1, 2)))
    assert strides_of(case) == {"k": (1, 2), "p": (1, 1)}
    flat = convolution(convolution(x, "k", 3), "p", 1, 2, kernel=(1, 3), pad=(0, 1))
    case = run_strides(flat, p_weight=(4, 4, 1, 3))
    assert strides_of(case) == {"k": (2, 1), "p": (1, 2)}


@pytest.mark.parametrize("groups", [2, 4])
def test_grouped_layers_take_strides(groups: int) -> None:
    shapes = {"k_weight": (4, 4 // groups, 3, 3)}
    case = run_strides(convolution(convolution(x, "k", 3, num_group=groups), "p", 1, 2), **shapes)
    assert strides_of(case) == {"k": (2, 2), "p": (1, 1)}


@pytest.mark.parametrize(
    "write",
    [
        # Readers that differ, another kind of reader, an output.
        lambda y: [convolution(y, "p", 1, 2), convolution(y, "m", 3, 2)],
        lambda y: [convolution(y, "p", 1, 2), convolution(y, "q", 1)],
        lambda y: [convolution(y, "p", 1, 2), mx.sym.sum(y)],
        lambda y: [convolution(y, "p", 1, 2), y],
        # Not all that the convolution reads is a pixel of its own.
        lambda y: [convolution(y, "p", 1, 2, pad=(1, 1))],
        lambda y: [convolution(y, "m", 3, 2)],
        # What lies between mixes pixels, or does not tell.
        lambda y: [convolution(mx.sym.softmax(y, axis=2), "p", 1, 2)],
        lambda y: [convolution(mx.sym.transpose(y, axes=(0, 1, 3, 2)), "p", 1, 2)],
    ],
)
def test_strides_stay_where_pixels_are_read(write) -> None:
    case = run_strides(mx.sym.Group(write(mx.sym.relu(convolution(x, "k", 3)))))
    assert strides_of(case)["k"] == (1, 1)
    assert picked(case) == 0


def test_strides_stay_where_there_is_nothing_to_save() -> None:
    case = run_strides(convolution(mx.sym.relu(x) + x, "p", 1, 2))
    assert strides_of(case) == {"p": (2, 2)}
    assert picked(case) == 0


def test_normalization_along_pixels_keeps_strides_behind_it() -> None:
    norm = mx.sym.BatchNorm(convolution(x, "k", 3), name="b", fix_gamma=False, axis=3)
    vectors = {f"b_{name}": (8,) for name in ("gamma", "beta", "moving_mean", "moving_var")}
    case = run_strides(convolution(norm, "p", 1, 2), **vectors)
    assert strides_of(case) == {"k": (1, 1), "p": (2, 2)}


def test_picked_pixels_keep_what_is_no_number() -> None:
    start = mx.sym.var("x")
    end = convolution(start, "k", 3) + start
    case = run_strides(convolution(end, "p", 1, 2), (4, 4))
    (node,) = [n for n in topological(case.entries) if n.op is not None and n.op.name == "Pooling"]
    values = torch.randn(2, 4, 4, 4)
    values[0, 0, 0, 0], values[0, 1, 0, 0], values[0, 2, 0, 2] = torch.nan, torch.inf, -torch.inf
    (result,) = interpret([Entry(node, 0)], {id(node.inputs[0].node): values}, False, 0)
    torch.testing.assert_close(result, values[:, :, ::2, ::2], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("activate", [mx.sym.tanh, mx.sym.sigmoid, mx.sym.relu])
def test_a_maximum_is_taken_before_an_activation_that_is_costly(activate) -> None:
    pooled = mx.sym.Pooling(activate(x), kernel=(2, 2), stride=(2, 2), pool_type="max")
    names = Case(pooled, ["x"], x=(2, 3, 8, 8)).run(fuse.pool_first)
    assert names == (["relu", "Pooling"] if activate is mx.sym.relu else ["Pooling", activate.__name__])


def test_an_average_or_an_activation_read_elsewhere_stays() -> None:
    average = mx.sym.Pooling(mx.sym.tanh(x), kernel=(2, 2), pool_type="avg")
    assert Case(average, ["x"], x=(2, 3, 8, 8)).run(fuse.pool_first) == ["tanh", "Pooling"]
    active = mx.sym.tanh(x)
    twice = mx.sym.Group([mx.sym.Pooling(active, kernel=(2, 2), pool_type="max"), active])
    assert Case(twice, ["x"], x=(2, 3, 8, 8)).run(fuse.pool_first) == ["tanh", "Pooling"]


def test_channels_last_convolutions_become_transposes_that_cancel() -> None:
    def conv(data, name):
        return mx.sym.Convolution(
            data, kernel=(3, 3), num_filter=4, no_bias=True, pad=(1, 1), layout="NHWC", name=name
        )

    case = Case(conv(conv(x, "c"), "d"), ["x"], x=(2, 8, 8, 3), c_weight=(4, 3, 3, 3), d_weight=(4, 3, 3, 4))
    names = case.run(layers.use_common_forms, cleanup.simplify_shapes)
    assert names == ["transpose", "convolution", "convolution", "transpose"]


def test_lint_names_the_pass_and_the_node() -> None:
    node = Node(UNARY, "broken", [Entry(Node(None, "v"), 1)], {"kind": "relu"})
    with pytest.raises(mx.base.MXNetError, match=r"after my_pass: node broken uses output 1 of v"):
        passes.lint([Entry(node, 0)], "my_pass")


def test_a_pass_can_be_switched_off() -> None:
    case = Case(conv_bn(), ["x"], **CONV_SHAPES)
    with passes.skip("fold_batch_norm"):
        entries = passes.optimize(case.entries, case.settings)
    assert entries[0].node.op is AFFINE
    assert passes.optimize(case.entries, case.settings)[0].node.op is CONVOLUTION
    with passes.skip("all"):
        assert passes.optimize(case.entries, case.settings)[0].node.op.name == "BatchNorm"


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no pass is called fold.*fold_batch_norm"), passes.skip("fold"):
        pass


def test_the_environment_switches_passes_off() -> None:
    program = "import regluon; print(*sorted(regluon.passes.skipped()))"

    def run(value: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "REGLUON_SKIP_PASSES": value}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )

    assert run("fold_batch_norm, merge_repeats,").stdout.split() == ["fold_batch_norm", "merge_repeats"]
    assert run("all").stdout.split() == sorted(passes.names())
    assert run("use_norms,pool_first").stdout.split() == ["pool_first", "use_norms"]
    refused = run("fold_batch_norm,use_norms,nonsense")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("ValueError: the environment variable REGLUON_SKIP_PASSES expects")
    assert "received 'nonsense'; there are: remove_identities" in last and "use_norms" in last


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("channels", [8, 520])
def test_scaled_filters_of_any_size(channels: int, axis: int, order: torch.memory_format) -> None:
    torch.manual_seed(3)
    weight = torch.randn(channels, channels, 1, 1).contiguous(memory_format=order).requires_grad_()
    before, scale = weight.detach().clone(), torch.randn(channels)
    expected = before * scale.reshape([-1 if place == axis else 1 for place in range(4)])
    with torch.no_grad():
        found = layers._scale_filters(weight, scale, axis=axis)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert not found._is_view() and torch.equal(weight, before)
    # In memory of its own, one after another.
    assert not torch.equal(layers._scale_filters(weight.detach(), scale * 2, axis=axis), found)
    assert torch.equal(found, expected)
    # With gradients, and of other types, as usual.
    assert layers._scale_filters(weight, scale, axis=axis).requires_grad
    half = layers._scale_filters(weight.detach().bfloat16(), scale, axis=axis)
    assert half.dtype is torch.bfloat16


def test_large_scaled_filters_do_not_lie_in_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = layers.untouched_zeros_like
    monkeypatch.setattr(layers, "untouched_zeros_like", lambda w: (sizes.append(w.numel()), plain(w))[1])
    with torch.no_grad():
        for channels in (8, 520):
            layers._scale_filters(torch.ones(channels, channels, 1, 1), torch.ones(channels), axis=0)
    assert sizes == [520 * 520]
