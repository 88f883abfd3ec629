"""What is said when an operator written in Python, or a call of it, is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from custom_operators import (
    DATA,
    MovingMean,
    MovingMeanProp,
    define,
    fails,
    gradient_of,
    leaf,
    net_of,
    square_backward,
    square_forward,
)

import regluon as mx
from regluon.base.errors import MXNetError


def cause_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.parametrize("way", ["arrays", "recorded", "first call", "plan", "training", "executor"])
@pytest.mark.parametrize("method", ["forward", "backward"])
def test_what_user_code_raises_is_chained_and_named(way: str, method: str) -> None:
    state = {"on": False, "calls": 0}

    def failing(self, *arguments):
        state["calls"] += 1
        if state["on"]:
            fails()
        (square_forward if method == "forward" else square_backward)(self, *arguments)

    define("failing", *((failing, square_backward) if method == "forward" else (square_forward, failing)))
    x = leaf()
    net = net_of("failing", way in ("first call", "plan", "training"))
    bound = mx.sym.Custom(mx.sym.var("x"), op_type="failing").simple_bind(mx.cpu(), x=(2, 3))

    def run() -> None:
        if way == "executor":
            bound.forward(is_train=True)
            bound.backward(mx.nd.ones((2, 3)))
        elif method == "forward" and way in ("arrays", "first call", "plan"):
            net(x)
        else:
            gradient_of(net, x)

    for _ in range({"plan": 3, "training": 2}.get(way, 0)):
        run()
    state.update(on=True, calls=0)
    with pytest.raises(MXNetError, match=f"Custom operator 'failing': {method} raised KeyError") as caught:
        run()
    assert state["calls"] == 1
    cause = cause_of(caught.value)
    assert type(cause) is KeyError
    assert cause.args == ("from the user",)
    assert cause.__traceback__ is not None


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ({"list_arguments": fails}, "list_arguments raised KeyError: 'from the user'"),
        ({"list_outputs": lambda self: []}, "list_outputs gave no output"),
        ({"list_outputs": lambda self: [3]}, "list_outputs must give strings; received 3"),
        ({"list_arguments": lambda self: ["a", "a"]}, "inputs have one name each; a is repeated"),
        ({"infer_shape": fails}, "infer_shape raised KeyError"),
        ({"infer_shape": lambda self, s: (s,)}, "infer_shape must return 2 or 3 lists .* received 1"),
        ({"infer_shape": lambda self, s: (s, [s[0], s[0]], [])}, "1 shapes for the outputs .*received 2"),
        ({"infer_shape": lambda self, s: ([(4, 5)], s, [])}, r"shape \(4, 5\) for data; received \(2, 3\)"),
        ({"infer_shape": lambda self, s: (s, [(-1, 3)], [])}, r"shape \(-1, 3\) for the output output"),
        ({"infer_type": lambda self, t: (t, [], [])}, "1 types for the outputs .*received 0"),
        ({"create_operator": fails}, "create_operator raised KeyError"),
        ({"create_operator": lambda *_: 5}, "create_operator must give a CustomOp; received int"),
    ],
)
def test_mistakes_in_a_property(methods: dict[str, Any], text: str) -> None:
    define("mistaken", square_forward, square_backward, **methods)
    with pytest.raises(MXNetError, match=f"Custom operator 'mistaken': .*{text}"):
        mx.nd.Custom(mx.nd.array(DATA), op_type="mistaken")


def test_a_value_of_another_shape_cannot_be_assigned() -> None:
    define("misshapen", lambda self, t, req, i, out, a: self.assign(out[0], req[0], mx.nd.ones((4, 5))))
    text = r"'misshapen': forward raised ValueError: .*\(4, 5\).*\(2, 3\)"
    with pytest.raises(MXNetError, match=text):
        mx.nd.Custom(mx.nd.array(DATA), op_type="misshapen")
    define("unwritten", lambda *_: None, lambda *_: None)
    assert mx.nd.Custom(mx.nd.array(DATA), op_type="unwritten").asnumpy().tolist() == [[0] * 3] * 2
    (gradient,) = gradient_of(lambda x: mx.nd.Custom(x, op_type="unwritten"), leaf())
    assert gradient.tolist() == [[0] * 3] * 2


def test_mistakes_in_a_call() -> None:
    x = mx.nd.array(DATA)
    cases = [
        (lambda: mx.nd.Custom(x), "Custom needs op_type=.*registered are"),
        (lambda: mx.nd.Custom(x, op_type="squre"), r"'squre' is not registered\. Near names: square"),
        (lambda: mx.npx.Custom(x, op_type="?"), r"'\?' is not registered\. Registered: "),
        (lambda: mx.nd.Custom(x, x, op_type="square"), "'square' takes the inputs data; received 2"),
        (lambda: mx.nd.Custom(x, data=x, op_type="square"), "received two values for data"),
        (lambda: mx.nd.Custom(x, other=x, op_type="square"), "received one named 'other'"),
        (lambda: mx.nd.Custom(x, op_type="moving_mean"), "data, weight, mean; missing: weight, mean"),
        (lambda: mx.nd.Custom(x, op_type="numpy_softmax", a=1), r"SoftmaxProp\(\) raised TypeError"),
        (lambda: mx.sym.Custom(mx.sym.var("x"), op_type="squre"), "Near names: square"),
        (lambda: mx.sym.Custom(foo=mx.sym.var("x"), op_type="square"), "received one named 'foo'"),
    ]
    for call, text in cases:
        with pytest.raises(MXNetError, match=text):
            call()


def test_registering(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError, match=r"register takes the name of the operator: .* received <class"):
        mx.operator.register(MovingMeanProp)
    with pytest.raises(
        TypeError, match=r"decorates a subclass of mx.operator.CustomOpProp; received 'MovingMean'"
    ):
        mx.operator.register("wrong")(MovingMean)
    define("replaced", square_forward, infer_shape=lambda self, s: (s, [(1,)]))
    assert mx.nd.Custom(mx.nd.ones((1,)), op_type="replaced").shape == (1,)
    define("replaced", lambda *_: None, infer_shape=lambda self, s: (s, [(5,)]))
    assert mx.nd.Custom(mx.nd.ones((1,)), op_type="replaced").shape == (5,)
    # Running the same cell of a notebook again says nothing; a class of another name does.
    assert not caplog.records
    mx.operator.register("replaced")(MovingMeanProp)
    assert "MovingMeanProp" in caplog.text


def test_operators_and_their_arguments_are_listed() -> None:
    names = mx.operator.get_all_registered_operators()
    assert {"Custom", "_npi_Custom", "Convolution", "FullyConnected"} <= set(names)
    assert names == sorted(names)
    grouped = mx.operator.get_all_registered_operators_grouped()
    assert {"Cast", "cast"} <= set(grouped["Cast"])
    assert sorted(name for group in grouped.values() for name in group) == names
    dropout = mx.operator.get_operator_arguments("Dropout")
    assert dropout.narg == len(dropout.names) == len(dropout.types)
    assert dict(zip(dropout.names, dropout.types, strict=True))["p"] == "float, optional, default=0.5"
    with pytest.raises(MXNetError, match="'Convolutoin' is not registered"):
        mx.operator.get_operator_arguments("Convolutoin")


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("method", ["forward", "backward"])
def test_an_exhausted_iterator_is_an_error_like_others(method: str, hybridize: bool) -> None:
    def exhausted(self, *arguments):
        next(iter(()))

    define(
        "exhausted", *((exhausted, square_backward) if method == "forward" else (square_forward, exhausted))
    )
    text = f"Custom operator 'exhausted': {method} raised StopIteration"
    with pytest.raises(MXNetError, match=text) as caught:
        gradient_of(net_of("exhausted", hybridize), leaf())
    assert type(cause_of(caught.value)) is StopIteration
