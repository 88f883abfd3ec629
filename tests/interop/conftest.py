"""Every file of the interoperation tests, made once per session."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import interop_models as models
from interop_support import Level, job, run_jobs

import regluon as mx


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every file of these tests lies in."""
    return tmp_path_factory.mktemp("interop")


@dataclass
class Ours:
    """The models that regluon made, and why it could not make the others."""

    folders: dict[tuple[str, int], Path]
    failures: dict[tuple[str, int], str]

    def __getitem__(self, key: tuple[str, int]) -> Path:
        assert key not in self.failures, self.failures[key]
        return self.folders[key]


@pytest.fixture(scope="session")
def ours(work: Path) -> Ours:
    """Every model in both styles, trained and saved by regluon."""
    made = Ours({}, {})
    for style in models.STYLES:
        with Level(style):
            for name in models.NAMES:
                folder = work / f"ours-{name}-{style}"
                folder.mkdir()
                mx.random.seed(3)
                try:
                    net = models.make(mx, name, style)
                    models.train(mx, net, name, style)
                    models.save(mx, net, name, style, str(folder))
                except Exception:
                    made.failures[name, style] = traceback.format_exc()
                else:
                    made.folders[name, style] = folder
    return made


@pytest.fixture(scope="session")
def read_by_originals(ours: Ours, work: Path) -> Callable[[int], dict[str, str]]:
    """What each original makes of our files, all of its jobs in one process."""
    done: dict[int, dict[str, str]] = {}

    def outcomes(generation: int) -> dict[str, str]:
        if generation not in done:
            jobs = []
            for (name, style), folder in ours.folders.items():
                jobs.append(job("load", name, style, folder, generation))
                if generation == 1:
                    jobs.append(job("predict", name, style, folder, generation))
                if style == generation:
                    jobs.append(job("restore", name, style, folder, generation))
            done[generation] = run_jobs(generation, jobs, work)
        return done[generation]

    return outcomes


@pytest.fixture(scope="session")
def made_by_originals(work: Path) -> Callable[[int], dict[str, Path]]:
    """The five models made, trained and saved by each original in its own style."""
    done: dict[int, dict[str, Path]] = {}

    def folders(generation: int) -> dict[str, Path]:
        if generation not in done:
            made = {name: work / f"theirs-{name}-{generation}" for name in models.NAMES}
            for folder in made.values():
                folder.mkdir()
            jobs = [job("make", name, generation, folder, generation) for name, folder in made.items()]
            outcomes = run_jobs(generation, jobs, work)
            failed = {name: text for name, text in outcomes.items() if text}
            assert not failed, f"the original could not make its own models: {failed}"
            done[generation] = made
        return done[generation]

    return folders
