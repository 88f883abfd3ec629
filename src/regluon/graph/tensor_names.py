"""What hooks call the tensors of a graph: ``<node>_weight`` for an input, ``<node>_output`` for an output.

The names are those that both generations of MXNet pass. Layers have named outputs; other operators' outputs
are numbered, ``<node>_0``; inputs of most unary operators are numbered too, ``<node>_input0``.
"""

from __future__ import annotations

from .node import Node

__all__ = ["input_names", "output_name"]

_NAMED_OUTPUT = frozenset(
    """ Activation BatchNorm BatchNorm_v1 BilinearSampler Concat Convolution Convolution_v1 Correlation Crop
    Deconvolution Dropout FullyConnected GridGenerator GroupNorm IdentityAttachKLSparseReg InstanceNorm
    L2Normalization LRN LayerNorm LeakyReLU MakeLoss Pad Pooling Pooling_v1 SVMOutput SequenceLast
    SequenceMask SequenceReverse SliceChannel SoftmaxActivation SoftmaxOutput SpatialTransformer SwapAxis
    UpSampling _contrib_BatchNormWithReLU _contrib_DeformableConvolution
    _contrib_MultiBoxPrior _contrib_ModulatedDeformableConvolution _contrib_SyncBatchNorm _contrib_index_array
    _contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt
    _contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt _rnn_param_concat
    col2im elemwise_add im2col masked_softmax softmax softmin """.split()
)
_OTHER_OUTPUT = {
    "_contrib_sldwin_atten_context": "context_vec",
    "_contrib_sldwin_atten_mask_like": "mask",
    "_contrib_sldwin_atten_score": "score",
    "_npi_dstack": "out",
    "_npi_hstack": "out",
    "_npi_matmul": "out",
    "_npi_std": "std",
    "_npi_var": "var",
    "make_loss": "loss",
}
# Lists of outputs call it otherwise.
_NUMBERED_OUTPUT = frozenset({"CTCLoss", "sort"})
_NUMBERED_INPUT = frozenset(
    """ Activation BlockGrad Cast Flatten Reshape SoftmaxActivation _contrib_AdaptiveAvgPooling2D
    _contrib_arange_like _contrib_bipartite_matching _contrib_box_nms
    _contrib_div_sqrt_dim _contrib_gradientmultiplier _contrib_round_ste
    _contrib_sign_ste _copy _copyto _npi_argmax _npi_argmin _npi_norm _npi_repeats _npx_relu _npx_sigmoid
    abs amp_cast arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort
    broadcast_axis broadcast_to cast_storage cbrt ceil clip cos cosh degrees digamma erf erfinv exp
    expand_dims expm1 fix floor gamma gammaln hard_sigmoid log log10 log1p log2 log_sigmoid logical_not
    make_loss max mean min mish nanprod nansum negative norm ones_like prod radians rcbrt reciprocal relu
    rint round rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis smooth_l1 softmin
    softsign sort sqrt square sum tan tanh topk transpose trunc zeros_like """.split()
)
# Operators with a number among their attributes whose input has a name all the same.
_NAMED_SCALAR = frozenset(
    f"_npi_{name}_scalar"
    for name in (
        "equal greater greater_equal insert less less_equal logical_and logical_or logical_xor not_equal"
    ).split()
)
_VARIADIC = {
    "_npi_atleast_1d": "ary",
    "_npi_atleast_2d": "ary",
    "_npi_atleast_3d": "ary",
    "_npi_dstack": "data",
    "_npi_hstack": "data",
    "multi_all_finite": "array_",
    "multi_sum_sq": "array_",
}


def input_names(node: Node, given: int) -> list[str]:
    """The names of the ``given`` inputs of an operator node."""
    definition = node.op
    if definition is None:
        return []
    name = definition.name
    scalar = name.endswith("_scalar") and name not in _NAMED_SCALAR
    if name in _NUMBERED_INPUT or (scalar and len(definition.inputs) == 1):
        suffixes = [f"input{index}" for index in range(given)]
    elif name == "_contrib_quantized_concat":
        ranges = [f"arg{index}_{end}" for index in range(given // 3) for end in ("min", "max")]
        suffixes = [*(f"arg{index}" for index in range(given // 3)), *ranges]
    elif definition.variadic:
        fixed = definition.inputs[:-1]
        base = _VARIADIC.get(name, "arg")
        suffixes = [*fixed, *(f"{base}{index}" for index in range(given - len(fixed)))]
    else:
        suffixes = definition.input_names(node.full_attrs)
        if len(suffixes) != given:
            suffixes = list(definition.inputs[:given])
    return [f"{node.name}_{suffix}" for suffix in suffixes]


def output_name(node: Node, index: int) -> str:
    """The name of one output of an operator node."""
    definition = node.op
    assert definition is not None
    if definition.name in _NUMBERED_OUTPUT:
        return f"{node.name}_{index}"
    if definition.output_names and index < len(definition.output_names):
        return f"{node.name}_{definition.output_names[index]}"
    if definition.name in _OTHER_OUTPUT:
        return f"{node.name}_{_OTHER_OUTPUT[definition.name]}"
    if definition.name in _NAMED_OUTPUT:
        return f"{node.name}_output" if node.outputs == 1 else f"{node.name}_output{index}"
    return f"{node.name}_{index}"
