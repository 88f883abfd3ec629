"""Record what the layers and losses of an original say and compute: ``repr``, parameters, values, gradients.

Run once with each original's Python: ``python gluon_cases.py ..``; writes gluon_nn.json/.npz,
gluon_loss.json/.npz and gluon_signatures.json, merged by version. Inputs and parameters follow `wave`, so
that the tests can repeat them.
"""

import inspect
import json
import os
import sys

import mxnet as mx
import numpy
from mxnet.gluon import loss, nn
from mxnet.gluon.model_zoo import vision

VERSION = mx.__version__
NEW = VERSION.startswith("2")
X4 = (2, 4, 5, 6)

# expression, shape of the input, options (v: only this generation; integer: numbers below that; no_grad)
LAYERS = [
    ("nn.Dense(3)", (2, 4)),
    ("nn.Dense(3, activation='sigmoid', in_units=4)", (2, 4)),
    ("nn.Dense(3, flatten=False, use_bias=False)", (2, 5, 4)),
    ("nn.Dense(3)", (2, 5, 2)),
    ("nn.Dropout(0.5)", (2, 4), {"no_grad": True}),
    ("nn.Dropout(0.3, axes=(0,))", (2, 4), {"no_grad": True}),
    ("nn.Dropout(0)", (2, 4)),
    ("nn.BatchNorm()", X4),
    ("nn.BatchNorm(axis=-1, momentum=0.8, epsilon=0.01)", (3, 2, 4)),
    ("nn.BatchNorm(scale=False, center=False)", (4, 3)),
    ("nn.BatchNorm(use_global_stats=True, in_channels=4)", X4),
    ("nn.BatchNormReLU()", X4),
    ("sync_batch_norm(in_channels=4, num_devices=1)", X4),
    ("nn.LayerNorm()", (3, 4)),
    ("nn.LayerNorm(axis=1, epsilon=0.01, center=False, in_channels=4)", X4),
    ("nn.GroupNorm()", X4),
    ("nn.GroupNorm(num_groups=2)", X4, {"v": "2"}),
    ("nn.InstanceNorm()", X4),
    ("nn.InstanceNorm(axis=2, scale=True, epsilon=0.001)", (2, 4, 4, 3)),
    ("nn.Embedding(7, 3)", (2, 4), {"integer": 7}),
    ("nn.Embedding(7, 3, dtype='float64', sparse_grad=False)", (5,), {"integer": 7}),
    ("nn.Flatten()", (2, 3, 4)),
    *[(f"nn.Activation('{name}')", (3, 4)) for name in ("relu", "sigmoid", "tanh", "softrelu", "softsign")],
    ("nn.LeakyReLU(0.1)", (3, 4)),
    ("nn.PReLU()", (3, 4)),
    ("nn.PReLU(in_channels=4)", (3, 4, 2)),
    ("nn.ELU(0.7)", (3, 4)),
    ("nn.SELU()", (3, 4)),
    ("nn.GELU()", (3, 4)),
    ("nn.Swish(1.3)", (3, 4)),
    ("nn.SiLU()", (3, 4), {"v": "2"}),
    ("nn.Conv1D(3, 2)", (2, 4, 6)),
    ("nn.Conv1D(4, 3, strides=2, padding=1, dilation=2, groups=2, activation='relu')", (2, 4, 7)),
    ("nn.Conv2D(3, 3, in_channels=4)", X4),
    ("nn.Conv2D(4, (2, 3), (2, 1), (1, 0), (1, 2), 2, 'NCHW', 'tanh', False)", X4),
    ("nn.Conv3D(2, 2)", (1, 2, 3, 4, 3)),
    ("nn.Conv3D(2, (1, 2, 2), padding=1, strides=(2, 1, 1), use_bias=False)", (1, 2, 3, 3, 3)),
    ("nn.Conv1DTranspose(3, 2)", (2, 4, 5)),
    ("nn.Conv1DTranspose(3, 3, strides=2, padding=1, output_padding=1, in_channels=4)", (2, 4, 5)),
    ("nn.Conv2DTranspose(3, 3)", (1, 4, 3, 4)),
    (
        "nn.Conv2DTranspose(4, 3, 2, 1, 1, groups=2, use_bias=False, activation='relu', in_channels=4)",
        (1, 4, 3, 4),
    ),
    ("nn.Conv3DTranspose(2, 2, strides=2)", (1, 2, 2, 3, 2)),
    ("deformable.DeformableConvolution(3)", (1, 2, 4, 5)),
    (
        "deformable.DeformableConvolution(4, (3, 2), (1, 2), (1, 0), groups=2, num_deformable_group=2, "
        "activation='relu', use_bias=False, offset_use_bias=False)",
        (1, 4, 4, 5),
    ),
    ("nn.MaxPool1D()", (2, 3, 7)),
    ("nn.MaxPool1D(3, 2, 1, ceil_mode=True)", (2, 3, 8)),
    ("nn.MaxPool2D()", X4),
    ("nn.MaxPool2D((3, 2), 2, 1, ceil_mode=True)", X4),
    ("nn.MaxPool3D(2, 1)", (1, 2, 3, 3, 3)),
    ("nn.AvgPool1D()", (2, 3, 7)),
    ("nn.AvgPool1D(3, 2, 1, count_include_pad=False)", (2, 3, 8)),
    ("nn.AvgPool2D()", X4),
    ("nn.AvgPool2D(3, 2, 1, True)", X4),
    ("nn.AvgPool2D(3, 2, 1, count_include_pad=False)", X4),
    ("nn.AvgPool3D(2, 1, padding=1)", (1, 2, 3, 3, 3)),
    *[
        (f"nn.Global{kind}Pool{rank}D()", (2, 3, 3, 2, 3)[: rank + 2])
        for kind in ("Max", "Avg")
        for rank in (1, 2, 3)
    ],
    ("nn.ReflectionPad2D(2)", (1, 2, 3, 4)),
    ("contrib.PixelShuffle1D(2)", (1, 4, 3)),
    ("contrib.PixelShuffle2D((2, 3))", (1, 6, 2, 3)),
    ("contrib.PixelShuffle2D(2)", (1, 8, 2, 3)),
    ("contrib.PixelShuffle3D((2, 1, 3))", (1, 6, 2, 1, 2)),
    ("contrib.Identity()", (2, 3)),
    ("build(nn.HybridSequential(), nn.Dense(3), nn.Activation('relu'), nn.Dense(2))", (2, 4)),
    (
        "build(nn.Sequential(), nn.Dense(3), build(nn.HybridSequential(), nn.Dense(2), nn.BatchNorm()))",
        (2, 4),
    ),
    ("build(nn.HybridSequential(), nn.Dense(3), nn.Dense(2), nn.Dense(1))[1]", (2, 3)),
    ("build(nn.HybridSequential(), nn.Dense(3), nn.Dense(2), nn.Dense(1))[1:]", (2, 3)),
    ("build(concurrent(axis=1), nn.Dense(3), contrib.Identity())", (2, 4)),
    ("build(hybrid_concurrent(axis=-1), nn.Dense(3), contrib.Identity())", (2, 4)),
    ("vision.ResNetV1(vision.BasicBlockV1, [1, 1], [3, 3, 4], classes=2, thumbnail=True)", (1, 2, 6, 6)),
    ("vision.ResNetV1(vision.BottleneckV1, [2, 1], [4, 8, 12], classes=2)", (1, 2, 12, 12)),
    ("vision.ResNetV2(vision.BasicBlockV2, [1, 1], [3, 3, 4], classes=2)", (1, 2, 12, 12)),
    ("vision.ResNetV2(vision.BottleneckV2, [2, 1], [4, 8, 12], classes=2, thumbnail=True)", (1, 2, 6, 6)),
    ("vision.AlexNet(classes=3)", None),
    ("nn.HybridSequential()", None),
    ("nn.Lambda('relu')", None),
    ("nn.HybridLambda('tanh')", None),
    ("nn.Lambda(named)", None),
]

