"""`HostParameters`: a module's parameters off its devices."""

from __future__ import annotations

from typing import Any

from ..base.device import cpu
from ..ndarray import zeros

__all__ = ["HostParameters"]


class HostParameters:
    """Arguments and auxiliary states by name, one copy whatever the number of devices.

    Modules that share parameters share this object.

    Attributes
    ----------
    arg_params, aux_params : dict of str to NDArray, or None before they are made
        The values.
    outdated : bool
        Whether the devices' values are newer.
    """

    def __init__(self) -> None:
        self.arg_params: dict[str, Any] | None = None
        self.aux_params: dict[str, Any] | None = None
        self.outdated = False

    def allocate(self, group: Any) -> None:
        """Zeros of the shapes and types of a group's parameters."""

        def empty(names: list[str], arrays: list[list[Any]]) -> dict[str, Any]:
            return {
                name: zeros(parts[0].shape, dtype=parts[0].dtype, ctx=cpu())
                for name, parts in zip(names, arrays, strict=True)
            }

        self.arg_params = empty(group.param_names, group.param_arrays)
        self.aux_params = empty(group.aux_names, group.aux_arrays)
        self.outdated = False

    @staticmethod
    def _pairs(group: Any) -> Any:
        return (
            (group.param_names, group.param_arrays, "arg_params"),
            (group.aux_names, group.aux_arrays, "aux_params"),
        )

    def write(self, group: Any) -> None:
        """Copy the values to a group's devices."""
        for names, arrays, which in self._pairs(group):
            for name, parts in zip(names, arrays, strict=True):
                for part in parts:
                    part[:] = getattr(self, which)[name]
        self.outdated = False

    def read(self, group: Any) -> None:
        """Take over newer values of a group's devices: their mean."""
        if not self.outdated or self.arg_params is None:
            return
        for names, arrays, which in self._pairs(group):
            for name, parts in zip(names, arrays, strict=True):
                target = getattr(self, which)[name]
                mean = parts[0].as_in_context(target.context)
                if len(parts) > 1:
                    total = mean.astype("float64")
                    for part in parts[1:]:
                        total = total + part.as_in_context(target.context).astype("float64")
                    mean = (total / len(parts)).astype(target.dtype)
                target[:] = mean
        self.outdated = False
