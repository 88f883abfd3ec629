"""Native code: C++ that is compiled in the background where there is a compiler, and kept on disk."""

from __future__ import annotations

from .background import wait
from .loader import MOST_ADDRESSES, Run, Runtime, runtime
from .outputs import maker

__all__ = ["MOST_ADDRESSES", "Run", "Runtime", "maker", "runtime", "wait"]
