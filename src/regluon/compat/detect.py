"""Which API generation a program was written for, from its text."""

from __future__ import annotations

import ast

__all__ = ["detect_api"]

# What only one generation has. Methods and functions by their name, wherever they hang.
FIRST_DEFINITIONS = {"hybrid_forward"}
FIRST_ATTRIBUTES = {"name_scope", "mod", "module", "save_params", "load_params", "simple_bind", "FeedForward"}
FIRST_IMPORTS = {"mod", "module", "model"}
SECOND_ATTRIBUTES = {"np", "npx", "numpy_extension", "set_np", "use_np", "reset_device", "to_device"}
SECOND_IMPORTS = {"np", "npx", "numpy", "numpy_extension"}
SECOND_KEYWORDS = {"device"}
# Present in both, but at home in 1.x: decides only when nothing else does.
WEAK_FIRST = {"sym", "symbol"}


def detect_api(source: str) -> int:
    """The API level, 1 or 2, that fits a program.

    Level 1 for programs that define ``hybrid_forward`` or use ``name_scope``, ``mx.mod`` and the like,
    whatever else they do; otherwise 2 for those that use ``mx.np``, ``npx`` or ``device=``; otherwise 1 for
    those that use ``mx.sym``; otherwise 2. Text that does not parse is level 2 (running it gives the syntax
    error).
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return 2
    aliases = _mxnet_names(tree)
    first = second = weak = False
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first |= node.name in FIRST_DEFINITIONS
        elif isinstance(node, ast.Attribute):
            of_mxnet = isinstance(node.value, ast.Name) and node.value.id in aliases
            name = node.attr
            first |= name in FIRST_ATTRIBUTES and (of_mxnet or name not in ("mod", "module"))
            second |= name in SECOND_ATTRIBUTES and (of_mxnet or name not in ("np",))
            weak |= of_mxnet and name in WEAK_FIRST
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            module = (node.module or "").split(".")
            if module[0] == "mxnet":
                names |= set(module[1:2])
                first |= bool(names & FIRST_IMPORTS and len(module) <= 2)
                second |= bool(names & SECOND_IMPORTS)
                weak |= bool(names & WEAK_FIRST)
        elif isinstance(node, ast.keyword):
            second |= node.arg in SECOND_KEYWORDS
    if first:
        return 1
    return 2 if second or not weak else 1


def _mxnet_names(tree: ast.AST) -> set[str]:
    """The names under which the program knows the mxnet module."""
    names = {"mx", "mxnet"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname for alias in node.names if alias.name == "mxnet" and alias.asname}
    return names
