"""The shape of the source: imports only go upward, files and functions stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import regluon

SOURCE = Path(regluon.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 1000, 100
# What a part may import when it is imported: the parts above it. (Imports inside functions are free.)
LAYERS = [
    {"base"},
    {
        "attribute",
        "config",
        "context",
        "engine",
        "error",
        "libinfo",
        "library",
        "log",
        "name",
        "recordio",
        "registry",
        "util",
    },
    {"ops"},
    {"graph"},
    {"onnx", "passes"},
    {"runtime"},
    {"autograd", "exec", "random"},
    {"array"},
    {"symbol", "serial", "kvstore", "initializer", "lr_scheduler", "optimizer"},
    {"ndarray", "numpy"},
    {"numpy_extension"},
    {"gluon"},
    {"amp", "metric", "demo", "compat", "io", "model", "monitor", "executor", "operator"},
    {"contrib", "image", "profiler", "rnn", "test_utils", "visualization"},
    {"callback"},
    {"module"},
    {"cli", "executor_manager"},
    {"__init__", "__main__"},
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}


def imported_parts(file: Path) -> Iterator[str]:
    """The parts of the package that a module imports as it is imported."""
    package = file.relative_to(SOURCE).parts[:-1]
    statements = list(ast.parse(file.read_text()).body)
    while statements:
        statement = statements.pop()
        statements += [
            node for node in ast.iter_child_nodes(statement) if isinstance(statement, (ast.If, ast.Try))
        ]
        if isinstance(statement, ast.Import):
            names = [alias.name.split(".") for alias in statement.names]
            yield from (name[1] for name in names if name[0] == "regluon" and len(name) > 1)
        if not isinstance(statement, ast.ImportFrom):
            continue
        module = statement.module.split(".") if statement.module else []
        if statement.level:
            module = [*package[: len(package) - statement.level + 1], *module]
        elif module[0] == "regluon":
            module = module[1:]
        else:
            continue
        yield from module[:1] or [alias.name for alias in statement.names]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_upward(file: Path) -> None:
    part = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if "shim" in file.parts or part == "__init__":
        return
    for other in imported_parts(file):
        if other != part and other in RANK:
            assert RANK[other] < RANK[part], f"{file.name} imports {other}, which is not above {part}"


def test_every_part_has_a_layer() -> None:
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or list(path.glob("*.py"))}
    assert parts == set(RANK) & parts, f"add {sorted(parts - set(RANK))} to LAYERS"


def test_files_and_functions_are_short() -> None:
    for file in FILES:
        text = file.read_text()
        assert text.count("\n") <= LONGEST_FILE, f"{file} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= LONGEST_FUNCTION, f"{file}: {node.name} has {lines} lines"
