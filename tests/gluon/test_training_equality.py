"""A hybridized net trains as the imperative one does: the same losses, weights and moving statistics."""

from __future__ import annotations

import itertools

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

STEPS = 20
# Weights are compared after these steps: later a rounding may decide on which side of a kink a relu is.
EARLY = 8
FLAGS = [
    pytest.param({"static_alloc": alloc, "static_shape": shape}, id=f"alloc{alloc:d}-shape{shape:d}")
    for alloc, shape in itertools.product((False, True), repeat=2)
]


def images(number=STEPS, batch=6, size=28, seed=0):
    rng = numpy.random.RandomState(seed)
    return [
        (rng.rand(batch, 1, size, size).astype("float32"), rng.randint(0, 10, batch)) for _ in range(number)
    ]


class LeNet(gluon.HybridBlock):
    """As in the 1.x description: everything deferred, dropout before a layer of unknown size."""

    def __init__(self, dropout=0.5, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(6, kernel_size=5)
        self.conv2 = nn.Conv2D(16, kernel_size=5)
        self.drop = nn.Dropout(dropout)
        self.fc1 = nn.Dense(32)
        self.fc2 = nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = F.Pooling(F.tanh(self.conv1(x)), pool_type="max", kernel=(2, 2), stride=(2, 2))
        x = F.Pooling(F.tanh(self.conv2(x)), pool_type="max", kernel=(2, 2), stride=(2, 2))
        return self.fc2(F.relu(self.fc1(self.drop(x))))


class Unit(gluon.HybridBlock):
    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(channels, 3, padding=1, use_bias=False), nn.BatchNorm())
        self.body.add(nn.Activation("relu"), nn.Dropout(0.2))
        self.body.add(nn.Conv2D(channels, 3, padding=1, use_bias=False), nn.BatchNorm())

    def forward(self, x):
        return mx.nd.relu(self.body(x) + x)


def small_resnet():
    net = nn.HybridSequential()
    # No bias before a normalization: its gradient is nothing but rounding, which Adam would make large.
    net.add(nn.Conv2D(4, 3, strides=2, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    net.add(Unit(4), nn.MaxPool2D(2), Unit(4), nn.GlobalAvgPool2D(), nn.Dropout(0.3), nn.Dense(10))
    return net


def fit(build, hybrid, flags=None, batches=None, prepare=None, step=None, contexts=None, accumulate=1):
    """Train from seed 7; gives the losses, and all parameters after the first steps and at the end."""
    mx.random.seed(7)
    net = build()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier(), ctx=contexts)
    if prepare is not None:
        prepare(net)
    if hybrid:
        net.hybridize(**(flags or {}))
        loss_of.hybridize(**(flags or {}))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    contexts = contexts or [mx.cpu()]
    losses: list[float] = []
    values: list[list[numpy.ndarray]] = []
    batches = batches or images()
    for number, (x, label) in enumerate(batches):
        parts = list(
            zip(
                gluon.utils.split_and_load(mx.nd.array(x), contexts),
                gluon.utils.split_and_load(mx.nd.array(label), contexts),
                strict=True,
            )
        )
        with autograd.record():
            found = [loss_of(net(a), b) if step is None else step(net, loss_of, a, b) for a, b in parts]
        autograd.backward(found)
        if number % accumulate == accumulate - 1:
            trainer.step(len(x) * accumulate)
            if accumulate > 1:
                net.zero_grad()
        losses.append(sum(float(one.asnumpy().sum()) for one in found) / len(x))
        if number + 1 in (min(EARLY, len(batches)), len(batches)):
            values.append([p.list_data()[-1].asnumpy() for p in net.collect_params().values()])
    return losses, values[0], values[-1]


def assert_same(first, second):
    numpy.testing.assert_allclose(second[0], first[0], rtol=1e-3, atol=1e-5)
    assert len(first[1]) == len(second[1]) > 0
    for place, atol in ((1, 1e-5), (2, 1e-2)):
        for one, other in zip(first[place], second[place], strict=True):
            numpy.testing.assert_allclose(other, one, rtol=1e-3, atol=atol)


REFERENCE = {}


def imperative(build, **options):
    """The imperative run, once for all flags."""
    if build not in REFERENCE:
        REFERENCE[build] = fit(build, False, **options)
    return REFERENCE[build]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("build", [LeNet, small_resnet])
def test_the_same_losses_under_every_flag(build, flags):
    expected = imperative(build)
    assert len(set(expected[0])) == STEPS
    assert_same(expected, fit(build, True, flags))


def test_lenet_trains_as_torch_does():
    """Weights, gradients, momentum and losses against torch's own layers, optimizer and autograd."""
    batches = images()
    first = {}
    # `fit` starts from this seed, and so from these values.
    mx.random.seed(7)
    net = LeNet(dropout=0.0)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(batches[0][0]))
    for name in ("conv1", "conv2", "fc1", "fc2"):
        block = getattr(net, name)
        first[name] = [
            torch.tensor(p.data().asnumpy(), requires_grad=True) for p in (block.weight, block.bias)
        ]
    tensors = [tensor for pair in first.values() for tensor in pair]
    optimizer = torch.optim.SGD(tensors, lr=0.1, momentum=0.9)
    functional = torch.nn.functional
    expected = []
    for x, label in batches:
        hidden = torch.tensor(x)
        for name in ("conv1", "conv2"):
            hidden = functional.max_pool2d(torch.tanh(functional.conv2d(hidden, *first[name])), 2)
        hidden = functional.relu(functional.linear(hidden.flatten(1), *first["fc1"]))
        loss = functional.cross_entropy(functional.linear(hidden, *first["fc2"]), torch.tensor(label))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    for hybrid in (False, True):
        losses, _, values = fit(lambda: LeNet(dropout=0.0), hybrid, batches=batches)
        numpy.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-4)
        for value, tensor in zip(values, tensors, strict=True):
            numpy.testing.assert_allclose(value, tensor.detach().numpy(), rtol=1e-2, atol=1e-4)


