"""Record what the originals' recurrent layers and cells print, name and compute.

Run with either original and a folder: ``python rnn_cases.py tests/golden``. It adds the version's part to
``gluon_rnn.json`` and ``gluon_rnn.npz``, and writes ``gluon_rnn-<version>.params``, the saved parameters of
an LSTM.
"""

import json
import os
import sys

import mxnet as mx
import numpy
from mxnet import autograd
from mxnet.gluon import rnn

ONE = mx.__version__[0] == "1"
if not ONE:
    mx.npx.set_np()
array = mx.nd.array if ONE else mx.np.array
zone = mx.gluon.contrib.rnn if ONE else rnn

LAYERS = [
    "rnn.RNN(4)",
    "rnn.RNN(4, activation='tanh', layout='NTC', bidirectional=True)",
    "rnn.LSTM(4, 2, bidirectional=True, dropout=0.5)",
    "rnn.LSTM(3, 1, layout='NTC')",
    "rnn.GRU(4, 2, layout='NTC')",
    "rnn.GRU(4, bidirectional=True)",
]
# Unrolled: the cell, its layout, and whether sequences have lengths.
CELLS = [
    ("rnn.RNNCell(4, input_size=3)", "NTC", False),
    ("rnn.RNNCell(4, activation='relu', input_size=3)", "TNC", True),
    ("rnn.LSTMCell(4, input_size=3)", "NTC", True),
    ("rnn.LSTMCell(4, input_size=3, activation='relu', recurrent_activation='softsign')", "NTC", False),
    ("rnn.GRUCell(4, input_size=3)", "TNC", False),
    ("contrib.LSTMPCell(5, 2, input_size=3)", "NTC", True),
    ("rnn.ResidualCell(rnn.GRUCell(3, input_size=3))", "NTC", True),
    ("rnn.ZoneoutCell(rnn.RNNCell(4, input_size=3), 0.3, 0.2)", "NTC", False),
    ("contrib.VariationalDropoutCell(rnn.RNNCell(4, input_size=3), 0.3, 0.2, 0.1)", "NTC", False),
    (
        "stack(rnn.SequentialRNNCell(), rnn.LSTMCell(4, input_size=3), rnn.DropoutCell(0.5), "
        "rnn.GRUCell(2, input_size=4))",
        "NTC",
        True,
    ),
    (
        "stack(rnn.HybridSequentialRNNCell(), rnn.RNNCell(4, input_size=3), rnn.RNNCell(2, input_size=4))",
        "NTC",
        False,
    ),
    ("rnn.BidirectionalCell(rnn.LSTMCell(4, input_size=3), rnn.GRUCell(2, input_size=3))", "TNC", True),
    ("rnn.BidirectionalCell(rnn.LSTMCell(4, input_size=3), rnn.GRUCell(2, input_size=3))", "NTC", False),
]
# One step of a convolutional cell: the cell and the shape of its input.
CONVOLUTIONS = [
    ("contrib.Conv1DRNNCell((2, 6), 3, 3, 3)", (2, 2, 6)),
    ("contrib.Conv1DGRUCell((2, 6), 3, 3, 3, i2h_pad=1)", (2, 2, 6)),
    ("contrib.Conv2DLSTMCell((2, 6, 5), 3, 3, 3)", (2, 2, 6, 5)),
    ("contrib.Conv2DGRUCell((2, 6, 5), 3, (3, 1), 3, i2h_pad=(1, 0), h2h_dilate=2)", (2, 2, 6, 5)),
    ("contrib.Conv3DLSTMCell((1, 3, 4, 5), 2, 2, 1, activation='relu')", (2, 1, 3, 4, 5)),
]


def stack(container, *cells):
    for cell in cells:
        container.add(cell)
    return container


def wave(shape, phase):
    size = int(numpy.prod(shape))
    return numpy.sin(2.3 * numpy.arange(size) + 1.7 * phase).astype("float32").reshape(shape)


SCOPE = {"rnn": rnn, "contrib": zone, "stack": stack}


def fill(block):
    block.initialize()
    for phase, parameter in enumerate(block.collect_params().values()):
        parameter.set_data(array(wave(parameter.shape, phase)))


def flat(values):
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in flat(value)]
    return [values]


def record(block, call, x):
    """Outputs of a call, and the gradient of the input."""
    x.attach_grad()
    with autograd.record(train_mode=False):
        out = flat(call(x))
        total = sum((value * value).sum() for value in out)
    total.backward()
    return [value.asnumpy() for value in out], x.grad.asnumpy()


def main(folder):
    known, values = {}, {}
    if os.path.exists(os.path.join(folder, "gluon_rnn.json")):
        with open(os.path.join(folder, "gluon_rnn.json")) as file:
            known = json.load(file)
        values = dict(numpy.load(os.path.join(folder, "gluon_rnn.npz")))
    version, cases = mx.__version__, []

    def keep(kind, expression, block, call, shape, **more):
        case = {"kind": kind, "expression": expression, "shape": list(shape), **more}
        case["repr"] = repr(block)
        case["state_info"] = [list(info["shape"]) for info in block.state_info(2)]
        fill(block)
        parameters = block.collect_params()
        case["parameters"] = [[name, list(parameter.shape)] for name, parameter in parameters.items()]
        outputs, gradient = record(block, call, array(wave(shape, 9)))
        name = f"{version}/{len(cases)}"
        for place, output in enumerate(outputs):
            values[f"{name}/{place}"] = output
        values[f"{name}/gradient"] = gradient
        case["outputs"] = len(outputs)
        cases.append(case)

    for expression in LAYERS:
        block = eval(expression, SCOPE)
        shape = (2, 5, 3) if "NTC" in expression else (5, 2, 3)
        block.initialize()
        block(array(wave(shape, 9)))
        state = [array(wave(info["shape"], 3 + i)) for i, info in enumerate(block.state_info(2))]
        keep("layer", expression, block, lambda x, block=block, state=state: block(x, state), shape)
    for expression, layout, lengths in CELLS:
        block = eval(expression, SCOPE)
        shape = (2, 5, 3) if layout == "NTC" else (5, 2, 3)

        def unroll(x, block=block, layout=layout, lengths=lengths):
            valid = array(numpy.array([2, 4], "float32")) if lengths else None
            return block.unroll(5, x, layout=layout, merge_outputs=True, valid_length=valid)

        keep("cell", expression, block, unroll, shape, layout=layout, lengths=lengths)
    for expression, shape in CONVOLUTIONS:
        block = eval(expression, SCOPE)
        state = [array(wave(info["shape"], 3 + i)) for i, info in enumerate(block.state_info(2))]
        keep("step", expression, block, lambda x, block=block, state=state: block(x, state), shape)

    saved = eval("rnn.LSTM(3, 2, bidirectional=True)", SCOPE)
    saved.initialize()
    saved(array(wave((5, 2, 4), 9)))
    fill(saved)
    saved.save_parameters(os.path.join(folder, f"gluon_rnn-{version}.params"))
    values[f"{version}/saved"] = saved(array(wave((5, 2, 4), 9))).asnumpy()
    known[version] = cases
    with open(os.path.join(folder, "gluon_rnn.json"), "w") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    numpy.savez_compressed(os.path.join(folder, "gluon_rnn.npz"), **values)


main(sys.argv[1])
