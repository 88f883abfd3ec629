"""`Updating`: an optimizer at work on the parameters of a module's devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import kvstore as kv
from .. import optimizer as opt
from ..kvstore.kvstore import LOCAL_KINDS, sum_into
from ..serial import atomic_writer
from ..serial.params import naming

__all__ = ["Updating", "make_store"]


def make_store(kvstore: Any) -> Any:
    """The store that sums gradients: None where all of them are in this process."""
    if kvstore is None or (isinstance(kvstore, str) and kvstore.lower() in LOCAL_KINDS):
        return None
    return kv.create(kvstore) if isinstance(kvstore, str) else kvstore


class Updating:
    """An optimizer with its states, and how gradients reach it.

    Gradients of several devices are summed; the first device's copy is updated, and the others become equal
    to it. So states do not depend on the number of devices.

    Parameters
    ----------
    optimizer : Optimizer
        The rule.
    store : KVStoreBase or None
        Sums gradients over processes.
    names : list of str
        The parameters; states go by their places, so that modules of other orders can share them.
    group : DataParallelExecutorGroup
        Where the first values are.
    """

    def __init__(self, optimizer: Any, store: Any, names: Sequence[str], group: Any) -> None:
        self.optimizer = optimizer
        self.kvstore = store
        self.places = {name: place for place, name in enumerate(names)}
        self.updater: Any = opt.get_updater(optimizer)
        if store is not None:
            for name, parts in zip(group.param_names, group.param_arrays, strict=True):
                store.broadcast(name, parts[0], out=parts)

    def update(self, group: Any) -> None:
        """Update all parameters of a group that have gradients."""
        indices, gradients, weights, copies = [], [], [], []
        for name, arrays, grads in zip(group.param_names, group.param_arrays, group.grad_arrays, strict=True):
            if grads[0] is None:
                continue
            if self.kvstore is not None:
                self.kvstore.pushpull(name, grads, out=grads)
            elif len(grads) > 1:
                sum_into(grads, grads[:1])
            indices.append(self.places[name])
            gradients.append(grads[0])
            weights.append(arrays[0])
            copies.append(arrays[1:])
        self.updater(indices, gradients, weights)
        for weight, others in zip(weights, copies, strict=True):
            for other in others:
                other[:] = weight

    def save_states(self, fname: Any) -> None:
        """Write the optimizer's states to a file."""
        with atomic_writer(fname) as stream:
            stream.write(self.updater.get_states())

    def load_states(self, fname: Any) -> None:
        """Read the optimizer's states from a file; MXNet writes names instead of places when it trained on
        several devices."""
        with open(fname, "rb") as stream, naming(fname):
            self.updater.set_states(stream.read())
        for which in ("states", "states_synced"):
            states = getattr(self.updater, which)
            setattr(self.updater, which, {self.places.get(key, key): state for key, state in states.items()})
