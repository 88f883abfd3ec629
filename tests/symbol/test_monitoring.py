"""What monitors are told, by name as 1.9.1's executor tells it, and by value against torch."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

import regluon as mx

# The rows of 1.9.1 for the network below after forward(is_train=True) and backward(), without drop_mask.
FORWARD = """fc1_output relu1_output bn_output bn_mean bn_var drop_output _plusscalar0_output
    softmax_output""".split()
BACKWARD = """softmax_backward_output0 softmax_backward_output1 _plusscalar0_backward_output
    drop_backward_output bn_backward_output0 bn_backward_output1 bn_backward_output2 relu1_backward_output
    fc1_backward_output0 fc1_backward_output1 fc1_backward_output2""".split()
FORWARD_ALL = """data fc1_data fc1_weight fc1_weight fc1_bias fc1_bias fc1_output relu1_input0 relu1_output
    bn_data bn_gamma bn_gamma bn_beta bn_beta bn_moving_mean bn_moving_mean bn_moving_var bn_moving_var
    bn_output bn_mean bn_var drop_data drop_output _plusscalar0_input0 _plusscalar0_output softmax_data
    softmax_label softmax_label softmax_output""".split()


def network() -> Any:
    with mx.name.NameManager():
        data = mx.sym.Variable("data")
        dense = mx.sym.FullyConnected(data, num_hidden=3, name="fc1")
        active = mx.sym.Activation(dense, act_type="relu", name="relu1")
        normal = mx.sym.BatchNorm(active, name="bn")
        dropped = mx.sym.Dropout(normal, p=0.5, name="drop")
        return mx.sym.SoftmaxOutput(dropped + 1, name="softmax")


def told(
    symbol: Any, everything: bool, grad_req: Any = "write", **shapes: Any
) -> tuple[Any, list[Any], list[Any]]:
    """The executor, and the rows of a forward and of a backward."""
    executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes)
    random = numpy.random.RandomState(0)
    for array in executor.arg_dict.values():
        array[:] = random.randn(*array.shape) * 0.5
    rows: list[tuple[str, numpy.ndarray]] = []
    executor.set_monitor_callback(lambda name, array: rows.append((name, array.asnumpy())), everything)
    executor.forward(is_train=True)
    forward = list(rows)
    rows.clear()
    executor.backward()
    return executor, forward, rows


def names(rows: list[Any]) -> list[str]:
    return [name for name, _ in rows]


def test_rows_are_those_of_the_original() -> None:
    _, forward, backward = told(network(), False, data=(2, 4))
    assert names(forward) == FORWARD and names(backward) == BACKWARD
    _, forward, backward = told(network(), True, data=(2, 4))
    assert names(forward) == FORWARD_ALL
    assert [name for name in names(backward) if "input" not in name] == BACKWARD
    assert "fc1_backward_input0" in names(backward)


@pytest.mark.parametrize(
    "make, backward",
    [
        (lambda d: mx.sym.SliceChannel(d, num_outputs=2, name="n")[0], ["n_backward_data"]),
        (lambda d: mx.sym.MakeLoss(d, name="n"), ["n_backward_data"]),
        (lambda d: mx.sym.make_loss(d, name="n"), ["n_backward_output"]),
        (lambda d: mx.sym.InstanceNorm(d, name="n"), [f"n_backward_{i}" for i in ("data", "gamma", "beta")]),
        (lambda d: mx.sym.elemwise_add(d, d, name="n"), []),
        (lambda d: mx.sym.broadcast_add(d, d, name="n"), ["n_backward_output0", "n_backward_output1"]),
        (lambda d: mx.sym.tanh(mx.sym.BlockGrad(d, name="b"), name="n"), []),
    ],
)
def test_names_of_gradients(make: Any, backward: list[str]) -> None:
    _, _, rows = told(make(mx.sym.Variable("data")), False, data=(2, 4, 3))
    assert [name for name in names(rows) if name.startswith("n_")] == backward


def test_gradients_are_right_where_a_value_is_used_twice() -> None:
    """Each use has its own row; a gradient that nobody asked for is told all the same."""
    data = mx.sym.Variable("data")
    inner = mx.sym.sin(data, name="s")
    symbol = mx.sym.elemwise_mul(inner, mx.sym.exp(inner, name="e"), name="m")
    requests: tuple[Any, ...] = ("write", {"data": "write"})
    for request in requests:
        executor, _, backward = told(symbol, False, request, data=(2, 3))
        x = torch.tensor(executor.arg_dict["data"].asnumpy(), requires_grad=True)
        uses = [torch.sin(x) for _ in range(2)]
        for use in uses:
            use.retain_grad()
        (uses[0] * torch.exp(uses[1])).sum().backward()
        rows = dict(backward)
        assert set(rows) == {
            "m_backward_output0",
            "m_backward_output1",
            "e_backward_output",
            "s_backward_output",
        }
        expected = {
            "m_backward_output0": uses[0].grad,
            "m_backward_output1": torch.sin(x),
            "e_backward_output": uses[1].grad,
            "s_backward_output": x.grad,
        }
        for name, value in expected.items():
            numpy.testing.assert_allclose(rows[name], value.detach().numpy(), rtol=1e-5, atol=1e-6)
        numpy.testing.assert_allclose(
            executor.grad_dict["data"].asnumpy(), rows["s_backward_output"], rtol=1e-6
        )


def test_a_monitor_changes_no_result_and_can_be_taken_away() -> None:
    found = []
    for monitored in (False, True):
        symbol = mx.sym.LinearRegressionOutput(
            mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"), name="lr"
        )
        requests = {"data": "null", "fc_weight": "write", "fc_bias": "write", "lr_label": "null"}
        executor = symbol.simple_bind(mx.cpu(), grad_req=requests, data=(4, 3))
        for array in executor.arg_dict.values():
            array[:] = numpy.random.RandomState(1).randn(*array.shape)
        rows: list[tuple[str, numpy.ndarray]] = []
        if monitored:
            executor.set_monitor_callback(lambda name, array, rows=rows: rows.append((name, array.asnumpy())))
        executor.forward(is_train=True)
        executor.backward()
        found.append(
            [
                executor.outputs[0].asnumpy(),
                *(executor.grad_dict[n].asnumpy() for n in ("fc_weight", "fc_bias")),
            ]
        )
        if monitored:
            told_rows = dict(rows)
            weight = executor.arg_dict["fc_weight"].asnumpy()
            passed = told_rows["lr_backward_output0"] @ weight
            # The gradient of the data, which has no buffer, is told and not left at zero.
            numpy.testing.assert_allclose(told_rows["fc_backward_output0"], passed, rtol=1e-5)
            assert (told_rows["lr_backward_output1"] == 0).all()
            executor.set_monitor_callback(None)
            rows.clear()
            executor.forward(is_train=True)
            executor.backward()
            assert not rows
    for plain, watched in zip(*found, strict=True):
        numpy.testing.assert_array_equal(plain, watched)


def test_a_module_with_a_monitor() -> None:
    symbol = network()
    module = mx.mod.Module(symbol, data_names=["data"], label_names=["softmax_label"])
    module.bind([("data", (4, 6))], [("softmax_label", (4,))])
    module.init_params()
    module.init_optimizer()
    monitor = mx.mon.Monitor(2, pattern=".*fc1.*", sort=True)
    module.install_monitor(monitor)
    batch = mx.io.DataBatch([mx.nd.ones((4, 6))], [mx.nd.zeros((4,))])
    counts = []
    for _ in range(3):
        monitor.tic()
        module.forward_backward(batch)
        module.update()
        counts.append([name for _, name, _ in monitor.toc()])
    expected = [
        *(f"fc1_backward_output{place}" for place in range(3)),
        "fc1_bias",
        "fc1_output",
        "fc1_weight",
    ]
    assert counts == [expected, [], expected]
