"""`DataParallelExecutorGroup`: one executor a device, each with its part of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..array import NDArray
from ..base.errors import MXNetError
from ..io import DataDesc
from ..ndarray import concat

__all__ = ["DataParallelExecutorGroup", "describe", "request_gradients", "split_batch"]


def describe(shapes: Any) -> list[DataDesc]:
    """Descriptions from descriptions, pairs of name and shape, or tuples with type and layout too."""
    return [given if isinstance(given, DataDesc) else DataDesc(*given) for given in shapes or ()]


def split_batch(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The rows of each device, in proportion to its load; the last one takes what rounding leaves.

    Raises
    ------
    ValueError
        When a device would get no row.
    """
    total = sum(work_load_list)
    counts = [round(load * batch_size / total) for load in work_load_list]
    slices = []
    start = 0
    for place, count in enumerate(counts):
        stop = batch_size if place == len(counts) - 1 else min(start + count, batch_size)
        if stop <= start:
            raise ValueError(
                f"Too many slices: a batch of {batch_size} rows cannot be split among {len(counts)} devices "
                f"with loads {list(work_load_list)}"
            )
        slices.append(slice(start, stop))
        start = stop
    return slices


def request_gradients(
    grad_req: Any,
    arguments: Sequence[str],
    parameters: Sequence[str],
    fixed: Sequence[str],
    inputs: Sequence[str],
    inputs_need_grad: bool,
) -> dict[str, str]:
    """What is done with the gradient of each argument.

    One word holds for parameters that are not fixed and, if asked for, for the inputs; a list has a word for
    each argument; a dict changes single ones.
    """
    wanted = (set(parameters) - set(fixed)) | (set(inputs) if inputs_need_grad else set())
    if isinstance(grad_req, list | tuple):
        if len(grad_req) != len(arguments):
            raise ValueError(
                f"grad_req as a list needs a word for each of {len(arguments)} arguments, got {len(grad_req)}"
            )
        return dict(zip(arguments, grad_req, strict=True))
    if isinstance(grad_req, Mapping):
        return {name: grad_req.get(name, "write" if name in wanted else "null") for name in arguments}
    return {name: grad_req if name in wanted else "null" for name in arguments}


