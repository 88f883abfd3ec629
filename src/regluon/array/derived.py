"""The base class of arrays, for what is put on them from tables: Python's operators and methods of operators.

It is empty; its type stub, made by ``python -m regluon.ops.stubs``, says what `arithmetic` and `methods` add.
"""

from __future__ import annotations

__all__ = ["Derived"]


class Derived:
    """A value that has the operators of Python and the methods of the operator table."""
