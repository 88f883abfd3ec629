"""Errors that parameters raise."""

from __future__ import annotations

from ..base.errors import MXNetError


class ParameterValueError(MXNetError, ValueError, AssertionError):
    """A value that a parameter cannot take: a contradicting shape, an unknown gradient request, no such name.

    It is an AssertionError too, because that is what MXNet raised and what existing code catches.
    """
