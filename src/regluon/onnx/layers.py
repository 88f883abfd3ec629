"""ONNX mappings of layers: convolutions, pooling, dense layers, normalisation, activations, attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..graph.node import Node
from ..ops.defs.convolution import _transposed_padding, channels_last
from ..ops.defs.pooling import _adaptive_size, _checked, _output_sizes
from .emitter import Emitter, Unmapped, maps

__all__: list[str] = []


def _rank(m: Emitter, node: Node, place: int = 0) -> int:
    return len(m.spec(node.inputs[place]).shape)


def _first(rank: int) -> list[int]:
    """The order of axes that brings the channels to place 1."""
    return [0, rank - 1, *range(1, rank - 1)]


def _last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


# Convolutions and pooling ----------------------------------------------------------------------


@maps("Convolution", "Convolution_v1")
def _convolution(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs, kernel = node.full_attrs, node.full_attrs["kernel"]
    rank = len(kernel)
    data, weight = inputs[:2]
    last = channels_last(attrs["layout"])
    if last:
        data, weight = m.transpose(data, _first(rank + 2)), m.transpose(weight, _first(rank + 2))
    pad = list(attrs["pad"] or (0,) * rank)
    result = m.add(
        "Conv",
        [data, weight, *([] if attrs["no_bias"] else inputs[2:3])],
        kernel_shape=list(kernel),
        strides=list(attrs["stride"] or (1,) * rank),
        dilations=list(attrs["dilate"] or (1,) * rank),
        pads=[*pad, *pad],
        group=attrs["num_group"],
    )
    return m.transpose(result, _last(rank + 2)) if last else str(result)


@maps("Deconvolution")
def _deconvolution(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs, kernel = node.full_attrs, node.full_attrs["kernel"]
    rank = len(kernel)
    last = channels_last(attrs["layout"])
    shape = m.spec(node.inputs[0]).shape
    spatial = shape[1:-1] if last else shape[2:]
    stride, dilate, pad, extra = _transposed_padding(spatial, attrs)
    if any(attrs["target_shape"] or ()) and -1 in m.shape(node.inputs[0])[1:]:
        raise Unmapped(f"{node.name} pads by its input's size, which is open; give fixed shapes")
    data, weight = inputs[:2]
    if last:
        data, weight = m.transpose(data, _first(rank + 2)), m.transpose(weight, _first(rank + 2))
    result = m.add(
        "ConvTranspose",
        [data, weight, *([] if attrs["no_bias"] else inputs[2:3])],
        kernel_shape=list(kernel),
        strides=list(stride),
        dilations=list(dilate),
        pads=[*pad, *pad],
        output_padding=list(extra),
        group=attrs["num_group"],
    )
    return m.transpose(result, _last(rank + 2)) if last else str(result)


@maps("Pooling", "Pooling_v1")
def _pooling(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    rank = _rank(m, node)
    last = channels_last(attrs.get("layout"))
    data = m.transpose(inputs[0], _first(rank)) if last else inputs[0]
    kind = attrs["pool_type"]
    if attrs["global_pool"]:
        kinds = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}
        if kind not in kinds:
            raise Unmapped(f"global pooling of kind {kind!r} (node {node.name}) is not mapped to ONNX")
        result = str(m.add(kinds[kind], [data]))
    else:
        shape = tuple(m.spec(node.inputs[0]).shape)
        shape = (shape[0], shape[-1], *shape[1:-1]) if last else shape
        result = _window_pool(m, node, data, shape)
    return m.transpose(result, _last(rank)) if last else result


def _window_pool(m: Emitter, node: Node, data: str, shape: tuple[int, ...]) -> str:
    attrs = node.full_attrs
    kernel, stride, pad = _checked(shape, attrs, "Pooling")
    sizes = _output_sizes(shape[2:], kernel, stride, pad, attrs["pooling_convention"])
    behind = list(pad)
    if attrs["pooling_convention"] != "valid":
        if -1 in m.shape(node.inputs[0])[1:]:
            raise Unmapped(f"{node.name} pads by its input's size, which is open; give fixed shapes")
        # The padding behind the data that makes every window complete.
        behind = [
            max(0, (size - 1) * step + width - have - before)
            for size, step, width, have, before in zip(sizes, stride, kernel, shape[2:], pad, strict=True)
        ]
    beyond = any(more > before for more, before in zip(behind, pad, strict=True))
    common: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(stride), "pads": [*pad, *behind]}
    kind = attrs["pool_type"]
    if kind == "max":
        return str(m.add("MaxPool", [data], **common))
    include = attrs.get("count_include_pad") is not False
    if kind == "avg" and not (include and beyond):
        return str(m.add("AveragePool", [data], count_include_pad=int(include), **common))
    if kind == "sum":
        mean = m.add("AveragePool", [data], count_include_pad=1, **common)
        return str(m.add("Mul", [mean, _like(m, node, math.prod(kernel))]))
    raise Unmapped(
        f"this pooling ({kind}, {attrs['pooling_convention']}; node {node.name}) is not mapped to ONNX"
    )


def _like(m: Emitter, node: Node, value: float) -> str:
    """A number of the type of the node's first input."""
    return m.constant(value, m.spec(node.inputs[0]).dtype)


