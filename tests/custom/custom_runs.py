"""What custom operators see and give, as a record that the originals and this project make alike.

Run once with each original's Python: ``python custom_runs.py ../golden/custom_operators.json``, and for 2.0
once more with the argument ``numpy``; the test makes the same record here and compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy

EVENTS: list[Any] = []
DATA = numpy.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], dtype="float32")
WEIGHT = numpy.array([0.5, 2.0, -1.0], dtype="float32")


def _define(mx: Any) -> None:
    """Register ``run_affine``: two arguments, an auxiliary mean and a count, two outputs."""

    class Affine(mx.operator.CustomOp):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, is_train, req, in_data, out_data, aux):
            modes = bool(is_train), mx.autograd.is_recording(), mx.autograd.is_training()
            EVENTS.append(["forward", modes, list(req), len(aux), type(in_data[0]).__name__])
            data, weight = in_data
            self.assign(out_data[0], req[0], self.scale * data * weight)
            self.assign(out_data[1], req[1], aux[1])
            aux[0][:] = 0.5 * aux[0] + 0.5 * data.mean(axis=0)
            aux[1][:] = aux[1] + 1

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            modes = mx.autograd.is_recording(), mx.autograd.is_training()
            EVENTS.append(["backward", modes, len(out_grad), len(out_data), len(in_grad), len(aux)])
            data, weight = in_data
            self.assign(in_grad[0], req[0], self.scale * out_grad[0] * weight)
            self.assign(in_grad[1], req[1], (self.scale * out_grad[0] * data).sum(axis=0))

    @mx.operator.register("run_affine")
    class AffineProp(mx.operator.CustomOpProp):
        def __init__(self, scale="1", **rest):
            super().__init__(need_top_grad=True)
            EVENTS.append(["property", scale, sorted(item for item in rest.items() if item[0][:2] != "__")])
            self.scale = float(scale)

        def list_arguments(self):
            return ["data", "weight"]

        def list_outputs(self):
            return ["scaled", "seen"]

        def list_auxiliary_states(self):
            return ["mean", "count"]

        def infer_shape(self, in_shape):
            data = in_shape[0]
            return [data, [data[1]]], [data, [1]], [[data[1]], [1]]

        def create_operator(self, ctx, in_shapes, in_dtypes):
            shapes = [list(shape) for shape in in_shapes]
            EVENTS.append(["create", str(ctx), shapes, list(in_dtypes)])
            return Affine(self.scale)

    @mx.operator.register("run_loss")
    class LossProp(mx.operator.CustomOpProp):
        """A loss: ``out_grad`` is not used; shapes of the arguments and outputs only."""

        def __init__(self):
            super().__init__(need_top_grad=False)

        def list_arguments(self):
            return ["data", "label"]

        def infer_shape(self, in_shape):
            return [in_shape[0], [in_shape[0][0]]], [in_shape[0]]

        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Loss()

    class Loss(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], mx.nd.softmax(in_data[0]))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            picked = mx.nd.one_hot(in_data[1], depth=in_data[0].shape[1])
            self.assign(in_grad[0], req[0], out_data[0] - picked)


def _events() -> list[Any]:
    found = json.loads(json.dumps(EVENTS))
    EVENTS.clear()
    return found


def _numbers(arrays: Any) -> list[Any]:
    return [numpy.asarray(array.asnumpy(), dtype="float64").round(5).tolist() for array in arrays]


def _arrays(mx: Any) -> list[Any]:
    return [mx.nd.array(DATA), mx.nd.array(WEIGHT), mx.nd.zeros(3), mx.nd.zeros(1)]


def imperative(mx: Any) -> dict[str, Any]:
    """Calls on arrays: kinds of keywords, plain, recorded, with one gradient wanted or adding."""
    data, weight, mean, count = _arrays(mx)
    EVENTS.clear()
    call = {"op_type": "run_affine", "scale": 2.5, "a": (1, 2), "b": True, "c": None, "d": "x"}
    plain = mx.nd.Custom(data, weight, mean, count, **call)
    result = {"plain": [_numbers([*plain, mean, count]), _events()]}
    data.attach_grad("add")
    data.grad[:] = 10
    with mx.autograd.record():
        outputs = mx.nd.Custom(data, weight, mean, count, op_type="run_affine", scale=2)
        total = (outputs[0] * outputs[0]).sum()
    total.backward()
    result["recorded"] = [_numbers([*outputs, data.grad, mean, count]), _events()]
    label = mx.nd.array([0, 2])
    data.attach_grad()
    with mx.autograd.record():
        scores = mx.nd.Custom(data, label, op_type="run_loss")
    scores.backward(mx.nd.ones((2, 3)) * 7)
    result["loss"] = _numbers([scores, data.grad])
    return result


def symbolic(mx: Any) -> dict[str, Any]:
    """Names, JSON and inferred shapes of Symbols."""
    EVENTS.clear()
    symbol = mx.sym.Custom(mx.sym.var("d"), op_type="run_affine", name="node", scale=3)
    nodes = json.loads(symbol.tojson())["nodes"]
    shown = [
        [
            node["op"],
            node["name"],
            {key: value for key, value in node.get("attrs", {}).items() if key[:2] != "__"},
            [entry[:2] for entry in node["inputs"]],
        ]
        for node in nodes
    ]
    lists = [symbol.list_arguments(), symbol.list_auxiliary_states(), symbol.list_outputs()]
    shapes = [[list(shape) for shape in group] for group in symbol.infer_shape(d=(2, 3))]
    partial = [[list(shape) for shape in group] for group in symbol.infer_shape_partial(d=(0, 3))]
    named = mx.sym.Custom(weight=mx.sym.var("w"), op_type="run_affine", name="other").list_arguments()
    load = getattr(mx.sym, "load_json", None) or mx.sym.fromjson
    again = load(symbol.tojson()).list_outputs()
    return {"nodes": shown, "names": lists, "shapes": shapes, "partial": partial, "named": [named, again]}


def executor(mx: Any) -> dict[str, Any]:
    """Runs of one executor of 1.9.1."""
    EVENTS.clear()
    symbol = mx.sym.Custom(mx.sym.var("d"), op_type="run_affine", name="node", scale=3)
    bound = symbol.simple_bind(mx.cpu(), d=(2, 3), grad_req={"d": "write", "node_weight": "add"})
    bound.arg_dict["d"][:] = mx.nd.array(DATA)
    bound.arg_dict["node_weight"][:] = mx.nd.array(WEIGHT)
    values = []
    for is_train in (False, False, True):
        bound.forward(is_train=is_train)
        values.append(_numbers(bound.outputs))
    bound.backward([mx.nd.ones((2, 3)), mx.nd.ones(1)])
    names = ("d", "node_weight")
    gradients = _numbers([bound.grad_dict[name] for name in names])
    states = _numbers([bound.aux_dict[name] for name in ("node_mean", "node_count")])
    return {"values": values, "gradients": gradients, "states": states, "events": _events()}


def hybridized(mx: Any) -> dict[str, Any]:
    """A hybridized block of 1.9.1, recorded and not, at two sizes."""
    call = {"op_type": "run_affine", "scale": 2}

    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, data, weight, mean, count):
            return F.Custom(data, weight, mean, count, **call)[0] * 2

    net = Net()
    net.initialize()
    net.hybridize()
    values = []
    for rows in (2, 2, 1):
        arrays = _arrays(mx)
        arrays[0] = arrays[0][:rows]
        arrays[0].attach_grad()
        with mx.autograd.record():
            out = net(*arrays)
        out.backward()
        values.append(_numbers([out, net(*arrays), arrays[0].grad, *arrays[2:]]))
    EVENTS.clear()
    return {"values": values}


def in_numpy_mode(mx: Any) -> list[Any]:
    """What an operator called on 1.x arrays sees in 2.0's NumPy mode."""
    _define(mx)
    EVENTS.clear()
    arrays = [mx.np.array(value).as_nd_ndarray() for value in (DATA, WEIGHT, numpy.zeros(3), numpy.zeros(1))]
    with mx.autograd.record():
        outputs = mx.nd.Custom(*arrays, op_type="run_affine")
    return [type(outputs[0]).__name__, _numbers(outputs), _events()]


def observe(mx: Any, new: bool) -> dict[str, Any]:
    """The whole record with an implementation of the API; ``new`` for Gluon 2.0."""
    _define(mx)
    result = {"imperative": imperative(mx), "symbolic": symbolic(mx)}
    if not new:
        result["executor"], result["hybridized"] = executor(mx), hybridized(mx)
    result["arguments"] = {
        name: list(mx.operator.get_operator_arguments(name)) for name in ("FullyConnected", "Custom")
    }
    return json.loads(json.dumps(result))


def main() -> None:
    import mxnet as mx

    path = Path(sys.argv[1])
    record = json.loads(path.read_text()) if path.exists() else {}
    mine = record.setdefault(mx.__version__, {})
    new = mx.__version__.startswith("2")
    if sys.argv[2:] == ["numpy"]:
        mine["numpy mode"] = in_numpy_mode(mx)
    else:
        if new:
            mx.npx.reset_np()
        mine.update(observe(mx, new))
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
