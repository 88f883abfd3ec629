"""Networks of mx.rnn that 1.9.1 and regluon compute alike, from given values.

With the original's Python, ``python symbolic_runs.py ../golden`` writes symbolic_rnn.json/.npz; the tests
repeat the runs and compare.
"""

import json
import os
import random
import sys

import numpy

BATCH, LENGTH, WIDTH, HIDDEN = 4, 3, 5, 3


def wave(shape, phase=0.0, scale=0.6):
    """Numbers that repeat nowhere, the same everywhere."""
    size = int(numpy.prod(shape))
    return (scale * numpy.sin(numpy.arange(size) * 1.7 + phase)).reshape(shape).astype("float32")


def stack(mx):
    cell = mx.rnn.SequentialRNNCell()
    cell.add(mx.rnn.LSTMCell(HIDDEN, prefix="a_"))
    cell.add(mx.rnn.DropoutCell(0.0))
    cell.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(HIDDEN, prefix="b_")))
    cell.add(mx.rnn.ZoneoutCell(mx.rnn.RNNCell(HIDDEN, activation="relu", prefix="c_"), 0.0, 0.0))
    return cell


def pair(mx):
    return mx.rnn.BidirectionalCell(
        mx.rnn.LSTMCell(HIDDEN, prefix="l_"), mx.rnn.GRUCell(HIDDEN, prefix="r_"), output_prefix="both_"
    )


def fused(mode, **settings):
    return lambda mx: mx.rnn.FusedRNNCell(HIDDEN, 2, mode, prefix="f_", get_next_state=True, **settings)


def unfused(mode, **settings):
    return lambda mx: mx.rnn.FusedRNNCell(HIDDEN, 2, mode, prefix="f_", **settings).unfuse()


def shared(mx):
    """Two cells with the same variables."""
    first = mx.rnn.LSTMCell(WIDTH, prefix="same_")
    cell = mx.rnn.SequentialRNNCell()
    cell.add(first)
    cell.add(mx.rnn.LSTMCell(WIDTH, prefix="other_", params=first.params))
    return cell


CELLS = {
    "rnn": lambda mx: mx.rnn.RNNCell(HIDDEN),
    "lstm": lambda mx: mx.rnn.LSTMCell(HIDDEN),
    "gru": lambda mx: mx.rnn.GRUCell(HIDDEN),
    "stack": stack,
    "pair": pair,
    "shared": shared,
    "fused_lstm": fused("lstm", bidirectional=True),
    "fused_gru": fused("gru"),
    "fused_tanh": fused("rnn_tanh"),
    "unfused_lstm": unfused("lstm", bidirectional=True),
    "unfused_gru": unfused("gru"),
}
CONVOLUTIONAL = {
    "conv_rnn": ("ConvRNNCell", {}),
    "conv_lstm": ("ConvLSTMCell", {"i2h_stride": (2, 2), "activation": "tanh"}),
    "conv_gru": ("ConvGRUCell", {"h2h_kernel": (1, 1), "i2h_pad": (0, 0)}),
}


def flat(value):
    return [one for item in value for one in flat(item)] if isinstance(value, (list, tuple)) else [value]


def graph_of(mx, name, layout, merge):
    """Outputs and states of a cell as one symbol, and the shapes of its inputs."""
    if name in CONVOLUTIONAL:
        cell, settings = CONVOLUTIONAL[name]
        shape = (2, 3, 6, 6)
        cell = getattr(mx.rnn, cell)(shape, 2, prefix="conv_", **settings)
        steps = [mx.sym.var(f"data{step}") for step in range(LENGTH)]
        outputs, states = cell.unroll(LENGTH, steps, merge_outputs=merge)
        shapes = {f"data{step}": shape for step in range(LENGTH)}
    else:
        outputs, states = CELLS[name](mx).unroll(
            LENGTH, mx.sym.var("data"), layout=layout, merge_outputs=merge
        )
        shapes = {"data": (BATCH, LENGTH, WIDTH) if layout == "NTC" else (LENGTH, BATCH, WIDTH)}
    # Each once: where an output is among the states too, 1.9.1 takes one head's gradient instead of the sum.
    heads = {symbol.list_outputs()[0]: symbol for symbol in flat([outputs, states])}
    return mx.sym.Group(list(heads.values())), shapes


def values_of(symbol, shapes):
    """Values for all arguments: by their order among the sorted names."""
    found, _, _ = symbol.infer_shape(**shapes)
    sizes = dict(zip(symbol.list_arguments(), found, strict=True))
    return {name: wave(sizes[name], number) for number, name in enumerate(sorted(sizes))}


