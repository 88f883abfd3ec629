"""Five small models in both styles of Gluon, for any library with MXNet's interface.

``make(mx, name, style)`` builds one; ``mx`` is regluon or an original. This file is run by the originals'
Pythons too, so it needs nothing but NumPy and the library it is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = ("lenet", "resnet", "alexnet", "embedding", "two_inputs")
STYLES = (1, 2)
STEPS = 5
CLASSES = 4


def inputs(name: str, seed: int = 0) -> list[np.ndarray]:
    """The input arrays of a model, the same for every library."""
    random = np.random.RandomState(seed)
    if name == "lenet":
        return [random.uniform(-1, 1, (4, 1, 28, 28)).astype("float32")]
    if name == "resnet":
        return [random.uniform(-1, 1, (4, 3, 16, 16)).astype("float32")]
    if name == "alexnet":
        return [random.uniform(-1, 1, (1, 3, 224, 224)).astype("float32")]
    if name == "embedding":
        return [random.randint(0, 30, (4, 6)).astype("float32")]
    return [random.uniform(-1, 1, (4, 5)).astype("float32"), random.uniform(-1, 1, (4, 3)).astype("float32")]


def make(mx: Any, name: str, style: int) -> Any:
    """Build one model, uninitialised. ``style`` 1 is hybrid_forward and name_scope, 2 is forward and np."""
    if name == "alexnet":
        return mx.gluon.model_zoo.vision.alexnet(classes=CLASSES)
    return (_first_style if style == 1 else _second_style)(mx)[name]()


def _first_style(mx: Any) -> dict[str, Any]:
    nn, block = mx.gluon.nn, mx.gluon.HybridBlock

    class LeNet(block):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            with self.name_scope():
                self.conv1 = nn.Conv2D(6, kernel_size=5)
                self.pool1 = nn.MaxPool2D(pool_size=2)
                self.conv2 = nn.Conv2D(8, kernel_size=5)
                self.pool2 = nn.AvgPool2D(pool_size=2)
                self.drop = nn.Dropout(0.2)
                self.fc1 = nn.Dense(20, activation="tanh")
                self.out_weight = self.params.get("out_weight", shape=(CLASSES, 20))

        def hybrid_forward(self, F: Any, x: Any, out_weight: Any) -> Any:
            x = self.pool1(F.relu(self.conv1(x)))
            x = self.pool2(F.sigmoid(self.conv2(x)))
            x = self.drop(self.fc1(x.reshape((0, -1))))
            return F.dot(x, out_weight, transpose_b=True)

    class Residual(block):
        def __init__(self, channels: int, stride: int, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            with self.name_scope():
                self.conv1 = nn.Conv2D(channels, 3, stride, 1, use_bias=False)
                self.norm1 = nn.BatchNorm()
                self.conv2 = nn.Conv2D(channels, 3, 1, 1, use_bias=False)
                self.norm2 = nn.BatchNorm(scale=False)
                self.side = nn.Conv2D(channels, 1, stride)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            y = F.Activation(self.norm1(self.conv1(x)), act_type="relu")
            return F.relu(self.norm2(self.conv2(y)) + self.side(x))

    class ResNet(block):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            with self.name_scope():
                self.body = nn.HybridSequential()
                with self.body.name_scope():
                    self.body.add(nn.BatchNorm(scale=False, center=False), Residual(6, 1), Residual(8, 2))
                self.pool = nn.GlobalAvgPool2D()
                self.out = nn.Dense(CLASSES)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return self.out(self.pool(self.body(x)))

    class Embedded(block):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            with self.name_scope():
                self.embed = nn.Embedding(30, 7)
                self.norm = nn.LayerNorm()
                self.fc1 = nn.Dense(9, activation="relu", flatten=False)
                self.out = nn.Dense(CLASSES)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return self.out(self.fc1(self.norm(self.embed(x))))

    class TwoInputs(block):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            with self.name_scope():
                self.left = nn.Dense(6, activation="softrelu")
                self.right = nn.Dense(6)
                self.act = nn.LeakyReLU(0.1)
                self.out = nn.Dense(CLASSES)

        def hybrid_forward(self, F: Any, a: Any, b: Any) -> Any:
            a, b = self.left(a), self.act(self.right(b))
            scaled = F.broadcast_mul(b, b.sum(axis=1, keepdims=True))
            mixed = F.concat(a * b, 1 - a, (a + b) / 2, scaled, dim=1)
            return self.out(F.slice_axis(mixed, axis=1, begin=1, end=20))

    return {"lenet": LeNet, "resnet": ResNet, "embedding": Embedded, "two_inputs": TwoInputs}


def _second_style(mx: Any) -> dict[str, Any]:
    nn, block, np_, npx = mx.gluon.nn, mx.gluon.HybridBlock, mx.np, mx.npx

    class LeNet(block):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(8, kernel_size=5)
            self.pool2 = nn.AvgPool2D(pool_size=2)
            self.drop = nn.Dropout(0.2)
            self.fc1 = nn.Dense(20, activation="tanh")
            self.out_weight = mx.gluon.Parameter("out_weight", shape=(20, CLASSES))

        def forward(self, x: Any) -> Any:
            x = self.pool1(npx.relu(self.conv1(x)))
            x = self.pool2(npx.sigmoid(self.conv2(x)))
            x = self.drop(self.fc1(npx.reshape(x, (-2, -1))))
            return np_.dot(x, self.out_weight.data())

    class Residual(block):
        def __init__(self, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2D(channels, 3, stride, 1, use_bias=False)
            self.norm1 = nn.BatchNorm()
            self.conv2 = nn.Conv2D(channels, 3, 1, 1, use_bias=False)
            self.norm2 = nn.BatchNorm(scale=False)
            self.side = nn.Conv2D(channels, 1, stride)

        def forward(self, x: Any) -> Any:
            y = npx.relu(self.norm1(self.conv1(x)))
            return npx.relu(self.norm2(self.conv2(y)) + self.side(x))

    class ResNet(block):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(nn.BatchNorm(scale=False, center=False), Residual(6, 1), Residual(8, 2))
            self.pool = nn.GlobalAvgPool2D()
            self.out = nn.Dense(CLASSES)

        def forward(self, x: Any) -> Any:
            return self.out(self.pool(self.body(x)))

    class Embedded(block):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 7)
            self.norm = nn.LayerNorm()
            self.fc1 = nn.Dense(9, activation="relu", flatten=False)
            self.out = nn.Dense(CLASSES)

        def forward(self, x: Any) -> Any:
            return self.out(self.fc1(self.norm(self.embed(x))))

    class TwoInputs(block):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Dense(6, activation="softrelu")
            self.right = nn.Dense(6)
            self.act = nn.LeakyReLU(0.1)
            self.out = nn.Dense(CLASSES)

        def forward(self, a: Any, b: Any) -> Any:
            a, b = self.left(a), self.act(self.right(b))
            mixed = np_.concatenate([a * b, 1 - a, (a + b) / 2, b * b.sum(axis=1, keepdims=True)], axis=1)
            return self.out(mixed[:, 1:20])

    return {"lenet": LeNet, "resnet": ResNet, "embedding": Embedded, "two_inputs": TwoInputs}


def arrays(mx: Any, style: int, values: list[np.ndarray]) -> list[Any]:
    """``values`` as the arrays of ``style``: NDArray for 1, np.ndarray for 2."""
    space = mx.nd if style == 1 else mx.np
    return [space.array(value, dtype=value.dtype) for value in values]


def train(mx: Any, net: Any, name: str, style: int) -> None:
    """Initialise, take five steps of SGD with momentum, then set random BatchNorm statistics."""
    net.initialize(mx.init.Xavier())
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    data = arrays(mx, style, inputs(name, seed=1))
    label = arrays(mx, style, [np.arange(len(data[0]), dtype="float32") % CLASSES])[0]
    net(*data)
    rate = 0.001 if name == "alexnet" else 0.1
    settings = {"learning_rate": rate, "momentum": 0.9, "wd": 1e-4}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings)
    for _ in range(STEPS):
        with mx.autograd.record():
            error = loss(net(*data), label)
        error.backward()
        trainer.step(len(data[0]))
    random = np.random.RandomState(7)
    for key, parameter in sorted(net.collect_params().items()):
        if "running_mean" in key or "running_var" in key:
            low = -0.5 if "mean" in key else 0.5
            value = random.uniform(low, low + 1, parameter.shape).astype("float32")
            parameter.set_data(arrays(mx, style, [value])[0])


def save(mx: Any, net: Any, name: str, style: int, folder: str) -> None:
    """Write what a net is and does: exported files, its parameters, its inputs and its imperative outputs."""
    values = inputs(name)
    data = arrays(mx, style, values)
    outputs = net(*data)
    named = dict(zip(input_names(name), values, strict=True))
    np.savez(f"{folder}/reference.npz", output=outputs.asnumpy(), **named)
    net.save_parameters(f"{folder}/saved.params")
    net.hybridize()
    net(*data)
    net.export(f"{folder}/model", epoch=STEPS)


def input_names(name: str) -> list[str]:
    """The names that export gives to the inputs."""
    return ["data0", "data1"] if name == "two_inputs" else ["data"]
