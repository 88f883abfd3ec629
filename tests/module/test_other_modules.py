"""BucketingModule, SequentialModule, PythonLossModule and FeedForward."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.module import ModuleStateError

X = numpy.random.RandomState(0).rand(60, 8).astype("f")
Y = (X.sum(1) > 4).astype("f")


def network() -> Any:
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="relu", name="act1")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax")


# Buckets ----------------------------------------------------------------------


def recurrent(length: int) -> Any:
    """Does a 1 come before the end? An Elman network, unrolled."""
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=4, output_dim=6, name="embed")
    words = mx.sym.SliceChannel(words, num_outputs=length, axis=1, squeeze_axis=True, name="words")
    weights = [mx.sym.Variable(f"{name}_{kind}") for name in ("i2h", "h2h") for kind in ("weight", "bias")]
    state = None
    for place in range(length):
        word = words[place] if length > 1 else words
        step = mx.sym.FullyConnected(word, weight=weights[0], bias=weights[1], num_hidden=8, name=f"i{place}")
        if state is not None:
            step = step + mx.sym.FullyConnected(
                state, weight=weights[2], bias=weights[3], num_hidden=8, name=f"h{place}"
            )
        state = mx.sym.Activation(step, act_type="tanh", name=f"t{place}")
    out = mx.sym.FullyConnected(state, num_hidden=2, name="out")
    return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)


class Sequences(mx.io.DataIter):
    """Batches of sequences of several lengths, in a random order."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(16)
        self.random = numpy.random.RandomState(seed)
        self.batches = [self.batch(length) for length in (3, 5, 7) for _ in range(count)]
        self.default_bucket_key = 7
        self.provide_data = [mx.io.DataDesc("data", (16, 7))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (16,))]
        self.reset()

    def batch(self, length: int) -> Any:
        words = self.random.randint(0, 4, (16, length))
        words[self.random.rand(16) < 0.5] = self.random.choice([0, 2, 3], length)
        return mx.io.DataBatch(
            [mx.nd.array(words)],
            [mx.nd.array((words == 1).any(1))],
            pad=0,
            bucket_key=length,
            provide_data=[mx.io.DataDesc("data", (16, length))],
            provide_label=[mx.io.DataDesc("softmax_label", (16,))],
        )

    def reset(self) -> None:
        self.order = iter(self.random.permutation(len(self.batches)))

    def next(self) -> Any:
        return self.batches[next(self.order)]


def test_buckets_learn_with_the_same_parameters() -> None:
    module = mx.mod.BucketingModule(recurrent, default_bucket_key=7)
    module.fit(
        Sequences(20, 1),
        eval_data=Sequences(5, 2),
        num_epoch=8,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
        initializer=mx.init.Xavier(),
    )
    score = module.score(Sequences(10, 3), ["acc", mx.metric.Perplexity(None)])
    assert dict(score)["accuracy"] >= 0.97
    assert sorted(module._buckets) == [3, 5, 7]
    # One set of arrays, whatever the bucket.
    shared = {
        id(bucket._exec_group.execs[0].arg_dict["h2h_weight"]._t) for bucket in module._buckets.values()
    }
    assert len(shared) == 1
    with pytest.raises(ValueError, match=r"new bucket 4 needs provide_data="):
        module.forward(mx.io.DataBatch([mx.nd.ones((16, 4))], bucket_key=4))
    module.prepare(Sequences(1, 4).batch(4))
    assert 4 in module._buckets and module._curr_bucket_key != 4


def test_buckets_go_to_files_and_back() -> None:
    module = mx.mod.BucketingModule(recurrent, default_bucket_key=5)
    assert module.data_names == ["data"] and module.output_names == ["softmax_output"]
    with pytest.raises(ModuleStateError, match="bind"):
        module.save_checkpoint("none", 0)
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    module.switch_bucket(3, [("data", (2, 3))], [("softmax_label", (2,))])
    words = mx.io.DataBatch([mx.nd.array([[1, 2, 3], [0, 0, 1]])], bucket_key=3)
    module.forward(words, is_train=False)
    wanted = module.get_outputs()[0].asnumpy()
    module.save_checkpoint("buckets", 3)
    assert sorted(path.name for path in Path().iterdir()) == [
        "buckets-0003.params",
        "buckets-3-symbol.json",
        "buckets-5-symbol.json",
        "buckets.buckets",
    ]
    assert mx.nd.load("buckets.buckets")[0].asnumpy().tolist() == [5, 3]
    again = mx.mod.BucketingModule.load("buckets", 3, recurrent, 5)
    again.bind([("data", (2, 5))], [("softmax_label", (2,))], for_training=False)
    again.switch_bucket(3, [("data", (2, 3))], [("softmax_label", (2,))])
    again.forward(words, is_train=False)
    assert (again.get_outputs()[0].asnumpy() == wanted).all()
    with pytest.raises(ValueError, match="default_bucket_key"):
        mx.mod.BucketingModule(recurrent)


def test_default_bucket_must_have_all_parameters() -> None:
    def growing(width: int) -> Any:
        out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name=f"fc{width}")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(growing, default_bucket_key=2)
    module.bind([("data", (1, 2))], [("softmax_label", (1,))])
    module.init_params()
    with pytest.raises(ValueError, match=r"no parameters fc1_weight, fc1_bias"):
        module.switch_bucket(1, [("data", (1, 1))], [("softmax_label", (1,))])


