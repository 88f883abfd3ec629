"""`mx.profiler`: the trace and the table hold what ran, and nothing else."""

from __future__ import annotations

import inspect
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import profiler
from regluon.exec import Plan
from regluon.gluon import nn
from regluon.runtime.state import State, state

# The originals' signatures (`scope` is in 2.0.0b1 only; its set_state has no profile_process).
SIGNATURES = {
    "set_config": "(**kwargs)",
    "set_state": "(state='stop', profile_process='worker')",
    "dump": "(finished=True, profile_process='worker')",
    "dumps": "(reset=False, format='table', sort_by='total', ascending=False)",
    "pause": "(profile_process='worker')",
    "resume": "(profile_process='worker')",
    "scope": "(name='<unk>:', append_mode=True)",
    "profiler_set_config": "(mode='symbolic', filename='profile.json')",
    "profiler_set_state": "(state='stop')",
    "dump_profile": "()",
    "set_kvstore_handle": "(handle)",
    "Domain": "(name)",
    "Task": "(domain, name)",
    "Frame": "(domain, name)",
    "Event": "(name)",
    "Counter": "(domain, name, value=None)",
    "Marker": "(domain, name)",
    "Marker.mark": "(self, scope='process')",
    "Domain.new_counter": "(self, name, value=None)",
    "Counter.increment": "(self, delta=1)",
}


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(profiler, "_profiler", profiler._Profiler())
    profiler.set_config(filename=str(tmp_path / "profile.json"), aggregate_stats=True, continuous_dump=False)
    yield
    profiler.set_state("stop")


def trace(tmp_path: Path) -> list[dict[str, Any]]:
    text = (tmp_path / "profile.json").read_text()
    content = json.loads(text)
    assert content["displayTimeUnit"] == "ms"
    return [event for event in content["traceEvents"] if event["ph"] != "M"]


def operators() -> dict[str, Any]:
    return json.loads(profiler.dumps(format="json"))["Time"]["operator"]  # type: ignore[no-any-return]


def hybrid_net() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    net.initialize()
    net.hybridize()
    return net


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    found: Any = profiler
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert str(inspect.Signature(plain)) == SIGNATURES[name]


def test_imperative_operators_are_events(tmp_path: Path) -> None:
    x = mx.nd.ones((3, 3))
    profiler.start()
    begin = time.time() * 1e6
    mx.nd.exp(x)
    _ = x + x
    end = time.time() * 1e6
    profiler.stop()
    mx.nd.log(x)
    profiler.dump()
    spans = [event for event in trace(tmp_path) if event["cat"] == "operator"]
    assert [event["name"] for event in spans] == ["exp", "broadcast_add"]
    for event in spans:
        assert event["ph"] == "X" and event["dur"] > 0
        assert begin - 2000 <= event["ts"] <= event["ts"] + event["dur"] <= end + 2000
        assert event["tid"] == threading.get_ident()


def test_nodes_of_hybridized_programs_are_events(tmp_path: Path) -> None:
    net, x = hybrid_net(), mx.np.ones((2, 4))
    plain = net(x).asnumpy()
    profiler.start()
    for _ in range(4):
        numpy.testing.assert_allclose(net(x).asnumpy(), plain, rtol=1e-5, atol=1e-6)
    profiler.stop()
    profiler.dump()
    spans = [event for event in trace(tmp_path) if event["cat"] == "operator"]
    computed = [set(event["args"]["computes"]) for event in spans if "computes" in event.get("args", {})]
    recorded = {operator.name for operator in net.explain(x).operators}
    assert recorded <= set().union(*computed)
    assert any(len(names & recorded) == 2 for names in computed), "the layer and its activation are one"
    calls = [event for event in trace(tmp_path) if event["cat"] == "API"]
    assert calls and {event["name"] for event in calls} == {net.name}
    for event in spans:
        assert any(
            call["ts"] - 1 <= event["ts"] and event["ts"] + event["dur"] <= call["ts"] + call["dur"] + 1
            for call in calls
        )


@pytest.mark.parametrize("hybrid", [False, True])
def test_backward_is_in_the_trace(tmp_path: Path, hybrid: bool) -> None:
    net, x = hybrid_net(), mx.np.ones((2, 4))
    net.hybridize(hybrid)
    net(x)
    profiler.start()
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    profiler.stop()
    profiler.dump()
    names = [event["name"] for event in trace(tmp_path)]
    layer = "training_dense" if hybrid else "FullyConnected"
    assert names.count(layer) == 2
    assert f"_backward_{layer}" in names and "backward" in names
    assert names.index(layer) < names.index(f"_backward_{layer}")