def test_added_gradients():
    def prepare(net):
        net.collect_params().setattr("grad_req", "add")

    options = {"prepare": prepare, "accumulate": 2}
    added = fit(small_resnet, False, **options)
    assert_same(added, fit(small_resnet, True, **options))
    assert added[0] != imperative(small_resnet)[0]


class Tied(gluon.HybridBlock):
    """Encoder and decoder share one layer, called twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.flat = nn.Flatten()
        self.first = nn.Dense(12, activation="tanh", in_units=100)
        self.middle = nn.Dense(12, activation="tanh", in_units=12)
        self.twin = nn.Dense(12, activation="relu", in_units=12, params=self.middle.params)
        self.last = nn.Dense(10, in_units=12)

    def forward(self, x):
        return self.last(self.twin(self.middle(self.middle(self.first(self.flat(x))))))


def test_shared_parameters():
    options = {"batches": images(size=10)}
    expected = fit(Tied, False, **options)
    found = fit(Tied, True, **options)
    assert_same(expected, found)
    assert expected[0][-1] != expected[0][0]


class Heads(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.body = nn.Dense(16, activation="relu")
        self.first = nn.Dense(10)
        self.second = nn.Dense(4)

    def forward(self, x):
        hidden = self.body(x)
        return self.first(hidden), {"side": [self.second(hidden), hidden]}


def test_several_outputs():
    def step(net, loss_of, x, label):
        out, extra = net(x)
        side, hidden = extra["side"]
        return loss_of(out, label) + 0.5 * (side * side).mean(axis=1) + 0.01 * hidden.sum(axis=1)

    options = {"batches": images(size=10), "step": step}
    assert_same(fit(Heads, False, **options), fit(Heads, True, **options))


class WithLoss(gluon.HybridBlock):
    """Net and loss as one block: labels are inputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.net = nn.HybridSequential()
        self.net.add(nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3), nn.Dense(10))
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def forward(self, x, label):
        return self.loss(self.net(x), label)


@pytest.mark.parametrize("flags", FLAGS)
def test_a_hybridized_loss_inside_the_net(flags):
    def step(net, loss_of, x, label):
        return net(x, label)

    options = {"batches": images(size=10), "step": step}
    if WithLoss not in REFERENCE:
        REFERENCE[WithLoss] = fit(WithLoss, False, **options)
    assert_same(REFERENCE[WithLoss], fit(WithLoss, True, flags, **options))


def plain_net():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(), nn.Flatten(), nn.Dense(10))
    return net


