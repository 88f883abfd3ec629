"""How the functions of mx.np and mx.npx that are made of operators name and order their arguments.

The operators of the NumPy kind keep the input names of files (``lhs``, ``data``); the functions have NumPy's
names, ``x1`` or ``a``, and take ``out`` where NumPy does. The operators' own names are understood too.
"""

from __future__ import annotations

from typing import Any

from .opdef import OpDef

__all__ = ["DEFAULTS", "public_order"]

# Functions whose arguments are not those of their operator: inputs first to last as the operator's, then the
# attributes by their names. ``out`` and ``name`` follow where they are not mentioned.
_SPECIAL = {
    "np": {
        "all": "a axis out keepdims",
        "any": "a axis out keepdims",
        "argmax": "a axis out keepdims",
        "argmin": "a axis out keepdims",
        "clip": "a a_min a_max out",
        "nan_to_num": "x copy nan posinf neginf",
        "sometrue": "a axis keepdims out",
    },
    "npx": {
        "batch_dot": "a b transpose_a transpose_b forward_stype",
        "batch_norm": "x gamma beta running_mean running_var eps momentum fix_gamma use_global_stats "
        "output_mean_var axis cudnn_off min_calib_range max_calib_range",
        "constraint_check": "x msg",
        "fully_connected": "x weight bias num_hidden no_bias flatten",
        "log_softmax": "data axis length temperature use_length dtype",
        "nonzero": "a",
        "one_hot": "data depth on_value off_value dtype",
        "pick": "data index axis mode keepdims",
        "pooling": "data kernel stride pad pool_type pooling_convention global_pool cudnn_off p_value "
        "count_include_pad layout",
        "random_resized_crop": "data xrange yrange width height interp",
        "rnn": "data parameters state state_cell sequence_length mode state_size num_layers bidirectional "
        "state_outputs p use_sequence_length projection_size",
        "softmax": "data length axis temperature use_length dtype",
    },
}
# An argument that another release has and the operator may lack: it may only be None then.
_MAYBE_ABSENT = ("length",)
# Further names of arguments, as in newer releases of NumPy.
_OTHER_NAMES = {"correction": "ddof"}
# ``out`` comes before these, as in NumPy.
_AFTER_OUT = ("ddof", "keepdims")
# Defaults that an operator does not have.
DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {("npx", "activation"): {"act_type": "relu"}}


def public_order(
    definition: OpDef, style: str, public: str
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """The arguments of a function made of an operator.

    Parameters
    ----------
    definition : OpDef
        The operator.
    style : {'nd', 'sym', 'np', 'npx'}
        The namespace; nd and sym have the operator's own names.
    public : str
        The function's name.

    Returns
    -------
    order : tuple of (public name, operator's name)
        All arguments that may be given by position; ``out`` and ``name`` have those as the operator's name.
    others : dict
        Further public names that are understood as keywords, each with the operator's name.
    """
    inputs, attributes = list(definition.inputs), list(definition.parameters)
    if style not in ("np", "npx"):
        return tuple((name, name) for name in (*inputs, *attributes)), {}
    special = _SPECIAL[style].get(public)
    order = _from_text(definition, special) if special else _by_rule(definition, style)
    given = {name for _, name in order}
    order += [(name, name) for name in attributes if name not in given]
    extra = ("out",) if style == "np" else ("out", "name")
    order += [(name, name) for name in extra if name not in {own for _, own in order}]
    others = {new: old for new, old in _OTHER_NAMES.items() if old in attributes and new not in attributes}
    others |= {own: own for _, own in order}
    return tuple(order), others


def _by_rule(definition: OpDef, style: str) -> list[tuple[str, str]]:
    """NumPy's names of two operands, and the place of ``out``."""
    inputs, attributes = list(definition.inputs), list(definition.parameters)
    names = ["x1", "x2"] if style == "np" and inputs == ["lhs", "rhs"] else inputs
    order = list(zip(names, inputs, strict=True))
    if style == "np":
        place = next((i for i, name in enumerate(attributes) if name in _AFTER_OUT), len(attributes))
        attributes.insert(place, "out")
    return order + [(name, name) for name in attributes]


def _from_text(definition: OpDef, text: str) -> list[tuple[str, str]]:
    remaining = list(definition.inputs)
    order = []
    for public in text.split():
        if public in definition.parameters or public in ("out", "name"):
            order.append((public, public))
        elif public in _MAYBE_ABSENT and public not in remaining:
            order.append((public, public))
        else:
            order.append((public, remaining.pop(0)))
    return order + [(name, name) for name in remaining]
