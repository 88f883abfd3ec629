"""Export small networks with the original, and what they compute: ``python model_files.py ../models``."""

import os
import sys

import mxnet as mx
import numpy as np

VERSION = "2.0.0b1" if mx.__version__.startswith("2") else "1.9.1"


def convnet():
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    if VERSION == "1.9.1":
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            layers(net, nn)
    else:
        layers(net, nn)
    return net


def layers(net, nn):
    net.add(
        nn.Conv2D(4, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(8, activation="tanh"),
        nn.Dropout(0.5),
        nn.Dense(3),
    )


def numbers(shape, seed):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


def main(target):
    folder = os.path.join(target, VERSION)
    os.makedirs(folder, exist_ok=True)
    create = mx.nd.array if VERSION == "1.9.1" else mx.np.array
    net = convnet()
    net.initialize()
    data = create(numbers((2, 2, 6, 6), 0))
    net(data)
    for index, parameter in enumerate(net.collect_params().values()):
        value = numbers(parameter.shape, index + 1)
        parameter.set_data(create(np.abs(value) + 0.5 if parameter.name.endswith("var") else value))
    net.hybridize()
    output = net(data)
    net.export(os.path.join(folder, "convnet"), epoch=1)
    net.save_parameters(os.path.join(folder, "convnet.params"))
    np.savez(os.path.join(folder, "convnet.npz"), data=data.asnumpy(), output=output.asnumpy())
    if VERSION == "1.9.1":
        net.collect_params().save(os.path.join(folder, "convnet-full.params"))
        checkpoint(folder)


def checkpoint(folder):
    """A network of the Module era: an output operator with a label, saved by save_checkpoint."""
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="relu", name="relu1")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="fc2"), name="softmax")
    shapes = {"fc1_weight": (5, 4), "fc1_bias": (5,), "fc2_weight": (3, 5), "fc2_bias": (3,)}
    arguments = {name: mx.nd.array(numbers(shape, len(name))) for name, shape in shapes.items()}
    mx.model.save_checkpoint(os.path.join(folder, "mlp"), 3, symbol, arguments, {})
    data = numbers((2, 4), 9)
    values = {"data": mx.nd.array(data), "softmax_label": mx.nd.zeros((2,)), **arguments}
    (output,) = symbol.bind(mx.cpu(), values).forward()
    np.savez(os.path.join(folder, "mlp.npz"), data=data, output=output.asnumpy())


if __name__ == "__main__":
    main(sys.argv[1])