P, L, S = "real", "real", ("weight", (3, 1))
# expression, inputs as (kind, shape)
LOSSES = [
    ("L1Loss()", [(P, (3, 4)), (L, (3, 4))]),
    ("L1Loss(weight=0.5, batch_axis=1)", [(P, (3, 4)), (L, (3, 4)), ("weight", (3, 4))]),
    ("L2Loss()", [(P, (3, 4)), (L, (4, 3))]),
    ("L2Loss(weight=2.0)", [(P, (3, 4)), (L, (3, 4)), S]),
    ("SigmoidBCELoss()", [(P, (3, 4)), ("zero_one", (3, 4))]),
    ("SigmoidBCELoss(weight=3)", [(P, (3, 4)), ("zero_one", (3, 4)), S, ("weight", (1, 4))]),
    ("SigmoidBinaryCrossEntropyLoss(from_sigmoid=True)", [("probability", (3, 4)), ("zero_one", (3, 4))]),
    (
        "SigmoidBCELoss(True, batch_axis=0)",
        [("probability", (3, 4)), ("zero_one", (3, 4)), None, ("weight", (1, 4))],
    ),
    ("SoftmaxCELoss()", [(P, (3, 5)), ("class", (3,))]),
    ("SoftmaxCELoss()", [(P, (3, 5)), ("class", (3, 1)), S]),
    ("SoftmaxCELoss(axis=1)", [(P, (3, 5, 2)), ("class", (3, 2))]),
    ("SoftmaxCrossEntropyLoss(sparse_label=False, weight=0.5)", [(P, (3, 5)), ("distribution", (3, 5))]),
    ("SoftmaxCELoss(from_logits=True)", [("log_distribution", (3, 5)), ("class", (3,))]),
    ("SoftmaxCELoss(-1, False, True)", [("log_distribution", (3, 5)), ("distribution", (3, 5))]),
    ("KLDivLoss()", [("log_distribution", (3, 5)), ("distribution", (3, 5))]),
    ("KLDivLoss(from_logits=False, axis=1)", [(P, (3, 5)), ("distribution", (3, 5)), S]),
    ("CTCLoss()", [(P, (2, 6, 5)), ("ctc", (2, 3))]),
    ("CTCLoss('TNC', 'TN', 0.5)", [(P, (6, 2, 5)), ("ctc", (3, 2))]),
    ("CTCLoss()", [(P, (2, 6, 5)), ("ctc", (2, 3)), ("lengths6", (2,)), ("lengths2", (2,))]),
    ("CTCLoss()", [(P, (2, 6, 5)), ("ctc", (2, 3)), None, ("lengths2", (2,)), ("weight", (2,))]),
    ("HuberLoss()", [(P, (3, 4)), (L, (3, 4))]),
    ("HuberLoss(rho=0.3, weight=2)", [(P, (3, 4)), (L, (3, 4)), S]),
    ("HingeLoss()", [(P, (3, 4)), ("sign", (3, 4))]),
    ("HingeLoss(margin=0.4)", [(P, (3, 4)), ("sign", (3, 4)), S]),
    ("SquaredHingeLoss()", [(P, (3, 4)), ("sign", (3, 4))]),
    ("SquaredHingeLoss(margin=2, weight=0.5)", [(P, (3, 4)), ("sign", (3, 4)), S]),
    ("LogisticLoss()", [(P, (3, 4)), ("sign", (3, 4))]),
    ("LogisticLoss(label_format='binary')", [(P, (3, 4)), ("zero_one", (3, 4)), S]),
    ("TripletLoss()", [(P, (3, 4)), (P, (3, 4)), (P, (3, 4))]),
    ("TripletLoss(margin=5, weight=2)", [(P, (3, 4)), (P, (3, 4)), (P, (3, 4))]),
    ("PoissonNLLLoss()", [(P, (3, 4)), ("count", (3, 4))]),
    ("PoissonNLLLoss(from_logits=False, compute_full=True)", [("probability", (3, 4)), ("count", (3, 4))]),
    ("PoissonNLLLoss(weight=0.5)", [(P, (3, 4)), ("count", (3, 4)), S]),
    ("CosineEmbeddingLoss()", [(P, (3, 4)), (P, (3, 4)), ("sign", (3,))]),
    ("CosineEmbeddingLoss(margin=0.2, weight=2)", [(P, (3, 4)), (P, (3, 4)), ("sign", (3,)), S]),
    ("SDMLLoss()", [(P, (3, 4)), (P, (3, 4))]),
    ("SDMLLoss(smoothing_parameter=0.1)", [(P, (4, 2)), (P, (4, 2))]),
]