@maps("_contrib_AdaptiveAvgPooling2D")
def _adaptive_pooling(m: Emitter, node: Node, inputs: list[str]) -> str:
    wanted = _adaptive_size(node.full_attrs["output_size"])
    if wanted == (1, 1):
        return str(m.add("GlobalAveragePool", inputs[:1]))
    entry = node.inputs[0]
    height, width = m.shape(entry)[2:]
    if -1 in (height, width):
        raise Unmapped(f"{node.name} pools by its input's size, which is open; give fixed shapes")
    dtype = m.spec(entry).dtype
    # Windows differ in size where the sizes do not divide, so each axis is averaged by a matrix.
    rows, columns = _averages(height, wanted[0]), _averages(width, wanted[1])
    along = m.add("MatMul", [m.constant(rows.numpy(), dtype), inputs[0]])
    return str(m.add("MatMul", [along, m.constant(columns.T.numpy(), dtype)]))


def _averages(size: int, wanted: int) -> torch.Tensor:
    """The matrix (wanted, size) that averages the window of each output of adaptive pooling."""
    matrix = torch.zeros(wanted, size, dtype=torch.float64)
    for place in range(wanted):
        start, end = place * size // wanted, -(-(place + 1) * size // wanted)
        matrix[place, start:end] = 1 / (end - start)
    return matrix


