"""Type stubs of the namespaces made from the operator table: ``python -m regluon.ops.stubs [--check]``.

Functions written by hand are imported from where they are; functions of the table are written with the names
and types of their operators. The files lie beside the modules and are in the wheel.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ..base import dtypes
from .opdef import OpDef
from .params import Parameter

__all__ = ["generate", "outdated"]

_HEADER = "# Made from the operator table by `python -m regluon.ops.stubs`; do not edit.\n"
# Module of the package -> the type of a function's result, and where that type is.
_NAMESPACES = {
    "ndarray": ("NDArray", "array.ndarray"),
    "ndarray.random": ("NDArray", "array.ndarray"),
    "ndarray.linalg": ("NDArray", "array.ndarray"),
    "ndarray.contrib": ("NDArray", "array.ndarray"),
    "ndarray.sparse": ("NDArray", "array.ndarray"),
    "ndarray.image": ("NDArray", "array.ndarray"),
    "symbol": ("Any", ""),
    "symbol.random": ("Any", ""),
    "symbol.linalg": ("Any", ""),
    "symbol.contrib": ("Any", ""),
    "symbol.image": ("Any", ""),
    "symbol.sparse": ("Any", ""),
    "numpy": ("ndarray", "array.ndarray"),
    "numpy_extension": ("Any", ""),
    "numpy_extension.image": ("Any", ""),
}
# Submodules with a function for every registered name.
_ALL_NAMES = ("_internal", "op")
_TYPES = {
    "int": "int",
    "float": "float",
    "bool": "_bool",
    "str": "str",
    "tuple of int": "int | Sequence[int]",
    "tuple of float": "float | Sequence[float]",
    "tuple of shapes": "Sequence[Sequence[int]]",
    "int or tuple of int": "int | Sequence[int]",
    "dtype": "Any",
}


def _type_of(parameter: Parameter) -> str:
    """The annotation of an attribute; None always stands for the default."""
    if parameter.choices is not None:
        kind = f"Literal[{', '.join(map(repr, parameter.choices))}]"
    else:
        kind = _TYPES[parameter.kind]
    return kind if kind == "Any" or (parameter.required and not parameter.optional) else f"{kind} | None"


def _default(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value) and len(repr(value)) < 8:
        return repr(value)
    if isinstance(value, torch.dtype):
        return repr(dtypes.to_name(value))
    return "..."


_EXTRA = {"out": "Any", "name": "str | None", "attr": "dict[str, str] | None"}


def _function(name: str, function: Any, result: str) -> str:
    """One function of the table."""
    definition: OpDef = function.__operator__
    parts: list[str] = []
    keyword_only = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
            keyword_only = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
        else:
            if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
                parts.append("*")
                keyword_only = True
            attribute = definition.parameters.get(parameter.name)
            kind = _EXTRA.get(parameter.name, "Any") if attribute is None else _type_of(attribute)
            default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
            if attribute is not None and attribute.required and default:
                default = " = ..."  # It follows optional inputs, so Python wants a default.
            parts.append(f"{parameter.name}: {kind}{default}")
    visible = definition.outputs if definition.visible is None else definition.visible
    if result == "Any" or not isinstance(visible, int):
        made = "Any"
    else:
        made = result if visible == 1 else f"list[{result}]"
    return f"def {name}({', '.join(parts)}) -> {made}: ..."


def _relative(target: str, module: types.ModuleType) -> str:
    """``target`` as an import from the stub of ``module`` names it."""
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    own, other = package.split("."), target.split(".")
    shared = 0
    while shared < min(len(own), len(other)) and own[shared] == other[shared]:
        shared += 1
    return "." * (len(own) - shared + 1) + ".".join(other[shared:])


def _entry(name: str, value: Any, module: types.ModuleType, result: str) -> str:
    """The line of one public name."""
    if name in _ALL_NAMES:
        return f"{name}: Any"
    if isinstance(value, types.ModuleType):
        return f"from . import {name} as {name}"
    if hasattr(value, "__operator__"):
        return _function(name, value, result)
    home = getattr(value, "__module__", None) or ""
    own = getattr(value, "__name__", None)
    found = getattr(sys.modules.get(home), own or "", None)
    if home.startswith(module.__name__.split(".")[0] + ".") and home != module.__name__ and found is value:
        return f"from {_relative(home, module)} import {own} as {name}"
    if isinstance(value, types.FunctionType):
        signature = inspect.signature(value)
        plain = [p.replace(annotation="Any") for p in signature.parameters.values()]
        return f"def {name}{_text(signature.replace(parameters=plain, return_annotation='Any'))}: ..."
    return f"{name}: Any"


def _text(signature: inspect.Signature) -> str:
    """A signature with plain names for annotations and without defaults that are no literals."""
    plain = (int, float, str, type(None))
    parameters = [
        p if p.default is p.empty or isinstance(p.default, plain) else p.replace(default=...)
        for p in signature.parameters.values()
    ]
    shown = str(signature.replace(parameters=parameters))
    return shown.replace("'Any'", "Any").replace("Ellipsis", "...")


def _module(name: str, result: str, home: str) -> str:
    module = importlib.import_module(f"{__package__.rpartition('.')[0]}.{name}")
    imports = ["from builtins import bool as _bool", "from collections.abc import Callable, Sequence"]
    imports.append("from typing import Any, Literal")
    if home:
        where = f"{__package__.rpartition('.')[0]}.{home}"
        imports.append(f"from {_relative(where, module)} import {result} as {result}")
    lines = [
        _entry(public, getattr(module, public), module, result)
        for public in module.__all__
        if public != result and public not in ("np", "npx")
    ]
    ordered = sorted(line for line in lines if line.startswith("from "))
    ordered += [line for line in lines if not line.startswith("from ")]
    if hasattr(module, "_link"):
        ordered += ["np: Any", "npx: Any", "def _link() -> None: ..."]
    return "\n".join([_HEADER + "# ruff: noqa\n# fmt: off", *imports, "", *ordered]) + "\n"


def _methods() -> str:
    """The stub of `regluon.array.derived`: Python's operators, and functions of a namespace as methods."""
    from ..array import NDArray, ndarray
    from ..array.arithmetic import _INPLACE, BINARY, UNARY

    lines = [
        _HEADER + "# ruff: noqa\n# fmt: off",
        "from builtins import bool as _bool",
        "from collections.abc import Sequence",
        "from typing import Any, Literal",
        "from typing_extensions import Self",
        "",
        "class Derived:",
    ]
    for name in BINARY:
        remark = "  # type: ignore[override]" if name in ("eq", "ne") else ""
        lines.append(f"    def __{name}__(self, other: Any) -> Self: ...{remark}")
    lines += [f"    def __i{name}__(self, other: Any) -> Self: ..." for name in _INPLACE]
    lines += [f"    def __{name}__(self) -> Self: ..." for name in UNARY]
    for name in sorted({*vars(NDArray), *vars(ndarray)}):
        if any(hasattr(vars(cls).get(name), "__derived__") for cls in (NDArray, ndarray)):
            lines.append(f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ...")
    return "\n".join(lines) + "\n"


def generate() -> dict[Path, str]:
    """Every stub file with its text."""
    root = Path(__file__).parents[1]
    made = {root / "array" / "derived.pyi": _methods()}
    for name, (result, home) in _NAMESPACES.items():
        module = importlib.import_module(f"{__package__.rpartition('.')[0]}.{name}")
        folder = root.joinpath(*name.split("."))
        path = folder / "__init__.pyi" if hasattr(module, "__path__") else folder.with_suffix(".pyi")
        made[path] = _module(name, result, home)
    return made


def outdated() -> list[Path]:
    """The stub files that differ from what the table gives now."""
    return [path for path, text in generate().items() if not path.exists() or path.read_text("utf-8") != text]


def main(arguments: Iterable[str]) -> int:
    """Write the stubs, or with ``--check`` say which are outdated."""
    if "--check" in arguments:
        for path in outdated():
            print(f"outdated: {path}")
        return int(bool(outdated()))
    for path, text in generate().items():
        temporary = path.with_suffix(".pyi.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
