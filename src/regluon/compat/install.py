"""`install_as_mxnet`: an import hook that serves ``mxnet`` and its submodules from regluon."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

from ..base import config
from .paths import ABOVE, PLACES

__all__ = ["SHIM_FOLDER", "install_as_mxnet", "uninstall_as_mxnet"]

ROOT = __name__.split(".", 1)[0]
SHIM_FOLDER = Path(__file__).parent / "shim"
VERSIONS = {1: "1.9.1", 2: "2.0.0"}
# Names of mxnet.base that programs import and that are plain Python here.
BASE_NAMES: dict[str, Any] = {
    "string_types": (str,),
    "integer_types": (int, numpy.integer),
    "numeric_types": (float, int, numpy.generic),
    "mx_real_t": numpy.float32,
}


def install_as_mxnet(version: str | float = "2.0") -> ModuleType:
    """Make ``import mxnet``, and every submodule path that exists here, give regluon's modules.

    Parameters
    ----------
    version : str
        ``"1.9"`` or ``"2.0"`` (longer forms and the bare major number too): the API level is set to its
        generation, and ``mxnet.__version__`` reports it. NumPy semantics stay off until ``npx.set_np()``, as
        in both originals.

    Returns
    -------
    module
        What ``import mxnet`` gives.

    Raises
    ------
    ValueError
        For a version of neither generation.
    RuntimeError
        When the real mxnet is imported already: two libraries cannot share the name in one process.
    """
    major = str(version).split(".", 1)[0]
    if major not in ("1", "2"):
        raise ValueError(f"install_as_mxnet expected version '1.9' or '2.0', got {version!r}")
    level = int(major)
    present = sys.modules.get("mxnet")
    if present is not None and not isinstance(present, _Facade) and not _is_shim(present):
        raise RuntimeError(
            f"mxnet is imported already, from {getattr(present, '__file__', 'somewhere')}: call "
            "install_as_mxnet() before the first import of mxnet, in an environment without it"
        )
    config.set_api(level)
    facade = present if isinstance(present, _Facade) else _Facade("mxnet", ROOT)
    facade.__version__ = VERSIONS[level]
    sys.modules["mxnet"] = facade
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    # So that ``mx.base`` has the names of mxnet.base without an import of it.
    importlib.import_module("mxnet.base")
    return facade


def uninstall_as_mxnet() -> None:
    """Undo `install_as_mxnet`, except for the API level and names that programs already imported."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if isinstance(sys.modules.get("mxnet"), _Facade):
        for name in [name for name in sys.modules if name == "mxnet" or name.startswith("mxnet.")]:
            del sys.modules[name]


def _is_shim(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.dirname(os.path.abspath(file)) == str(SHIM_FOLDER)


class _Facade(ModuleType):
    """A module that shows the names of another one below its own."""

    __version__: str

    def __init__(self, name: str, target: str, **extra: Any) -> None:
        super().__init__(name)
        self.__dict__.update(extra)
        self.__dict__["_target"] = target
        self.__path__: list[str] = []  # so that importlib takes it for a package
        self.__spec__ = importlib.machinery.ModuleSpec(name, _Loader(target), is_package=True)
        shown = importlib.import_module(target)
        self.__doc__ = shown.__doc__
        self.__file__ = getattr(shown, "__file__", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        try:
            return getattr(sys.modules[self.__dict__["_target"]], name)
        except AttributeError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(sys.modules[self.__dict__["_target"]])})


class _Loader(importlib.abc.Loader):
    """Give an existing module under another name."""

    def __init__(self, target: str, facade_name: str | None = None) -> None:
        self._target = target
        self._facade_name = facade_name
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if self._facade_name is not None:
            extra = BASE_NAMES if self._facade_name == "mxnet.base" else {}
            return _Facade(self._facade_name, self._target, **extra)
        module = _resolve(self._target)
        if module is None:
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)
        # The import system is about to replace the module's spec by the alias's: keep its own.
        self._spec = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self._facade_name is None:
            module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """Find ``mxnet.a.b`` as the module that holds its names here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("mxnet."):
            return None
        inner = fullname.removeprefix("mxnet.")
        if inner == "base":
            return self._spec(fullname, _Loader(f"{ROOT}.base", facade_name=fullname))
        for place in () if inner in ABOVE else (*PLACES.get(inner, ()), inner):
            name = f"{ROOT}.{place}"
            if _resolve(name) is not None:
                return self._spec(fullname, _Loader(name))
        if inner in PLACES and "." in inner:
            parent = sys.modules.get(fullname.rpartition(".")[0])
            if parent is not None:
                # The path is known, its names live in the package above.
                holder = parent.__dict__.get("_target", parent.__name__)
                return self._spec(fullname, _Loader(holder, facade_name=fullname))
        return None

    @staticmethod
    def _spec(fullname: str, loader: _Loader) -> importlib.machinery.ModuleSpec:
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)


def _resolve(name: str) -> ModuleType | None:
    """The module ``name``, be it a file or an attribute of its package (derived namespaces); None without
    one.

    Only "there is no such module" is None: an error inside an existing module comes through.
    """
    if name in sys.modules:
        return sys.modules[name]
    parent_name, _, last = name.rpartition(".")
    if not parent_name:
        return importlib.import_module(name)
    parent = _resolve(parent_name)
    if parent is None:
        return None
    if hasattr(parent, "__path__") and importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    value = getattr(parent, last, None)
    return value if isinstance(value, ModuleType) else None
