"""`Updating`: an optimizer at work on the parameters of a module's devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import kvstore as kv
from .. import optimizer as opt
from ..kvstore.kvstore import KVStore, sum_into
from ..serial import atomic_writer

__all__ = ["Updating"]


def _store(kvstore: Any, devices: int) -> Any:
    """The store to use: none for one device, unless an object was given."""
    if kvstore is None:
        return None
    if not isinstance(kvstore, str):
        return kvstore
    created = kv.create(kvstore) if devices > 1 or "dist" in kvstore or kvstore not in _LOCAL else None
    return created


_LOCAL = ("local", "device", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "nccl")


class Updating:
    """An optimizer with its states, and how gradients reach it.

    With a store that can run optimizers, the store does, under the parameters' names. Else gradients of
    several devices are summed, and each device's copy is updated with states of its own.

    Parameters
    ----------
    optimizer : Optimizer
        The rule.
    kvstore : str, KVStore or None
        How gradients of several devices become one.
    names : list of str
        The parameters; states go by their places, so that modules of other orders can share them.
    group : DataParallelExecutorGroup
        Where the first values are.
    """

    def __init__(self, optimizer: Any, kvstore: Any, names: Sequence[str], group: Any) -> None:
        self.optimizer = optimizer
        self.devices = len(group.contexts)
        self.kvstore = _store(kvstore, self.devices)
        self.on_store = self.kvstore is not None and self.kvstore.is_capable("optimizer")
        self.places = {name: place for place, name in enumerate(names)}
        self.updater: Any = None
        if self.kvstore is not None:
            for name, parts in zip(group.param_names, group.param_arrays, strict=True):
                self.kvstore.broadcast(name, parts[0], out=parts)
        if self.on_store:
            self.kvstore.set_optimizer(optimizer)
        else:
            # Each device's copy of a parameter has a number of its own.
            optimizer.idx2name.update(
                (place * self.devices + device, name)
                for name, place in self.places.items()
                for device in range(self.devices)
            )
            self.updater = opt.get_updater(optimizer)

    def update(self, group: Any) -> None:
        """Update all parameters that have gradients."""
        named = [
            (name, weights, grads)
            for name, weights, grads in zip(
                group.param_names, group.param_arrays, group.grad_arrays, strict=True
            )
            if grads[0] is not None
        ]
        if self.on_store:
            for name, weights, grads in named:
                self.kvstore.pushpull(name, grads, out=weights)
            return
        if self.devices > 1 or self.kvstore is not None:
            for name, _, grads in named:
                if self.kvstore is None:
                    sum_into(grads, grads)
                else:
                    self.kvstore.pushpull(name, grads, out=grads)
        for device in range(self.devices):
            self.updater(
                [self.places[name] * self.devices + device for name, _, _ in named],
                [grads[device] for _, _, grads in named],
                [weights[device] for _, weights, _ in named],
            )

    def save_states(self, fname: Any) -> None:
        """Write the optimizer's states to a file."""
        if self.on_store:
            self.kvstore.save_optimizer_states(fname)
            return
        with atomic_writer(fname) as stream:
            stream.write(self.updater.get_states())

    def load_states(self, fname: Any) -> None:
        """Read the optimizer's states from a file."""
        if self.on_store:
            self.kvstore.load_optimizer_states(fname)
            return
        with open(fname, "rb") as stream:
            self.updater.set_states(stream.read())


