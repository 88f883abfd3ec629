"""Sabotages of files, Symbols, executors and modules."""

from __future__ import annotations

import dataclasses
import importlib
from contextlib import contextmanager
from typing import Any

import torch
from breaking import FILES, SYMBOLS, TRAINING, Patch, change_kernel, sabotage, wrap

import regluon as mx
from regluon import io, serial
from regluon.base import atomic
from regluon.gluon import files, metric, parameter
from regluon.graph import json as graph_json
from regluon.serial import params, states
from regluon.symbol import convert, executor

# Files ----------------------------------------------------------------------


@sabotage(FILES + "test_a_file_fills_unknown_sizes")
def transpose_weights_on_load(patch: Patch) -> None:
    """Matrices of a file arrive with their axes swapped."""

    def transposed(original: Any, self: Any, value: Any, *rest: Any, **kw: Any) -> None:
        original(self, value.T if len(value.shape) == 2 else value, *rest, **kw)

    wrap(patch, parameter.Parameter, "_load_init", transposed)


@sabotage(
    FILES + "test_exported_files_load_as_parameters",
    SYMBOLS + "test_an_exported_file_has_the_moving_statistics_as_auxiliary",
)
def drop_auxiliary_arrays(patch: Patch) -> None:
    """An export leaves the moving statistics out."""

    def without(original: Any, record: Any) -> Any:
        return {name: value for name, value in original(record).items() if not name.startswith("aux:")}

    wrap(patch, files, "_named_arrays", without)


@sabotage(FILES + "test_shared_weights_and_deduplication")
def forget_aliases(patch: Patch) -> None:
    """A file of shared parameters does not say what their other names are."""
    patch.setattr(files, "append_aliases", lambda stream, aliases: None)


@sabotage(FILES + "test_half_precision_files")
def convert_without_being_asked(patch: Patch) -> None:
    """Types of a file are converted in silence."""

    def converted(original: Any, *args: Any, **kw: Any) -> None:
        original(*args, **{**kw, "cast_dtype": True})

    wrap(patch, mx.gluon.Block, "load_parameters", converted)


@sabotage(SYMBOLS + "test_the_order_of_inputs_survives_a_file")
def swap_inputs_when_reading(patch: Patch) -> None:
    """Nodes with two inputs get them in the other order."""

    def swapped(original: Any, *arguments: Any) -> Any:
        inputs = original(*arguments)
        return inputs[::-1] if len(inputs) == 2 else inputs

    wrap(patch, convert._Builder, "_inputs", swapped)


@sabotage(SYMBOLS + "test_attributes_survive_a_file")
def lose_user_attributes(patch: Patch) -> None:
    """Attributes that are not the operator's own are not written."""

    def without(original: Any, node: Any) -> Any:
        known = {} if node.op is None else node.op.parameters
        return {key: value for key, value in original(node).items() if key in known}

    wrap(patch, convert, "_written", without)


@sabotage(FILES + "test_an_old_graph_takes_the_defaults_of_its_time")
def forget_auxiliary_variables_of_old_files(patch: Patch) -> None:
    """Graphs of 2015 without auxiliary inputs stay without."""
    patch.setattr(convert, "_complete", lambda definition, name, inputs, attrs: None)


@sabotage(FILES + "test_attributes_of_batch_normalization_are_written")
def leave_attributes_out(patch: Patch) -> None:
    """Operators are written without their attributes."""
    wrap(patch, graph_json, "_render_node", lambda f, node: f(dataclasses.replace(node, attributes={})))


@sabotage(SYMBOLS + "test_dtypes_and_names_of_a_binary_file")
def write_a_wrong_type(patch: Patch) -> None:
    """float16 is written as the code of uint8."""
    wrap(patch, params, "_flag", lambda f, dtype: 3 if dtype is torch.float16 else f(dtype))


@sabotage(SYMBOLS + "test_dtypes_and_names_of_a_binary_file")
def mix_the_names_up(patch: Patch) -> None:
    """The arrays of a file get its names in reverse order."""

    def mixed(original: Any, *args: Any) -> Any:
        found = original(*args)
        return dict(zip(reversed(found), found.values(), strict=True)) if isinstance(found, dict) else found

    wrap(patch, params, "read", mixed)


