"""`SequentialModule`: modules one after the other."""

from __future__ import annotations

import logging
from typing import Any

from ..io import DataBatch, DataDesc
from .base_module import DEFAULT_INITIALIZER, BaseModule, ModuleStateError

__all__ = ["SequentialModule"]


class SequentialModule(BaseModule):
    """Modules one after the other: each takes the outputs of the one before as its inputs."""

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger)
        self._modules: list[Any] = []
        self._metas: list[dict[str, Any]] = []
        self._label_shapes: Any = None

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Append a module.

        Parameters
        ----------
        module : BaseModule
            The module.
        take_labels : bool
            Whether it gets the labels.
        auto_wiring : bool
            Whether its inputs are the outputs before in their order, whatever their names.

        Returns
        -------
        SequentialModule
            Itself, for the next ``add``.

        Raises
        ------
        ValueError
            For another keyword.
        """
        for key in kwargs:
            if key not in (self.META_TAKE_LABELS, self.META_AUTO_WIRING):
                raise ValueError(f'Unknown meta "{key}", a typo? Known are take_labels and auto_wiring')
        self._modules.append(module)
        self._metas.append(kwargs)
        # The chain is another one now.
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    def _takes_labels(self, place: int) -> bool:
        return bool(self._metas[place].get(self.META_TAKE_LABELS))

    # Descriptions ----------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        names: list[str] = self._modules[0].data_names if self._modules else []
        return names

    @property
    def output_names(self) -> list[str]:
        names: list[str] = self._modules[-1].output_names if self._modules else []
        return names

    @property
    def data_shapes(self) -> Any:
        self._require("data_shapes")
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        self._require("label_shapes")
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        self._require("output_shapes")
        return self._modules[-1].output_shapes

    # Parameters ----------------------------------------------------------------------

    def get_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._require("get_params", params=True)
        arguments: dict[str, Any] = {}
        auxiliary: dict[str, Any] = {}
        for module in self._modules:
            own_arguments, own_auxiliary = module.get_params()
            arguments.update(own_arguments)
            auxiliary.update(own_auxiliary)
        return arguments, auxiliary

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Make the first values of all modules' parameters; see `Module.init_params`.

        Raises
        ------
        ValueError
            When two modules have a parameter of the same name.
        """
        if self.params_initialized and not force_init:
            return
        self._require("init_params")
        for module in self._modules:
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        owner: dict[str, int] = {}
        for place, module in enumerate(self._modules):
            for name in (name for group in module.get_params() for name in group):
                if name in owner:
                    raise ValueError(
                        f"Duplicated parameter names: {name} is in module {place} "
                        f"({type(module).__name__}) and in module {owner[name]}; rename one"
                    )
                owner[name] = place
        self.params_initialized = True

    # Binding ----------------------------------------------------------------------

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
        """Bind all modules; ``shared_module`` is refused, the rest is as in `Module.bind`."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise ValueError("bind: inputs_need_grad=True needs for_training=True")
        if shared_module is not None:
            raise ValueError("SequentialModule.bind: shared_module is not for chains of modules")
        if not self._modules:
            raise ModuleStateError("SequentialModule.bind: add modules before")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._label_shapes = label_shapes
        shapes = data_shapes
        for place, module in enumerate(self._modules):
            if self._metas[place].get(self.META_AUTO_WIRING):
                names = module.data_names
                if len(names) != len(shapes):
                    raise ValueError(f"module {place} has {len(names)} inputs, and {len(shapes)} come to it")
                shapes = [DataDesc(name, given[1]) for name, given in zip(names, shapes, strict=True)]
            module.bind(
                data_shapes=shapes,
                label_shapes=label_shapes if self._takes_labels(place) else None,
                for_training=for_training,
                # All but the first pass gradients on.
                inputs_need_grad=for_training and (inputs_need_grad or place > 0),
                force_rebind=force_rebind,
                grad_req=grad_req,
            )
            shapes = module.output_shapes
        if not any(self._takes_labels(place) for place in range(len(self._modules))):
            self._label_shapes = None
        self.binded = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make an optimizer for each module; see `Module.init_optimizer`."""
        self._require("init_optimizer", params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        self.optimizer_initialized = True

    def install_monitor(self, mon: Any) -> None:
        self._require("install_monitor")
        for module in self._modules:
            module.install_monitor(mon)

    # Single steps ----------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of all modules in turn."""
        self._require("forward", params=True)
        batch = data_batch
        for place, module in enumerate(self._modules):
            if place > 0:
                outputs = self._modules[place - 1].get_outputs()
                others = (getattr(data_batch, name, None) for name in ("label", "pad", "index"))
                batch = DataBatch(outputs, *others)
            module.forward(batch, is_train=is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients of all modules from the last to the first."""
        self._require("backward", params=True)
        for place in range(len(self._modules) - 1, -1, -1):
            self._modules[place].backward(out_grads)
            if place > 0:
                out_grads = self._modules[place].get_input_grads()

    def update(self) -> None:
        self._require("update", params=True, optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        self._require("get_outputs", params=True)
        return self._modules[-1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        self._require("get_input_grads", params=True)
        if not self.inputs_need_grad:
            raise ModuleStateError("SequentialModule.get_input_grads: bind with inputs_need_grad=True")
        return self._modules[0].get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs of the modules that take labels to a metric."""
        self._require("update_metric", params=True)
        for place, module in enumerate(self._modules):
            if self._takes_labels(place):
                module.update_metric(eval_metric, labels, pre_sliced)
