"""Saving where no file can be written: the error names the path and tells what to do."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regluon as mx
from regluon import gluon, profiler

Save = Callable[[str], Any]


@pytest.fixture(autouse=True)
def fresh_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "_profiler", profiler._Profiler())


def dump_profile(path: str) -> None:
    profiler.set_config(filename=path)
    profiler.set_state("run")
    profiler.set_state("stop")
    profiler.dump()


def savers() -> dict[str, Save]:
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    return {
        "nd.save": lambda path: mx.nd.save(path, [mx.nd.ones(2)]),
        "npx.savez": lambda path: mx.npx.savez(path, mx.np.ones(2)),
        "save_parameters": net.save_parameters,
        "ParameterDict.save": net.collect_params().save,
        "save_states": trainer.save_states,
        "sym.save": (mx.sym.var("a") + 1).save,
        "profiler.dump": dump_profile,
    }


@pytest.mark.parametrize("name", list(savers()))
def test_a_folder_is_no_file(name: str, tmp_path: Path) -> None:
    save, place = savers()[name], tmp_path / "models"
    place.mkdir()
    for given in (str(place), f"{place}{os.sep}", f"{tmp_path / 'absent'}{os.sep}"):
        expected = rf"Is a directory: cannot write '{re.escape(given)}'; give the path of a file"
        with pytest.raises(IsADirectoryError, match=expected):
            save(given)
    assert os.listdir(tmp_path) == ["models"] and not os.listdir(place)


@pytest.mark.parametrize("name", list(savers()))
def test_a_missing_folder_is_named(name: str, tmp_path: Path) -> None:
    given = str(tmp_path / "absent" / "net.params")
    expected = rf"No such file or directory: cannot write '{re.escape(given)}'; make its folder first"
    with pytest.raises(FileNotFoundError, match=expected) as caught:
        savers()[name](given)
    assert caught.value.filename == str(tmp_path / "absent")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("")
    given = str(tmp_path / "net" / "net.params")
    expected = rf"Not a directory: cannot write '{re.escape(given)}'; choose a path whose folder is no file"
    with pytest.raises(NotADirectoryError, match=expected):
        mx.nd.save(given, [mx.nd.ones(2)])


@pytest.mark.parametrize("name", list(savers()))
def test_a_folder_that_may_not_be_written_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(**options: Any) -> Any:
        # The administrator, who often runs tests, may write everywhere.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{options['dir']}/.x.part")

    save, given = savers()[name], str(tmp_path / "net.params")
    monkeypatch.setattr(tempfile, "mkstemp", denied)
    expected = rf"Permission denied: cannot write '{re.escape(given)}'; .* choose another folder"
    with pytest.raises(PermissionError, match=expected) as caught:
        save(given)
    assert caught.value.filename == str(tmp_path)


def test_export_over_a_folder_leaves_neither_file(tmp_path: Path) -> None:
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 3)))
    (tmp_path / "net-symbol.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"cannot write '.*net-symbol\.json'"):
        net.export(str(tmp_path / "net"))
    assert os.listdir(tmp_path) == ["net-symbol.json"]
