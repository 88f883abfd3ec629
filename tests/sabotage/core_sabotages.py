"""Sabotages of hybridizing, gradients, modes, layers and training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from breaking import FILES, HYBRID, LAYERS, SYMBOLS, TRAINING, Patch, change_kernel, sabotage, wrap

import regluon as mx
from regluon import gluon
from regluon.array import NDArray
from regluon.base import rng
from regluon.exec import training
from regluon.gluon import block, cached_graph, data, epoch, hybrid, parameter, trainer
from regluon.gluon import utils as gluon_utils
from regluon.ops.registry import get
from regluon.optimizer import optimizer as optimizers
from regluon.runtime import autograd, gradient, tracer
from regluon.symbol import executor

# Hybridizing ----------------------------------------------------------------------


@sabotage(HYBRID + "test_a_branch_on_a_shape_is_taken_anew")
def skip_the_retrace_on_a_broken_guard(patch: Patch) -> None:
    """A recorded graph is taken for every size."""
    patch.setattr(cached_graph.Recorded, "holds", lambda self, shapes: True)


@sabotage(HYBRID + "test_attributes_of_any_block_below_are_guarded")
def ignore_attributes(patch: Patch) -> None:
    """Attributes of blocks are no guards."""
    patch.setattr(cached_graph, "fingerprint", lambda block: ())


@sabotage(HYBRID + "test_attributes_of_any_block_below_are_guarded")
def skip_the_epoch_of_attributes(patch: Patch) -> None:
    """Assigning an attribute does not move the clock."""
    patch.setattr(epoch._Clock, "tick", lambda self: None)


@sabotage(HYBRID + "test_a_late_layer_far_below_is_seen", HYBRID + "test_a_replaced_child_is_seen")
def leave_the_graphs_of_ancestors(patch: Patch) -> None:
    """A change far below reaches neither the graphs nor the guards above it."""
    patch.setattr(cached_graph, "fingerprint", lambda block: (id(block),))
    patch.setattr(hybrid.HybridBlock, "_structure_changed", lambda self, what: None)


@sabotage(HYBRID + "test_a_branch_on_the_mode_is_not_frozen")
def share_graphs_between_modes(patch: Patch) -> None:
    """Train and predict mode use one graph."""
    inside = SimpleNamespace(training=False)

    class Frozen:
        def __getattr__(self, name: str) -> Any:
            return inside.training if name == "training" else getattr(autograd.state, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(autograd.state, name, value)

    patch.setattr(cached_graph, "state", Frozen())


@sabotage(HYBRID + "test_arithmetic_broadcasts_after_hybridize")
def write_elementwise_for_arithmetic(patch: Patch) -> None:
    """Arithmetic records elemwise_* operators, as 1.x did."""
    known = {"broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div"}
    known |= {"_npi_add", "_npi_subtract", "_npi_multiply", "_npi_true_divide"}

    def check(record: Any, self: Any, definition: Any, entries: Any, *rest: Any, **more: Any) -> Any:
        if definition.name in known and all(entry.spec is not None for entry in entries):
            shapes = {entry.spec.shape for entry in entries}
            if len(shapes) > 1:
                definition = get("elemwise_add")
        return record(self, definition, entries, *rest, **more)

    wrap(patch, tracer.Tracer, "record", check)


@sabotage(HYBRID + "test_hooks_of_children_run_on_every_call_with_arrays")
def drop_the_hooks_of_children(patch: Patch) -> None:
    """Blocks with hooks are recorded like others."""
    patch.setattr(cached_graph, "hooked_below", lambda block: False)
    patch.setattr(tracer.Tracer, "give_up", lambda self, reason: None)


@sabotage(
    HYBRID + "test_keywords_do_not_shift_in_the_older_style",
    HYBRID + "test_other_argument_patterns_get_other_graphs",
)
def lose_the_names_of_keyword_arguments(patch: Patch) -> None:
    """Keyword arguments are appended in the order of the call."""
    patch.setattr(hybrid.HybridBlock, "_bind", lambda self, args, kwargs: (*args, *kwargs.values()))


@sabotage(HYBRID + "test_nested_arguments_survive_export")
def flatten_the_results(patch: Patch) -> None:
    """Outputs come as one flat list."""
    patch.setattr(cached_graph, "regroup", lambda structure, flat, *numbers: list(flat))


@sabotage(HYBRID + "test_cast_after_use_then_export")
def skip_the_cast(patch: Patch) -> None:
    """Casting a parameter changes nothing."""
    patch.setattr(parameter.Parameter, "cast", lambda self, dtype: None)


@sabotage(HYBRID + "test_inputs_changed_in_place_inside_the_block")
def forget_that_views_share_memory(patch: Patch) -> None:
    """A write to a view inside a recorded block does not reach its base."""

    def set_alone(self: Any, entry: Any) -> None:
        self.entry, self.base = entry, None
        self.version += 1

    patch.setattr(tracer.TraceHandle, "set", set_alone)


@sabotage(HYBRID + "test_reading_a_value_is_an_error_with_file_and_line")
def make_read_values_constants(patch: Patch) -> None:
    """A value that Python reads while recording is a zero."""
    patch.setattr(tracer.Tracer, "read_value", lambda self, array, what: torch.zeros(1))


@sabotage(HYBRID + "test_a_misspelled_flag_is_refused_at_once")
def accept_any_flag(patch: Patch) -> None:
    """Unknown flags of hybridize are taken."""
    patch.setattr(block, "check_flags", lambda *arguments: None)
    patch.setattr(hybrid, "check_flags", lambda *arguments: None)


# Gradients ----------------------------------------------------------------------


@sabotage(TRAINING + "test_backward_twice_and_an_alias_as_head")
def keep_a_stale_gradient(patch: Patch) -> None:
    """A gradient that was written once is not overwritten."""

    def keep(fold: Any, array: Any, result: Any) -> None:
        if not array._grad._t.any():
            fold(array, result)

    wrap(patch, autograd, "_fold", keep)


@sabotage(
    TRAINING + "test_gradients_add_over_layers_and_calls",
    SYMBOLS + "test_an_executor_writes_and_adds_gradients",
)
def write_instead_of_add(patch: Patch) -> None:
    """grad_req "add" overwrites."""

    def overwrite(fold: Any, array: Any, result: Any) -> None:
        array._grad._t.zero_()
        fold(array, result)

    wrap(patch, autograd, "_fold", overwrite)
    wrap(
        patch,
        executor,
        "grad_requests",
        lambda f, *a: {k: v.replace("add", "write") for k, v in f(*a).items()},
    )


@sabotage(TRAINING + "test_backward_twice_and_an_alias_as_head")
def ignore_head_gradients(patch: Patch) -> None:
    """Backward starts from ones."""
    wrap(
        patch,
        autograd,
        "backward",
        lambda f, heads, head_grads=None, *rest, **kw: f(heads, None, *rest, **kw),
    )


@sabotage(TRAINING + "test_second_order_through_layers")
def forget_the_graph_of_gradients(patch: Patch) -> None:
    """create_graph is ignored."""
    wrap(patch, autograd, "grad", lambda f, *a, **kw: f(*a, **{**kw, "create_graph": False}))
    patch.setattr(mx.autograd, "grad", autograd.grad)


@sabotage(TRAINING + "test_in_place_while_recording_is_right")
def write_in_place_past_the_graph(patch: Patch) -> None:
    """Writes while recording change the values only."""

    def write(self: Any, key: Any, value: Any) -> None:
        value = value._t if isinstance(value, NDArray) else value
        self._t[key] = value

    patch.setattr(NDArray, "_recorded_write", write)


@sabotage(TRAINING + "test_a_stopped_gradient_is_zero")
def let_gradients_through_stopped_ones(patch: Patch) -> None:
    """BlockGrad passes the gradient."""
    patch.setattr(get("BlockGrad"), "gradient", "torch")
    patch.setattr(get("BlockGrad"), "function", lambda data: data * 1)


@sabotage(TRAINING + "test_frozen_parameters_stay")
def train_frozen_parameters(patch: Patch) -> None:
    """grad_req "null" is taken for "write"."""
    setter = parameter.Parameter.grad_req.fset
    assert setter is not None
    changed = parameter.Parameter.grad_req.setter(lambda self, request: setter(self, "write"))
    patch.setattr(parameter.Parameter, "grad_req", changed)


# Modes and random draws ----------------------------------------------------------------------


@sabotage(TRAINING + "test_moving_statistics_move_once_and_in_backward")
def commit_batch_norm_in_forward(patch: Patch) -> None:
    """Moving statistics change when the forward is recorded."""

    def now(original: Any, definition: Any, tensors: Any, outputs: Any, attrs: Any) -> Any:
        with torch.no_grad():
            auxiliary = [tensors[i] for i, name in enumerate(definition.inputs) if name in definition.aux]
            definition.commit(auxiliary, tuple(out.detach() for out in outputs), attrs)
        return outputs

    wrap(patch, gradient, "commit_on_backward", now)


@sabotage(TRAINING + "test_moving_statistics_move_once_and_in_backward")
def never_commit_batch_norm(patch: Patch) -> None:
    """Moving statistics never change."""
    patch.setattr(get("BatchNorm"), "commit", lambda auxiliary, outputs, attrs: None)


@sabotage(TRAINING + "test_two_forwards_then_two_backwards_commit_twice")
def commit_batch_norm_twice(patch: Patch) -> None:
    """Each backward commits two times."""

    def twice(commit: Any, *args: Any) -> None:
        commit(*args)
        commit(*args)

    wrap(patch, get("BatchNorm"), "commit", twice)
    # Training graphs do it by themselves.
    wrap(patch, training, "move_statistics", twice)


@sabotage(TRAINING + "test_moving_statistics_move_once_and_in_backward")
def commit_a_wrong_mean(patch: Patch) -> None:
    """The moving mean takes one and a half times the batch's."""

    def wrong(commit: Any, auxiliary: Any, outputs: Any, attrs: Any) -> None:
        commit(auxiliary, (outputs[0], outputs[1] * 1.5, *outputs[2:]), attrs)

    wrap(patch, get("BatchNorm"), "commit", wrong)


