"""mx.log: loggers with one line's worth of where and when, coloured on a terminal."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "get_logger"]

CRITICAL, ERROR, WARNING = logging.CRITICAL, logging.ERROR, logging.WARNING
INFO, DEBUG, NOTSET = logging.INFO, logging.DEBUG, logging.NOTSET

_LETTERS = {CRITICAL: "C", ERROR: "E", WARNING: "W", INFO: "I", DEBUG: "D"}


class _Formatter(logging.Formatter):
    """``W1130 11:32:28 9407 train.py:main:9] message``."""

    def __init__(self, colored: bool) -> None:
        super().__init__(datefmt="%m%d %H:%M:%S")
        self._colored = colored

    def _color(self, level: int) -> str:
        return "\x1b[31m" if level >= WARNING else "\x1b[32m" if level >= INFO else "\x1b[34m"

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.process} {record.pathname}:{record.funcName}:{record.lineno}"
        head = f"{_LETTERS.get(record.levelno, 'U')}{self.formatTime(record, self.datefmt)} {place}]"
        if self._colored:
            head = f"{self._color(record.levelno)}{head}\x1b[0m"
        text = f"{head} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def get_logger(
    name: str | None = None, filename: Any = None, filemode: str | None = None, level: int = WARNING
) -> logging.Logger:
    """A logger that writes to a file, or to the standard error stream with place and time of each message.

    Parameters
    ----------
    name : str, optional
        The logger's name. Without one it is the root logger, whose handlers are left as they are.
    filename : path, optional
        The file.
    filemode : str, optional
        How it is opened: "a" by default.
    level : int
        The least level that is written.
    """
    logger = logging.getLogger(name)
    if name is None or getattr(logger, "_regluon_handler", None) is not None:
        if name is not None:
            logger.setLevel(level)
        return logger
    if filename:
        handler: logging.Handler = logging.FileHandler(filename, filemode or "a")
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter(colored=sys.stderr.isatty()))
    logger._regluon_handler = handler  # type: ignore[attr-defined]
    logger.addHandler(handler)
    logger.setLevel(level)
    return logger


def getLogger(
    name: str | None = None, filename: Any = None, filemode: str | None = None, level: int = WARNING
) -> logging.Logger:
    """The older name of `get_logger`."""
    warnings.warn("getLogger is deprecated, Use get_logger instead.", DeprecationWarning, stacklevel=2)
    return get_logger(name, filename, filemode, level)
