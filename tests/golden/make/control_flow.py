"""Write symbol files with loops and branches, and what they compute: ``python control_flow.py FOLDER``.

Run with MXNet 1.9.1 and with 2.0.0b1; each writes ``FOLDER/<version>.json`` and ``FOLDER/<version>.npz``.
"""

import functools
import json
import os
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import mxnet as mx
import numpy

S = mx.sym
C = S.contrib
# One variable of a name.
V = functools.cache(S.var)


def nested_loops():
    def outer(row, state):
        inner, last = C.foreach(lambda x, s: (x * V("w") + state, s + x), row, state)
        return S.broadcast_add(inner, last), state + 1

    return C.foreach(outer, V("d"), V("s"))


def layers():
    def body(x, s):
        h = S.FullyConnected(x, num_hidden=3, name="in") + S.FullyConnected(s, num_hidden=3, name="back")
        return S.Activation(h, act_type="tanh"), S.Activation(h, act_type="tanh")

    return C.foreach(body, V("d"), V("s"))


def both_branches():
    w = V("w")
    then = lambda: [V("a") * w, V("a") + 1]  # noqa: E731
    return C.cond(S.sum(V("p")) > 2, then, lambda: [w - V("a"), V("a") * w * 2], name="choice")


def loop_and_branch():
    def step(i, s):
        grown = C.cond(s < 9, lambda: s * 2, lambda: s + V("w"))
        return [grown, i], [i + 1, grown]

    return C.while_loop(lambda i, s: i < V("most"), step, (V("i"), V("s")), max_iterations=7)


# name: (Symbol, inputs, inputs whose gradients are compared, rows of the loop's outputs that are defined)
CASES = {
    "sum_of_products": (
        lambda: C.foreach(lambda x, s: (x * V("w") + s, s + x), V("d"), V("s")),
        {"d": (4, 3), "s": (3,), "w": (3,)},
        ["d", "s", "w"],
        4,
    ),
    "two_of_each": (
        lambda: C.foreach(
            lambda x, s: ([x[0] + s[0], x[1]], [s[1], s[0] * x[1]]), [V("d"), V("e")], [V("s"), V("t")]
        ),
        {"d": (3, 2), "e": (3, 2), "s": (2,), "t": (2,)},
        ["d", "e", "s", "t"],
        3,
    ),
    "vector": (
        lambda: C.foreach(lambda x, s: (x + s, x * s), V("d"), V("s")),
        {"d": (5,), "s": (1,)},
        ["d", "s"],
        5,
    ),
    "nested_loops": (nested_loops, {"d": (2, 3, 2), "s": (2,), "w": (2,)}, ["d", "s", "w"], 3),
    "layers": (
        layers,
        {
            "d": (4, 2, 5), "s": (2, 3), "in_weight": (3, 5), "in_bias": (3,),
            "back_weight": (3, 3), "back_bias": (3,),
        },
        ["d", "s", "in_weight", "in_bias", "back_weight", "back_bias"],
        4,
    ),
    "counting": (
        lambda: C.while_loop(
            lambda i, s: i < V("most"),
            lambda i, s: ([S.broadcast_mul(s, i)], [i + 1, s * V("w")]),
            [V("i"), V("s")],
            6,
        ),
        {"most": numpy.array([4.0]), "i": numpy.array([0.0]), "s": (2,), "w": (2,)},
        ["s", "w"],
        4,
    ),
    "loop_and_branch": (
        loop_and_branch,
        {"most": numpy.array([5.0]), "i": numpy.array([0.0]), "s": numpy.array([1.5]), "w": (1,)},
        ["s"],
        5,
    ),
    "then": (both_branches, {"p": numpy.array([1.0, 2.0]), "a": (2,), "w": (2,)}, ["a", "w"], 2),
    "else": (both_branches, {"p": numpy.array([-1.0, 2.0]), "a": (2,), "w": (2,)}, ["a", "w"], 2),
}  # fmt: skip


def flat(value):
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (list, tuple)) else [value]


def run(name, case):
    make, inputs, wanted, rows = case
    graph = S.Group(flat(make()))
    generator = numpy.random.RandomState(5)
    values = {}
    for key, given in inputs.items():
        value = given if isinstance(given, numpy.ndarray) else generator.rand(*given) + 0.5
        values[key] = value.astype("float32")
    arrays = {key: mx.nd.array(value) for key, value in values.items()}
    gradients = {key: mx.nd.zeros(values[key].shape) for key in wanted}
    bind = graph.bind if hasattr(graph, "bind") else graph._bind
    executor = bind(mx.cpu(), arrays, gradients or None)
    outputs = executor.forward(is_train=bool(wanted))
    heads = [generator.rand(*output.shape).astype("float32") for output in outputs]
    for head in heads:
        if head.shape and head.shape[0] > rows:
            head[rows:] = 0
    outputs = [output.asnumpy() for output in outputs]
    if wanted:
        executor.backward([mx.nd.array(head) for head in heads])
    found = {f"{name}|in|{key}": value for key, value in values.items()}
    found.update({f"{name}|out|{i}": output[:rows] for i, output in enumerate(outputs)})
    found.update({f"{name}|head|{i}": head for i, head in enumerate(heads)})
    found.update({f"{name}|gradient|{key}": gradients[key].asnumpy() for key in wanted})
    return graph.tojson(), found


def main(folder):
    texts, arrays = {}, {}
    for name, case in CASES.items():
        try:
            texts[name], found = run(name, case)
        except mx.base.MXNetError as error:
            # Neither release computes the gradients of these; their outputs are compared.
            print(name, str(error).splitlines()[-1][:300], file=sys.stderr)
            texts[name], found = run(name, (*case[:2], [], case[3]))
        arrays.update(found)
    version = mx.__version__.split("b")[0] if mx.__version__[0] == "1" else "2.0.0b1"
    with open(os.path.join(folder, f"{version}.json"), "w") as file:
        json.dump({name: json.loads(text) for name, text in texts.items()}, file)
    numpy.savez_compressed(os.path.join(folder, f"{version}.npz"), **arrays)


main(sys.argv[1])