@maps("UpSampling")
def _up_sampling(m: Emitter, node: Node, inputs: list[str]) -> str:
    if node.full_attrs["sample_type"] != "nearest" or len(inputs) != 1:
        raise Unmapped(f"UpSampling (node {node.name}) is mapped to ONNX for one input and 'nearest' only")
    scale = float(node.full_attrs["scale"])
    scales = m.constant([1.0, 1.0, scale, scale], torch.float32)
    return str(
        m.add(
            "Resize",
            [inputs[0], "", scales],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    )


# Dense layers and products ----------------------------------------------------------------------


@maps("FullyConnected")
def _dense(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    rank = _rank(m, node)
    data = inputs[0]
    bias = [] if attrs["no_bias"] else inputs[2:3]
    if attrs["flatten"] and rank == 1:
        data = str(m.add("Unsqueeze", [data, m.ints([1])]))
    elif attrs["flatten"] and rank > 2:
        data = str(m.add("Flatten", [data], axis=1))
    if attrs["flatten"] or rank == 2:
        return str(m.add("Gemm", [data, inputs[1], *bias], transB=1))
    product = str(m.add("MatMul", [data, m.transpose(inputs[1], [1, 0])]))
    return str(m.add("Add", [product, *bias])) if bias else product


def _turned(m: Emitter, name: str, rank: int, turn: bool) -> str:
    """A matrix, or a stack of matrices, with its last two axes exchanged."""
    return m.transpose(name, [*range(rank - 2), rank - 1, rank - 2]) if turn else name


@maps("batch_dot", "_linalg_gemm2")
def _batch_dot(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    if attrs.get("axis", -2) != -2:
        raise Unmapped(f"matrices along axis {attrs['axis']} (node {node.name}) are not mapped to ONNX")
    left = _turned(m, inputs[0], _rank(m, node, 0), attrs["transpose_a"])
    right = _turned(m, inputs[1], _rank(m, node, 1), attrs["transpose_b"])
    product = str(m.add("MatMul", [left, right]))
    scale = attrs.get("alpha", 1.0)
    return product if scale == 1.0 else str(m.add("Mul", [product, _like(m, node, scale)]))


@maps("dot", "_npi_dot", "_npi_matmul")
def _dot(m: Emitter, node: Node, inputs: list[str]) -> str:
    left, right = _rank(m, node, 0), _rank(m, node, 1)
    matmul = node.op is not None and node.op.name == "_npi_matmul"
    if not left or not right or (right > 2 and not matmul):
        raise Unmapped(f"a product of {left} and {right} dimensions (node {node.name}) is not mapped to ONNX")
    attrs = node.full_attrs
    first, second = inputs
    if attrs.get("transpose_a") and left > 1:
        first = m.transpose(first, [*range(1, left), 0])
    if attrs.get("transpose_b") and right > 1:
        second = m.transpose(second, [right - 1, *range(right - 1)])
    product = str(m.add("MatMul", [first, second]))
    made = list(m.shape(node_entry(node)))
    return m.reshape(product, made) if left == right == 1 else product


def node_entry(node: Node) -> Any:
    """The first output of a node."""
    from ..graph.node import Entry

    return Entry(node, 0)


@maps("Embedding")
def _embedding(m: Emitter, node: Node, inputs: list[str]) -> str:
    spec = m.spec(node.inputs[0])
    index = m.cast(inputs[0], spec.dtype, torch.int64)
    low, high = m.ints([0]), m.ints([max(node.full_attrs["input_dim"] - 1, 0)])
    bounded = m.add("Min", [m.add("Max", [index, low]), high])
    if not spec.shape:
        bounded = m.reshape(bounded, [])
    return str(m.add("Gather", [inputs[1], bounded], axis=0))


# Normalisation ----------------------------------------------------------------------


def _per_axis(m: Emitter, name: str, axis: int, rank: int) -> str:
    """A vector in a shape that broadcasts along one axis."""
    return name if axis == rank - 1 else m.reshape(name, [-1, *[1] * (rank - 1 - axis)])


@maps("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU")
def _batch_norm(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    rank = _rank(m, node)
    axis = attrs.get("axis", 1) % rank
    data, gamma, beta, mean, variance = inputs
    spec = m.spec(node.inputs[1])
    if attrs["fix_gamma"]:
        gamma = m.constant([1.0] * spec.shape[0], spec.dtype)
    if axis == 1:
        result = m.add("BatchNormalization", [data, gamma, beta, mean, variance], epsilon=attrs["eps"])
    else:
        deviation = m.add("Sqrt", [m.add("Add", [variance, m.constant(attrs["eps"], spec.dtype)])])
        scale = m.add("Div", [gamma, deviation])
        shift = m.add("Sub", [beta, m.add("Mul", [mean, scale])])
        scaled = m.add("Mul", [data, _per_axis(m, scale, axis, rank)])
        result = m.add("Add", [scaled, _per_axis(m, shift, axis, rank)])
    if node.op is not None and node.op.name == "_contrib_BatchNormWithReLU":
        result = m.add("Relu", [result])
    return str(result)


@maps("LayerNorm")
def _layer_norm(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    rank = _rank(m, node)
    axis = attrs["axis"] % rank
    if axis == rank - 1:
        return str(m.add("LayerNormalization", inputs, axis=-1, epsilon=attrs["eps"]))
    centred = m.add("Sub", [inputs[0], m.add("ReduceMean", [inputs[0]], axes=[axis], keepdims=1)])
    variance = m.add("ReduceMean", [m.add("Mul", [centred, centred])], axes=[axis], keepdims=1)
    deviation = m.add("Sqrt", [m.add("Add", [variance, _like(m, node, attrs["eps"])])])
    normal = m.add("Mul", [m.add("Div", [centred, deviation]), _per_axis(m, inputs[1], axis, rank)])
    return str(m.add("Add", [normal, _per_axis(m, inputs[2], axis, rank)]))


def _ones_and_zeros(m: Emitter, node: Node, count: int) -> list[str]:
    dtype = m.spec(node.inputs[0]).dtype
    return [m.constant([1.0] * count, dtype), m.constant([0.0] * count, dtype)]


@maps("InstanceNorm")
def _instance_norm(m: Emitter, node: Node, inputs: list[str]) -> str:
    return str(m.add("InstanceNormalization", inputs, epsilon=node.full_attrs["eps"]))


@maps("GroupNorm")
def _group_norm(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs, groups = node.full_attrs, node.full_attrs["num_groups"]
    shape = m.shape(node.inputs[0])
    channels, rank = shape[1], len(shape)
    # Size 0 keeps the batch, whatever it is.
    rows = m.add("Reshape", [inputs[0], m.ints([0, groups, -1])])
    normal = m.add("InstanceNormalization", [rows, *_ones_and_zeros(m, node, groups)], epsilon=attrs["eps"])
    result = m.reshape(normal, shape)
    for kind, vector, place in (("Mul", inputs[1], 1), ("Add", inputs[2], 2)):
        if m.spec(node.inputs[place]).shape[0] != channels:
            column = m.add("Expand", [m.reshape(vector, [groups, 1]), m.ints([groups, channels // groups])])
            vector = m.reshape(column, [channels])
        result = m.add(kind, [result, _per_axis(m, vector, 1, rank)])
    return str(result)


@maps("L2Normalization")
def _l2_normalization(m: Emitter, node: Node, inputs: list[str]) -> str:
    rank = _rank(m, node)
    mode = node.full_attrs["mode"]
    first, last = {"instance": (1, rank), "channel": (1, 2), "spatial": (2, rank)}[mode]
    square = m.add("ReduceSumSquare", inputs, axes=list(range(first, last)), keepdims=1)
    length = m.add("Sqrt", [m.add("Add", [square, _like(m, node, node.full_attrs["eps"])])])
    return str(m.add("Div", [inputs[0], length]))


@maps("LRN")
def _local_response(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    return str(
        m.add(
            "LRN", inputs, alpha=attrs["alpha"], beta=attrs["beta"], bias=attrs["knorm"], size=attrs["nsize"]
        )
    )


@maps("Dropout")
def _dropout(m: Emitter, node: Node, inputs: list[str]) -> str:
    if node.full_attrs["mode"] == "always" and node.full_attrs["p"] > 0:
        raise Unmapped(f"dropout that is always active (node {node.name}) is not mapped to ONNX")
    return str(m.add("Identity", inputs))


# Activations ----------------------------------------------------------------------


def gelu(m: Emitter, name: str, dtype: torch.dtype) -> str:
    """``x Phi(x)``."""
    scaled = m.add("Mul", [name, m.constant(math.sqrt(0.5), dtype)])
    grown = m.add("Add", [m.add("Erf", [scaled]), m.constant(1.0, dtype)])
    return str(m.add("Mul", [m.add("Mul", [name, grown]), m.constant(0.5, dtype)]))


def mish(m: Emitter, name: str) -> str:
    """``x tanh(log(1 + e^x))``."""
    return str(m.add("Mul", [name, m.add("Tanh", [m.add("Softplus", [name])])]))


def log_sigmoid(m: Emitter, name: str) -> str:
    """``log(1 / (1 + e^-x))``."""
    return str(m.add("Neg", [m.add("Softplus", [m.add("Neg", [name])])]))


_ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@maps("Activation")
def _activation(m: Emitter, node: Node, inputs: list[str]) -> str:
    kind = node.full_attrs["act_type"]
    if kind in _ACTIVATIONS:
        return str(m.add(_ACTIVATIONS[kind], inputs))
    return mish(m, inputs[0]) if kind == "mish" else log_sigmoid(m, inputs[0])


@maps("LeakyReLU")
def _leaky(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs, kind = node.full_attrs, node.full_attrs["act_type"]
    spec = m.spec(node.inputs[0])
    if kind == "gelu":
        return gelu(m, inputs[0], spec.dtype)
    if kind == "elu":
        return str(m.add("Elu", inputs, alpha=attrs["slope"]))
    if kind == "selu":
        return str(m.add("Selu", inputs))
    if kind == "prelu":
        slopes = inputs[1]
        if len(m.spec(node.inputs[1]).shape) != 1:
            slopes = m.reshape(slopes, [-1])
        count = math.prod(m.spec(node.inputs[1]).shape)
        if count != 1 and len(spec.shape) > 2:
            slopes = m.reshape(slopes, [-1, *[1] * (len(spec.shape) - 2)])
        return str(m.add("PRelu", [inputs[0], slopes]))
    slope = attrs["slope"] if kind == "leaky" else (attrs["lower_bound"] + attrs["upper_bound"]) / 2
    return str(m.add("LeakyRelu", inputs[:1], alpha=slope))


# Softmax and attention ----------------------------------------------------------------------


def _softmax_input(m: Emitter, node: Node, name: str, negative: bool = False) -> tuple[str, torch.dtype]:
    """The data in the result's type, divided by the temperature."""
    made = node.specs[0].dtype if node.specs else torch.float32
    name = m.cast(name, m.spec(node.inputs[0]).dtype, made)
    heat = node.full_attrs.get("temperature") or 1.0
    if heat != 1.0 or negative:
        name = str(m.add("Div", [name, m.constant(-heat if negative else heat, made)]))
    return name, made


@maps("softmax", "log_softmax", "softmin")
def _softmax(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    if attrs.get("use_length"):
        raise Unmapped(f"softmax with lengths (node {node.name}) is not mapped to ONNX")
    name = node.op.name if node.op else ""
    data, _ = _softmax_input(m, node, inputs[0], name == "softmin")
    rank = _rank(m, node)
    axis = attrs["axis"] % rank
    return str(m.add("LogSoftmax" if name == "log_softmax" else "Softmax", [data], axis=axis))


@maps("SoftmaxActivation", "SoftmaxOutput")
def _softmax_output(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    rank = _rank(m, node)
    over_channels = attrs.get("mode") == "channel" or attrs.get("multi_output")
    if not over_channels and rank > 2 and not attrs.get("preserve_shape", "mode" in attrs):
        raise Unmapped(f"a softmax over whole samples (node {node.name}) is not mapped to ONNX")
    return str(m.add("Softmax", inputs[:1], axis=1 if over_channels else rank - 1))


@maps("masked_softmax")
def _masked_softmax(m: Emitter, node: Node, inputs: list[str]) -> str:
    data, dtype = _softmax_input(m, node, inputs[0])
    keep = m.cast(inputs[1], m.spec(node.inputs[1]).dtype, torch.bool)
    hidden = m.add("Where", [keep, data, m.constant(torch.finfo(dtype).min, dtype)])
    weights = m.add("Softmax", [hidden], axis=node.full_attrs["axis"] % _rank(m, node))
    return str(m.add("Where", [keep, weights, m.constant(0.0, dtype)]))


def _heads(m: Emitter, node: Node, name: str, place: int, parts: int) -> list[str]:
    """Interleaved projections (L, B, heads * parts * D) as ``parts`` arrays (B * heads, L, D)."""
    width = m.spec(node.inputs[place]).shape[2] // node.full_attrs["heads"] // parts
    # Size 0 keeps the length, whatever it is.
    rows = m.add("Reshape", [name, m.ints([0, -1, parts, width])])
    turned = m.transpose(rows, [2, 1, 0, 3])
    return [str(m.add("Gather", [turned, m.constant(part, torch.int64)], axis=0)) for part in range(parts)]


def _scores(m: Emitter, node: Node, query: str, key: str, place: int, parts: int) -> str:
    width = m.spec(node.inputs[place]).shape[2] // node.full_attrs["heads"] // parts
    scaled = m.add("Div", [query, _like(m, node, math.sqrt(width))])
    return str(m.add("MatMul", [scaled, m.transpose(key, [0, 2, 1])]))


def _context(m: Emitter, node: Node, weights: str, value: str) -> str:
    assert node.specs is not None
    product = m.add("MatMul", [weights, value])
    turned = m.transpose(product, [1, 0, 2])
    return str(m.add("Reshape", [turned, m.ints([0, -1, node.specs[0].shape[2]])]))


@maps("_contrib_interleaved_matmul_selfatt_qk")
def _self_scores(m: Emitter, node: Node, inputs: list[str]) -> str:
    query, key, _ = _heads(m, node, inputs[0], 0, 3)
    return _scores(m, node, query, key, 0, 3)


@maps("_contrib_interleaved_matmul_selfatt_valatt")
def _self_context(m: Emitter, node: Node, inputs: list[str]) -> str:
    return _context(m, node, inputs[1], _heads(m, node, inputs[0], 0, 3)[2])


@maps("_contrib_interleaved_matmul_encdec_qk")
def _other_scores(m: Emitter, node: Node, inputs: list[str]) -> str:
    (query,) = _heads(m, node, inputs[0], 0, 1)
    return _scores(m, node, query, _heads(m, node, inputs[1], 1, 2)[0], 0, 1)


@maps("_contrib_interleaved_matmul_encdec_valatt")
def _other_context(m: Emitter, node: Node, inputs: list[str]) -> str:
    return _context(m, node, inputs[1], _heads(m, node, inputs[0], 0, 2)[1])


@maps("_contrib_div_sqrt_dim")
def _div_sqrt_dim(m: Emitter, node: Node, inputs: list[str]) -> str:
    width = m.spec(node.inputs[0]).shape[-1]
    return str(m.add("Div", [inputs[0], _like(m, node, math.sqrt(width))]))
