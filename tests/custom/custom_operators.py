"""What the tests of custom operators share: registering in one line, an operator that squares, a block."""

from __future__ import annotations

from typing import Any

import numpy

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

DATA = numpy.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], dtype="float32")


def define(name: str, forward: Any, backward: Any = None, need_top_grad: bool = True, **methods: Any) -> None:
    """Register an operator of two functions; ``methods`` override those of its property."""

    class Operator(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            forward(self, is_train, req, in_data, out_data, aux)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            backward(self, req, out_grad, in_data, out_data, in_grad, aux)

    def make(self, **kwargs):
        mx.operator.CustomOpProp.__init__(self, need_top_grad)

    members = {"__init__": make, "create_operator": lambda *_: Operator(), **methods}
    mx.operator.register(name)(type("Property", (mx.operator.CustomOpProp,), members))


def square_forward(self, is_train, req, in_data, out_data, aux):
    self.assign(out_data[0], req[0], in_data[0] * in_data[0])


def square_backward(self, req, out_grad, in_data, out_data, in_grad, aux):
    self.assign(in_grad[0], req[0], 2 * in_data[0] * out_grad[0])


define("square", square_forward, square_backward)


class Net(gluon.HybridBlock):
    """A layer and a custom operator on what it gives."""

    def __init__(self, op_type, **call):
        super().__init__()
        self.call = {"op_type": op_type, **call}
        self.fc = nn.Dense(3, in_units=3, weight_initializer=mx.init.One())

    def hybrid_forward(self, F, x):
        return F.Custom(self.fc(x), **self.call) * 1


def net_of(op_type: str, hybridize: bool = True) -> Any:
    net = Net(op_type)
    net.initialize()
    if hybridize:
        net.hybridize()
    return net


def leaf(values: Any = DATA, dtype: str = "float32") -> Any:
    array = mx.nd.array(values, dtype=dtype)
    array.attach_grad()
    return array


def gradient_of(function: Any, *arrays: Any) -> list[numpy.ndarray]:
    with autograd.record():
        total = function(*arrays).sum()
    total.backward()
    return [array.grad.asnumpy().copy() for array in arrays]


def fails(*arguments: Any) -> None:
    raise KeyError("from the user")


class MovingMean(mx.operator.CustomOp):
    """Multiplies by a weight; in train mode a moving mean of the data is kept."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * in_data[1] - aux[0])
        if is_train:
            aux[0][:] = 0.5 * aux[0] + 0.5 * in_data[0].mean(axis=0)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * in_data[1])
        self.assign(in_grad[1], req[1], (out_grad[0] * in_data[0]).sum(axis=0))


@mx.operator.register("moving_mean")
class MovingMeanProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["data", "weight"]

    def list_auxiliary_states(self):
        return ["mean"]

    def infer_shape(self, shapes):
        return [shapes[0], shapes[0][1:]], [shapes[0]], [shapes[0][1:]]

    def create_operator(self, *call):
        return MovingMean()