def computed(mx, symbol, values):
    """Outputs and gradients of a bound symbol."""
    arguments = {name: mx.nd.array(value) for name, value in values.items()}
    gradients = {name: mx.nd.zeros(value.shape) for name, value in values.items()}
    executor = symbol.bind(mx.cpu(), arguments, args_grad=gradients)
    outputs = executor.forward(is_train=True)
    executor.backward([mx.nd.array(wave(out.shape, 2.5, 1.0)) for out in outputs])
    result = {f"out{number}": out.asnumpy() for number, out in enumerate(outputs)}
    result.update(("grad_" + name, array.asnumpy()) for name, array in gradients.items())
    return result


def cases():
    """Name, layout and merge_outputs of every graph."""
    for name in [*CELLS, *CONVOLUTIONAL]:
        yield name, "NTC", False
    for name in ("lstm", "stack", "pair", "fused_lstm"):
        yield name, "TNC", True


def sentences():
    """Sentences of 2 to 7 words of a vocabulary of 12, each word following from the one before."""
    draw = numpy.random.RandomState(5)
    return [
        [int(first + 5 * step) % 11 + 1 for step in range(length)]
        for first, length in zip(draw.randint(0, 11, 60), draw.randint(2, 8, 60), strict=True)
    ]


def batches(mx, layout):
    """The batches of two epochs."""
    random.seed(7)
    numpy.random.seed(7)
    iterator = mx.rnn.BucketSentenceIter(sentences(), 4, buckets=[3, 5, 6], invalid_label=0, layout=layout)
    found = []
    for _ in range(2):
        found += [(batch.bucket_key, batch.data[0].asnumpy(), batch.label[0].asnumpy()) for batch in iterator]
        iterator.reset()
    return found


def trained(mx, epochs=3):
    """A language model on buckets: perplexity of each epoch, and the parameters at the end."""
    random.seed(3)
    numpy.random.seed(3)
    iterator = mx.rnn.BucketSentenceIter(sentences(), 4, buckets=[3, 5, 7], invalid_label=0)
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(8, prefix="one_"))
    cells.add(mx.rnn.GRUCell(8, prefix="two_"))

    def network(length):
        data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        embedded = mx.sym.Embedding(data, input_dim=12, output_dim=6, name="embed")
        cells.reset()
        outputs, _ = cells.unroll(length, inputs=embedded, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, 8)), num_hidden=12, name="scores")
        label = mx.sym.Reshape(label, shape=(-1,))
        result = mx.sym.SoftmaxOutput(scores, label, use_ignore=True, ignore_label=0, name="softmax")
        return result, ("data",), ("softmax_label",)

    symbol, _, _ = network(7)
    first = values_of(symbol, {"data": (4, 7), "softmax_label": (4, 7)})
    first = {name: mx.nd.array(v) for name, v in first.items() if name not in ("data", "softmax_label")}
    module = mx.mod.BucketingModule(network, default_bucket_key=iterator.default_bucket_key)
    module.bind(iterator.provide_data, iterator.provide_label)
    module.init_params(arg_params=first, aux_params={})
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.02})
    metric, history = mx.metric.Perplexity(ignore_label=0), []
    for _ in range(epochs):
        iterator.reset()
        metric.reset()
        for batch in iterator:
            module.forward_backward(batch)
            module.update()
            module.update_metric(metric, batch.label)
        history.append(metric.get()[1])
    arguments, _ = module.get_params()
    return history, {name: array.asnumpy() for name, array in arguments.items()}


def main(folder):
    import mxnet as mx

    arrays, record = {}, {"graphs": {}, "version": mx.__version__}
    for name, layout, merge in cases():
        case = "-".join((name, layout, "merged" if merge else "steps"))
        symbol, shapes = graph_of(mx, name, layout, merge)
        values = values_of(symbol, shapes)
        for key, value in computed(mx, symbol, values).items():
            arrays[case + "/" + key] = value
        record["graphs"][case] = {
            "arguments": {key: list(value.shape) for key, value in values.items()},
            "outputs": symbol.list_outputs(),
            "attributes": {k: v for k, v in symbol.attr_dict().items() if k in values},
        }
        if layout == "TNC" or name == "conv_lstm":
            record["graphs"][case]["json"] = symbol.tojson()
    for layout in ("NT", "TN"):
        for number, (key, data, label) in enumerate(batches(mx, layout)):
            arrays[f"batches-{layout}/{number:03d}-{key}"] = numpy.stack([data, label])
    history, parameters = trained(mx)
    record["perplexity"] = history
    arrays.update(("trained/" + name, value) for name, value in parameters.items())
    vector = mx.nd.array(numpy.arange(504))
    for name, value in CELLS["fused_lstm"](mx).unpack_weights({"f_parameters": vector}).items():
        arrays["unpacked/" + name] = value.asnumpy()
    with open(os.path.join(folder, "symbolic_rnn.json"), "w") as file:
        json.dump(record, file, indent=1, sort_keys=True)
    numpy.savez_compressed(os.path.join(folder, "symbolic_rnn.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
