"""What was just installed is brought into the state that it has on a machine in use."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from bench.environments import settle


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter's path in an environment with a package of two libraries."""
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "package"
    (package / "lib").mkdir(parents=True)
    for name in ("a.so", "lib/b.so.1", "c.py"):
        (package / name).write_bytes(b"x")
    return tmp_path / "bin" / "python"


def test_libraries_leave_the_page_cache(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def note(file: int, start: int, size: int, advice: int) -> None:
        asked.append((os.readlink(f"/proc/self/fd/{file}"), start, size, advice))

    monkeypatch.setattr(os, "posix_fadvise", note)
    settle("torch", python)
    assert sorted(Path(path).name for path, *_ in asked) == ["a.so", "b.so.1"]
    assert {tuple(rest) for _, *rest in asked} == {(0, 0, os.POSIX_FADV_DONTNEED)}


def test_modules_of_regluon_are_compiled(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "regluon"
    source.mkdir()
    (source / "module.py").write_text("x = 1\n")
    spec = ModuleSpec("regluon", None, is_package=True)
    spec.submodule_search_locations = [str(source)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    settle("torch", python)
    assert not list(source.glob("__pycache__/*.pyc"))
    settle("regluon", python)
    assert list(source.glob("__pycache__/module.*.pyc"))