def test_a_function_of_another_compiler_is_one_event(tmp_path: Path) -> None:
    class Foreign(Plan):
        pass

    net, x = hybrid_net(), mx.np.ones((2, 4))
    for _ in range(2):
        wanted = net(x).asnumpy()
    (call,) = net._cached.exact.values()
    function = call.chosen._function
    call.chosen.__class__ = Foreign
    call.chosen._function = lambda *given: function(*given)
    profiler.start()
    numpy.testing.assert_allclose(net(x).asnumpy(), wanted)
    profiler.stop()
    profiler.dump()
    (event,) = [event for event in trace(tmp_path) if event["cat"] == "operator"]
    assert event["name"] == "Foreign" and len(event["args"]["computes"]) == 3


def test_all_threads_are_watched(tmp_path: Path) -> None:
    x = mx.nd.ones((2, 2))
    ready, go = threading.Event(), threading.Event()

    def work() -> None:
        with mx.autograd.record():
            pass
        ready.set()
        go.wait(10)
        _ = x * x

    thread = threading.Thread(target=work, name="worker-7")
    thread.start()
    ready.wait(10)
    profiler.start()
    go.set()
    thread.join()
    profiler.stop()
    profiler.dump()
    (event,) = [event for event in trace(tmp_path) if event["cat"] == "operator"]
    names = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    labels = {e["tid"]: e["args"]["name"] for e in names if e["name"] == "thread_name"}
    assert event["name"] == "broadcast_mul" and labels[event["tid"]] == "worker-7"


def test_off_means_off() -> None:
    assert State.profiler is None and state.plain
    profiler.start()
    assert not state.plain
    with mx.autograd.record():
        pass
    assert not state.plain
    profiler.pause()
    assert state.plain and State.profiler is None
    profiler.resume()
    assert not state.plain
    profiler.stop()
    assert state.plain and State.profiler is None


def test_pause_and_resume() -> None:
    x = mx.nd.ones((2, 2))
    profiler.start()
    mx.nd.exp(x)
    profiler.pause()
    mx.nd.log(x)
    profiler.resume()
    mx.nd.tanh(x)
    profiler.stop()
    assert set(operators()) == {"exp", "tanh"}


def test_layout_of_the_table() -> None:
    x = mx.nd.ones((2, 2))
    profiler.set_config(profile_memory=False, profile_api=False)
    profiler.start()
    for _ in range(3):
        mx.nd.exp(x)
    mx.nd.FullyConnected(x, x, num_hidden=2, no_bias=True)
    profiler.stop()
    lines = profiler.dumps().split("\n")
    assert lines[:5] == [
        "",
        "Profile Statistics:",
        "\tNote the difference in units for different entries.",
        "operator",
        "=================",
    ]
    # As 1.9.1 prints them.
    assert lines[5] == (
        "Name                          Total Count        Time (ms)    Min Time (ms)    Max Time (ms)    "
        "Avg Time (ms)"
    )
    assert lines[6] == (
        "----                          -----------        ---------    -------------    -------------    "
        "-------------"
    )
    rows = sorted(lines[7:9])
    for row, pattern in zip(rows, (r"FullyConnected {26}1", r"exp {37}3"), strict=True):
        assert re.fullmatch(pattern + r"( {4,16}\d+\.\d{4}){4}", row)
        assert len(row) == len(lines[5])
    assert lines[9:] == ["", ""]


def test_sums_are_those_of_the_events(tmp_path: Path) -> None:
    x = mx.nd.ones((2, 2))
    profiler.start()
    for _ in range(5):
        mx.nd.exp(x)
    profiler.stop()
    sums = operators()["exp"]
    profiler.dump()
    spans = [event["dur"] / 1e3 for event in trace(tmp_path) if event["name"] == "exp"]
    assert sums["Count"] == 5 == len(spans)
    assert sums["Total"] == pytest.approx(sum(spans))
    assert (sums["Min"], sums["Max"]) == pytest.approx((min(spans), max(spans)))
    assert sums["Avg"] == pytest.approx(sum(spans) / 5)


