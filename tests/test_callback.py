"""Callbacks, checkpoints and the monitor: the lines and files of 1.9.1."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.model import BatchEndParam


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The messages of the log so far, each time anew."""
    caplog.set_level(logging.INFO)

    def take() -> list[str]:
        messages = [re.sub(r"Speed: \d+\.\d\d ", "Speed: * ", record.message) for record in caplog.records]
        caplog.clear()
        return messages

    return take


def half_right() -> Any:
    metric = mx.metric.create("acc")
    metric.update([mx.nd.array([1, 0])], [mx.nd.array([[0, 1], [0, 1]])])
    return metric


def test_speedometer(lines: Any) -> None:
    keeping = mx.callback.Speedometer(4, 2, auto_reset=False)
    for epoch, number in ((0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 2)):
        keeping(BatchEndParam(epoch, number, half_right(), None))
    assert lines() == [
        "Epoch[0] Batch [0-2]\tSpeed: * samples/sec\taccuracy=0.500000",
        "Epoch[0] Batch [0-4]\tSpeed: * samples/sec\taccuracy=0.500000",
        "Epoch[1] Batch [0-2]\tSpeed: * samples/sec\taccuracy=0.500000",
    ]
    resetting = mx.callback.Speedometer(4, 2)
    metric = half_right()
    for number in range(5):
        resetting(BatchEndParam(0, number, metric, None))
    assert lines() == [
        "Epoch[0] Batch [0-2]\tSpeed: * samples/sec\taccuracy=0.500000",
        "Epoch[0] Batch [2-4]\tSpeed: * samples/sec\taccuracy=nan",
    ]
    assert metric.get_global() == ("accuracy", 0.5)
    silent = mx.callback.Speedometer(4, 1)
    for number in range(2):
        silent(BatchEndParam(3, number, None, None))
    assert lines() == ["Iter[3] Batch [1]\tSpeed: * samples/sec"]


def test_speed_is_samples_by_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    times = iter([10.0, 12.5, 12.5])
    monkeypatch.setattr("regluon.callback.time.perf_counter", lambda: next(times))
    speedometer = mx.callback.Speedometer(50, 10)
    for number in range(11):
        speedometer(BatchEndParam(0, number, None, None))
    assert caplog.records[0].message == "Iter[0] Batch [10]\tSpeed: 200.00 samples/sec"


def test_bars_and_metrics(lines: Any) -> None:
    bar = mx.callback.ProgressBar(total=10, length=20)
    for number in (0, 3, 10, 12):
        bar(BatchEndParam(0, number, None, None))
    assert lines() == [
        "[--------------------] 0%\r",
        "[======--------------] 30%\r",
        "[====================] 100%\r",
        "[========================] 120%\r",
    ]
    metric = half_right()
    for number in (1, 2):
        mx.callback.log_train_metric(2, auto_reset=True)(BatchEndParam(5, number, metric, None))
    assert lines() == ["Iter[5] Batch[2] Train-accuracy=0.500000"]
    assert numpy.isnan(metric.get()[1])
    mx.callback.LogValidationMetricsCallback()(BatchEndParam(3, 2, metric, None))
    mx.callback.LogValidationMetricsCallback()(BatchEndParam(3, 2, None, None))
    assert lines() == ["Epoch[3] Validation-accuracy=0.500000"]


def test_checkpoints_by_period(lines: Any) -> None:
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    save = mx.callback.do_checkpoint("model", 2)
    for epoch in range(4):
        save(epoch, symbol, {"fc_weight": mx.nd.full((2, 1), epoch)}, {"state": mx.nd.ones(1)})
    assert lines() == ['Saved checkpoint to "model-0002.params"', 'Saved checkpoint to "model-0004.params"']
    assert sorted(path.name for path in Path().iterdir()) == [
        "model-0002.params",
        "model-0004.params",
        "model-symbol.json",
    ]
    loaded, arguments, auxiliary = mx.model.load_checkpoint("model", 4)
    assert loaded.tojson() == symbol.tojson() and arguments["fc_weight"].asnumpy().tolist() == [[3], [3]]
    assert list(auxiliary) == ["state"]
    calls: list[Any] = []

    class Recorder:
        @staticmethod
        def save_checkpoint(*arguments: Any) -> None:
            calls.append(arguments)

    callback = mx.callback.module_checkpoint(Recorder, "module", 3, True)
    for epoch in range(6):
        callback(epoch)
    assert calls == [("module", 3, True), ("module", 6, True)]