def wave(shape, phase):
    """Values in (-1, 1) that repeat only after long."""
    size = int(numpy.prod(shape))
    return numpy.sin(2.3 * numpy.arange(size) + 1.7 * phase).astype("float32").reshape(shape)


def made(kind, shape, phase):
    value = wave(shape, phase)
    softmax = numpy.exp(3 * value) / numpy.exp(3 * value).sum(-1, keepdims=True)
    table = {
        "real": 2 * value,
        "weight": 1 + 0.5 * value,
        "zero_one": (value > 0) * 1.0,
        "sign": numpy.where(value > 0, 1.0, -1.0),
        "probability": 0.5 + 0.45 * value,
        "class": numpy.floor(2.5 * (value + 1)),
        "ctc": numpy.floor(2 * (value + 1)),
        "count": numpy.floor(3 * (value + 1)),
        "distribution": softmax,
        "log_distribution": numpy.log(softmax),
        "lengths6": numpy.asarray([6, 5]),
        "lengths2": numpy.asarray([2, 1]),
    }
    return table[kind].astype("float32")


def named(x):
    return x


def build(container, *children):
    container.add(*children)
    return container


def scope():
    if NEW:
        contrib = deformable = nn
        concurrent, hybrid, sync = nn.Concatenate, nn.HybridConcatenate, nn.SyncBatchNorm
    else:
        from mxnet.gluon.contrib import cnn as deformable
        from mxnet.gluon.contrib import nn as contrib

        concurrent, hybrid, sync = contrib.Concurrent, contrib.HybridConcurrent, contrib.SyncBatchNorm
    return {
        "nn": nn, "contrib": contrib, "build": build, "named": named, "concurrent": concurrent,
        "hybrid_concurrent": hybrid, "sync_batch_norm": sync, "vision": vision,
        "deformable": deformable,
    }  # fmt: skip


