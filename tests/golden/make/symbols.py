"""Write what MXNet 1.9.1 says of Symbols and executors: ``python symbols.py ../symbols.json``."""

import contextlib
import io
import json
import sys
import warnings

import mxnet as mx
import numpy

S = mx.sym
FC = "S.FullyConnected(S.var('data'), num_hidden=3, name='fc')"
CONV = "S.Convolution(S.var('a'), num_filter=8, kernel=(3, 3), name='c')"
NET = (
    "S.FullyConnected(S.Activation(S.FullyConnected(S.var('data'), num_hidden=3, name='fc1'), "
    "act_type='tanh', name='act'), num_hidden=2, name='fc2')"
)
TOWER = (
    "(lambda pool: S.SoftmaxOutput(S.FullyConnected(S.Flatten(S.Convolution(pool, num_filter=8, "
    "kernel=(1, 1), no_bias=True, name='conv_with_a_rather_long_name_2') + pool, name='flat'), "
    "num_hidden=10, name='fc1'), "
    "name='softmax'))(S.Pooling(S.Activation(S.BatchNorm(S.Convolution(S.var('data'), num_filter=8, "
    "kernel=(3, 3), stride=(2, 2), pad=(1, 1), name='conv1'), name='bn1'), act_type='relu', name='relu1'), "
    "kernel=(2, 2), stride=(2, 2), pool_type='max', name='pool1'))"
)
# (Symbol, known shapes): the partly known shapes of arguments, outputs and auxiliary states.
SHAPES = [
    (FC, {"data": (2, 4)}),
    (FC, {"data": (0, 4)}),
    (FC, {}),
    ("S.var('a') + S.var('b')", {"a": (2, 3)}),
    ("S.var('a') - S.var('b')", {"a": (0, 3), "b": (2, 0)}),
    ("S.broadcast_add(S.var('a'), S.var('b'))", {"a": (2, 3)}),
    ("S.relu(S.var('a')) * 2 + S.var('b')", {"b": (4, 5)}),
    ("S.Activation(S.exp(S.var('a')), act_type='tanh') * S.var('b')", {"b": (4, 5, 6)}),
    ("S.reshape(S.var('a'), shape=(2, 3))", {}),
    ("S.reshape(S.var('a'), shape=(-1, 12))", {"a": (0, 3, 4)}),
    ("S.reshape(S.var('a'), shape=(-2, 1))", {"a": (0, 3, 4)}),
    ("S.reshape(S.var('a'), shape=(0, 0)) + S.var('b')", {"b": (4, 5)}),
    ("S.reshape(S.var('a'), shape=(0, -1)) + S.var('b')", {"b": (4, 5)}),
    (CONV, {"a": (1, 3, 8, 8)}),
    (CONV, {"a": (0, 3, 8, 8)}),
    (CONV, {"a": (2, 3, 0, 0)}),
    (CONV, {"a": (2, 0, 8, 8)}),
    (CONV + " + S.var('b')", {"b": (2, 8, 6, 6)}),
    ("S.Pooling(S.var('a'), kernel=(2, 2), stride=(2, 2), pool_type='max')", {"a": (0, 3, 8, 8)}),
    ("S.BatchNorm(S.var('a'), name='bn')", {"a": (0, 3, 8, 8)}),
    ("S.concat(S.var('a'), S.var('b'), dim=1)", {"a": (2, 3), "b": (0, 4)}),
    ("S.transpose(S.var('a'), axes=(1, 0, 2))", {"a": (0, 3, 4)}),
    ("S.swapaxes(S.var('a'), dim1=0, dim2=1)", {"a": (0, 3, 4)}),
    ("S.dot(S.var('a'), S.var('b'))", {"a": (2, 3), "b": (3, 0)}),
    ("S.SoftmaxOutput(" + FC + ", name='s')", {"data": (2, 4)}),
    ("S.SoftmaxOutput(S.var('a'), name='s')", {"s_label": (4,)}),
    ("S.LinearRegressionOutput(S.var('a'), name='s')", {"a": (2, 4)}),
    ("S.Embedding(S.var('a'), input_dim=5, output_dim=3, name='e')", {"a": (2, 0)}),
    ("S.split(S.var('a'), num_outputs=2)", {"a": (0, 4)}),
    ("S.sum(S.var('a'), axis=1)", {"a": (0, 4)}),
    ("S.mean(S.var('a'))", {"a": (0, 4)}),
    ("S.slice_axis(S.var('a'), axis=1, begin=0, end=2)", {"a": (0, 4)}),
    ("S.expand_dims(S.var('a'), axis=0)", {"a": (0, 4)}),
    ("S.FullyConnected(S.var('data', shape=(2, 4)), num_hidden=3, name='fc')", {}),
    ("S.FullyConnected(S.var('data', shape=(2, 4)), num_hidden=3, name='fc')", {"data": (5, 4)}),
    ("S.FullyConnected(S.var('data', shape=(0, 4)), num_hidden=3, name='fc')", {}),
    ("S.zeros((0, 4)) + S.var('a')", {"a": (2, 4)}),
    ("S.zeros((0, 0)) + S.var('a')", {"a": (2, 4)}),
    ("S.add_n(S.var('a'), S.var('b'), S.var('c'))", {"b": (2, 4)}),
    ("S.zeros_like(S.var('a')) + S.var('b')", {"b": (2, 4)}),
    ("S.Deconvolution(S.var('a'), num_filter=8, kernel=(3, 3), name='c')", {"a": (0, 3, 8, 8)}),
    ("S.LayerNorm(S.var('a'), name='p')", {"a": (0, 3, 8)}),
    ("S.Group([" + FC + ", S.var('a') + S.var('b')])", {"data": (2, 4), "a": (1,)}),
    ("S.var('q') + S.var('q')", {"q": (2,)}),
]
TYPES = [
    (FC, {"data": "float64"}),
    (FC, {"fc_weight": "float16"}),
    (FC, {}),
    ("S.cast(S.var('a'), dtype='int32')", {"a": "float32"}),
    ("S.Embedding(S.var('a'), input_dim=5, output_dim=3, name='e')", {"a": "int32"}),
    ("S.var('a', dtype='float64') + S.var('b')", {}),
    ("S.BatchNorm(S.var('a'), name='bn')", {"a": "float16"}),
    ("S.argmax(S.var('a'))", {"a": "float64"}),
    ("S.one_hot(S.var('a'), depth=3)", {"a": "int32"}),
    ("S.SoftmaxOutput(S.var('a'), name='s')", {"a": "float64"}),
    ("S.relu(S.var('a')) + S.var('b')", {"b": "float64"}),
    ("S.topk(S.var('a'), ret_typ='both')", {"a": "float64"}),
    ("S.zeros((2,), dtype='float64') + S.var('a')", {}),
    ("S.take(S.var('a'), S.var('b'))", {"a": "float64", "b": "int32"}),
    ("S.shape_array(S.var('a'))", {"a": "float64"}),
    ("S.var('a') > S.var('b')", {"a": "float64"}),
]
LISTINGS = [
    NET,
    TOWER,
    "S.BatchNorm(S.var('d'), name='bn')",
    "S.BatchNorm(S.var('d'), name='bn', output_mean_var=True)",
    "S.split(S.var('d'), num_outputs=3, name='sp')",
    "S.split(S.var('d'), num_outputs=3, name='sp')[1]",
    "S.split(S.var('d'), num_outputs=3, name='sp')[1:]",
    "S.Group([S.split(S.var('d'), num_outputs=3, name='sp'), " + FC + "])",
    "S.FullyConnected(num_hidden=2, bias=S.var('bb'), name='k')",
    "S.FullyConnected(S.var('d'), num_hidden=2, no_bias=True, name='k')",
    "S.Concat(arg1=S.var('x'), arg0=S.var('y'), dim=1, name='k')",
    "S.Concat(num_args=2, name='k')",
    "S.LeakyReLU(S.var('d'), act_type='prelu', name='p')",
    NET + "(data=S.FullyConnected(S.var('data2'), num_hidden=4, name='o'), name='composed')",
    NET + ".get_internals()['fc1_output']",
    NET + ".get_children()",
]
# Nodes that operators and functions make: operator, name, attributes.
MADE = [
    *(
        f"S.var('a') {sign} S.var('b')"
        for sign in ("+", "-", "*", "/", "%", "**", "==", "!=", ">", ">=", "<", "<=")
    ),
    *(f"S.var('a') {sign} 2" for sign in ("+", "-", "*", "/", "%", "**", "==", "!=", ">", ">=", "<", "<=")),
    *(f"2.5 {sign} S.var('a')" for sign in ("+", "-", "*", "/", "%", "**", "==", "!=", ">", ">=", "<", "<=")),
    "-S.var('a')",
    "abs(S.var('a'))",
    *(f"S.{name}(S.var('a'), S.var('b'))" for name in ("maximum", "minimum", "power", "pow", "hypot")),
    *(f"S.{name}(2, S.var('a'))" for name in ("maximum", "minimum", "power", "hypot")),
    *(f"S.{name}(S.var('a'), 2)" for name in ("maximum", "minimum", "power", "hypot")),
    "S.zeros((2, 3))",
    "S.ones((2, 3), dtype='int32')",
    "S.full((2,), 5)",
    "S.eye(3)",
    "S.linspace(0, 1, 5)",
    "S.random.uniform(0, 1, shape=(2,))",
    "S.random.normal(S.var('a'), S.var('b'), shape=(2,))",
    "S.split_v2(S.var('a'), (1, 2))",
    "S.histogram(S.var('a'), bins=5, range=(0, 1))",
    "S.var('a').astype('float16')",
    "S.var('a').reshape((2, 3))",
    "S.var('a').sum()",
    "S.split(S.var('a'), num_outputs=2)",
    "S.Activation(S.var('a'), act_type='relu')",
    "S.relu(S.var('a'))",
    "S.stop_gradient(S.var('a'))",
    "S.linalg.gemm2(S.var('a'), S.var('b'))",
    "S.cast(S.var('a'), dtype='int32')",
    "S.elemwise_add(S.var('a'), S.var('b'))",
    "S.Flatten(S.var('a'))",
    "S.image.to_tensor(S.var('a'))",
    "S.contrib.quadratic(S.var('a'))",
]
# (Symbol, arguments, auxiliary states, requests, train mode, head gradients)
RUNS = [
    (
        "(lambda a: a * S.var('b') + a)(S.var('a'))",
        {"a": [1, 2], "b": [3, 4]},
        {},
        {"a": "write", "b": "add"},
        True,
        [[1, 2]],
    ),
    ("S.var('a') * S.var('b')", {"a": [1, 2], "b": [3, 4]}, {}, {"a": "null", "b": "write"}, True, [[1, 1]]),
    (
        "S.SoftmaxOutput(S.var('a'), S.var('l'))",
        {"a": [[1, 2, 3], [3, 1, 0]], "l": [2, 1]},
        {},
        "write",
        True,
        None,
    ),
    (
        "S.SoftmaxOutput(S.var('a'), S.var('l'))",
        {"a": [[1, 2, 3]], "l": [0]},
        {},
        "write",
        True,
        [[[9, 9, 9]]],
    ),
    (
        "S.SoftmaxOutput(S.var('a'), S.var('l'), grad_scale=2.0, use_ignore=True, ignore_label=1, "
        "normalization='valid')",
        {"a": [[1, 2, 3], [3, 1, 0], [0, 0, 1]], "l": [2, 1, 0]},
        {},
        "write",
        True,
        None,
    ),
    (
        "S.LinearRegressionOutput(S.var('a'), S.var('l'))",
        {"a": [[1, 2], [0, 3]], "l": [[0, 1], [2, 2]]},
        {},
        "write",
        True,
        None,
    ),
    (
        "S.LogisticRegressionOutput(S.var('a'), S.var('l'))",
        {"a": [[1], [-2]], "l": [[1], [1]]},
        {},
        "write",
        True,
        None,
    ),
    (
        "S.MAERegressionOutput(S.var('a'), S.var('l'))",
        {"a": [[1], [-2]], "l": [[3], [-4]]},
        {},
        "write",
        True,
        None,
    ),
    ("S.MakeLoss(S.square(S.var('a')), grad_scale=3.0)", {"a": [1, 2]}, {}, "write", True, None),
    (
        "S.SVMOutput(S.var('a'), S.var('l'))",
        {"a": [[1, 2, 0], [3, 0, 1]], "l": [1, 0]},
        {},
        "write",
        True,
        None,
    ),
    ("S.BlockGrad(S.var('a')) * S.var('b')", {"a": [1, 2], "b": [3, 4]}, {}, "write", True, [[1, 1]]),
    (
        "S.Group([S.MakeLoss(S.var('a') * 2), S.BlockGrad(S.var('a') * 3)])",
        {"a": [1, 2]},
        {},
        "add",
        True,
        None,
    ),
    (
        "S.BatchNorm(S.var('x'), name='bn', fix_gamma=False, momentum=0.5)",
        {"x": [[1, 2], [3, 6], [5, 1]], "bn_gamma": [1, 2], "bn_beta": [0, 1]},
        {"bn_moving_mean": [0, 0], "bn_moving_var": [1, 1]},
        "write",
        True,
        [[[1, 0], [0, 1], [2, 1]]],
    ),
    (
        FC.replace("S.var('data')", "S.tanh(S.var('data'))"),
        {"data": [[1, 2]], "fc_weight": [[1, 0], [0, 1], [1, 1]], "fc_bias": [0, 1, 2]},
        {},
        {"data": "add", "fc_weight": "write", "fc_bias": "null"},
        True,
        [[[1, 2, 3]]],
    ),
]
ATTRIBUTES = [
    "S.var('x', shape=(2, 3), dtype='float16', init=mx.init.One(), lr_mult=2, wd_mult=.5, "
    "stype='row_sparse', attr={'mood': 'angry'}, __q__='1')",
    "S.var('x', init='xavier')",
    "S.Convolution(data=S.var('data', attr={'mood': 'angry'}), name='conv', kernel=(1, 1), num_filter=1, "
    "attr={'__mood__': 'so so', 'wd_mult': 'x'})",
    "S.FullyConnected(S.var('x'), num_hidden=3, name='fc', lr_mult=2)",
    "scoped(S, mx)",
]


