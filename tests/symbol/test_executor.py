"""Executors: what they are bound to, forward and backward, reshape, sharing, monitors."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.errors import MXNetError

S, nd = mx.sym, mx.nd


def classifier() -> Any:
    data = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    return S.SoftmaxOutput(S.BatchNorm(data, name="bn", fix_gamma=False, momentum=0.5), name="softmax")


def product(**kwargs: Any) -> Any:
    """a * b on [1, 2] and [3, 4]."""
    arrays = {"a": nd.array([1, 2]), "b": nd.array([3, 4])}
    return (S.var("a") * S.var("b")).bind(mx.cpu(), arrays, **kwargs), arrays


def test_the_bound_arrays_are_used_not_copied() -> None:
    grads = [nd.zeros(2), nd.zeros(2)]
    executor, arrays = product(args_grad=grads)
    assert executor.arg_arrays[0] is arrays["a"] and executor.arg_dict["b"] is arrays["b"]
    assert executor.grad_arrays == grads or executor.grad_arrays[0] is grads[0]
    arrays["a"][:] = 5
    assert executor.forward()[0].asnumpy().tolist() == [15, 20]
    executor.forward(is_train=True, a=nd.array([7, 8]), b=numpy.array([1, 2]))
    assert arrays["a"].asnumpy().tolist() == [7, 8]
    assert [value.asnumpy().tolist() for value in executor.output_dict.values()] == [[7, 16]]
    executor.backward(nd.array([1, 10]))
    assert grads[0].asnumpy().tolist() == [1, 20] and grads[1].asnumpy().tolist() == [7, 80]


def test_outputs_before_forward_have_their_shape_and_later_ones_are_fresh() -> None:
    executor, _ = product()
    assert executor.outputs[0].shape == (2,)
    first = executor.forward()[0]
    second = executor.forward(a=nd.array([0, 0]))[0]
    assert first.asnumpy().tolist() == [3, 8] and second.asnumpy().tolist() == [0, 0]
    assert executor.outputs[0].asnumpy().tolist() == [0, 0]


def test_outputs_taken_before_a_forward_follow_every_forward() -> None:
    """Programs take ``outputs`` once after binding and read them after each forward."""
    executor, _ = product()
    (held,) = executor.outputs
    executor.forward()
    assert held.asnumpy().tolist() == [3, 8]
    executor.forward(a=nd.array([1, 1]))
    assert held.asnumpy().tolist() == [3, 4] and executor.outputs[0] is held


def test_an_output_that_is_an_argument_shares_no_memory_with_it() -> None:
    array = nd.array([1, 2])
    executor = S.var("a").bind(mx.cpu(), [array], [nd.zeros(2)])
    output = executor.forward(is_train=True)[0]
    output[:] = 9
    assert array.asnumpy().tolist() == [1, 2]
    executor.backward([nd.array([3, 4])])
    assert executor.grad_dict["a"].asnumpy().tolist() == [3, 4]


def test_without_gradient_buffers_backward_does_nothing() -> None:
    executor, _ = product()
    assert executor.grad_arrays == [None, None] and executor.grad_dict == {"a": None, "b": None}
    executor.forward(is_train=True)
    executor.backward()


def test_requests_and_partial_buffers() -> None:
    buffers = [nd.ones(2), nd.ones(2)]
    executor, _ = product(args_grad=buffers, grad_req=["add", "null"])
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
    assert buffers[0].asnumpy().tolist() == [7, 9] and buffers[1].asnumpy().tolist() == [1, 1]
    executor, _ = product(args_grad={"b": buffers[1]}, grad_req={"b": "write"})
    assert executor.grad_arrays[0] is None
    executor.forward(is_train=True)
    executor.backward()
    assert buffers[1].asnumpy().tolist() == [1, 2]


def test_backward_again_and_after_a_prediction() -> None:
    executor, _ = product(args_grad=[nd.zeros(2), nd.zeros(2)], grad_req="add")
    with pytest.raises(MXNetError, match=r"needs a forward\(is_train=True\) before it"):
        executor.backward()
    executor.forward(is_train=True)
    executor.backward()
    executor.backward()
    executor.forward(is_train=False)
    executor.backward()
    assert executor.grad_arrays[0].asnumpy().tolist() == [9, 12]


def test_one_buffer_for_two_arguments_has_the_sum() -> None:
    symbol = S.var("x") * S.var("x")
    assert symbol.list_arguments() == ["x", "x"]
    array, buffer = nd.array([3.0]), nd.zeros(1)
    executor = symbol.bind(mx.cpu(), [array, array], [buffer, buffer])
    executor.forward(is_train=True)
    executor.backward()
    assert buffer.asnumpy().tolist() == [6]
    with pytest.raises(ValueError, match="Duplicate names detected among the arguments: x"):
        _ = executor.arg_dict


def test_integer_arguments_have_exact_gradients() -> None:
    array = nd.array([2, 3], dtype="int32")
    executor = (S.var("a") * S.var("a")).bind(mx.cpu(), [array, array], [nd.zeros(2, dtype="int32"), None])
    assert executor.forward(is_train=True)[0].dtype is numpy.int32
    executor.backward(nd.array([10, 1], dtype="int32"))
    assert executor.grad_arrays[0].asnumpy().tolist() == [20, 3]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda s, a: s.bind(mx.cpu(), {"a": a}), ValueError, "key `b` is missing in `args`"),
        (lambda s, a: s.bind(mx.cpu(), [a]), ValueError, "Length of args does not match.*a, b"),
        (lambda s, a: s.bind(mx.cpu(), [a, 3]), TypeError, "Only accept list of NDArrays or dict.*int"),
        (lambda s, a: s.bind(mx.cpu(), 3), TypeError, "Only accept list of NDArrays"),
        (
            lambda s, a: s.bind(mx.cpu(), [a, a], [a, a], "foo"),
            ValueError,
            "grad_req must be in .*'foo' for a",
        ),
        (
            lambda s, a: s.bind(mx.cpu(), [a, a], [a, a], ["write"]),
            ValueError,
            "grad_req has 1 entries.* 2 arg",
        ),
        (lambda s, a: s.bind(mx.cpu(), [a, a], None, 3), ValueError, "a word, a list or a dict"),
        (lambda s, a: s.bind(mx.cpu(), [a, nd.ones(3)]), MXNetError, r"\[2\] and \[3\].*in node pair"),
        (lambda s, a: s.simple_bind(mx.cpu()), MXNetError, r"simple_bind error[\s\S]*a: \(\), b: \(\)"),
        (
            lambda s, a: s.simple_bind(mx.cpu(), a=(1,), b=(2,)),
            MXNetError,
            r"a: \(1,\)\nb: \(2,\)\n.*in node pair",
        ),
        (lambda s, a: s.eval(a=a), MXNetError, "eval needs an array for b; received a"),
    ],
)
def test_wrong_bindings(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(S.elemwise_mul(S.var("a"), S.var("b"), name="pair"), nd.array([1, 2]))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e: e.forward(zz=nd.ones(2)), TypeError, "Unknown argument zz"),
        (
            lambda e: e.forward(a=nd.ones(3)),
            ValueError,
            r"Shape not match! Argument a, need: \(2,\), received: \(3,\)",
        ),
        (
            lambda e: e.forward(a="x"),
            ValueError,
            "only accept keyword argument of NDArrays and numpy.ndarray",
        ),
        (lambda e: e.backward(nd.ones(3)), MXNetError, r"needs its shape \(2,\); received \(3,\)"),
        (
            lambda e: e.backward([nd.ones(2)] * 2),
            MXNetError,
            "one gradient for each of the outputs .*received 2",
        ),
        (lambda e: e.backward({"q": nd.ones(2)}), MXNetError, "out_grads names q, but the outputs are"),
        (lambda e: e.set_monitor_callback(3), TypeError, "a monitor callback is callable; received int"),
        (
            lambda e: e.copy_params_from({"zz": nd.ones(2)}),
            ValueError,
            'Find name "zz" that is not in the arguments',
        ),
        (
            lambda e: e.copy_params_from({}, {"zz": nd.ones(2)}),
            ValueError,
            "zz that is not in the auxiliary states",
        ),
        (
            lambda e: e.copy_params_from({"a": nd.ones(1)}),
            MXNetError,
            r"a is bound with shape \(2,\); received \(1,\)",
        ),
    ],
)
def test_wrong_use(call: Any, error: Any, text: str) -> None:
    executor, _ = product(args_grad=[nd.zeros(2), nd.zeros(2)])
    executor.forward(is_train=True)
    with pytest.raises(error, match=text):
        call(executor)


def test_head_gradients_by_name() -> None:
    symbol = S.Group([S.elemwise_mul(S.var("a"), S.var("a2"), name="p"), S.var("b") * 3])
    executor = symbol.simple_bind(mx.cpu(), a=(2,), b=(2,))
    executor.arg_dict["a2"][:] = 5
    executor.forward(is_train=True)
    executor.backward({"p_output": nd.array([1, 2])})
    assert executor.grad_dict["a"].asnumpy().tolist() == [5, 10]
    assert executor.grad_dict["b"].asnumpy().tolist() == [3, 3]


def test_simple_bind_makes_everything() -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(2, 4), grad_req={"fc_weight": "write"})
    assert {name: array.shape for name, array in executor.arg_dict.items()} == {
        "data": (2, 4),
        "fc_weight": (3, 4),
        "fc_bias": (3,),
        "bn_gamma": (3,),
        "bn_beta": (3,),
        "softmax_label": (2,),
    }
    assert {name: array.shape for name, array in executor.aux_dict.items()} == {
        "bn_moving_mean": (3,),
        "bn_moving_var": (3,),
    }
    assert [name for name, array in executor.grad_dict.items() if array is not None] == ["fc_weight"]
    assert not any(array.asnumpy().any() for array in (*executor.arg_arrays, *executor.aux_arrays))
    typed = S.FullyConnected(S.var("data"), num_hidden=3).simple_bind(
        mx.cpu(), type_dict={"data": "float64"}, data=(2, 4)
    )
    assert {array.dtype for array in typed.arg_arrays} == {numpy.float64}


def test_moving_statistics_change_in_backward_of_a_training_forward() -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(2, 4))
    executor.arg_dict["data"][:] = numpy.arange(8).reshape(2, 4)
    executor.arg_dict["fc_weight"][:] = numpy.arange(12).reshape(3, 4) / 10
    executor.arg_dict["bn_gamma"][:] = 1
    mean = executor.aux_dict["bn_moving_mean"]
    executor.forward(is_train=True)
    assert not mean.asnumpy().any()
    executor.backward()
    numpy.testing.assert_allclose(mean.asnumpy(), [1.3, 4.1, 6.9], rtol=1e-5)
    executor.forward(is_train=False)
    executor.backward()
    numpy.testing.assert_allclose(mean.asnumpy(), [1.3, 4.1, 6.9], rtol=1e-5)


def test_dropout_drops_in_train_mode_and_its_gradient_has_the_same_mask() -> None:
    executor = S.Dropout(S.var("x"), p=0.5).simple_bind(mx.cpu(), x=(30, 30))
    executor.arg_dict["x"][:] = 1
    dropped = executor.forward(is_train=True)[0].asnumpy()
    assert set(numpy.unique(dropped)) == {0, 2}
    executor.backward(nd.ones((30, 30)))
    assert (executor.grad_dict["x"].asnumpy() == dropped).all()
    assert (executor.forward(is_train=True)[0].asnumpy() != dropped).any()
    assert (executor.forward()[0].asnumpy() == 1).all()


def test_reshape_shares_what_fits() -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(4, 4), softmax_label=(4,))
    small = executor.reshape(data=(1, 4), softmax_label=(1,))
    assert small.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    assert small.aux_dict["bn_moving_var"] is executor.aux_dict["bn_moving_var"]
    small.arg_dict["data"][:] = 7
    assert executor.arg_dict["data"].asnumpy().tolist() == [[7] * 4] + [[0] * 4] * 3
    assert small.forward()[0].shape == (1, 3)
    small.grad_dict["fc_bias"][:] = 5
    assert executor.grad_dict["fc_bias"].asnumpy().tolist() == [5, 5, 5]
    large = executor.reshape(allow_up_sizing=True, data=(6, 4), softmax_label=(6,))
    assert large.forward()[0].shape == (6, 3)


@pytest.mark.parametrize(
    ("flags", "shapes", "text"),
    [
        ({}, {"data": (1, 4)}, "Shape of unspecified arg: softmax_label changed .* partial_shaping=True"),
        (
            {},
            {"data": (6, 4), "softmax_label": (6,)},
            "New shape of arg: data is larger.* allow_up_sizing=True",
        ),
        ({}, {"data": (4, 3)}, "unspecified arg: fc_weight changed"),
        ({}, {"q": (1,)}, "Keyword argument name q not found"),
    ],
)
def test_reshape_refuses(flags: Any, shapes: Any, text: str) -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(4, 4))
    with pytest.raises(MXNetError, match=text):
        executor.reshape(**flags, **shapes)


def test_partial_shaping_lets_parameters_follow() -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(4, 4))
    other = executor.reshape(partial_shaping=True, data=(2, 3))
    assert other.arg_dict["fc_weight"].shape == (3, 3)
    assert other.arg_dict["softmax_label"].shape == (2,)
    assert other.forward()[0].shape == (2, 3)


def test_executors_share_parameters_and_memory() -> None:
    first = classifier().simple_bind(mx.cpu(), data=(4, 4))
    names = ["fc_weight", "fc_bias", "bn_gamma", "bn_beta"]
    second = classifier().simple_bind(mx.cpu(), data=(2, 4), shared_exec=first, shared_arg_names=names)
    assert all(second.arg_dict[name] is first.arg_dict[name] for name in names)
    assert all(second.grad_dict[name] is first.grad_dict[name] for name in names)
    assert second.aux_dict["bn_moving_mean"] is first.aux_dict["bn_moving_mean"]
    assert second.arg_dict["data"].shape == (2, 4)
    with pytest.raises(MXNetError, match=r"shared array fc_weight has shape \(3, 4\).*needs \(3, 5\)"):
        classifier().simple_bind(mx.cpu(), data=(2, 5), shared_exec=first, shared_arg_names=names)
    buffer: dict[str, Any] = {}
    one = S.tanh(S.var("x")).simple_bind(mx.cpu(), x=(3, 2), shared_buffer=buffer)
    two = S.tanh(S.var("x")).simple_bind(mx.cpu(), x=(2, 2), shared_buffer=buffer)
    two.arg_dict["x"][:] = 4
    assert one.arg_dict["x"].asnumpy().tolist() == [[4, 4], [4, 4], [0, 0]]
    three = S.tanh(S.var("x")).simple_bind(mx.cpu(), x=(5, 2), shared_buffer=buffer)
    assert buffer["x"] is three.arg_dict["x"]


def test_copy_params_converts_and_may_skip() -> None:
    executor = classifier().simple_bind(mx.cpu(), data=(2, 4))
    extra = {"fc_bias": nd.array([1, 2, 3], dtype="float64"), "other": nd.ones(1)}
    executor.copy_params_from(extra, {"bn_moving_mean": nd.ones(3)}, allow_extra_params=True)
    assert executor.arg_dict["fc_bias"].asnumpy().tolist() == [1, 2, 3]
    assert executor.arg_dict["fc_bias"].dtype is numpy.float32
    assert executor.aux_dict["bn_moving_mean"].asnumpy().tolist() == [1, 1, 1]


def test_monitors_see_every_value() -> None:
    dense = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    symbol = S.Group([S.relu(dense, name="r") * 2, S.split(dense, num_outputs=3, name="sp")[1]])
    executor = symbol.simple_bind(mx.cpu(), data=(2, 4))
    executor.arg_dict["fc_bias"][:] = 1
    seen: list[Any] = []
    executor.set_monitor_callback(lambda name, array: seen.append((name, array.shape)))
    executor.forward(is_train=True)
    names = [name for name, _ in seen]
    # As MXNet 1.9.1 reports them, in order.
    assert names[:2] == ["fc_output", "r_output"] and names[3:] == ["sp_output0", "sp_output1", "sp_output2"]
    assert names[2].startswith("_mulscalar") and seen[0][1] == (2, 3) and seen[4][1] == (2, 1)
    executor.backward([nd.ones((2, 3)), nd.ones((2, 1))])
    assert executor.grad_dict["fc_bias"].asnumpy().tolist() == [4, 6, 4]
    seen.clear()
    executor.set_monitor_callback(lambda name, array: seen.append(name), monitor_all=True)
    executor.forward()
    assert seen[:7] == ["data", "fc_data", "fc_weight", "fc_weight", "fc_bias", "fc_bias", "fc_output"]
    executor.set_monitor_callback(None)
    seen.clear()
    executor.forward()
    assert seen == []


def test_states_whose_batch_size_is_left_open() -> None:
    # As the recurrent cells of 1.x begin: zeros of shape (0, 3), completed by what they meet.
    step = S.tanh(S.FullyConnected(S.var("x"), num_hidden=3, name="i") + S.zeros((0, 3)))
    executor = step.simple_bind(mx.cpu(), x=(4, 2))
    assert executor.forward()[0].shape == (4, 3)
    assert step.bind(mx.cpu(), {k: v for k, v in executor.arg_dict.items()}).forward()[0].shape == (4, 3)


def test_numpy_symbols_give_numpy_arrays() -> None:
    executor = (S.var("a").as_np_ndarray() * 2).bind(mx.cpu(), [mx.np.array([1.0, 2.0])])
    assert type(executor.forward()[0]) is mx.np.ndarray
    assert type(S.var("a").eval(a=nd.ones(1))[0]) is nd.NDArray
    assert (S.var("a") + S.var("b")).eval(ctx=mx.cpu(), a=nd.ones(1), b=nd.ones(1))[0].asscalar() == 2


def test_changing_the_symbol_later_leaves_the_executor() -> None:
    symbol = S.var("a") * 2
    executor = symbol.bind(mx.cpu(), [nd.ones(1)])
    symbol._set_attr(scalar="5")
    assert executor.forward()[0].asscalar() == 2
    assert symbol.eval(a=nd.ones(1))[0].asscalar() == 5


def test_the_text_of_an_executor() -> None:
    executor, _ = product()
    text = executor.debug_str()
    assert text.startswith("Symbol Outputs:\n\toutput[0]=") and text.endswith("Total 0 MB allocated\n")
    assert executor.get_optimized_symbol().list_arguments() == ["a", "b"]
    assert isinstance(executor, mx.executor.Executor)