def array(value):
    if NEW:
        return mx.np.array(value, dtype=value.dtype)
    return mx.nd.array(value, dtype=value.dtype)


def fill(parameters):
    """Give every parameter values: gamma and variances positive."""
    for phase, key in enumerate(parameters.keys()):
        parameter = parameters[key]
        values = wave(parameter.shape, phase + 5)
        if key.endswith(("gamma", "running_var")):
            values = 1 + 0.5 * values
        parameter.set_data(array(values.astype(parameter.dtype)))


def layer(expression, shape, options, arrays, key):
    with mx.name.NameManager() if not NEW else open(os.devnull):
        net = eval(expression, scope())
    case = {"repr": repr(net)}
    if shape is None:
        return case
    net.initialize()
    value = wave(shape, 1)
    if "integer" in options:
        value = numpy.floor((value + 1) / 2 * options["integer"]).astype("float32")
    x = array(value)
    net(x)
    parameters = net.collect_params()
    case["shown"] = repr(net)
    case["parameters"] = [
        [name, list(parameters[name].shape), parameters[name].grad_req] for name in parameters.keys()
    ]
    fill(parameters)
    arrays[key + "/predict"] = net(x).asnumpy()
    if options.get("no_grad"):
        return case
    if "integer" not in options:
        x.attach_grad()
    with mx.autograd.record():
        y = net(x)
    head = array(wave(y.shape, 2).astype(y.dtype))
    y.backward(head)
    arrays[key + "/train"] = y.asnumpy()
    if "integer" not in options:
        arrays[key + "/grad"] = x.grad.asnumpy()
    for place, name in enumerate(parameters.keys()):
        parameter = parameters[name]
        if parameter.grad_req != "null":
            arrays[f"{key}/grad{place}"] = parameter.grad().asnumpy()
        elif "running" in name:
            arrays[f"{key}/after{place}"] = parameter.data().asnumpy()
    return case


