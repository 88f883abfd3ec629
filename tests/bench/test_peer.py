"""The conversation with a worker, which here needs no library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peer import Peer, PeerFailure, Skipped

WORKER = """
import sys, time
from bench.workers.protocol import Prepared, Unsupported, serve

def prepare(work):
    print("a library prints this")
    if work["name"] == "impossible":
        raise Unsupported("no such kernel")
    if work["name"] == "broken":
        raise ValueError("first line\\nsecond line")
    if work["name"] == "dead":
        sys.exit(3)
    return Prepared(lambda: time.sleep(work["seconds"]), first=1.5)

serve(prepare, lambda: {"worker": "1.0"})
"""


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer("worker", [sys.executable, "-c", WORKER], tmp_path, 1, tmp_path / "log") as peer:
        peer.started()
        yield peer


def test_a_work_is_prepared_and_repeated(peer: Peer, tmp_path: Path) -> None:
    assert peer.versions == {"worker": "1.0"}
    assert peer.ask(do="prepare", work={"name": "sleep", "seconds": 0.01}) == {"first": 1.5}
    assert 0.01 <= peer.ask(do="run", iterations=3)["seconds"] < 0.5
    assert 2**20 < peer.ask(do="memory")["bytes"] < 2**32
    assert (tmp_path / "log").read_text() == "a library prints this\n"


def test_failures_are_told_and_survived(peer: Peer) -> None:
    with pytest.raises(Skipped, match="no such kernel"):
        peer.ask(do="prepare", work={"name": "impossible"})
    with pytest.raises(PeerFailure, match=r"^ValueError: first line$"):
        peer.ask(do="prepare", work={"name": "broken"})
    assert peer.ask(do="prepare", work={"name": "sleep", "seconds": 0}) == {"first": 1.5}


def test_a_process_that_ends_or_hangs(peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(PeerFailure, match=r"ended with code 3: see .*log"):
        peer.ask(do="prepare", work={"name": "dead"})
    with Peer("worker", [sys.executable, "-c", WORKER], tmp_path, 1, tmp_path / "log") as slow:
        slow.started()
        slow.ask(do="prepare", work={"name": "sleep", "seconds": 30})
        with pytest.raises(PeerFailure, match="no answer in 0 s"):
            slow.ask(0.2, do="run", iterations=1)