@pytest.mark.parametrize("ascending", [False, True])
def test_order_of_rows(ascending: bool) -> None:
    x = mx.nd.ones((2, 2))
    profiler.start()
    for count, function in ((1, mx.nd.exp), (3, mx.nd.log), (2, mx.nd.tanh)):
        for _ in range(count):
            function(x)
    profiler.stop()
    text = profiler.dumps(format="json", sort_by="count", ascending=ascending)
    wanted = ["exp", "tanh", "log"] if ascending else ["log", "tanh", "exp"]
    assert list(json.loads(text)["Time"]["operator"]) == wanted
    for order in ("total", "avg", "min", "max"):
        text = profiler.dumps(format="json", sort_by=order, ascending=ascending)
        values = [row[order.capitalize()] for row in json.loads(text)["Time"]["operator"].values()]
        assert values == sorted(values, reverse=not ascending)


def test_reset() -> None:
    profiler.start()
    mx.nd.exp(mx.nd.ones((2,)))
    assert "exp" in profiler.dumps(reset=True)
    assert profiler.dumps() == ""


def test_without_aggregate_stats_there_is_no_table(tmp_path: Path) -> None:
    profiler.set_config(aggregate_stats=False)
    profiler.start()
    mx.nd.exp(mx.nd.ones((2,)))
    profiler.stop()
    assert profiler.dumps() == ""
    profiler.dump()
    assert trace(tmp_path)


def test_dump_may_be_repeated(tmp_path: Path) -> None:
    x = mx.nd.ones((2,))
    for finished, wanted in ((False, 1), (True, 2), (True, 1)):
        profiler.start()
        mx.nd.exp(x)
        profiler.dump(finished)
        assert [event["name"] for event in trace(tmp_path)].count("exp") == wanted
        assert profiler._profiler.active is not finished


def test_the_file_is_written_while_running(tmp_path: Path) -> None:
    profiler.set_config(continuous_dump=True, dump_period=0.01)
    x = mx.nd.ones((2,))
    profiler.start()
    end = time.time() + 5
    while not (tmp_path / "profile.json").exists() and time.time() < end:
        mx.nd.exp(x)
        time.sleep(0.005)
    profiler.stop()
    assert trace(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


def test_the_file_is_one_that_others_may_read(tmp_path: Path) -> None:
    profiler.start()
    mx.nd.ones((2,)).wait_to_read()
    before = os.umask(0o022)
    try:
        profiler.dump(False)
        assert (tmp_path / "profile.json").stat().st_mode & 0o777 == 0o644
        (tmp_path / "profile.json").chmod(0o660)
        profiler.dump()
    finally:
        os.umask(before)
    assert (tmp_path / "profile.json").stat().st_mode & 0o777 == 0o660


def test_a_trace_that_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler.start()
    mx.nd.exp(mx.nd.ones((2,)))
    profiler.dump(False)
    before = trace(tmp_path)

    def fail(content: Any, file: Any) -> None:
        file.write("half")
        raise OSError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(json, "dump", fail)
        profiler.dump()
    assert trace(tmp_path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


def test_a_trace_into_no_folder_names_the_file(tmp_path: Path) -> None:
    profiler.set_config(filename=str(tmp_path / "none" / "profile.json"))
    profiler.start()
    with pytest.raises(FileNotFoundError, match=r"none/profile\.json"):
        profiler.dump()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"profile_imperative": True, "profile_symbolic": False}, {"operator"}),
        ({"profile_api": True}, {"API"}),
        ({"profile_memory": True}, {"Device Storage"}),
        ({"profile_all": True}, {"operator", "API", "Device Storage"}),
    ],
)
def test_kinds_of_events(tmp_path: Path, settings: dict[str, bool], wanted: set[str]) -> None:
    kinds = ("symbolic", "imperative", "memory", "api")
    profiler.set_config(**{**{f"profile_{kind}": False for kind in kinds}, **settings})
    net, x = hybrid_net(), mx.np.ones((2, 4))
    profiler.start()
    net(mx.np.exp(x))
    profiler.stop()
    profiler.dump()
    assert {event["cat"] for event in trace(tmp_path)} == wanted


def test_memory_is_that_of_living_arrays() -> None:
    profiler.start()
    first = mx.nd.exp(mx.nd.array([0.0] * 1000))
    second = mx.nd.exp(first)
    del first
    third = mx.nd.log(second)
    profiler.stop()
    rows = json.loads(profiler.dumps(format="json"))
    memory = rows["Memory"]["Device Storage"]["Memory: cpu/0"]
    assert rows["Unit"]["Memory"] == "kB"
    assert 8.0 <= memory["Max"] <= 12.0
    del second, third