@sabotage(SYMBOLS + "test_an_interrupted_write_leaves_the_old_file")
def write_in_place(patch: Patch) -> None:
    """Files are overwritten instead of replaced."""

    @contextmanager
    def direct(path: Any) -> Any:
        with open(path, "wb") as stream:
            yield stream

    patch.setattr(atomic, "atomic_writer", direct)
    patch.setattr(serial, "atomic_writer", direct)


@sabotage(SYMBOLS + "test_nothing_in_a_states_file_runs")
def execute_pickles(patch: Patch) -> None:
    """A states file may name any function."""

    def anything(self: Any, module: str, name: str) -> Any:
        return getattr(importlib.import_module(module), name)

    patch.setattr(states._StatesUnpickler, "find_class", anything)


# Symbols and modules ----------------------------------------------------------------------


@sabotage(SYMBOLS + "test_an_executor_takes_head_gradients_and_the_train_flag")
def execute_in_train_mode_always(patch: Patch) -> None:
    """An executor ignores is_train."""
    wrap(patch, executor.Executor, "forward", lambda f, self, is_train=False, **kw: f(self, True, **kw))


@sabotage(SYMBOLS + "test_an_executor_takes_head_gradients_and_the_train_flag")
def ignore_out_gradients(patch: Patch) -> None:
    """An executor's backward starts from ones."""
    wrap(
        patch, executor.Executor, "backward", lambda f, self, out_grads=None, **kw: f(self, _ones(self), **kw)
    )


def _ones(executor_: Any) -> Any:
    return [mx.nd.ones(out.shape) for out in executor_.outputs]


@sabotage(SYMBOLS + "test_the_gradient_of_a_softmax_output_is_that_of_the_loss")
def ignore_the_gradient_scale(patch: Patch) -> None:
    """SoftmaxOutput's grad_scale has no effect."""
    change_kernel(patch, "SoftmaxOutput", grad_scale=1.0)


@sabotage(SYMBOLS + "test_internals_by_name")
def select_the_wrong_internal(patch: Patch) -> None:
    """Indexing a Symbol by name gives its first output."""
    wrap(
        patch, mx.sym.Symbol, "__getitem__", lambda f, self, key: f(self, 0 if isinstance(key, str) else key)
    )


@sabotage(SYMBOLS + "test_a_module_updates_by_the_mean_over_the_batch")
def update_by_the_sum(patch: Patch) -> None:
    """A module's optimizer does not divide by the batch size."""

    def unscaled(original: Any, self: Any, *args: Any, **kw: Any) -> Any:
        result = original(self, *args, **kw)
        self._optimizer.rescale_grad = 1.0
        return result

    wrap(patch, mx.mod.Module, "init_optimizer", unscaled)


@sabotage(SYMBOLS + "test_a_module_continues_from_its_checkpoint")
def forget_optimizer_states(patch: Patch) -> None:
    """A checkpoint's optimizer states are not read."""
    patch.setattr(mx.mod.Module, "load_optimizer_states", lambda self, fname: None)


@sabotage(SYMBOLS + "test_the_last_batch_is_padded_and_predict_takes_the_padding_off")
def hide_the_padding(patch: Patch) -> None:
    """Batches say that nothing was padded."""
    patch.setattr(io.NDArrayIter, "getpad", lambda self: 0)


@sabotage(SYMBOLS + "test_bucketing_shares_parameters_between_lengths")
def train_only_the_default_bucket(patch: Patch) -> None:
    """A bucket's update does not reach the others."""
    wrap(
        patch,
        mx.mod.BucketingModule,
        "update",
        lambda f, self: f(self) if self._curr_bucket_key == 4 else None,
    )


@sabotage(TRAINING + "test_metrics_count_over_batches")
def count_every_label_right(patch: Patch) -> None:
    """Accuracy is always one."""
    patch.setattr(metric.Accuracy, "get", lambda self: (self.name, 1.0))
