"""Who gives an existing array another tensor, or a parameter other arrays, counts it (base/rebinding.py)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import regluon

ROOT = Path(regluon.__file__).parent
PARAMETERS = [ROOT / "gluon" / name for name in ("parameter.py", "constant.py", "torch_block.py")]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def targets(function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Attributes that are assigned in a function, of things that it did not make itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found = target.elts if isinstance(target, ast.Tuple) else [target]
                for each in found:
                    if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                        if each.value.id != "result":
                            yield each


def uncounted(file: Path, attribute: str) -> list[str]:
    found = []
    for function in functions(ast.parse(file.read_text())):
        changed = any(target.attr == attribute for target in targets(function))
        if changed and function.name != "__init__" and "rebound.tick()" not in ast.unparse(function):
            found.append(f"{file.relative_to(ROOT)}: {function.name}")
    return found


def test_other_tensors_in_arrays_are_counted() -> None:
    # A saved value of torch's backward, which is no array.
    apart = ROOT / "runtime" / "gradient.py"
    files = [file for file in ROOT.rglob("*.py") if file != apart]
    assert [line for file in files for line in uncounted(file, "_t")] == []


def test_other_arrays_in_parameters_are_counted() -> None:
    assert [line for file in PARAMETERS for line in uncounted(file, "_data")] == []


def test_what_is_not_counted_would_be_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / "code.py"
    file.write_text("def take(array, tensor):\n    array._t, array._g = tensor, None\n")
    assert uncounted(file, "_t") == ["code.py: take"]
