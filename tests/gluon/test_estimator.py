"""gluon.contrib.estimator: logs, files and numbers of the originals, and what is better than there."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.gluon.contrib import estimator as kinds
from regluon.gluon.contrib.estimator import Estimator


def _load() -> Any:
    """The runs, which lie in a file of their own so that the originals can run it."""
    file = Path(__file__).parent / "estimator_runs.py"
    spec = importlib.util.spec_from_file_location("estimator_runs", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runs = _load()
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "estimator.json").read_text())


@pytest.fixture(params=(1, 2), ids=("1.x", "2.0"))
def second(request: pytest.FixtureRequest) -> Any:
    before = mx.config.api_level()
    mx.set_api(request.param)
    yield request.param == 2
    mx.set_api(before)


def mended(lines: list[str]) -> list[str]:
    """The original's log without its slips.

    It calls every validation's epoch 0, counts one batch too many after an epoch, names the new best value as
    the old one (1.9.1), numbers epochs by batches where nothing improved, and misspells a class.
    """
    result: list[str] = []
    best, epoch = "-inf", 0
    for line in lines:
        line = line.replace("Hanlder", "Handler")
        if line.startswith("Training begin"):
            best = "-inf"
        begun = re.match(r"\[Epoch (\d+)\] Begin", line)
        epoch = int(begun[1]) if begun else epoch
        line = re.sub(r"\[Epoch \d+\] (?=CheckpointHandler: .* did not)", f"[Epoch {epoch}] ", line)
        improved = re.search(r"improved from \S+ to (\S+),", line)
        if improved:
            line = re.sub(r"from \S+ to", f"from {best} to", line)
            best = improved[1]
        result.append(line)
    return result


def without_counts(lines: list[str]) -> list[str]:
    """Without the epochs of validations and the numbers of batches, which are tested on their own."""
    lines = [re.sub(r"\[Epoch \d+\](?= Finished in TIME, validation)", "[Epoch]", line) for line in lines]
    return [re.sub(r"trained total \d+ batches", "trained", line) for line in lines]


@pytest.mark.parametrize("name", runs.RUNS)
def test_runs_log_and_end_as_the_originals(name: str, second: bool) -> None:
    golden = GOLDEN["2.0.0b1" if second else "1.9.1"][name]
    with runs.logged() as lines:
        result = runs.RUNS[name](mx, second)
    assert without_counts(lines) == without_counts(mended(golden["log"]))
    if isinstance(golden["result"][0] if isinstance(golden["result"], list) else 0, list):
        assert _close(result, golden["result"]), f"{result} is not {golden['result']}"
    else:
        assert result == golden["result"]


def _close(left: Any, right: Any) -> bool:
    if isinstance(right, (list, tuple)):
        same = len(left) == len(right)
        return same and all(_close(one, other) for one, other in zip(left, right, strict=True))
    return abs(left - right) < 2e-4 if isinstance(right, float) else bool(left == right)


def test_validations_of_a_training_count_its_epochs() -> None:
    estimator = runs.make(mx, True)
    with runs.logged() as lines:
        estimator.fit(runs.loader(mx, True), val_data=runs.loader(mx, True), epochs=3)
    found = [line.split("]")[0] for line in lines if "validation accuracy" in line]
    assert found == ["[Epoch 0", "[Epoch 1", "[Epoch 2"]


def test_checkpoints_say_how_many_batches_were_trained(tmp_path: Path) -> None:
    estimator = runs.make(mx, True)
    handler = kinds.CheckpointHandler(str(tmp_path), verbose=1, batch_period=3)
    with runs.logged() as lines:
        estimator.fit(runs.loader(mx, True), epochs=1, event_handlers=[handler])
    assert re.findall(r"trained total (\d+) batches", "\n".join(lines)) == ["3", "4"]


def test_a_resumed_training_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole = runs.make(mx, True)
    whole.fit(runs.loader(mx, True), epochs=3)
    for epochs in (1, 3):
        parts = runs.make(mx, True)
        handler = kinds.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True, max_checkpoints=2)
        parts.fit(runs.loader(mx, True), epochs=epochs, event_handlers=[handler])
    numpy.testing.assert_allclose(runs.weight(parts), runs.weight(whole), atol=1e-4)
    # The limit holds over both runs.
    assert sorted(path.name for path in tmp_path.glob("*.params")) == [
        "model-epoch1batch8.params",
        "model-epoch2batch12.params",
    ]
    with pytest.raises(ValueError, match=r"maximum number of epoch 3 reached.*resume_from_checkpoint=False"):
        parts.fit(runs.loader(mx, True), epochs=3, event_handlers=[handler])


def test_saved_files_predict_as_the_net(tmp_path: Path) -> None:
    estimator = runs.make(mx, True, hybridize=True)
    handler = kinds.CheckpointHandler(str(tmp_path))
    estimator.fit(runs.loader(mx, True), epochs=1, event_handlers=[handler])
    data = mx.np.ones((2, 4))
    wanted = estimator.net(data).asnumpy()
    files = str(tmp_path / "model-symbol.json"), str(tmp_path / "model-epoch0batch4.params")
    symbol = mx.sym.load(files[0])
    assert symbol.list_arguments()[0] == "data"
    twin = gluon.nn.Dense(3)
    twin.load_parameters(files[1])
    numpy.testing.assert_allclose(twin(data).asnumpy(), wanted, rtol=1e-6)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


@pytest.mark.parametrize(
    ("metric", "operator"),
    [
        (gluon.metric.Accuracy(), numpy.greater),
        (gluon.metric.F1(), numpy.greater),
        (gluon.metric.PearsonCorrelation(), numpy.greater),
        (gluon.metric.MSE(), numpy.less),
        (gluon.metric.Loss("training L2Loss"), numpy.less),
        (gluon.metric.CrossEntropy(), numpy.less),
        (gluon.metric.Perplexity(), numpy.less),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_metric_tells_which_value_is_better(metric: Any, operator: Any, tmp_path: Path) -> None:
    stopping = kinds.EarlyStoppingHandler(metric, min_delta=0.5)
    assert stopping.monitor_op is operator
    assert stopping.min_delta == (0.5 if operator is numpy.greater else -0.5)
    saving = kinds.CheckpointHandler(str(tmp_path), monitor=metric, save_best=True)
    assert saving.monitor_op is operator and saving.best == stopping.best


def test_an_unknown_metric_or_mode_warns() -> None:
    metric = gluon.metric.CustomMetric(lambda label, pred: 0.0, name="quality")
    with pytest.warns(UserWarning, match=r"`greater` operator will be used .* quality .*mode='min'"):
        kinds.EarlyStoppingHandler(metric)
    with pytest.warns(RuntimeWarning, match="mode most is unknown, fallback to auto mode"):
        kinds.EarlyStoppingHandler(gluon.metric.MSE(), mode="most")
    estimator = runs.make(mx, True)
    with pytest.warns(RuntimeWarning, match="validation accuracy is not updated"):
        estimator.fit(
            runs.loader(mx, True),
            epochs=1,
            event_handlers=[kinds.EarlyStoppingHandler(estimator.val_metrics[0])],
        )


def test_handlers_replace_the_default_of_their_kind() -> None:
    class Accumulating(kinds.GradientUpdateHandler):
        """Updates after every second batch."""

        def __init__(self) -> None:
            super().__init__()
            self.batches = 0

        def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            self.batches += 1
            if self.batches % 2 == 0:
                estimator.trainer.step(10)
                estimator.net.zero_grad()

    def plain_steps() -> Any:
        net = gluon.nn.Dense(3, in_units=4)
        net.initialize(mx.init.Constant(0.1))
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        for data, label in runs.loader(mx, True, batch_size=10):
            with mx.autograd.record():
                value = loss(net(data), label)
            value.backward()
            trainer.step(10)
        return net.weight.data().asnumpy()

    estimator = runs.make(mx, True)
    estimator.net.setattr("grad_req", "add")
    estimator.fit(runs.loader(mx, True), epochs=1, event_handlers=[Accumulating()])
    numpy.testing.assert_allclose(estimator.net.weight.data().asnumpy(), plain_steps(), atol=1e-6)


def test_evaluation_loss_and_val_net_are_used() -> None:
    net, other = gluon.nn.Dense(1, in_units=4), gluon.nn.Dense(1, in_units=4)
    net.initialize(mx.init.Zero())
    other.initialize(mx.init.Constant(0.25))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    estimator = Estimator(
        net, gluon.loss.L2Loss(), trainer=trainer, val_net=other, evaluation_loss=gluon.loss.L1Loss()
    )
    data = mx.np.array([[1.0, 1, 1, 1], [2, 2, 2, 2]])
    label = mx.np.array([3.0, 0])
    estimator.evaluate(gluon.data.DataLoader(gluon.data.ArrayDataset(data, label), batch_size=2))
    assert estimator.val_metrics[0].get() == ("validation L2Loss", pytest.approx((2 + 2) / 2))
    assert estimator.device == estimator.context == [mx.cpu(0)]


def test_an_uneven_last_batch_is_split_over_contexts() -> None:
    contexts = [mx.cpu(0), mx.cpu(1)]
    estimator = runs.make(mx, True, contexts=contexts)
    estimator.fit(runs.loader(mx, True, samples=10, batch_size=7), epochs=1)
    alone = runs.make(mx, True)
    alone.fit(runs.loader(mx, True, samples=10, batch_size=7), epochs=1)
    numpy.testing.assert_allclose(runs.weight(estimator, contexts[1]), runs.weight(alone), atol=1e-4)


def test_initialization() -> None:
    loss = gluon.loss.L2Loss()
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(2, in_units=3), gluon.nn.Dense(2, in_units=2))
    net[0].initialize(mx.init.One())
    with pytest.warns(UserWarning) as seen:
        Estimator(net, loss, initializer=mx.init.Constant(3))
    texts = [str(warning.message) for warning in seen]
    assert "partially initialized" in texts[0] and "default SGD optimizer" in texts[1]
    assert net[0].weight.data().asnumpy().tolist() == [[1.0] * 3] * 2
    assert net[1].weight.data().asnumpy().tolist() == [[3.0] * 2] * 2
    with pytest.warns(UserWarning, match="already fully initialized, skipping initialization"):
        with pytest.warns(UserWarning, match="No trainer specified"):
            moved = Estimator(net, loss, initializer=mx.init.Zero(), device=mx.cpu(1))
    assert net[0].weight.list_ctx() == [mx.cpu(1)] == moved.context


LOADER = runs.loader(mx, True)
MISTAKES = {
    "loss must be a Loss": {"loss": 5},
    "metrics must be a Metric or a list of Metric": {"train_metrics": "acc"},
    r"refer to mxnet.gluon.metric.EvalMetric: \[1\]": {"val_metrics": [1]},
    "net must be a Block": {"net": 3},
    "Trainer must be a Gluon Trainer instance": {"trainer": "sgd"},
    "context must be a Context or a list of Context": {"context": "cpu"},
    r"must contain fit_batch\(\) and evaluate_batch\(\) methods": {"batch_processor": 3},
}


@pytest.mark.parametrize("text", MISTAKES)
def test_arguments_of_a_wrong_kind(text: str) -> None:
    net = gluon.nn.Dense(3, in_units=4)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    arguments: dict[str, Any] = {"net": net, "loss": gluon.loss.L2Loss(), "trainer": trainer}
    with pytest.raises(ValueError, match=text):
        Estimator(**{**arguments, **MISTAKES[text]})


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("Gluon DataLoader.*received list", {"train_data": [1, 2], "epochs": 1}),
        ("Gluon DataLoader.*received int", {"val_data": 3, "epochs": 1}),
        ("one and only one of.*epochs=None, batches=None", {}),
        ("one and only one of.*epochs=1, batches=2", {"epochs": 1, "batches": 2}),
        ("handlers must be an EventHandler", {"epochs": 1, "event_handlers": [5]}),
        (
            "MetricHandler refers to a metric instance.*outside of the known",
            {"epochs": 1, "event_handlers": [kinds.MetricHandler([gluon.metric.MAE()])]},
        ),
    ],
)
def test_fit_refuses(text: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=text):
        runs.make(mx, True).fit(**{"train_data": LOADER, **arguments})


def test_handlers_refuse(tmp_path: Path) -> None:
    for interval in ("batch", 0, 1.5, True):
        with pytest.raises(ValueError, match="must be either an integer or string 'epoch'"):
            kinds.LoggingHandler(log_interval=interval)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="To save best model only, please provide one of the metric"):
        kinds.CheckpointHandler(str(tmp_path), save_best=True)
    with pytest.raises(ValueError, match="max_checkpoints must be at least 1; received 0"):
        kinds.CheckpointHandler(str(tmp_path), max_checkpoints=0)
    with pytest.raises(ValueError, match=r"provide one of the metric objects.*received 'acc'"):
        kinds.EarlyStoppingHandler("acc")  # type: ignore[arg-type]
    many = gluon.metric.CompositeEvalMetric([gluon.metric.Accuracy(), gluon.metric.TopKAccuracy(2)])
    estimator = runs.make(mx, True, train_metrics=many)
    names = r"\(training accuracy, training top_k_accuracy_2\)"
    with pytest.raises(ValueError, match=f"training composite' has 2 {names}"):
        estimator.fit(LOADER, epochs=1, event_handlers=[kinds.EarlyStoppingHandler(many, mode="max")])
    lonely = gluon.data.DataLoader(gluon.data.ArrayDataset(mx.np.ones((4, 4))), batch_size=2)
    with pytest.raises(ValueError, match="expected batches of data and label; received one array"):
        runs.make(mx, True).fit(lonely, epochs=1)


def test_the_log_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    runs.make(mx, True).fit(LOADER, epochs=1)
    printed = capsys.readouterr().out
    assert printed.startswith("Training begin: using optimizer SGD with current learning rate 0.1000")
    assert not logging.getLogger("Estimator").handlers
