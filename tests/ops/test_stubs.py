"""The namespaces for people and tools: stubs, signatures, what ``dir()`` shows."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import regluon as mx
from regluon.ops import stubs

SPACES = (
    "nd", "nd.random", "nd.linalg", "nd.contrib", "nd.image", "np", "np.random", "np.linalg", "npx",
    "npx.random", "npx.image", "sym", "sym.random", "sym.linalg", "sym.contrib", "sym.image", "sym.sparse",
)  # fmt: skip
USER = """
import regluon as mx

x = mx.nd.ones((2, 3))
y = mx.nd.FullyConnected(x, num_hidden=4, no_bias=True)
reveal_type((y + 1).reshape((2, 2)))
reveal_type(mx.np.sin(mx.np.ones(3)) * 2)
y.sum(axis=1)
mx.nd.random.normal(0, 1, shape=(2,))
mx.nd.Concat(x, y, dim=1)
mx.nd.FullyConnected(x, num_hidden="many")
mx.nd.Activation(x, act_type="rleu")
mx.sym.Convolution(mx.sym.var("x"), kernel=(3, 3), num_filter=4.5)
mx.nd.no_such_function(x)
"""


def space(name: str) -> types.ModuleType:
    target = mx
    for part in name.split("."):
        target = getattr(target, part)
    return target


def test_stubs_are_fresh() -> None:
    files = [path.name for path in stubs.outdated()]
    assert not files, f"run `python -m regluon.ops.stubs`: {', '.join(files)} differ from the operator table"


def test_stubs_are_shipped_with_the_marker_of_typed_packages() -> None:
    root = Path(mx.__file__).parent
    assert (root / "py.typed").exists()
    assert {path.parent.name for path in root.rglob("*.pyi")} == {
        "array", "ndarray", "numpy", "numpy_extension", "symbol",
    }  # fmt: skip


def test_a_type_checker_knows_parameters_and_results(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed; it comes with the dev extra")
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent"]
    command += ["--cache-dir", os.environ.get("REGLUON_MYPY_CACHE", str(tmp_path / "cache")), "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    found = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("user.py")]
    texts = "\n".join(found)
    assert 'Revealed type is "regluon.array.ndarray.ndarray"' in texts, done.stdout + done.stderr
    assert 'Argument "num_hidden" to "FullyConnected" has incompatible type "str"; expected "int"' in texts
    assert "Argument \"act_type\" to \"Activation\" has incompatible type \"Literal['rleu']\"" in texts
    assert 'Argument "num_filter" to "Convolution" has incompatible type "float"' in texts
    assert 'Module has no attribute "no_such_function"' in texts
    assert len([line for line in found if line.startswith("error")]) == 4, texts


@pytest.mark.parametrize("name", SPACES)
def test_dir_shows_only_what_the_namespace_is_for(name: str) -> None:
    module = space(name)
    shown = [entry for entry in dir(module) if not entry.startswith("__")]
    assert shown
    assert set(module.__all__) == set(shown)
    for entry in shown:
        value = getattr(module, entry)
        assert entry not in ("annotations", "Any", "Sequence", "Callable", "TYPE_CHECKING", "sys", "kinds")
        if isinstance(value, types.ModuleType):
            assert value.__name__ == f"{module.__name__}.{entry}", f"{name}.{entry} is an import"
            assert entry in ("random", "linalg", "contrib", "image", "sparse", "op", "_internal")


@pytest.mark.parametrize("name", SPACES)
def test_signatures_read_well(name: str) -> None:
    for entry in dir(space(name)):
        value = getattr(space(name), entry)
        if entry.startswith("_") or not isinstance(value, types.FunctionType):
            continue
        signature = inspect.signature(value)
        assert list(signature.parameters) != ["args", "kwargs"], f"{name}.{entry}{signature}"
        assert "torch." not in str(signature), f"{name}.{entry}{signature}"
        assert " at 0x" not in str(signature), f"{name}.{entry}{signature}"
        assert value.__doc__, f"{name}.{entry} has no documentation"
        assert value.__name__ == entry or getattr(space(name), value.__name__, None) is value, entry


def test_the_signature_of_an_operator_is_its_definition() -> None:
    parameters = inspect.signature(mx.nd.FullyConnected).parameters
    assert list(parameters)[:6] == ["data", "weight", "bias", "num_hidden", "no_bias", "flatten"]
    assert parameters["flatten"].default is True
    assert list(inspect.signature(mx.np.sum).parameters) == [
        "a", "axis", "dtype", "out", "keepdims", "initial", "name", "attr",
    ]  # fmt: skip
    assert inspect.signature(mx.nd.one_hot).parameters["dtype"].default == "float32"
    assert "num_args" not in inspect.signature(mx.nd.Concat).parameters
    assert list(inspect.signature(mx.nd.NDArray.sum).parameters)[:3] == ["self", "axis", "keepdims"]
    assert list(inspect.signature(mx.np.ndarray.mean).parameters)[:3] == ["self", "axis", "dtype"]


def test_methods_take_what_the_functions_take() -> None:
    data = mx.nd.arange(6).reshape((2, 3))
    assert data.sum(axis=1, keepdims=True).shape == (2, 1)
    assert data.slice_assign_scalar(9, (0, 0), (1, 2), (1, 1)) is data
    assert data.asnumpy().tolist() == [[9, 9, 2], [3, 4, 5]]
    assert data.slice_assign(mx.nd.zeros((1, 2)), (1, 1), (2, 3), (1, 1)) is data
    assert data.asnumpy().tolist() == [[9, 9, 2], [3, 0, 0]]