@sabotage(TRAINING + "test_dropout_masks")
def drop_in_predict_mode_too(patch: Patch) -> None:
    """Dropout ignores the train flag."""
    change_kernel(patch, "Dropout", _training=True)


@sabotage(TRAINING + "test_dropout_masks")
def share_one_draw(patch: Patch) -> None:
    """All random operators get the same draw."""
    patch.setattr(rng, "draw", lambda count=1: 12345)


@sabotage(FILES + "test_one_seed_reaches_shuffling_and_initializers")
def ignore_the_seed(patch: Patch) -> None:
    """mx.random.seed changes nothing."""
    patch.setattr(mx.random, "seed", lambda *args, **kw: None)


@sabotage(FILES + "test_one_seed_reaches_shuffling_and_initializers")
def never_shuffle(patch: Patch) -> None:
    """A random sampler goes in order."""
    patch.setattr(data.RandomSampler, "__iter__", lambda self: iter(range(len(self))))


# Layers ----------------------------------------------------------------------


@sabotage(LAYERS + "test_convolutions_pad_stride_dilate_and_group")
def ignore_the_padding_of_convolutions(patch: Patch) -> None:
    """Convolutions do not pad the second axis."""
    wrap(patch, get("Convolution"), "function", lambda f, *a, pad=(), **kw: f(*a, pad=(pad[0], 1), **kw))


