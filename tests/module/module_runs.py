"""Training runs that 1.9.1 and regluon do alike, from given first values.

With the original's Python, ``python module_runs.py ../golden`` writes module_runs.json/.npz; the tests repeat
the runs and compare.
"""

import json
import logging
import os
import re
import sys

import numpy


def wave(shape, phase=0.0, scale=1.0):
    """Numbers that repeat nowhere, the same everywhere."""
    size = int(numpy.prod(shape))
    return (scale * numpy.sin(numpy.arange(size) * 1.7 + phase)).reshape(shape).astype("float32")


def first_values(mx, symbol, **shapes):
    """Parameters and auxiliary states to begin with."""
    arg_shapes, _, aux_shapes = symbol.infer_shape(**shapes)
    arguments = {
        name: mx.nd.array(wave(shape, number, 0.5) + (1.0 if name.endswith("gamma") else 0.0))
        for number, (name, shape) in enumerate(zip(symbol.list_arguments(), arg_shapes, strict=True))
        if name not in shapes and not name.endswith("label")
    }
    auxiliary = {
        name: mx.nd.array(numpy.full(shape, 1.0 if name.endswith("var") else 0.1, "float32"))
        for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes, strict=True)
    }
    return arguments, auxiliary


def perceptron(mx, **first):
    data = mx.sym.Variable("data")
    weight = mx.sym.Variable("fc1_weight", **first)
    hidden = mx.sym.FullyConnected(data, weight=weight, num_hidden=8, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="tanh", name="act1")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="fc2"), name="softmax")


def convolutional(mx):
    layer = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv")
    layer = mx.sym.BatchNorm(layer, fix_gamma=False, momentum=0.7, eps=1e-3, name="bn")
    layer = mx.sym.Pooling(
        mx.sym.Activation(layer, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max"
    )
    layer = mx.sym.FullyConnected(mx.sym.Flatten(layer), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(layer, name="softmax")


def regression(mx):
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="one")
    return mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.relu(hidden), num_hidden=1, name="two"),
        mx.sym.Variable("target"),
        name="loss",
    )


def classes(count):
    return (numpy.arange(count) * 7 % 3).astype("float32")


def trained(module, **more):
    arguments, auxiliary = module.get_params()
    found = {f"arg:{name}": value.asnumpy() for name, value in arguments.items()}
    found.update((f"aux:{name}", value.asnumpy()) for name, value in auxiliary.items())
    found.update(more)
    return found


def fit_perceptron(mx):
    """Multipliers of variables, weight decay, a schedule, callbacks and every line of the log."""
    symbol = perceptron(mx, lr_mult=0.5, wd_mult=2.0)
    data = mx.io.NDArrayIter(wave((50, 6)), classes(50), 10)
    test = mx.io.NDArrayIter(wave((23, 6), 0.5), classes(23), 10)
    arguments, auxiliary = first_values(mx, symbol, data=(10, 6))
    module = mx.mod.Module(symbol, context=mx.cpu())
    module.fit(
        data,
        eval_data=test,
        eval_metric=["acc", "ce"],
        arg_params=arguments,
        aux_params=auxiliary,
        num_epoch=3,
        optimizer_params={
            "learning_rate": 0.3,
            "momentum": 0.9,
            "wd": 0.05,
            "lr_scheduler": mx.lr_scheduler.FactorScheduler(step=4, factor=0.7),
        },
        batch_end_callback=[mx.callback.Speedometer(10, 2), mx.callback.log_train_metric(3)],
        eval_end_callback=mx.callback.LogValidationMetricsCallback(),
        epoch_end_callback=mx.callback.do_checkpoint("run", 2),
    )
    score = [value for _, value in module.score(test, ["acc", "ce"])]
    return trained(module, score=numpy.array(score), predicted=module.predict(test).asnumpy())


def step(mx, module, data, **options):
    """Bind, take over first values and train for two epochs."""
    module.bind(data.provide_data, data.provide_label, **options)
    shapes = {given[0]: given[1] for given in data.provide_data}
    module.init_params(None, *first_values(mx, module.symbol, **shapes))


def loop(mx, module, data, epochs=2):
    """Train; 1.9.1 needs to finish a batch before the next, or convolutions vary from run to run."""
    for _ in range(epochs):
        data.reset()
        for batch in data:
            module.forward_backward(batch)
            module.update()
            mx.nd.waitall()


def two_devices(mx):
    """Adam on two devices of unequal load."""
    data = mx.io.NDArrayIter(wave((40, 6)), classes(40), 10)
    module = mx.mod.Module(perceptron(mx), context=[mx.cpu(0), mx.cpu(1)], work_load_list=[2, 3])
    step(mx, module, data)
    module.init_optimizer(optimizer="adam", optimizer_params=(("learning_rate", 0.02), ("wd", 0.01)))
    loop(mx, module, data)
    return trained(module, output=module.get_outputs()[0].asnumpy())


