"""Record what the output operators of 1.9.1 give in an executor: outputs, gradients, auxiliary states.

Run once with the original's Python: ``python output_operators.py ..``; writes output_operators.json/.npz.
Every case runs ``forward(is_train=True)`` and ``backward`` (with gradients of the outputs where the case has
some), then ``forward()``.
"""

import itertools
import json
import os
import sys

import mxnet as mx
import numpy


def wave(shape, phase=0.0, scale=1.0):
    """Numbers that repeat nowhere, the same everywhere."""
    size = int(numpy.prod(shape))
    return (scale * numpy.sin(numpy.arange(size) * 1.7 + phase)).reshape(shape).astype("float32")


def choices(**options):
    """Dicts of all combinations."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def classes(shape, count):
    return (numpy.arange(int(numpy.prod(shape))) * 7 % count).reshape(shape).astype("float32")


def cases():
    """Operator, attributes, arrays by input, head gradient or None."""
    data, label = wave((4, 5)), classes((4,), 5)
    for attrs in choices(
        grad_scale=[1.0, 0.5], normalization=["null", "batch", "valid"], use_ignore=[False, True]
    ):
        yield "SoftmaxOutput", dict(attrs, ignore_label=2.0), {"data": data, "label": label}, None
    yield "SoftmaxOutput", {"smooth_alpha": 0.1}, {"data": data, "label": label}, None
    yield (
        "SoftmaxOutput",
        {"smooth_alpha": 0.2, "use_ignore": True, "ignore_label": 4.0},
        {
            "data": data,
            "label": label,
        },
        None,
    )
    yield "SoftmaxOutput", {}, {"data": data, "label": abs(wave((4, 5), 0.3))}, None
    yield "SoftmaxOutput", {"grad_scale": 3.0}, {"data": data, "label": abs(wave((4, 5), 0.3))}, None
    for out_grad in (False, True):
        yield "SoftmaxOutput", {"out_grad": out_grad}, {"data": data, "label": label}, wave((4, 5), 1.0)
    volume, labels = wave((2, 3, 4, 2)), classes((2, 4, 2), 3)
    for attrs in choices(normalization=["null", "batch", "valid"], use_ignore=[False, True]):
        options = dict(attrs, multi_output=True, ignore_label=1.0)
        yield "SoftmaxOutput", options, {"data": volume, "label": labels}, None
    yield (
        "SoftmaxOutput",
        {"multi_output": True, "grad_scale": 2.0},
        {
            "data": volume,
            "label": labels.reshape(2, 8),
        },
        None,
    )
    yield "SoftmaxOutput", {"multi_output": True}, {"data": volume, "label": labels.reshape(2, 1, 4, 2)}, None
    yield (
        "SoftmaxOutput",
        {"preserve_shape": True},
        {"data": wave((2, 3, 4)), "label": classes((2, 3), 4)},
        None,
    )
    yield (
        "SoftmaxOutput",
        {"preserve_shape": True, "use_ignore": True, "ignore_label": 0.0, "normalization": "valid"},
        {
            "data": wave((2, 3, 4)),
            "label": classes((2, 3), 4),
        },
        None,
    )
    yield "SoftmaxOutput", {}, {"data": wave((2, 3, 4)), "label": classes((2, 3), 4)}, None
    yield "Softmax", {"grad_scale": 0.5}, {"data": data, "label": label}, None
    for name in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
        for scale in (1.0, 0.25):
            yield name, {"grad_scale": scale}, {"data": data, "label": wave((4, 5), 2.0)}, None
        yield name, {}, {"data": wave((4, 1)), "label": wave((4,), 2.0)}, None
        yield name, {}, {"data": wave((2, 3, 4)), "label": wave((2, 3, 4), 2.0)}, wave((2, 3, 4), 1.0)
    for attrs in choices(use_linear=[False, True], margin=[1.0, 0.3], regularization_coefficient=[1.0, 0.5]):
        yield "SVMOutput", attrs, {"data": data, "label": label}, None
    positive = abs(data)
    for attrs in choices(
        grad_scale=[1.0, 0.5], normalization=["null", "batch", "valid"], valid_thresh=[0.0, 0.5]
    ):
        yield "MakeLoss", attrs, {"data": positive}, None
    yield "MakeLoss", {"grad_scale": 2.0}, {"data": data}, wave((4, 5), 1.0)
    yield "make_loss", {}, {"data": data}, wave((4, 5), 1.0)
    yield "BlockGrad", {}, {"data": data}, wave((4, 5), 1.0)
    yield "stop_gradient", {}, {"data": data}, wave((4, 5), 1.0)
    for mode, shape in (("instance", (4, 5)), ("instance", (2, 3, 4)), ("channel", (2, 3, 4, 2))):
        yield "SoftmaxActivation", {"mode": mode}, {"data": wave(shape)}, wave(shape, 1.0)
    for attrs in choices(nsize=[3, 5], alpha=[1e-4, 0.1], beta=[0.75, 0.5], knorm=[2.0, 1.0]):
        yield "LRN", attrs, {"data": wave((2, 6, 3, 2), scale=3.0)}, wave((2, 6, 3, 2), 1.0)
    for attrs in choices(sparseness_target=[0.1, 0.3], penalty=[0.001, 0.1], momentum=[0.9, 0.5]):
        yield (
            "IdentityAttachKLSparseReg",
            attrs,
            {"data": abs(wave((4, 5), 0.4)) * 0.8 + 0.1},
            wave((4, 5), 1.0),
        )


def run(name, attrs, arrays, head):
    inputs = {key: mx.sym.Variable(key) for key in arrays}
    symbol = getattr(mx.sym, name)(*inputs.values(), name="out", **attrs)
    shapes = {key: value.shape for key, value in arrays.items()}
    executor = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
    for key, value in arrays.items():
        executor.arg_dict[key][:] = value
    for value in executor.aux_dict.values():
        value[:] = 0.2
    found = {}
    executor.forward(is_train=True)
    found["output"] = executor.outputs[0].asnumpy()
    executor.backward() if head is None else executor.backward([mx.nd.array(head)])
    found["grad"] = executor.grad_dict["data"].asnumpy()
    for key, value in executor.aux_dict.items():
        found[f"aux:{key}"] = value.asnumpy()
    executor.forward(is_train=False)
    found["predicted"] = executor.outputs[0].asnumpy()
    return found


def main(folder):
    records, kept = [], {}
    for name, attrs, arrays, head in cases():
        record = {"operator": name, "attributes": {key: str(value) for key, value in attrs.items()}}
        try:
            found = run(name, attrs, arrays, head)
        except RuntimeError as error:
            print("left out:", name, attrs, str(error).splitlines()[-1][:100])
            continue
        record.update(inputs=list(arrays), head=head is not None, found=list(found))
        for key, value in [*arrays.items(), *found.items(), *([("head", head)] if head is not None else [])]:
            kept[f"{len(records)}/{key}"] = value
        records.append(record)
    with open(os.path.join(folder, "output_operators.json"), "w") as stream:
        json.dump({"mxnet": mx.__version__, "cases": records}, stream, indent=1)
        stream.write("\n")
    numpy.savez_compressed(os.path.join(folder, "output_operators.npz"), **kept)
    print(len(records), "cases")


if __name__ == "__main__":
    main(sys.argv[1])