@sabotage(LAYERS + "test_pooling_counts_padding_and_rounds")
def never_count_the_padding(patch: Patch) -> None:
    """Average pooling leaves the padding out."""
    change_kernel(patch, "Pooling", count_include_pad=False)


@sabotage(LAYERS + "test_flattening_keeps_the_order_of_channels")
def flatten_channels_last(patch: Patch) -> None:
    """Dense reads images with their channels last."""

    def last(kernel: Any, data: Any, *rest: Any, **kw: Any) -> Any:
        return kernel(data.movedim(1, -1).contiguous() if data.ndim == 4 else data, *rest, **kw)

    wrap(patch, get("FullyConnected"), "function", last)


@sabotage(LAYERS + "test_layer_norm_and_its_epsilon")
def use_a_usual_epsilon(patch: Patch) -> None:
    """LayerNorm ignores its epsilon."""
    change_kernel(patch, "LayerNorm", eps=1e-5)


@sabotage(LAYERS + "test_cross_entropy_takes_its_axis_and_labels")
def pick_along_the_last_axis(patch: Patch) -> None:
    """The labels of a loss pick along the last axis."""
    change_kernel(patch, "pick", axis=-1, mode="wrap")


@sabotage(TRAINING + "test_a_fixed_gamma_is_one_and_gets_no_gradient")
def use_a_fixed_gamma(patch: Patch) -> None:
    """BatchNorm multiplies with gamma although it is fixed to one."""
    change_kernel(patch, "BatchNorm", fix_gamma=False)


# Parameters and trainers ----------------------------------------------------------------------


@sabotage(TRAINING + "test_copies_of_a_hybridized_net")
def share_memory_between_copies(patch: Patch) -> None:
    """A deep copy of an array is the array."""
    patch.setattr(NDArray, "__deepcopy__", lambda self, memory: self)
    patch.setattr(NDArray, "__reduce__", lambda self: (_kept.__getitem__, (_keep(self),)))


_kept: dict[int, Any] = {}


def _keep(array: Any) -> int:
    _kept[id(array)] = array
    return id(array)


@sabotage(TRAINING + "test_contexts_and_batches_share_one_update")
def ignore_the_batch_size(patch: Patch) -> None:
    """A trainer's step does not divide by the batch size."""
    wrap(patch, trainer.Trainer, "step", lambda f, self, batch_size, *rest, **kw: f(self, 1, *rest, **kw))


@sabotage(TRAINING + "test_stale_gradients_are_listed_once")
def step_with_stale_gradients(patch: Patch) -> None:
    """Gradients that backward did not write are used again."""
    patch.setattr(trainer.Trainer, "_check_stale", lambda self, ignore: None)


@sabotage(TRAINING + "test_trainer_states_move_between_contexts")
def count_no_steps(patch: Patch) -> None:
    """Learning rate schedules never advance."""
    wrap(patch, optimizers.Optimizer, "_update_count", _frozen_count)


def _frozen_count(original: Any, self: Any, index: Any) -> None:
    for one in index if isinstance(index, (list, tuple)) else [index]:
        self._index_update_count[one] = 1


@sabotage(TRAINING + "test_contexts_and_batches_share_one_update")
def sum_no_contexts(patch: Patch) -> None:
    """Each context updates by its own gradients."""
    patch.setattr(trainer.Trainer, "_allreduce_grads", lambda self: None)


@sabotage(TRAINING + "test_gradients_are_clipped_together")
def clip_nothing(patch: Patch) -> None:
    """clip_global_norm leaves large gradients alone."""
    patch.setattr(gluon_utils, "clip_global_norm", lambda arrays, max_norm, **kw: 1.0)
    patch.setattr(gluon.utils, "clip_global_norm", lambda arrays, max_norm, **kw: 1.0)