def statistics(mx):
    """Convolution and batch normalization: auxiliary states, and the last batch's padding."""
    data = mx.io.NDArrayIter(wave((22, 2, 6, 6)), classes(22), 8)
    module = mx.mod.Module(convolutional(mx))
    step(mx, module, data)
    module.init_optimizer(
        optimizer="sgd", optimizer_params={"learning_rate": 0.05, "momentum": 0.5, "wd": 1e-3}
    )
    loop(mx, module, data)
    return trained(module, predicted=module.predict(data).asnumpy())


def fixed_parameters(mx):
    """Fixed parameters (1.9.1 leaves the bias of a fixed weight out), gradients of inputs, a label's name."""
    data = mx.io.NDArrayIter(wave((24, 5)), wave((24,), 1.0), 8, label_name="target")
    module = mx.mod.Module(
        regression(mx), label_names=["target"], fixed_param_names=["one_weight", "one_bias"]
    )
    step(mx, module, data, inputs_need_grad=True)
    module.init_optimizer(optimizer="rmsprop", optimizer_params={"learning_rate": 0.05})
    loop(mx, module, data)
    return trained(module, input_grad=module.get_input_grads()[0].asnumpy())


def added_gradients(mx):
    """Gradients added up over batches."""
    data = mx.io.NDArrayIter(wave((24, 6)), classes(24), 8)
    module = mx.mod.Module(perceptron(mx))
    step(mx, module, data, grad_req="add")
    module.init_optimizer(optimizer_params={"learning_rate": 0.05, "clip_gradient": 0.3})
    loop(mx, module, data, 1)
    return trained(module)


def buckets(mx):
    """Sequences of several lengths: unrolled sums of embeddings, with the default bucket's parameters."""

    def generate(length):
        data = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=7, output_dim=4, name="embed")
        state = mx.sym.Variable("start_bias", shape=(1, 4))
        for place in range(length):
            word = mx.sym.Reshape(mx.sym.slice_axis(data, axis=1, begin=place, end=place + 1), shape=(-1, 4))
            state = mx.sym.Activation(mx.sym.broadcast_add(word, state), act_type="tanh")
        out = mx.sym.FullyConnected(state, num_hidden=3, name="out")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(generate, default_bucket_key=5, context=mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(None, *first_values(mx, generate(5)[0], data=(4, 5)))
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.05})
    outputs = {}
    for number, length in enumerate([3, 5, 2, 3, 4, 5]):
        words = numpy.arange(4 * length).reshape(4, length) * (number + 2) % 7
        batch = mx.io.DataBatch(
            [mx.nd.array(words)],
            [mx.nd.array(classes(4))],
            bucket_key=length,
            provide_data=[("data", (4, length))],
            provide_label=[("softmax_label", (4,))],
        )
        module.forward_backward(batch)
        module.update()
        outputs[f"output{number}"] = module.get_outputs()[0].asnumpy()
    return trained(module, **outputs)


def chained(mx):
    """Two modules one after the other."""
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="first")
    second = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="second")
    second = mx.sym.SoftmaxOutput(second, name="softmax")
    data = mx.io.NDArrayIter(wave((24, 4)), classes(24), 8)
    module = mx.mod.SequentialModule()
    module.add(mx.mod.Module(first, label_names=[]))
    module.add(mx.mod.Module(second), take_labels=True, auto_wiring=True)
    module.bind(data.provide_data, data.provide_label)
    arguments, _ = first_values(mx, first, data=(8, 4))
    arguments.update(first_values(mx, second, data=(8, 6))[0])
    module.init_params(None, arguments, {})
    module.init_optimizer(optimizer_params={"learning_rate": 0.2})
    loop(mx, module, data)
    return trained(module, output=module.get_outputs()[0].asnumpy())


RUNS = {
    run.__name__: run
    for run in (
        fit_perceptron,
        two_devices,
        statistics,
        fixed_parameters,
        added_gradients,
        buckets,
        chained,
    )
}


class Lines(logging.Handler):
    """Collects the lines of the log, without times."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        text = re.sub(r"Speed: [0-9.]+|Speed: inf", "Speed: *", record.getMessage())
        self.lines.append(re.sub(r"cost=[0-9.]+", "cost=*", text))


def logged(run, mx):
    """What a run gives, and the lines of its log."""
    handler, logger = Lines(), logging.getLogger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        return run(mx), handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def main(folder):
    import mxnet as mx

    logs, kept = {}, {}
    for name, run in RUNS.items():
        found, logs[name] = logged(run, mx)
        kept.update((f"{name}/{key}", value) for key, value in found.items())
    with open(os.path.join(folder, "module_runs.json"), "w") as stream:
        json.dump({"mxnet": mx.__version__, "logs": logs}, stream, indent=1)
        stream.write("\n")
    numpy.savez_compressed(os.path.join(folder, "module_runs.npz"), **kept)
    print(len(kept), "arrays")


if __name__ == "__main__":
    main(sys.argv[1])
