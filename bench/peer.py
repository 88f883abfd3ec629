"""A peer's worker process, seen from the side that asks."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT = 120.0
PREPARE_LIMIT = 900.0


class PeerFailure(Exception):
    """A peer did not do its work; the message is what the report says in place of a number."""


class Skipped(PeerFailure):
    """The peer has no such thing."""


class Peer:
    """A process that does one work with one peer, started in ``folder``; a context manager that ends it.

    ``more`` are variables of its environment.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        threads: int,
        log: Path,
        more: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._errors = log.open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**_environment(threads), **(more or {})},
            cwd=folder,
            bufsize=0,
        )
        _confine(self._process.pid, threads)
        self._rest = b""
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def started(self) -> None:
        """Wait until the process has imported its library.

        Raises
        ------
        PeerFailure
            If it does not answer.
        """
        self.versions = self._answer(START_LIMIT)["versions"]

    def ask(self, limit: float = PREPARE_LIMIT, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer, for at most ``limit`` seconds.

        Raises
        ------
        PeerFailure
            If the process ended, failed or took too long; `Skipped` if it has no such thing.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(request) + "\n").encode())
        except BrokenPipeError:
            raise PeerFailure(f"the process ended: see {self._log}") from None
        answer = self._answer(limit)
        if "skipped" in answer:
            raise Skipped(answer["skipped"])
        if "error" in answer:
            raise PeerFailure(answer["error"])
        return answer

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + limit
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.stop()
                raise PeerFailure(f"no answer in {limit:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise PeerFailure(f"the process ended with code {self._process.wait()}: see {self._log}")
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


def _confine(process: int, threads: int) -> None:
    """Keep a process to as many processors as it may use threads: XLA counts those, and takes no number."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        if threads < len(allowed):
            os.sched_setaffinity(process, allowed[:threads])


def _environment(threads: int) -> dict[str, str]:
    """The environment of every worker: the same number of threads, nothing compiled in an earlier run."""
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BENCH_THREADS")
    return {
        **os.environ,
        **dict.fromkeys(counts, str(threads)),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }
