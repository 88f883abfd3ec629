"""import mxnet is served by regluon; programs run unmodified."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regluon
from regluon.compat import uninstall_as_mxnet
from regluon.compat.detect import detect_api

SAME_OBJECTS = [
    ("mxnet.gluon.nn", "Dense", "regluon.gluon.nn"),
    ("mxnet.gluon.nn.basic_layers", "Dense", "regluon.gluon.nn"),
    ("mxnet.gluon.block", "HybridBlock", "regluon.gluon"),
    ("mxnet.gluon.data.vision.transforms", "ToTensor", "regluon.gluon.data.vision.transforms"),
    ("mxnet.gluon.data.vision", "MNIST", "regluon.gluon.data.vision"),
    ("mxnet.gluon.data.dataset", "Dataset", "regluon.gluon.data"),
    ("mxnet.gluon.parameter", "Parameter", "regluon.gluon"),
    ("mxnet.gluon.utils", "split_and_load", "regluon.gluon.utils"),
    ("mxnet.gluon.model_zoo", "vision", "regluon.gluon.model_zoo"),
    ("mxnet.gluon.model_zoo.vision", "alexnet", "regluon.gluon.model_zoo.vision"),
    ("mxnet.ndarray", "NDArray", "regluon.nd"),
    ("mxnet.ndarray.ndarray", "NDArray", "regluon.nd"),
    ("mxnet.symbol", "Symbol", "regluon.sym"),
    ("mxnet.symbol.symbol", "Symbol", "regluon.sym"),
    ("mxnet.numpy", "ndarray", "regluon.np"),
    ("mxnet.numpy_extension", "relu", "regluon.npx"),
    ("mxnet.base", "MXNetError", "regluon.base.errors"),
    ("mxnet.context", "Context", "regluon.base.device"),
    ("mxnet.autograd", "record", "regluon.autograd"),
    ("mxnet.initializer", "Xavier", "regluon.initializer"),
    ("mxnet.optimizer", "SGD", "regluon.optimizer"),
    ("mxnet.optimizer.optimizer", "SGD", "regluon.optimizer"),
    ("mxnet.lr_scheduler", "CosineScheduler", "regluon.lr_scheduler"),
    ("mxnet.mod", "Module", "regluon.module"),
    ("mxnet.module", "BucketingModule", "regluon.mod"),
    ("mxnet.module.base_module", "BaseModule", "regluon.mod"),
    ("mxnet.module.executor_group", "DataParallelExecutorGroup", "regluon.module.executor_group"),
    ("mxnet.io", "NDArrayIter", "regluon.io"),
    ("mxnet.io.io", "DataDesc", "regluon.io"),
    ("mxnet.callback", "Speedometer", "regluon.callback"),
    ("mxnet.model", "FeedForward", "regluon.model"),
    ("mxnet.monitor", "Monitor", "regluon.mon"),
    ("mxnet.executor", "Executor", "regluon.symbol.executor"),
    ("mxnet.executor_manager", "_split_input_slice", "regluon.executor_manager"),
    ("mxnet.symbol.symbol", "Variable", "regluon.sym"),
    ("mxnet.rnn.rnn_cell", "LSTMCell", "regluon.rnn"),
    ("mxnet.rnn.io", "BucketSentenceIter", "regluon.rnn"),
    ("mxnet.runtime", "Features", "regluon.runtime"),
    ("mxnet.test_utils", "assert_almost_equal", "regluon.test_utils"),
    ("mxnet.contrib.autograd", "train_section", "regluon.contrib.autograd"),
    ("mxnet.contrib.text.embedding", "GloVe", "regluon.contrib.text.embedding"),
    ("mxnet.contrib.amp.amp", "scale_loss", "regluon.amp"),
    ("mxnet.ndarray.numpy", "add", "regluon.np"),
]


@pytest.fixture(autouse=True)
def clean_import_system() -> Iterator[None]:
    yield
    uninstall_as_mxnet()


def holder(name: str) -> object:
    """A module by its name, or an attribute path below regluon."""
    value: object = regluon
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("path", "name", "home"), SAME_OBJECTS)
def test_submodule_paths_give_the_same_objects(path: str, name: str, home: str) -> None:
    regluon.install_as_mxnet("2.0")
    assert getattr(importlib.import_module(path), name) is getattr(holder(home), name)


@pytest.mark.parametrize(
    ("asked", "level", "version"), [("1.9", 1, "1.9.1"), ("2.0", 2, "2.0.0"), ("1", 1, "1.9.1")]
)
def test_version_and_level(asked: str, level: int, version: str) -> None:
    from regluon.base import config

    regluon.install_as_mxnet(asked)
    import mxnet

    assert mxnet.__version__ == version and config.api_level() == level
    assert regluon.__version__ == "0.1.0"
    assert not regluon.npx.is_np_array()
    assert "gluon" in dir(mxnet) and mxnet.nd is regluon.nd


def test_what_only_the_first_generation_uses_is_imported_late() -> None:
    code = (
        "import sys, regluon as mx\n"
        "late = ['regluon.io', 'regluon.module', 'regluon.model', 'regluon.callback', 'regluon.monitor',"
        "'regluon.profiler']\n"
        "assert not set(late) & set(sys.modules)\n"
        "assert {'mod', 'io', 'callback', 'mon'} <= set(dir(mx))\n"
        "assert mx.mod is mx.module and mx.mon is mx.monitor and mx.model.FeedForward\n"
        "assert mx.profiler.dumps() == ''\n"
        "assert set(late) <= set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_names_of_base_need_no_import_of_it() -> None:
    mx = regluon.install_as_mxnet("1.9")
    assert isinstance("", mx.base.string_types) and isinstance(1.5, mx.base.numeric_types)
    assert mx.base.MXNetError is regluon.base.MXNetError


def test_modules_keep_their_own_names_and_specs() -> None:
    regluon.install_as_mxnet("2.0")
    module = importlib.import_module("mxnet.gluon.nn")
    assert module is regluon.gluon.nn
    assert module.__spec__.name == module.__name__ == "regluon.gluon.nn"


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"version '1\.9' or '2\.0', got '3'"):
        regluon.install_as_mxnet("3")
    regluon.install_as_mxnet("2.0")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'mxnet\.nothing'"):
        importlib.import_module("mxnet.nothing")
    import mxnet

    with pytest.raises(AttributeError, match="'mxnet' has no attribute 'nothing'"):
        mxnet.nothing  # noqa: B018


def test_the_real_one_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    monkeypatch.setitem(sys.modules, "mxnet", types.ModuleType("mxnet"))
    with pytest.raises(RuntimeError, match="mxnet is imported already"):
        regluon.install_as_mxnet("2.0")


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("class N:\n def hybrid_forward(self, F, x):\n  return F.np.relu(x)", 1),
        ("with self.name_scope():\n pass", 1),
        ("import mxnet as m\nm.mod.Module(s)", 1),
        ("from mxnet import mod", 1),
        ("from mxnet.module import Module", 1),
        ("import mxnet as mx\nmx.sym.var('x')", 1),
        ("import mxnet as mx\nmx.sym.var('x')\nnet.initialize(device=mx.cpu())", 2),
        ("import mxnet as mx\nmx.np.ones(3)", 2),
        ("from mxnet import npx\nnpx.set_np()", 2),
        ("import mxnet as mx\nmx.nd.ones(3)", 2),
        ("import numpy as np\nnp.random", 2),
        ("not python at all (", 2),
    ],
)
def test_detection(source: str, level: int) -> None:
    assert detect_api(source) == level


def run(*arguments: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regluon", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,  # type: ignore[call-overload]
    )


def test_run_script(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("from mxnet.gluon import nn\nlayer = nn.Dense\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import subprocess, sys\nimport mxnet as mx\nimport helper\n"
        "class Net(mx.gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return F.relu(x)\n"
        "output = Net()(mx.nd.array([-1, 1])).asnumpy().tolist()\n"
        "print(mx.__version__, sys.argv[1:], __name__, output, flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import mxnet; print(mxnet.__version__)'], check=True)\n"
        "sys.exit(7)\n"
    )
    done = run(str(script), "--epochs", "3", "-x")
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == ["1.9.1 ['--epochs', '3', '-x'] __main__ [0.0, 1.0]", "1.9.1"]


def test_run_module_and_errors(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import mxnet as mx\nprint(mx.__version__)\n1 / 0\n")
    done = run("--api", "1", "-m", "program", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "1.9.1\n"
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback") and "program.py" in lines[1] and "regluon" not in done.stderr
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_run_missing_script(tmp_path: Path) -> None:
    done = run(os.fspath(tmp_path / "nothing.py"))
    assert done.returncode == 2 and "there is no script" in done.stderr