def loss_case(expression, inputs, arrays, key):
    function = eval("loss." + expression, {"loss": loss})
    values = [None if item is None else array(made(*item, phase)) for phase, item in enumerate(inputs)]
    arrays[key + "/value"] = function(*values).asnumpy()
    # 1.9.1 writes in place here, which it refuses while recording.
    if "compute_full" not in expression:
        values[0].attach_grad()
        with mx.autograd.record():
            y = function(*values)
        y.backward()
        arrays[key + "/grad"] = values[0].grad.asnumpy()
    return {"repr": repr(function)}


def signatures():
    """Arguments of every class and function, with the repr of their defaults."""
    found = {}
    places = {"nn": nn, "loss": loss, "vision": vision}
    if not NEW:
        places.update(contrib=scope()["contrib"], deformable=scope()["deformable"])
    for label, module in places.items():
        for name in sorted(vars(module)):
            value = getattr(module, name)
            if name.startswith("_") or not callable(value) or not value.__module__.startswith("mxnet.gluon"):
                continue
            signature = inspect.signature(value.__init__ if isinstance(value, type) else value)
            found[f"{label}.{name}"] = [
                [item.name, str(item.kind), None if item.default is item.empty else repr(item.default)]
                for item in signature.parameters.values()
                if item.name != "self"
            ]
    return found


def merge(stem, cases, arrays):
    known, old = {}, {}
    if os.path.exists(stem + ".json"):
        with open(stem + ".json") as file:
            known = json.load(file)
    if arrays is not None and os.path.exists(stem + ".npz"):
        with numpy.load(stem + ".npz") as file:
            old = {name: file[name] for name in file.files if not name.startswith(VERSION + "/")}
    known[VERSION] = cases
    with open(stem + ".json", "w") as file:
        json.dump(known, file, separators=(",", ":"))
        file.write("\n")
    if arrays is not None:
        numpy.savez_compressed(stem + ".npz", **old, **arrays)


def main(folder):
    if NEW:
        mx.npx.set_np()
    cases, arrays = [], {}
    for number, (expression, shape, *rest) in enumerate(LAYERS):
        options = rest[0] if rest else {}
        if options.get("v", VERSION[0]) != VERSION[0]:
            continue
        key = f"{VERSION}/{number}"
        case = {"expression": expression, "input": shape, "integer": options.get("integer"), "key": key}
        try:
            case.update(layer(expression, shape, options, arrays, key))
        except Exception as error:
            print("refused", expression, type(error), str(error)[:300])
            for name in [name for name in arrays if name.startswith(key + "/")]:
                del arrays[name]
            continue
        cases.append(case)
    merge(os.path.join(folder, "gluon_nn"), cases, arrays)
    cases, arrays = [], {}
    for number, (expression, inputs) in enumerate(LOSSES):
        key = f"{VERSION}/{number}"
        case = {"expression": expression, "inputs": inputs, "key": key}
        try:
            case.update(loss_case(expression, inputs, arrays, key))
        except Exception as error:
            print("refused", expression, type(error), str(error)[:300])
            continue
        cases.append(case)
    for number, (_expression, inputs) in enumerate(LOSSES):
        for phase, item in enumerate(inputs):
            if item is not None:
                arrays[f"{VERSION}/{number}/input{phase}"] = made(*item, phase)
    merge(os.path.join(folder, "gluon_loss"), cases, arrays)
    merge(os.path.join(folder, "gluon_signatures"), signatures(), None)


if __name__ == "__main__":
    main(sys.argv[1])
