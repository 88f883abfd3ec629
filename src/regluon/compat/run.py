"""`run_program`: what ``regluon run`` does."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .detect import detect_api
from .install import SHIM_FOLDER, VERSIONS, install_as_mxnet

__all__ = ["run_program"]


def run_program(target: str, arguments: Sequence[str], is_module: bool = False, api: str = "auto") -> int:
    """Run a script or module as ``__main__`` with ``mxnet`` served by regluon, and return its exit status.

    Parameters
    ----------
    target : str
        Path of a script, or a module's name with ``is_module``.
    arguments : list of str
        ``sys.argv[1:]`` of the program.
    api : {'1', '2', 'auto'}
        The API generation; ``auto`` reads it off the program's text.

    An exception of the program is printed as Python does, from the program's first own frame, and gives
    status 1.
    """
    if api not in ("1", "2", "auto"):
        raise ValueError(f"--api expected 1, 2 or auto, got {api!r}")
    # As python does it: the script's folder, or the working folder for -m, comes first on the path.
    folder = os.getcwd() if is_module else str(Path(target).resolve().parent)
    sys.path[:0] = [folder, str(SHIM_FOLDER)]
    source = _find_source(target, is_module)
    if source is None:
        kind = "module" if is_module else "script"
        print(f"regluon run: there is no {kind} {target!r}", file=sys.stderr)
        return 2
    level = detect_api(source) if api == "auto" else int(api)
    install_as_mxnet(VERSIONS[level])
    # Processes that the program starts find mxnet through the shim folder.
    os.environ["REGLUON_AS_MXNET"] = VERSIONS[level]
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SHIM_FOLDER), *([inherited] if inherited else [])])
    sys.argv = [target, *arguments]
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            # As python does it, __file__ is absolute: the program may change its folder.
            runpy.run_path(os.path.abspath(target), run_name="__main__")
    except SystemExit as stop:
        return _exit_status(stop)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        traceback.print_exception(type(error), error, _own_frames(error.__traceback__))
        return 1
    return 0


def _find_source(target: str, is_module: bool) -> str | None:
    """The text of the program; None when there is no such program."""
    path: str | None = target
    if is_module:
        try:
            spec = importlib.util.find_spec(target)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{target}.__main__")
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            return None
        path = spec.origin
    if path is None or not os.path.exists(path):
        return None
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this launcher."""
    launcher = {__file__, runpy.__file__, "<frozen runpy>"}
    start = trace
    while start is not None and start.tb_frame.f_code.co_filename in launcher:
        start = start.tb_next
    return start if start is not None else trace