# Chains ----------------------------------------------------------------------


def test_sequential_module_learns_and_describes_itself() -> None:
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="first")
    module = mx.mod.SequentialModule()
    with pytest.raises(ModuleStateError, match="add modules before"):
        module.bind([("data", (10, 8))])
    module.add(mx.mod.Module(first, label_names=[])).add(
        mx.mod.Module(network()), take_labels=True, auto_wiring=True
    )
    data = mx.io.NDArrayIter(X, Y, 10, shuffle=True)
    module.fit(
        data,
        num_epoch=30,
        initializer=mx.init.Xavier(),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
    )
    data.reset()
    assert module.score(data, "acc")[0][1] > 0.9
    assert module.data_names == ["data"] and module.output_shapes == [("softmax_output", (10, 2))]
    assert sorted(module.get_params()[0])[-1] == "first_weight" and module.label_shapes == data.provide_label
    with pytest.raises(ValueError, match='Unknown meta "foo"'):
        module.add(mx.mod.Module(network()), foo=1)
    twice = mx.mod.SequentialModule()
    for _ in range(2):
        layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="same")
        twice.add(mx.mod.Module(layer, label_names=[]), auto_wiring=True)
    twice.bind([("data", (2, 8))])
    with pytest.raises(ValueError, match=r"Duplicated parameter names: same_weight .* module 1 .* module 0"):
        twice.init_params()


def test_loss_in_python_gives_its_own_gradient() -> None:
    """Squared hinge loss, written in NumPy, after a linear layer."""

    def gradient(scores: Any, labels: Any) -> numpy.ndarray:
        sign = labels.asnumpy()[:, None] * 2 - 1
        result: numpy.ndarray = -2 * sign * numpy.maximum(1 - sign * scores.asnumpy(), 0)
        return result

    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    module = mx.mod.SequentialModule()
    module.add(mx.mod.Module(layer, label_names=[]))
    module.add(mx.mod.PythonLossModule(grad_func=gradient), take_labels=True, auto_wiring=True)
    data = mx.io.NDArrayIter(X - 0.5, Y, 10)
    module.bind(data.provide_data, data.provide_label)
    module.init_params()
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    for _ in range(40):
        data.reset()
        for batch in data:
            module.forward_backward(batch)
            module.update()
    data.reset()
    scores = module.predict(data).asnumpy()[:, 0]
    assert ((scores > 0) == Y).mean() > 0.95
    with pytest.raises(ValueError, match="out_grads should be None"):
        module._modules[1].backward([mx.nd.ones(1)])
    with pytest.raises(TypeError, match="grad_func must be callable"):
        mx.mod.PythonLossModule(grad_func=3)


# FeedForward ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:mxnet.model.FeedForward has been deprecated")
def test_feed_forward_fits_predicts_and_loads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = mx.model.FeedForward(
        network(),
        ctx=mx.cpu(),
        num_epoch=40,
        optimizer="adam",
        initializer=mx.init.Xavier(),
        numpy_batch_size=20,
        learning_rate=0.05,
    )
    made.fit(X, Y, eval_data=(X[:20], Y[:20].tolist()), batch_end_callback=mx.callback.Speedometer(20, 2))
    lines = [record.message for record in caplog.records]
    assert lines[0] == "Start training with [cpu(0)]"
    assert lines[1].startswith("Epoch[0] Batch [0-2]\tSpeed: ") and "accuracy=" in lines[1]
    assert lines[2] == "Epoch[0] Resetting Data Iterator" and lines[3].startswith("Epoch[0] Time cost=")
    assert lines[4].startswith("Epoch[0] Validation-accuracy=")
    outputs = made.predict(X[:23])
    assert isinstance(outputs, numpy.ndarray) and outputs.shape == (23, 2)
    assert (outputs.argmax(1) == Y[:23]).mean() > 0.9
    data = mx.io.NDArrayIter(X, Y, 16)
    results, inputs, labels = made.predict(data, return_data=True)
    assert results.shape == (60, 2) and (inputs == X).all() and (labels == Y).all()
    exact = mx.io.NDArrayIter(X, Y, 20)
    assert made.score(exact) == pytest.approx((results.argmax(1) == Y).mean())
    made.save("forward")
    loaded = mx.model.FeedForward.load("forward", 40)
    assert loaded.begin_epoch == 40
    numpy.testing.assert_allclose(loaded.predict(X), results, rtol=1e-5)
    with pytest.raises(ValueError, match="y must be specified"):
        mx.model.FeedForward(network(), num_epoch=1).fit(X)
    with pytest.raises(ValueError, match="needs num_epoch="):
        mx.model.FeedForward(network()).fit(X, Y)
    with pytest.raises(ValueError, match=r"no parameters other; .*allow_extra_params"):
        mx.model.FeedForward(network(), arg_params={"other": mx.nd.ones(1)})


@pytest.mark.filterwarnings("ignore:mxnet.model.FeedForward has been deprecated")
def test_feed_forward_counts_epochs_in_batches() -> None:
    numbers: list[int] = []
    mx.model.FeedForward.create(
        network(),
        mx.io.NDArrayIter(X, Y, 20),
        num_epoch=2,
        epoch_size=4,
        batch_end_callback=lambda param: numbers.append(param.nbatch),
    )
    assert numbers == [1, 2, 3, 4] * 2
