"""The search for cycles that is put off for a while is on again afterwards, and off where it was off."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from regluon.base.limits import paused_collection


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(KeyError, match="inside"), paused_collection(), paused_collection():
        assert not gc.isenabled()
        raise KeyError("inside")
    assert gc.isenabled()


def test_it_stays_off_where_the_user_switched_it_off() -> None:
    gc.disable()
    with paused_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


@pytest.mark.parametrize("first", [0, 1])
def test_two_threads_that_overlap(first: int) -> None:
    ends = [threading.Event(), threading.Event()]

    def pause(inside: threading.Event, end: threading.Event) -> None:
        with paused_collection():
            inside.set()
            end.wait(60)

    threads = []
    for end in ends:
        inside = threading.Event()
        threads.append(threading.Thread(target=pause, args=(inside, end)))
        threads[-1].start()
        assert inside.wait(60)
    for place in (first, 1 - first):
        ends[place].set()
        threads[place].join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("off", [False, True])
def test_a_process_forked_while_another_thread_pauses(off: bool) -> None:
    if off:
        gc.disable()
    inside, end = threading.Event(), threading.Event()

    def pause() -> None:
        with paused_collection():
            inside.set()
            end.wait(60)

    thread = threading.Thread(target=pause)
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() is not off else 1)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
