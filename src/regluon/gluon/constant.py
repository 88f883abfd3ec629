"""Constant: a parameter that is never trained."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from regluon import initializer
from regluon.array import NDArray
from regluon.array import ndarray as np_ndarray
from regluon.base import config, dtypes
from regluon.base.device import current_context
from regluon.gluon.parameter import Parameter
from regluon.gluon.parameter_errors import ParameterValueError
from regluon.gluon.parameter_support import GRADIENT_REQUESTS, INITIALISING, Eager, as_contexts, copied

__all__ = ["Constant"]


class Constant(Parameter):
    """A parameter that holds a fixed value: saved with the network, never trained.

    Both spellings work: ``Constant(name, value)`` of MXNet 1.x and ``Constant(value)`` of 2.0. ``value`` is
    an array or nested numbers.
    """

    def __init__(self, name: Any, value: Any = None) -> None:
        if value is None and not isinstance(name, str):
            name, value = "const", name
        if value is None:
            raise ParameterValueError(f"Constant '{name}' needs a value: an array or nested numbers.")
        if not isinstance(value, NDArray):
            kind = np_ndarray if config.is_np_array() else NDArray
            host = np.asarray(value)
            host = (
                host.astype(np.float32) if host.dtype == np.float64 or not hasattr(value, "dtype") else host
            )
            value = kind._wrap(dtypes.from_numpy(host.copy()), current_context())
        self.value = value
        super().__init__(
            name,
            grad_req="null",
            shape=value.shape,
            dtype=value.dtype,
            init=initializer.Fixed(value),
            differentiable=False,
        )

    @property
    def grad_req(self) -> str:
        """Always "null"."""
        return "null"

    @grad_req.setter
    def grad_req(self, request: str) -> None:
        if request not in GRADIENT_REQUESTS:
            raise ParameterValueError(
                f"grad_req must be one of 'write', 'add' or 'null'; received {request!r}."
            )
        if request != "null" and self._grad_req != request:
            warnings.warn(
                f"Constant {self._label} is never differentiated: grad_req={request!r} has no effect.",
                stacklevel=2,
            )

    def _finish_deferred_init(self) -> None:
        # A constant's shape is its value's, so sizes of 0 are real here.
        if self._deferred_init:
            with INITIALISING, Eager():
                value = copied(self.value, self.value.context, dtypes.to_torch(self._dtype))
                self._init_impl(value, self._deferred_init[1])
                self._deferred_init = ()

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        *,
        device: Any = None,
    ) -> None:
        """Put the value on the given contexts; initializers do not apply to constants."""
        if self._data is not None and not force_reinit:
            return
        self._deferred_init = (None, as_contexts(ctx, device), None, None)
        self._finish_deferred_init()

    def _initializer_text(self) -> str | None:
        return None
