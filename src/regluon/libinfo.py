"""mx.libinfo: the version, and a clear answer to those who look for MXNet's shared library."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["find_conf_path", "find_include_path", "find_lib_path"]


def _missing(what: str) -> NoReturn:
    raise RuntimeError(
        f"Cannot find the MXNet {what}: regluon runs on PyTorch's kernels and has no libmxnet. What uses the "
        "C interface has to be written with mx.nd, mx.sym or mx.operator.CustomOp"
    )


def find_lib_path(prefix: str = "libmxnet") -> NoReturn:
    """Refused: there is no such library.

    Raises
    ------
    RuntimeError
        Always.
    """
    _missing("library")


def find_include_path() -> NoReturn:
    """Refused: there are no C headers.

    Raises
    ------
    RuntimeError
        Always.
    """
    _missing("include path")


def find_conf_path(prefix: str = "tvmop") -> NoReturn:
    """Refused: there are no compiled operators to configure.

    Raises
    ------
    RuntimeError
        Always.
    """
    _missing("configuration of compiled operators")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        import sys

        # The version that programs see: MXNet's, where regluon stands in for it.
        shown = sys.modules.get("mxnet") or sys.modules["regluon"]
        return shown.__version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
