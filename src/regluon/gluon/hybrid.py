"""HybridBlock: a block that runs op by op, or as a compiled graph after ``hybridize()``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import ndarray as nd_module
from .. import symbol as symbol_module
from ..array import NDArray
from ..base import dtypes
from ..base.memory import keep_freed_memory
from ..runtime.handles import kinds
from ..runtime.state import State, state
from ..symbol import Symbol
from .block import Block
from .cached_graph import CachedGraph, tracing
from .calling import arrays_for, blocks_below, config_scope, first_value, in_kind_of, is_users, level_outside
from .constraints import OptConstraint, get_optimization_constraints, set_optimization_constraints
from .epoch import clock
from .flags import check_flags, checked, options_of
from .parameter_support import shape_is_known
from .recorded import remember
from .recording import compose, infer_from
from .structure import Keywords, flatten

__all__ = ["HybridBlock"]


class HybridBlock(Block):
    """A block that can be hybridized: recorded once as a graph, compiled, and run without Python after that.

    Write ``forward(self, x)`` (2.0 style) or ``hybrid_forward(self, F, x, weight)`` (1.x style). Children
    must be HybridBlocks too.
    """

    OptConstraint = OptConstraint
    # Whether the computation is a graph from the start, so that it is compiled without hybridize().
    _is_a_graph = False

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        attributes = self.__dict__
        attributes["_active"] = False
        attributes["_flags"] = {}
        attributes["_cached"] = None
        attributes["_ready"] = -1
        attributes["_op_hooks"] = []
        attributes["_last_signature"] = None

    # Structure ----------------------------------------------------------------------

    def register_child(self, block: Any, name: str | None = None) -> None:
        """Add a child, which must be a HybridBlock.

        Raises
        ------
        ValueError
            For a child that is no HybridBlock.
        """
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"Children of HybridBlock must also be HybridBlock, but {block} has type {type(block)}. If "
                "you are using Sequential, please try HybridSequential instead."
            )
        super().register_child(block, name)
        self._structure_changed("change the children")

    def __delattr__(self, name: str) -> None:
        changed = name in self._children
        super().__delattr__(name)
        if changed:
            self._structure_changed("change the children")

    def _structure_changed(self, what: str) -> None:
        attributes = self.__dict__
        attributes["_cached"] = None
        if attributes.get("_active"):
            warnings.warn(
                f"{self.name} was hybridized: hybridization is switched off by a change of its structure "
                f"({what}). Call hybridize() again",
                stacklevel=level_outside(),
            )
            attributes["_active"] = False

    def cast(self, dtype: Any) -> None:
        """Convert all parameters to ``dtype``; a hybridized block must be hybridized again."""
        self._structure_changed("cast to another data type")
        for block in blocks_below(self):
            block.__dict__.update(_active=False, _cached=None)
        super().cast(dtype)

    def share_parameters(self, shared: Any) -> Block:
        """Use the parameters of another block; see `Block.share_parameters`."""
        return super().share_parameters(shared)

    # Hybridizing ----------------------------------------------------------------------

    def hybridize(
        self,
        active: bool = True,
        partition_if_dynamic: Any = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        *,
        backend: str | None = None,
        backend_opts: dict[str, Any] | None = None,
        clear: bool = True,
        on_value_read: str = "error",
        recompute: bool = False,
        **kwargs: Any,
    ) -> None:
        """Record the block as a graph at its next call, here and in all children.

        Parameters
        ----------
        active : bool
            Switch on or off.
        partition_if_dynamic : bool
            Run operators whose output shape depends on data between compiled parts; a string here names a
            backend, as in 1.9.1.
        static_alloc : bool
            Keep freed memory with this process, for the next call, instead of giving it back to the system.
            Faster for large networks; the setting lasts as long as the process (Linux with glibc only).
        static_shape : bool
            Measure which kernels are fastest for the exact shapes at their second call; at the first on a GPU
            or for values above 32 MB, whose memory that saves; ahead of it with `optimize_for`.
        inline_limit, forward_bulk_size, backward_bulk_size : int
            Accepted for compatibility: bounds on segment sizes of the original's engine.
        backend : str, optional
            A registered backend: one that rewrites the graph, or an engine that runs predictions
            ("inductor", "onnxruntime", "openvino", or "auto", which times them; see docs/backends.md).
        backend_opts : dict, optional
            Options for the backend.
        clear : bool
            Drop graphs recorded before.
        on_value_read : {"error", "break"}
            What to do when Python code asks for a value while recording: an error that names the line, or run
            this block op by op (its children stay compiled).
        recompute : bool
            In training, keep few of the values inside the graph and compute the others again in backward:
            less memory for about one more forward pass, and the same gradients.
        **kwargs
            With a backend, options for it, as in 1.9.1.

        Raises
        ------
        TypeError
            For an unknown flag; the message names the nearest.
        ValueError
            For an unknown backend, or a flag with a value of another type.
        ImportError
            For a backend whose package is not installed; the message says how to install it.
        """
        if isinstance(partition_if_dynamic, str):
            backend, partition_if_dynamic = partition_if_dynamic, True
        check_flags(kwargs, backend)
        options = options_of(backend_opts, kwargs, backend)
        flags = checked(
            active=active,
            partition_if_dynamic=partition_if_dynamic,
            static_alloc=static_alloc,
            static_shape=static_shape,
            inline_limit=inline_limit,
            forward_bulk_size=forward_bulk_size,
            backward_bulk_size=backward_bulk_size,
            on_value_read=on_value_read,
            recompute=recompute,
        )
        active = flags.pop("active")
        if backend is not None:
            from ..exec import backends

            backends.get(backend).check(options)
        if active and flags["static_alloc"]:
            keep_freed_memory()
        if active and (self._forward_hooks or self._forward_pre_hooks):
            warnings.warn(
                f'"{self.name}" is being hybridized while still having forward hook/pre-hook. If '
                f'"{self.name}" is a child of HybridBlock, its parent runs op by op so that the hooks see '
                "every call.",
                stacklevel=2,
            )
        passed = dict(flags)
        chain = [] if backend is None else [(backend, options)]
        flags |= {"backend": backend, "backend_opts": options, "backend_chain": chain}
        self.__dict__.update(_active=active, _flags=flags)
        if clear or not active:
            self.__dict__["_cached"] = None
        clock.tick()
        for child in self._children.values():
            child.hybridize(active, **passed)

    def optimize_for(
        self,
        x: Any,
        *args: Any,
        backend: str | None = None,
        clear: bool = False,
        partition_if_dynamic: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        backend_opts: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the graph for these inputs and let a backend rewrite it.

        No kernel runs, unless ``static_shape`` is set: then the kernels for these shapes are measured,
        weights are packed, and the next prediction with them runs at full speed. ``export`` may follow at
        once. What earlier calls of optimize_for asked for goes first, unless ``clear`` is given; other
        keywords are options of the backend.

        Raises
        ------
        TypeError
            For an unknown flag; the message names the nearest.
        ValueError
            For an unknown backend; the message lists those there are. For a flag with a value of another
            type.
        """
        check_flags(kwargs, backend, "optimize_for")
        options = options_of(backend_opts, kwargs, backend, "optimize_for")
        before = self._flags.get("backend_chain", []) if self._active else []
        chain = [] if clear else list(before)
        if backend is not None and (backend, options) not in chain[-1:]:
            chain.append((backend, options))
        self.hybridize(
            True,
            partition_if_dynamic,
            static_alloc,
            static_shape,
            inline_limit,
            forward_bulk_size,
            backward_bulk_size,
            backend=backend,
            backend_opts=options,
            clear=clear or chain != before,
            on_value_read=self._flags.get("on_value_read", "error"),
            recompute=bool(self._flags.get("recompute")),
        )
        self._flags["backend_chain"] = chain
        cached = self._graph_cache()
        recorded = cached.prepare((x, *args))
        if self._flags["static_shape"]:
            cached.compile(recorded, (x, *args))

    @property
    def backend_reports(self) -> list[Any]:
        """What an engine (``backend="auto"``, ``"onnxruntime"``, ...) did so far, one `Report` for each plan.

        Empty before the first call, and where no engine was asked for.
        """
        cached = self.__dict__["_cached"]
        return [] if cached is None else list(cached.reports)

    def explain(self, *args: Any, train: bool = False, **kwargs: Any) -> Any:
        """What happens in a call with these arguments: graph, passes, kernels with their times, memory.

        Parameters
        ----------
        *args, **kwargs
            Those of the call.
        train : bool
            The call under ``autograd.record()``, with a backward.

        Returns
        -------
        Explanation
            Prints as tables; `to_dict` gives everything as plain values, `to_dot` a drawing. Times are
            medians of a few runs; random states, moving statistics and what the block remembers stay as
            they are.

        Raises
        ------
        TypeError
            If there is no array among the arguments.
        MXNetError
            As the call itself, where it cannot be recorded.
        """
        from .explain import explain

        return explain(self, self._bind(args, kwargs) if kwargs else args, train)

    def _graph_cache(self) -> CachedGraph:
        cached = self.__dict__["_cached"]
        if cached is None:
            cached = self.__dict__["_cached"] = CachedGraph(self)
        return cached  # type: ignore[no-any-return]

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Call ``callback(name, operator, array)`` for every operator's outputs once the block is hybridized.

        With ``monitor_all`` inputs are reported too, before the outputs of their operator. Names are
        ``<node>_output`` and ``<node>_<input>``. Children get the hook too, for when they run by themselves.
        """
        self._op_hooks.append((callback, bool(monitor_all)))
        super().register_op_hook(callback, monitor_all)
        clock.tick()

    # Running ----------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cached = self._cached
        shortcut = None if cached is None else cached.shortcut
        if shortcut is not None and len(args) == 1 and not kwargs:
            hooked = self._forward_hooks or self._forward_pre_hooks
            if state.plain and not state.training and not hooked:
                out = shortcut.call(args[0])
                if out is not None:
                    return out
        if kwargs:
            args = self._bind(args, kwargs)
        tracer = state.tracer
        if tracer is not None:
            return self._call_recorded(tracer, args)
        if args and isinstance(first_value(args), Symbol):
            return compose(self, args)
        if not self._active or self._runs_python():
            return self._call_imperative(args)
        if self._forward_pre_hooks:
            for hook in list(self._forward_pre_hooks.values()):
                hook(self, args)
        profiler = State.profiler
        begin = 0 if profiler is None else profiler.now()
        out = self._graph_cache()(args)
        if profiler is not None:
            profiler.call(self.name, begin)
        if self._forward_hooks:
            for hook in list(self._forward_hooks.values()):
                hook(self, args, out)
        return out

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Keyword arguments as positional ones, by the signature of forward or hybrid_forward."""
        if self._is_symbolic_style():
            signature = inspect.signature(self.hybrid_forward)
            parameters = list(signature.parameters.values())[1:]
            own = set(self._reg_params)
            signature = signature.replace(parameters=[p for p in parameters if p.name not in own])
        else:
            signature = inspect.signature(self.forward)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from error
        last = max(
            (place for place, name in enumerate(signature.parameters) if name in bound.arguments), default=0
        )
        bound.apply_defaults()
        if bound.kwargs:
            # Keywords that have no place go last, as one argument.
            return (*bound.args, Keywords(bound.kwargs))
        # No defaults behind the last given argument: the call is that without keywords.
        return bound.args[: max(last + 1, len(args))]

    def _forward(self, args: tuple[Any, ...], function: Any = None) -> Any:
        call = self.forward if function is None else partial(function, self)
        if args and type(args[-1]) is Keywords:
            return call(*args[:-1], **args[-1])
        return call(*args)

    def _recorded_forward(self, args: Any) -> Any:
        """What one graph of this block holds."""
        return self._forward(args, HybridBlock.forward if self._runs_python() else None)

    @classmethod
    def _runs_python(cls) -> bool:
        """Whether a forward of the user's stands beside hybrid_forward: it runs on every call, as in 1.x."""
        return (
            cls.hybrid_forward is not HybridBlock.hybrid_forward
            and cls.forward is not HybridBlock.forward
            and is_users(cls.forward)
        )

    def _call_imperative(self, args: tuple[Any, ...]) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        out = self._imperative(args)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, out)
        return out

    def _imperative(self, args: tuple[Any, ...]) -> Any:
        """Run forward's Python, without hooks."""
        if self._ready != len(self._reg_params):
            self._prepare_parameters(args)
        out = self._forward(args)
        if args:
            first = first_value(args)
            if type(out) is not type(first):
                out = in_kind_of(out, first)
        if self._last_signature is None and (self._active or self._level == 1):
            # In 1.x a block that ran may be exported; in 2.0 it must have been hybridized.
            remember(self, args)
        return out

    def _prepare_parameters(self, args: tuple[Any, ...]) -> None:
        """Finish the deferred initialisation of this block's own parameters."""
        own = list(self._reg_params.values())
        if any(parameter._deferred_init for parameter in own):
            # Several threads may make the first call.
            with tracing:
                self._infer_shapes(args)
                for parameter in own:
                    parameter._finish_deferred_init()
        if all(parameter._data is not None for parameter in own):
            self.__dict__["_ready"] = len(self._reg_params)

    def _infer_shapes(self, args: tuple[Any, ...]) -> None:
        unknown = [p for p in self._reg_params.values() if p._shape is None or any(s <= 0 for s in p._shape)]
        if unknown:
            self.infer_shape(*args)
        if type(self).infer_type is not HybridBlock.infer_type:
            self.infer_type(*args)

    def _tell_parameters(self, tracer: Any, args: tuple[Any, ...]) -> None:
        """Let a user's infer_shape and infer_type speak before this block is recorded.

        Sizes that they read say nothing about the graph: they become no guards.
        """
        cls = type(self)
        shapes = cls.infer_shape is not HybridBlock.infer_shape
        types = cls.infer_type is not HybridBlock.infer_type
        if not (shapes or types) or all(p._data is not None for p in self._reg_params.values()):
            return
        flat: list[Any] = []
        flatten(args, flat)
        if any(tracer.entry_of(value).spec is None for value in flat):
            return
        guards, reads = len(tracer.guards), len(tracer.reads)
        if shapes and any(not shape_is_known(p._shape) for p in self._reg_params.values()):
            self.infer_shape(*args)
        if types:
            self.infer_type(*args)
        del tracer.guards[guards:], tracer.reads[reads:]

    def infer_shape(self, *args: Any) -> None:
        """Set the shapes of this block's parameters from inputs; may be overridden.

        Raises
        ------
        RuntimeError
            If the graph does not say every shape.
        """
        if state.tracer is not None:
            # The graph that is being recorded will tell.
            return
        infer_from(self, args)
        unknown = {
            name: parameter.shape
            for name, parameter in self._reg_params.items()
            if parameter._shape is None or any(size <= 0 for size in parameter._shape)
        }
        if unknown:
            listed = ", ".join(f"{name} ({shape})" for name, shape in unknown.items())
            raise RuntimeError(
                f"{self.name} has parameters with unknown shape: {listed}. You need to either specify the "
                f"shape in __init__ or implement {type(self).__name__}.infer_shape to set the parameter "
                "shapes based on the first input."
            )

    def infer_type(self, *args: Any) -> None:
        """Set the floating types of all parameters from the first input's; may be overridden.

        An input of integers (indices) says nothing about parameters.
        """
        first = first_value(args)
        if isinstance(first, NDArray) and dtypes.to_torch(first.dtype).is_floating_point:
            for parameter in self.collect_params().values():
                if dtypes.to_torch(parameter.dtype).is_floating_point:
                    parameter.dtype = first.dtype

    def _call_recorded(self, tracer: Any, args: tuple[Any, ...]) -> Any:
        """Inside a trace: the parent records this block's operators, under this block's path."""
        if tracer.breakable and (self._forward_hooks or self._forward_pre_hooks):
            tracer.give_up(f"{self.name} has forward hooks, which are to see every call")
        names = tracer.names
        names.prefixes.append(tracer.prefix_of(self))
        try:
            if not self._is_symbolic_style() and is_users(type(self).forward):
                args = arrays_for(args)
            self._tell_parameters(tracer, args)
            return self._forward(args)
        finally:
            names.prefixes.pop()

    def _is_symbolic_style(self) -> bool:
        cls = type(self)
        return cls.hybrid_forward is not HybridBlock.hybrid_forward and cls.forward is HybridBlock.forward

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs. Override this, or `hybrid_forward`, which this calls with F and the
        parameters.

        Raises
        ------
        NotImplementedError
            If the class overrides neither.
        """
        if type(self).hybrid_forward is HybridBlock.hybrid_forward:
            raise NotImplementedError(
                f"{type(self).__name__} defines neither forward(self, x, ...) nor hybrid_forward(self, F, x, "
                "...): override one of them to say what the block computes"
            )
        symbolic = isinstance(x, Symbol)
        F = symbol_module if symbolic else nd_module
        if state.tracer is None:
            if self._active and self._runs_python():
                return self._graph_cache()((x, *args, Keywords(kwargs)) if kwargs else (x, *args))
            if self._ready != len(self._reg_params):
                self._prepare_parameters((x, *args))
            context = x.context if isinstance(x, NDArray) else None
            with config_scope(self):
                params = {
                    name: parameter._data[0]
                    if parameter._data is not None
                    and len(parameter._data) == 1
                    and parameter._contexts[0] is context
                    else parameter.data(context)
                    for name, parameter in self._reg_params.items()
                }
                return self.hybrid_forward(F, x, *args, **params, **kwargs)
        tracer = state.tracer
        before = tracer.symbol_style, tracer.symbol_np
        tracer.symbol_style = symbolic
        tracer.symbol_np = type(x) is kinds.np_symbol
        try:
            params = {
                name: tracer.parameter_handle(parameter) for name, parameter in self._reg_params.items()
            }
            return self.hybrid_forward(F, x, *args, **params, **kwargs)
        finally:
            tracer.symbol_style, tracer.symbol_np = before

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs in the 1.x style: ``F`` is mx.nd or mx.sym, parameters come as keywords."""
        raise NotImplementedError(f"{type(self).__name__} defines no hybrid_forward(self, F, x, ...)")

    # Files ----------------------------------------------------------------------

    def export(
        self, path: Any, epoch: int = 0, remove_amp_cast: bool = True, format: str | None = None
    ) -> Any:
        """Write ``<path>-symbol.json`` and ``<path>-<epoch, 4 digits>.params``.

        Parameters
        ----------
        path : str or None
            Where; None gives the Symbol and a dict of parameters instead of files.
        epoch : int
            Number in the file's name.
        remove_amp_cast : bool
            Leave out the casts of automatic mixed precision.
        format : {None, "npz"}
            ``"npz"`` writes the parameters in the container of 2.0.

        Returns
        -------
        tuple
            The two file names, or (Symbol, dict).

        Raises
        ------
        RuntimeError
            If the block has not run yet.
        """
        from . import files

        return files.export(self, path, epoch, remove_amp_cast, format)

    def reset_ctx(self, ctx: Any = None, *, device: Any = None) -> None:
        """Move all parameters, and constants made by a backend, to other contexts."""
        super().reset_ctx(ctx, device=device)
        self.__dict__["_cached"] = None

    # Constraints ----------------------------------------------------------------------

    get_optimization_constraints = staticmethod(get_optimization_constraints)
    set_optimization_constraints = staticmethod(set_optimization_constraints)

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        import copy

        twin = self.__class__.__new__(self.__class__)
        memory[id(self)] = twin
        for key, value in self.__dict__.items():
            twin.__dict__[key] = None if key == "_cached" else copy.deepcopy(value, memory)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {key: (None if key == "_cached" else value) for key, value in self.__dict__.items()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
