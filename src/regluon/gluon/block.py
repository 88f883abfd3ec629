"""Block: the base of everything that has parameters and children. HybridBlock and SymbolBlock build on it."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base import config
from . import summaries
from .epoch import clock
from .flags import check_flags
from .parameter import Parameter, ParameterDict
from .scope import BlockScope, hint_of
from .utils import HookHandle

__all__ = ["Block", "HybridBlock", "SymbolBlock"]


class Block:
    """A part of a network: parameters, child blocks, and a ``forward``.

    Blocks and parameters assigned as attributes are registered. Parameter names follow the API level that
    was in force when the block was made: prefixes (``dense0_weight``) at level 1, paths (``0.weight``) at 2.

    Parameters
    ----------
    prefix : str, optional
        Prefix of the parameters' names at level 1; made from the class name and a counter by default.
    params : ParameterDict, optional
        Parameters to share.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Attributes are set by name, past __setattr__."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        attributes = self.__dict__
        attributes["_level"] = config.api_level()
        attributes["_empty_prefix"] = prefix == ""
        if self._level == 1:
            full, own = BlockScope.create(prefix, params, hint_of(self))
        else:
            full = prefix or ""
            own = ParameterDict(full if params is None else params.prefix, params)
        attributes["_prefix"] = full
        attributes["_params"] = own
        attributes["_name"] = full[:-1] if full.endswith("_") else (full or hint_of(self))
        attributes["_scope"] = BlockScope(self)
        attributes["_children"] = OrderedDict()
        attributes["_reg_params"] = {}
        attributes["_forward_hooks"] = OrderedDict()
        attributes["_forward_pre_hooks"] = OrderedDict()

    # Attributes ----------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        existing = self.__dict__.get(name)
        if existing is not None and isinstance(existing, (Parameter, Block)):
            if not isinstance(value, type(existing)) and not (
                isinstance(existing, Block) and isinstance(value, Block)
            ):
                raise TypeError(
                    f"Changing attribute type for {name} from {type(existing)} to {type(value)} is not "
                    "allowed: delete the attribute first, or use another name"
                )
        if isinstance(value, Block):
            self._check_initialized(name)
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            self._check_initialized(name)
            self._register_parameter(name, value)
        clock.tick()
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._children.pop(name, None)
        self._reg_params.pop(name, None)
        clock.tick()
        object.__delattr__(self, name)

    def _check_initialized(self, name: str) -> None:
        if "_children" not in self.__dict__:
            raise RuntimeError(
                f"{type(self).__name__}.{name} is assigned before Block.__init__ ran: call "
                f"super().__init__() first"
            )

    def _register_parameter(self, name: str, parameter: Parameter) -> None:
        known = self._reg_params.get(name)
        if (
            known is not None
            and known is not parameter
            and self._level == 1
            and parameter.name in self._params
        ):
            raise ValueError(
                f"the attribute {name} of {type(self).__name__} is a parameter already; choose another name"
            )
        self._reg_params[name] = parameter
        if self._level == 1 and parameter.name not in self._params:
            if not parameter.name.startswith(self._params.prefix) and parameter._structural_name is None:
                parameter.name = self._params.prefix + parameter.name
            dict.__setitem__(self._params, parameter.name, parameter)
        if self._level >= 2 and parameter not in self._params.values():
            dict.__setitem__(self._params, name, parameter)

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add a child block; attributes that are blocks are added by themselves."""
        if name is None:
            name = str(len(self._children))
        self._children[name] = block
        clock.tick()

    @property
    def prefix(self) -> str:
        """Prefix of the parameters' names (level 1)."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without its underscore, or the class in lower case."""
        return self._name

    @property
    def params(self) -> ParameterDict:
        """This block's own parameters, without those of its children."""
        return self._params

    def name_scope(self) -> BlockScope:
        """The scope in which children get names below this block's (level 1; without effect at level 2)."""
        return self._scope

    def __repr__(self) -> str:
        rows = "\n".join(f"  ({name}): {_indented(repr(child))}" for name, child in self._shown_children())
        return f"{type(self).__name__}(\n{rows}\n)"

    def _shown_children(self) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self.__dict__.items() if isinstance(value, Block)]

    # Parameters ----------------------------------------------------------------------

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The parameters of this block and its children, by name.

        Parameters
        ----------
        select : str, optional
            A regular expression; names that it matches at their start are taken. It may use either kind of
            name.
        """
        self._warn_unregistered()
        result = ParameterDict(self._params.prefix)
        result.structural = self._level >= 2
        pattern = None if select is None else re.compile(select)
        structural = self._collect_with_prefix()
        if self._level >= 2:
            for path, parameter in structural.items():
                parameter._structural_name = path
                if pattern is None or pattern.match(path) or pattern.match(parameter.name):
                    dict.__setitem__(result, path, parameter)
        else:
            paths = {id(parameter): path for path, parameter in structural.items()}
            for name, parameter in self._collect_full().items():
                path = paths.get(id(parameter), name)
                parameter._structural_name = path
                if pattern is None or pattern.match(name) or pattern.match(path):
                    dict.__setitem__(result, name, parameter)
        if pattern is not None and not result:
            warnings.warn(f"collect_params({select!r}) matches no parameter of {self.name}", stacklevel=2)
        return result

    def _collect_full(self) -> dict[str, Parameter]:
        result: dict[str, Parameter] = dict(self._params)
        for child in self._children.values():
            result.update(child._collect_full())
        return result

    def _collect_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by structural name."""
        start = f"{prefix}." if prefix else ""
        result = {start + name: parameter for name, parameter in self._reg_params.items()}
        known = {id(parameter) for parameter in result.values()}
        for name, parameter in self._params.items():
            if id(parameter) not in known:
                short = name[len(self._params.prefix) :] if name.startswith(self._params.prefix) else name
                result.setdefault(start + short, parameter)
        for name, child in self._children.items():
            result.update(child._collect_with_prefix(start + name))
        return result

    _collect_params_with_prefix = _collect_with_prefix

    def _warn_unregistered(self) -> None:
        """Blocks in lists and dicts are not registered: say so."""
        children = {id(child) for child in self._children.values()}

        def missing(value: Any) -> bool:
            if isinstance(value, (list, tuple)):
                return any(missing(item) for item in value)
            if isinstance(value, dict):
                return any(missing(item) for item in value.values())
            return isinstance(value, Block) and id(value) not in children

        for key, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and not key.startswith("__") and key != "_children":
                if missing(value):
                    warnings.warn(
                        f'"{self.name}.{key}" is an unregistered container with Blocks. Their parameters '
                        "are not collected: register them with register_child() or use nn.Sequential",
                        stacklevel=3,
                    )

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        device: Any = None,
    ) -> None:
        """Initialize all parameters.

        Parameters
        ----------
        init : Initializer or str, optional
            For parameters without one of their own; Uniform(0.07) by default.
        ctx, device : Context or list of Context, optional
            Where; the current context by default.
        verbose : bool
            Print each parameter's initializer.
        force_reinit : bool
            Initialize again what is initialized.
        """
        from .. import initializer

        if init is None:
            init = initializer.Uniform()
        else:
            init = initializer.create(init)
        if verbose and hasattr(init, "set_verbosity"):
            init.set_verbosity(verbose=verbose)
        for parameter in _unique(self.collect_params().values()):
            parameter.initialize(None, ctx if ctx is not None else device, init, force_reinit=force_reinit)

    def cast(self, dtype: Any) -> None:
        """Convert all parameters to ``dtype``."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self.params.values():
            parameter.cast(dtype)
        clock.tick()

    def zero_grad(self) -> None:
        """Fill all gradients with zeros."""
        for parameter in _unique(self.collect_params().values()):
            parameter.zero_grad()

    def reset_ctx(self, ctx: Any = None, *, device: Any = None) -> None:
        """Move all parameters to other contexts."""
        for parameter in _unique(self.collect_params().values()):
            parameter.reset_ctx(ctx if ctx is not None else device)
        clock.tick()

    def reset_device(self, device: Any = None, *, ctx: Any = None) -> None:
        """Move all parameters to other devices."""
        self.reset_ctx(device if device is not None else ctx)

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute, such as ``grad_req``, on all parameters."""
        for parameter in _unique(self.collect_params().values()):
            setattr(parameter, name, value)

    def share_parameters(self, shared: Any) -> Block:
        """Use the parameters of another block, by structural name.

        Parameters
        ----------
        shared : dict of Parameter
            What ``collect_params()`` of the other block gives.

        Returns
        -------
        Block
            This block.
        """
        if not isinstance(shared, dict):
            raise ValueError(
                f"share_parameters expects the dict that collect_params() gives; received {type(shared)}"
            )
        by_path = {}
        for key, parameter in shared.items():
            by_path[key] = parameter
            if parameter._structural_name:
                by_path.setdefault(parameter._structural_name, parameter)
        self._share(by_path, "")
        self._structure_changed("share parameters")
        clock.tick()
        return self

    def _structure_changed(self, what: str) -> None:
        """For HybridBlock: graphs recorded before are of no use now."""

    def _share(self, shared: dict[str, Parameter], prefix: str) -> None:
        for name in list(self._reg_params):
            parameter = shared.get(prefix + name)
            if parameter is not None:
                old = self._reg_params[name]
                for key in [key for key, value in self._params.items() if value is old]:
                    dict.__delitem__(self._params, key)
                self._reg_params[name] = parameter
                key = parameter.name if self._level == 1 else name
                dict.__setitem__(self._params, key, parameter)
                object.__setattr__(self, name, parameter)
        for name, child in self._children.items():
            child._share(shared, f"{prefix}{name}.")

    # Files ----------------------------------------------------------------------

    def save_parameters(self, filename: Any, deduplicate: bool = False, format: str | None = None) -> None:
        """Write the parameters under their structural names; see `gluon.files.save_parameters`."""
        from . import files

        files.save_parameters(self, filename, deduplicate, format)

    def load_parameters(
        self,
        filename: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        device: Any = None,
    ) -> None:
        """Read parameters from a file; see `gluon.files.load_parameters`."""
        from . import files

        files.load_parameters(
            self,
            filename,
            ctx if ctx is not None else device,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
        )

    def load_dict(
        self,
        param_dict: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        device: Any = None,
    ) -> None:
        """Take parameters from a dict of arrays by structural (or full) name."""
        from . import files

        files.load_dict(
            self,
            param_dict,
            ctx if ctx is not None else device,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
        )

    def save_params(self, filename: Any) -> None:
        """The old name of `save_parameters`, which it calls (full names at level 1)."""
        warnings.warn("save_params is deprecated; use save_parameters", DeprecationWarning, stacklevel=2)
        from . import files

        files.save_full_names(self, filename)

    def load_params(
        self, filename: Any, ctx: Any = None, allow_missing: bool = False, ignore_extra: bool = False
    ) -> None:
        """The old name of `load_parameters`, which it calls."""
        warnings.warn("load_params is deprecated; use load_parameters", DeprecationWarning, stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: str) -> None:
        """Write the structure (``<prefix>-model.json``) and the parameters (``<prefix>-model.params``)."""
        from . import files

        files.save_block(self, prefix)

    def load(self, prefix: str) -> None:
        """Read back what `save` wrote into a block of the same structure."""
        from . import files

        files.load_block(self, prefix)

    # Hooks ----------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call ``hook(block, inputs)`` before every forward; gives a handle to detach it."""
        handle = HookHandle()
        handle.attach(self._forward_pre_hooks, hook)
        clock.tick()
        return handle

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call ``hook(block, inputs, outputs)`` after every forward; gives a handle to detach it."""
        handle = HookHandle()
        handle.attach(self._forward_hooks, hook)
        clock.tick()
        return handle

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Call ``callback(name, operator, array)`` for operators of hybridized children."""
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call ``fn`` on every block below this one, then on this; gives this block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the hybrid blocks below this one."""
        check_flags(kwargs, kwargs.get("backend"))
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    # Running ----------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        out = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, out)
        return out

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; to be overridden."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no forward(self, ...): override it to say what the block computes"
        )

    def to_torch(self, *inputs: Any, check: bool = True, **tolerances: float) -> Any:
        """This block as a ``torch.nn.Module`` on the same parameters; see `torch_bridge.to_torch`."""
        from . import torch_bridge

        return torch_bridge.to_torch(self, *inputs, check=check, **tolerances)

    @staticmethod
    def from_torch(module: Any, *inputs: Any, check: bool = True, **tolerances: float) -> Any:
        """A ``torch.nn.Module`` as a block on the same parameters; see `torch_block.from_torch`."""
        from . import torch_block

        return torch_block.from_torch(module, *inputs, check=check, **tolerances)

    def summary(self, *inputs: Any) -> None:
        """Print a table of layers, output shapes and parameters for these inputs.

        Raises
        ------
        AssertionError
            If the block is hybridized: the layers inside are not called then.
        """
        summaries.print_summary(self, inputs)


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *("  " + line for line in rest)])


def _unique(values: Any) -> list[Any]:
    return list({id(value): value for value in values}.values())


from .hybrid import HybridBlock  # noqa: E402
from .symbol_block import SymbolBlock  # noqa: E402