def scoped(S, mx):
    with mx.AttrScope(ctx_group="dev1", lr_mult="3"), mx.AttrScope(__inner__="yes"):
        return S.FullyConnected(S.var("x", attr={"lr_mult": "5"}), num_hidden=3, name="fc")


def make(text):
    return eval(text, {"S": S, "mx": mx, "scoped": scoped})


def names(types):
    return [None if kind is None else numpy.dtype(kind).name for kind in types]


def run(text, arguments, auxiliary, request, training, heads):
    symbol = make(text)
    arrays = {name: mx.nd.array(value) for name, value in arguments.items()}
    grads = {name: mx.nd.ones(array.shape) for name, array in arrays.items()}
    states = {name: mx.nd.array(value) for name, value in auxiliary.items()}
    executor = symbol.bind(mx.cpu(), arrays, args_grad=grads, grad_req=request, aux_states=states)
    outputs = [array.asnumpy().tolist() for array in executor.forward(is_train=training)]
    executor.backward(None if heads is None else [mx.nd.array(head) for head in heads])
    return {
        "outputs": outputs,
        "grads": {name: array.asnumpy().tolist() for name, array in grads.items()},
        "aux": {name: array.asnumpy().tolist() for name, array in states.items()},
    }


def made(text):
    with mx.name.NameManager():
        node = json.loads(make(text).tojson())["nodes"][-1]
    return [node["op"], node["name"], node.get("attrs", {})]