def test_two_contexts_sum_their_gradients():
    options = {"batches": images(size=10)}
    two = {**options, "contexts": [mx.cpu(0), mx.cpu(1)]}
    # Without dropout and batch statistics two halves are one whole.
    expected = fit(plain_net, False, **options)
    assert_same(expected, fit(plain_net, False, **two))
    assert_same(expected, fit(plain_net, True, **two))


@pytest.mark.parametrize("flags", FLAGS)
def test_two_contexts_with_dropout_and_batch_statistics(flags):
    options = {"batches": images(number=6, size=14), "contexts": [mx.cpu(0), mx.cpu(1)]}
    if "two" not in REFERENCE:
        REFERENCE["two"] = fit(small_resnet, False, **options)
    assert_same(REFERENCE["two"], fit(small_resnet, True, flags, **options))


def test_hybridizing_in_the_middle_of_training_changes_nothing():
    def run(switch):
        mx.random.seed(7)
        net = small_resnet()
        net.initialize(mx.init.Xavier())
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        losses = []
        for number, (x, label) in enumerate(images(number=8, size=14)):
            if switch and number in (3, 6):
                net.hybridize(number == 3)
            with autograd.record():
                loss = loss_of(net(mx.nd.array(x)), mx.nd.array(label))
            loss.backward()
            trainer.step(len(x))
            losses.append(float(loss.mean().asscalar()))
            losses.append(float(net(mx.nd.array(x)).asnumpy().sum()))
        return losses

    numpy.testing.assert_allclose(run(True), run(False), rtol=1e-3, atol=1e-4)


# First values ---------------------------------------------------------------------------------


def first_values(use):
    mx.random.seed(11)
    net = small_resnet()
    net.initialize(mx.init.Normal(0.5))
    use(net, mx.nd.array(images(number=1, size=14)[0][0]))
    return [p.data().asnumpy() for p in net.collect_params().values()]


def children_in_reverse(net, x):
    """Finish the last layer first: its input is of the size that the pooling before it gives."""
    net[8](mx.nd.ones((1, 4)))
    net(x)


def after_other_draws(net, x):
    for _ in range(5):
        mx.nd.random.uniform(shape=(3,))
    with autograd.record():
        net(x)


def hybridized(net, x):
    net.hybridize()
    with autograd.record():
        net(x)


@pytest.mark.parametrize("use", [children_in_reverse, after_other_draws, hybridized])
def test_first_values_depend_only_on_the_seed(use):
    expected = first_values(lambda net, x: net(x))
    assert numpy.std(expected[0]) > 0.3
    for one, other in zip(expected, first_values(use), strict=True):
        numpy.testing.assert_array_equal(one, other)


def test_known_and_deferred_shapes_get_the_same_values():
    values = []
    for units in (0, 5):
        mx.random.seed(11)
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=units), nn.Dense(3, in_units=4 if units else 0))
        net.initialize(mx.init.Uniform(1.0))
        net(mx.nd.ones((2, 5)))
        values.append([p.data().asnumpy() for p in net.collect_params().values()])
    for one, other in zip(*values, strict=True):
        numpy.testing.assert_array_equal(one, other)
    assert not numpy.array_equal(values[0][0].ravel()[:12], values[0][2].ravel())


def test_an_initializer_that_draws_twice_gets_two_draws():
    class Twice(mx.init.Initializer):
        def _init_weight(self, name, array):
            array[0] = mx.nd.random.uniform(shape=(50,))
            array[1] = mx.nd.random.uniform(shape=(50,))

    found = []
    for order in ((0, 1), (1, 0)):
        mx.random.seed(5)
        layers = [nn.Dense(2, use_bias=False), nn.Dense(2, use_bias=False)]
        for layer in layers:
            layer.initialize(Twice())
        for number in order:
            layers[number](mx.nd.ones((1, 50)))
        found.append([layer.weight.data().asnumpy() for layer in layers])
    numpy.testing.assert_array_equal(found[0], found[1])
    rows = {row.tobytes() for weight in found[0] for row in weight}
    assert len(rows) == 4


def test_another_seed_gives_other_values():
    values = []
    for seed in (1, 2, 1):
        mx.random.seed(seed)
        layer = nn.Dense(3)
        layer.initialize()
        layer(mx.nd.ones((1, 4)))
        values.append(layer.weight.data().asnumpy())
    numpy.testing.assert_array_equal(values[0], values[2])
    assert not numpy.array_equal(values[0], values[1])
