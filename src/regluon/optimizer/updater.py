"""Updater: an optimizer together with the states of the weights that it has updated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regluon.optimizer.optimizer import Optimizer


class Updater:
    """Called with ``(index, grad, weight)``, single or as lists, it makes states as needed and updates the
    weights.

    Attributes
    ----------
    optimizer : Optimizer
        The rule.
    states : dict
        State of each index.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}
        # A class of the user's that overrides update() in the style of 1.x takes one weight at a time.
        kind = type(optimizer)
        self.aggregate_updates = (
            kind.update is Optimizer.update
            and kind.update_multi_precision is Optimizer.update_multi_precision
        )

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        single = not isinstance(index, list | tuple)
        indices = [index] if single else list(index)
        grads = [grad] if single else list(grad)
        weights = [weight] if single else list(weight)
        if not indices:
            return
        for one, array in zip(indices, weights, strict=True):
            if one not in self.states:
                self.states[one] = self.optimizer.create_state_multi_precision(one, array)
                self.states_synced[one] = True
            elif not self.states_synced.get(one, True):
                self.states[one] = self.sync_state_context(self.states[one], array.context)
                self.states_synced[one] = True
        device = weights[0].context.device_id if hasattr(weights[0], "context") else 0
        self.optimizer._set_current_context(device)
        states = [self.states[one] for one in indices]
        if self.aggregate_updates and not single:
            self.optimizer.update_multi_precision(indices, weights, grads, states)
            return
        for one, array, gradient, state in zip(indices, weights, grads, states, strict=True):
            self.optimizer.update_multi_precision(one, array, gradient, state)

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """Move a state to the context of its weight."""
        if state is None:
            return None
        if isinstance(state, list | tuple):
            return type(state)(self.sync_state_context(part, context) for part in state)
        return state.as_in_context(context)

    def set_states(self, states: bytes) -> None:
        """Take over what :meth:`get_states` wrote, here or in MXNet.

        Raises
        ------
        ParamsError
            If the bytes are damaged or hold anything but states.
        """
        from regluon.serial import states as files

        loaded, optimizer = files.loads(states, self.optimizer)
        if optimizer is not None:
            self.optimizer = optimizer
        self.states = loaded
        self.states_synced = dict.fromkeys(loaded, False)

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states as bytes; with ``dump_optimizer`` also what the optimizer counts and how it was set."""
        from regluon.serial import states as files

        return files.dumps(self.states, self.optimizer if dump_optimizer else None)


def get_updater(optimizer: Optimizer) -> Callable[[Any, Any, Any], None]:
    """The function ``(index, grad, weight)`` that updates with this optimizer and keeps its states."""
    return Updater(optimizer)