def summary(text, **options):
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), mx.name.NameManager():
        mx.viz.print_summary(make(text), **options)
    return stream.getvalue()


def main(path):
    warnings.simplefilter("ignore")
    with mx.name.NameManager():
        debug = make(NET).debug_str()
    listing = ("list_arguments", "list_auxiliary_states", "list_outputs", "list_inputs")
    result = {
        "version": mx.__version__,
        "shapes": [[t, k, make(t).infer_shape_partial(**k)] for t, k in SHAPES],
        "types": [[t, k, [names(group) for group in make(t).infer_type_partial(**k)]] for t, k in TYPES],
        "listings": [[t, {method: getattr(make(t), method)() for method in listing}] for t in LISTINGS],
        "made": [[text, made(text)] for text in MADE],
        "runs": [[*case, run(*case)] for case in RUNS],
        "attributes": [[text, make(text).attr_dict()] for text in ATTRIBUTES],
        "debug_str": [NET, debug],
        "summaries": [
            [TOWER, {"shape": {"data": (1, 3, 16, 16)}}, summary(TOWER, shape={"data": (1, 3, 16, 16)})],
            [
                TOWER,
                {"shape": {"data": (2, 3, 16, 16)}, "line_length": 80, "positions": [0.4, 0.6, 0.7, 1.0]},
                summary(
                    TOWER, shape={"data": (2, 3, 16, 16)}, line_length=80, positions=[0.4, 0.6, 0.7, 1.0]
                ),
            ],
        ],
    }
    with open(path, "w") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