class DataParallelExecutorGroup:
    """The executors of a module.

    Parameters
    ----------
    symbol : Symbol
        The network.
    contexts : list of Context
        The devices.
    work_load_list : list of float
        The share of each.
    data_shapes, label_shapes : list of DataDesc
        The inputs.
    param_names, state_names : list of str
        Arguments that are parameters, and those that keep their value between batches.
    requests : dict of str
        The gradient request of each argument.
    shared : DataParallelExecutorGroup, optional
        A group whose parameters, gradients and auxiliary states are used, not copied.

    Raises
    ------
    ValueError
        When the batch cannot be split.
    MXNetError
        When the shapes leave others unknown, or do not fit shared parameters.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Any],
        work_load_list: Sequence[float],
        data_shapes: Sequence[DataDesc],
        label_shapes: Sequence[DataDesc],
        param_names: Sequence[str],
        state_names: Sequence[str],
        requests: Mapping[str, str],
        shared: DataParallelExecutorGroup | None = None,
    ) -> None:
        self.symbol = symbol
        self.contexts = list(contexts)
        self.data_shapes, self.label_shapes = list(data_shapes), list(label_shapes)
        self.data_names = [given.name for given in self.data_shapes]
        self.label_names = [given.name for given in self.label_shapes]
        self.param_names, self.state_names = list(param_names), list(state_names)
        self.aux_names = symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        self.batch_size = self._batch_size()
        self.slices = (
            [slice(0, self.batch_size)]
            if len(self.contexts) == 1
            else split_batch(self.batch_size, work_load_list)
        )
        arguments = set(symbol.list_arguments())
        self._taken = arguments | set(self.aux_names)
        shared_names = [name for name in self.param_names if shared is None or name in shared.param_names]
        self.execs: list[Any] = [
            self._bind(place, requests, shared_names, None if shared is None else shared.execs[place])
            for place in range(len(self.contexts))
        ]
        self._arguments = [executor.arg_dict for executor in self.execs]
        self._gradients = [executor.grad_dict for executor in self.execs]
        states = [executor.aux_dict for executor in self.execs]
        self.param_arrays = [[bound[name] for bound in self._arguments] for name in self.param_names]
        self.grad_arrays = [[bound[name] for bound in self._gradients] for name in self.param_names]
        self.aux_arrays = [[bound[name] for bound in states] for name in self.aux_names]
        self._layouts = self._output_axes()

    def _batch_size(self) -> int:
        sizes = {}
        for given in [*self.data_shapes, *self.label_shapes]:
            axis = DataDesc.get_batch_axis(given.layout)
            if axis >= 0 and len(given.shape) > axis:
                sizes[given.name] = given.shape[axis]
        if len(set(sizes.values())) > 1 and len(self.contexts) > 1:
            raise ValueError(
                "all inputs must have the same batch size to be split among devices, got "
                + ", ".join(f"{name}: {size}" for name, size in sizes.items())
            )
        return int(next(iter(sizes.values()))) if sizes else 0

    def _output_axes(self) -> list[int]:
        """The axis of each output along which devices' parts are joined."""
        attributes = self.symbol.attr_dict()
        return [
            DataDesc.get_batch_axis(attributes.get(entry.node.name, {}).get("__layout__"))
            for entry in self.symbol._list()
        ]

    def _part(self, given: DataDesc, place: int) -> tuple[int, ...]:
        """The shape of a device's part of an input."""
        axis = DataDesc.get_batch_axis(given.layout)
        if len(self.contexts) == 1 or axis < 0 or len(given.shape) <= axis:
            return tuple(given.shape)
        rows = self.slices[place]
        return (*given.shape[:axis], rows.stop - rows.start, *given.shape[axis + 1 :])

    def _bind(self, place: int, requests: Mapping[str, str], shared_names: list[str], shared: Any) -> Any:
        inputs = [given for given in [*self.data_shapes, *self.label_shapes] if given.name in self._taken]
        return self.symbol.simple_bind(
            ctx=self.contexts[place],
            grad_req=dict(requests),
            type_dict={given.name: given.dtype for given in inputs},
            shared_arg_names=shared_names,
            shared_exec=shared,
            **{given.name: self._part(given, place) for given in inputs},
        )

    # Running ----------------------------------------------------------------------

    def _rows(self, array: Any, given: DataDesc, place: int) -> Any:
        """A device's part of an input."""
        axis = DataDesc.get_batch_axis(given.layout)
        if len(self.contexts) == 1 or axis < 0 or array.ndim <= axis:
            return array
        return array[(slice(None),) * axis + (self.slices[place],)]

    def _load(self, described: Sequence[DataDesc], arrays: Sequence[Any]) -> None:
        for given, array in zip(described, arrays, strict=False):
            if given.name not in self._taken:
                continue
            for place, bound in enumerate(self._arguments):
                part = self._rows(array, given, place)
                target = bound[given.name]
                if tuple(part.shape) != tuple(target.shape):
                    raise MXNetError(
                        f"the input {given.name} was bound with shape {tuple(given.shape)}; received "
                        f"{tuple(array.shape)}"
                    )
                target[:] = part

    def forward(self, data: Sequence[Any], label: Sequence[Any] | None, is_train: bool) -> None:
        """Compute the outputs of a batch on all devices."""
        self._load(self.data_shapes, data)
        if label:
            self._load(self.label_shapes, label)
        for executor in self.execs:
            executor.forward(is_train=is_train)

    def backward(self, out_grads: Sequence[Any] | None) -> None:
        """Compute the gradients; ``out_grads`` are those of whole outputs."""
        for place, executor in enumerate(self.execs):
            if out_grads is None:
                executor.backward()
                continue
            parts = []
            for grad, axis in zip(out_grads, self._layouts, strict=True):
                rows = DataDesc("", grad.shape, layout="N".rjust(axis + 1, "C") if axis >= 0 else "C")
                parts.append(self._rows(grad, rows, place).as_in_context(self.contexts[place]))
            executor.backward(parts)

    def joined(self, parts: Sequence[Any], axis: int) -> Any:
        """The parts of all devices as one array on the first."""
        if len(parts) == 1:
            return parts[0]
        if axis < 0:
            return parts[0]
        return concat(*[part.as_in_context(self.contexts[0]) for part in parts], dim=axis)

    def get_outputs(self, merge: bool) -> list[Any]:
        """The outputs: joined, or for each a list with the devices' parts."""
        # Handles of their own: the executor gives its arrays new values in the next forward.
        own = [[type(output)(output) for output in executor.outputs] for executor in self.execs]
        outputs = [list(parts) for parts in zip(*own, strict=True)]
        if not merge:
            return outputs
        return [self.joined(parts, axis) for parts, axis in zip(outputs, self._layouts, strict=True)]

    def get_input_grads(self, merge: bool) -> list[Any]:
        """The gradients of the inputs, in the same way."""
        found = [[bound[name] for bound in self._gradients] for name in self.data_names]
        if not merge:
            return found
        axes = [DataDesc.get_batch_axis(given.layout) for given in self.data_shapes]
        return [self.joined(parts, axis) for parts, axis in zip(found, axes, strict=True)]

    def get_states(self, merge: bool) -> list[Any]:
        """The states, in the same way."""
        found = [[bound[name] for bound in self._arguments] for name in self.state_names]
        return [self.joined(parts, 0) for parts in found] if merge else found

    def set_states(self, states: Any, value: Any) -> None:
        """Write states: arrays or lists of the devices' parts, or one value for all."""
        if states is None:
            states = [value] * len(self.state_names)
        if len(states) != len(self.state_names):
            raise ValueError(
                f"set_states expected {len(self.state_names)} states ({', '.join(self.state_names)}), got "
                f"{len(states)}"
            )
        for name, state in zip(self.state_names, states, strict=True):
            for place, bound in enumerate(self._arguments):
                part = state
                if isinstance(state, list | tuple):
                    part = state[place]
                elif isinstance(state, NDArray):
                    part = self._rows(state, DataDesc(name, state.shape), place)
                bound[name][:] = part

    def update_metric(self, metric: Any, labels: Sequence[Any], pre_sliced: bool) -> None:
        """Add each device's labels and outputs to a metric."""
        for place, executor in enumerate(self.execs):
            if pre_sliced:
                own = list(labels[place])
            else:
                own = [
                    self._rows(label, given, place)
                    for label, given in zip(labels, self.label_shapes, strict=False)
                ]
                own += list(labels[len(self.label_shapes) :])
            names = self.label_names + [f"label{number}" for number in range(len(self.label_names), len(own))]
            metric.update_dict(
                dict(zip(names, own, strict=False)),
                dict(zip(self.output_names, executor.outputs, strict=True)),
            )

    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of whole outputs."""
        return [
            (name, tuple(output.shape))
            for name, output in zip(self.output_names, self.get_outputs(True), strict=True)
        ]
