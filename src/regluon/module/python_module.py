"""`PythonModule` and `PythonLossModule`: modules whose work is written in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..array import NDArray
from ..ndarray import array as nd_array
from .base_module import BaseModule, ModuleStateError, as_list
from .executor_group import describe

__all__ = ["PythonLossModule", "PythonModule"]


class PythonModule(BaseModule):
    """Base of modules without parameters whose work is written in Python.

    A subclass defines `forward`, `get_outputs`, `_compute_output_shapes` and, to train, `backward` and
    `get_input_grads`.

    Parameters
    ----------
    data_names, label_names, output_names : list of str
        Names of inputs, labels and outputs.
    """

    def __init__(self, data_names: Any, label_names: Any, output_names: Any, logger: Any = logging) -> None:
        super().__init__(logger)
        self._data_names, self._label_names = as_list(data_names), as_list(label_names)
        self._output_names = as_list(output_names)
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        return self._output_shapes

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """No parameters."""
        return {}, {}

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Nothing to do."""
        self.params_initialized = True

    def update(self) -> None:
        """Nothing to do."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs to a metric, if the module has labels."""
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise ValueError("PythonModule.update_metric takes whole labels, pre_sliced=False")
        eval_metric.update_dict(
            dict(zip([given.name for given in self._label_shapes], labels, strict=False)),
            dict(zip(self._output_names, self.get_outputs(), strict=True)),
        )

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Keep the shapes; see `Module.bind`."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if grad_req != "write":
            raise ValueError(f"PythonModule.bind: grad_req must be 'write', got {grad_req!r}")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes = describe(data_shapes)
        names = [given.name for given in self._data_shapes]
        if names != self._data_names:
            raise ValueError(f"bind expected shapes of the inputs {self._data_names}, got {names}")
        self._label_shapes = describe(label_shapes) if label_shapes is not None else None
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs, from ``self._data_shapes``."""
        raise NotImplementedError(f"{type(self).__name__} must define _compute_output_shapes().")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Nothing to do."""
        self.optimizer_initialized = True

    def install_monitor(self, mon: Any) -> None:
        """Nothing to watch."""


class PythonLossModule(PythonModule):
    """A loss whose gradient is written in Python; its outputs are its inputs, the scores.

    Parameters
    ----------
    name : str
        Beginning of the output's name.
    data_names, label_names : list of str
        One input and one label.
    grad_func : callable
        Gives the gradient of the scores from scores and labels, as NDArray or NumPy array. A subclass may
        define ``_backward_impl`` instead, which sets ``self._scores_grad``.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Any = ("data",),
        label_names: Any = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(self._data_names) != 1 or len(self._label_names) != 1:
            raise ValueError(
                f"PythonLossModule expected one input and one label, got {self._data_names} and "
                f"{self._label_names}"
            )
        if grad_func is not None and not callable(grad_func):
            raise TypeError(f"grad_func must be callable, got {type(grad_func).__name__}")
        self._name = name
        self._grad_func = grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{self._name}_output", tuple(self._data_shapes[0].shape))]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Keep scores and, in train mode, labels."""
        self._scores = data_batch.data[0]
        label = getattr(data_batch, "label", None)
        if (self.for_training if is_train is None else is_train) and label:
            self._labels = label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The scores."""
        return [self._scores] if merge_multi_context else [[self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradient of the scores; a loss takes no gradient itself."""
        if out_grads is not None:
            raise ValueError("For a loss module, out_grads should be None")
        if not self.for_training:
            raise ModuleStateError("PythonLossModule.backward: the module was bound with for_training=False")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None:
            raise NotImplementedError(
                f"{type(self).__name__} needs grad_func=, or a subclass that defines _backward_impl()."
            )
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else nd_array(grad)

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        """The gradient of the scores."""
        return [self._scores_grad] if merge_multi_context else [[self._scores_grad]]