def test_checkpoint_files(lines: Any) -> None:
    mx.model.save_checkpoint("x", 12345, None, {"a": mx.nd.ones(1)}, {})
    assert [path.name for path in Path().iterdir()] == ["x-12345.params"]
    assert mx.model.load_params("x", 12345)[0]["a"].asnumpy().tolist() == [1]
    with pytest.raises(FileNotFoundError, match=r"x-symbol\.json"):
        mx.model.load_checkpoint("x", 12345)
    mx.nd.save("y-0001.params", {"arg:b": mx.nd.ones(1), "zz": mx.nd.ones(1)})
    with pytest.raises(ValueError, match=r"y-0001\.params: .*'arg:NAME' or 'aux:NAME', got 'zz'"):
        mx.model.load_params("y", 1)
    mx.nd.save("y-0002.params", [mx.nd.ones(1)])
    with pytest.raises(ValueError, match="'arg:NAME'"):
        mx.model.load_params("y", 2)
    mx.nd.save("y-0003.params", {})
    lines()
    assert mx.model.load_params("y", 3) == ({}, {}) and lines() == ["Params file 'y-0003.params' is empty"]


def executor() -> Any:
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    layer = mx.sym.BatchNorm(mx.sym.Activation(layer, act_type="relu", name="act"), name="bn")
    made = layer.simple_bind(mx.cpu(), data=(4, 3))
    for name, array in made.arg_dict.items():
        array[:] = 2 if name == "data" else 1
    made.aux_dict["bn_moving_var"][:] = 4
    return made


def test_monitor_collects_statistics(lines: Any) -> None:
    made = executor()
    monitor = mx.mon.Monitor(2, sort=True)
    monitor.install(made)
    assert monitor.toc() == []
    monitor.tic()
    made.forward()
    found = {name: (step, value) for step, name, value in monitor.toc()}
    # The norm over the root of the number of elements, with the digits of float32.
    assert found["fc_output"][0] == 1 and float(found["fc_output"][1]) == pytest.approx(7)
    assert len(found["fc_output"][1]) < 11 and found["fc_output"][1].endswith("\t")
    assert found["bn_moving_var"] == (1, "4.0\t") and found["bn_gamma"] == (1, "1.0\t")
    assert list(found) == sorted(found)
    # The next batch is not looked at.
    monitor.tic()
    made.forward()
    assert monitor.toc() == []
    monitor.tic()
    made.forward()
    monitor.toc_print()
    assert "Batch:       3 bn_gamma                       1.0\t" in lines()


def test_monitor_takes_functions_and_patterns() -> None:
    made = executor()
    monitor = mx.monitor.Monitor(1, stat_func=lambda x: [x.max(), x.min()], pattern=".*_output|data")
    monitor.install(made)
    monitor.tic()
    made.forward()
    found = monitor.toc()
    assert found[0] == (1, "fc_output", "7.0\t7.0\t") and found[-1] == (1, "data", "2.0\t2.0\t")
    inputs = mx.mon.Monitor(1, pattern="act", monitor_all=True)
    inputs.install(made)
    inputs.tic()
    made.forward()
    assert len(inputs.toc()) == 2
    wrong = mx.mon.Monitor(1, stat_func=lambda x: 3)
    wrong.install(made)
    wrong.tic()
    made.forward()
    with pytest.raises(TypeError, match="it gave int"):
        wrong.toc()
