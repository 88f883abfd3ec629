"""The store of one process: values by key, summed over devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from regluon.array import NDArray
from regluon.base.errors import MXNetError
from regluon.kvstore.base import KVStoreBase

LOCAL_KINDS = ("local", "device", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "nccl")


def sum_into(values: Sequence[NDArray], outputs: Sequence[NDArray]) -> None:
    """Write the sum of arrays, which may be on several devices, to every one of ``outputs``."""
    total = values[0]._t if len(values) == 1 else values[0]._t.clone()
    for value in values[1:]:
        total += value._t.to(total.device)
    for output in outputs:
        if output._t is not total:
            output._t.copy_(total)


class KVStore(KVStoreBase):
    """Values by key (int or str). ``push`` sums what several devices bring; ``pull`` copies out."""

    def __init__(self, kind: str = "local") -> None:
        self._kind = kind
        self._values: dict[Any, NDArray] = {}
        self._updater: Callable[[Any, Any, Any], None] | None = None
        self._lock = threading.RLock()

    @property
    def type(self) -> str:
        return self._kind

    @property
    def rank(self) -> int:
        return 0

    @property
    def num_workers(self) -> int:
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return True
        raise MXNetError(
            f"Unknown capability {capability!r}; stores are asked for '{KVStoreBase.OPTIMIZER}'."
        )

    def _stored(self, key: Any) -> NDArray:
        if key not in self._values:
            raise MXNetError(f"The store has no key {key!r}. Call init(key, value) first.")
        return self._values[key]

    @staticmethod
    def _pairs(key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
        """Keys with their lists of arrays, from one key or several."""
        if not isinstance(key, list | tuple):
            return [(key, list(value) if isinstance(value, list | tuple) else [value])]
        if not isinstance(value, list | tuple) or len(value) % max(len(key), 1):
            raise ValueError(f"{len(key)} keys need as many values; received {value!r}.")
        if value and all(isinstance(one, NDArray) for one in value) and len(value) > len(key):
            share = len(value) // len(key)
            return [(one, list(value[i * share : (i + 1) * share])) for i, one in enumerate(key)]
        return [
            (one, list(part) if isinstance(part, list | tuple) else [part])
            for one, part in zip(key, value, strict=True)
        ]

    def init(self, key: Any, value: Any) -> None:
        """Store first values; each key once."""
        with self._lock:
            for one, arrays in self._pairs(key, value):
                if one in self._values:
                    raise MXNetError(f"Key {one!r} is in the store already; init works once for each key.")
                self._values[one] = arrays[0].copy()

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of a key; the sum replaces the value, or goes through the updater, if any."""
        with self._lock:
            for one, arrays in self._pairs(key, value):
                stored = self._stored(one)
                if self._updater is None:
                    sum_into(arrays, [stored])
                    continue
                merged = arrays[0].copyto(stored.context)
                if len(arrays) > 1:
                    sum_into(arrays, [merged])
                self._updater(one, merged, stored)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy the value of a key to one or several arrays."""
        if out is None:
            raise ValueError("pull needs out=: the array, or list of arrays, to write to.")
        with self._lock:
            for one, outputs in self._pairs(key, out):
                stored = self._stored(one)
                for output in outputs:
                    output[:] = stored

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Push, then pull. Without an updater, keys need no init: the sum goes to ``out`` or ``value``."""
        with self._lock:
            targets = self._pairs(key, value if out is None else out)
            for (one, arrays), (_, outputs) in zip(self._pairs(key, value), targets, strict=True):
                if self._updater is None:
                    sum_into(arrays, outputs)
                    if one in self._values:
                        self._values[one][:] = outputs[0]
                    continue
                self.push(one, arrays)
                self.pull(one, outputs)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Init, then pull."""
        self.init(key, value)
        self.pull(key, out)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy the rows ``row_ids`` of a value to row_sparse arrays."""
        if out is None or row_ids is None:
            raise ValueError("row_sparse_pull needs out= and row_ids=.")
        with self._lock:
            for one, outputs in self._pairs(key, out):
                ids = row_ids if isinstance(row_ids, list | tuple) else [row_ids] * len(outputs)
                for output, rows in zip(outputs, ids, strict=True):
                    self._stored(one).tostype("row_sparse").retain(rows).copyto(output)

    # Optimizer ----------------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """Run this optimizer on every push."""
        from regluon.optimizer import get_updater

        self._set_updater(get_updater(optimizer))

    def _set_updater(self, updater: Callable[[Any, Any, Any], None]) -> None:
        self._updater = updater

    set_updater = _set_updater

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Refused: nothing is sent anywhere from a store of one process."""
        raise MXNetError(
            "Gradient compression is for stores that send gradients to other machines; this one is "
            f"'{self._kind}'."
        )

    def _states(self) -> Any:
        if self._updater is None or not hasattr(self._updater, "get_states"):
            raise MXNetError("There are no optimizer states: call set_optimizer first.")
        return self._updater

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer to a file."""
        from regluon.serial import atomic_writer

        states = self._states().get_states(dump_optimizer)
        with atomic_writer(fname) as stream:
            stream.write(states)

    def load_optimizer_states(self, fname: str) -> None:
        """Read the states of the optimizer from a file."""
        from regluon.serial.params import naming

        with open(fname, "rb") as stream, naming(fname):
            self._states().set_states(stream.read())