def test_events_of_a_program(tmp_path: Path) -> None:
    domain = profiler.Domain("loading")
    task, frame, event = domain.new_task("decode"), domain.new_frame("batch"), profiler.Event("epoch")
    counter, marker = domain.new_counter("queue", 5), domain.new_marker("shuffled")
    assert [str(each) for each in (domain, task, frame, event, counter, marker)] == [
        "loading",
        "decode",
        "batch",
        "epoch",
        "queue",
        "shuffled",
    ]
    task.stop()
    profiler.start()
    for each in (task, frame, event):
        each.start()
        time.sleep(0.002)
        each.stop()
    with domain.new_task("decode"):
        pass
    counter += 2
    counter -= 3
    counter.increment()
    counter.decrement(2)
    counter.set_value(9)
    for scope in ("process", "global", "thread", "task", "marker"):
        marker.mark(scope)
    profiler.stop()
    task.start()
    task.stop()
    counter.increment(100)
    table = json.loads(profiler.dumps(format="json"))
    assert table["Time"]["loading"]["decode"]["Count"] == 2
    assert table["Time"]["loading"]["decode"]["Max"] >= 2
    assert table["Time"]["loading,frame"]["batch"]["Min"] >= 2
    assert table["Time"]["event"]["epoch"]["Count"] == 1
    assert table["Time"]["loading,instant_marker"]["shuffled"]["Count"] == 5
    assert table["Value"]["loading"]["queue"] == {"Count": 5, "Last": 9, "Min": 3, "Max": 9, "Avg": 5.6}
    profiler.dump()
    events = trace(tmp_path)
    assert [e["args"]["queue"] for e in events if e["ph"] == "C"] == [7, 4, 5, 3, 9]
    assert [e["s"] for e in events if e["ph"] == "i"] == ["p", "g", "t", "t", "t"]


def test_scopes() -> None:
    x = mx.nd.ones((2,))
    profiler.start()
    with profiler.scope("outer"), profiler.scope("inner:") as name:
        assert name == "outer:inner:"
        mx.nd.exp(x)
        with profiler.scope("alone", append_mode=False):
            mx.nd.log(x)
    mx.nd.tanh(x)
    profiler.stop()
    events = {event["name"]: event for event in profiler._profiler.events if event["cat"] == "operator"}
    assert events["exp"]["args"] == {"scope": "outer:inner:"}
    assert events["log"]["args"] == {"scope": "alone:"}
    assert "args" not in events["tanh"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: profiler.set_config(bogus=1), mx.MXNetError, "no setting 'bogus'; there are: filename"),
        (lambda: profiler.set_config(profile_all="maybe"), mx.MXNetError, "profile_all is True or False"),
        (lambda: profiler.set_config(dump_period="x"), mx.MXNetError, "dump_period is a number"),
        (lambda: profiler.set_config(profile_process="x"), mx.MXNetError, "profile_process is 'worker' or"),
        (lambda: profiler.set_state("go"), ValueError, "state is 'run' or 'stop'; received 'go'"),
        (lambda: profiler.pause("x"), mx.MXNetError, "profile_process is 'worker' or 'server'; received 'x'"),
        (lambda: profiler.dump(), mx.MXNetError, "nothing to dump, as the profiler never ran"),
        (lambda: profiler.dumps(format="xml"), ValueError, "format is 'table' or 'json'; received 'xml'"),
        (lambda: profiler.dumps(sort_by="name"), ValueError, "sort_by is one of total, avg, min, max, count"),
        (lambda: profiler.Task("d", "t"), TypeError, "a domain is a profiler.Domain; received str"),
        (lambda: profiler.Domain("d").new_marker("m").mark("x"), mx.MXNetError, "scope of a mark is one of"),
    ],
)
def test_mistakes(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_old_names(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="profiler_set_config\\(\\) is the old name of profiler.set_config"):
        profiler.profiler_set_config("imperative", str(tmp_path / "old.json"))
    with pytest.warns(UserWarning, match="set_state"):
        profiler.profiler_set_state("run")
    mx.nd.exp(mx.nd.ones((2,)))
    with pytest.warns(UserWarning, match="dump"):
        profiler.dump_profile()
    assert "exp" in (tmp_path / "old.json").read_text()
