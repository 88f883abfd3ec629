"""Ask MXNet 1.9.1 what expressions on sparse arrays give, and write it to sparse.json.

Run with the Python of an environment that has mxnet==1.9.1 and numpy==1.23.5: ``python sparse_cases.py``.
"""

from __future__ import annotations

import json
import operator
import pathlib

SETUP = """
a = sparse.csr_matrix(np.array([[1, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 0]], "float32"))
b = sparse.csr_matrix(np.array([[1, 0, 0, 1], [0, 0, 1, 0], [0, 3, 0, 0]], "float32"))
r = sparse.row_sparse_array(np.array([[0, 0], [1, 2], [0, 0], [3, 4]], "float32"))
q = sparse.row_sparse_array(np.array([[5, 0], [0, 0], [0, 0], [3, 4]], "float32"))
d = nd.array(np.arange(12).reshape(3, 4))
e = nd.array(np.arange(8).reshape(4, 2))
ones = nd.ones((4, 2))
"""
EXPRESSIONS = """
a ; r ; a.data ; a.indices ; a.indptr ; r.data ; r.indices ; a.copy() ; r.copy() ; a.astype('int32')
r.astype('float64') ; a.tostype('default') ; a.tostype('csr') ; r.tostype('default') ; d.tostype('csr')
e.tostype('row_sparse') ; a.copyto(mx.cpu()) ; a.copyto(nd.zeros((3, 4)))
d.copyto(sparse.zeros('csr', (3, 4))) ; a.copyto(sparse.zeros('csr', (3, 4))) ; a[0] ; a[-1] ; a[1:3]
a[0:1] ; a[:] ; r[:] ; a.T ; a.detach() ; a - 2 ; a / b ; a + d ; d + a ; a * d ; a - d ; a + 1 ; 1 + a
a * 2 ; 2 * a ; a / 2 ; 2 / a ; 1 - a ; a ** 2 ; a % 2 ; -a ; abs(a) ; a == b ; a > 1 ; a != 0 ; a >= 0
a < 0 ; a <= 0 ; a == 0 ; a == 1 ; a < 1 ; r > 0 ; r + q ; r - q ; r * q ; r / q ; r * 2 ; r + 1 ; r / 2
r + e ; r * e ; e - r ; e * r ; -r ; r ** 2 ; a * 0 ; r * r ; a * nd.ones((1, 4)) ; a * nd.ones((3, 1))
a / nd.ones((1, 4)) ; a + nd.ones((1, 4)) ; 2 ** a ; sparse.subtract(a, 2) ; sparse.multiply(a, d)
sparse.divide(a, 2) ; nd.sqrt(a) ; nd.square(r) ; sparse.square(r) ; nd.sin(r) ; nd.cos(r) ; nd.abs(a)
nd.relu(-a) ; nd.sign(r) ; nd.round(a) ; nd.exp(a) ; nd.expm1(a) ; nd.tanh(a) ; nd.log1p(a) ; nd.cbrt(r)
nd.floor(r) ; nd.ceil(a) ; nd.arctan(a) ; nd.sigmoid(a) ; nd.identity(a) ; nd.stop_gradient(a)
nd.clip(r, 0, 2) ; nd.clip(a, -1, 1) ; nd.sum(a) ; nd.sum(a, axis=0) ; nd.sum(a, axis=1)
nd.sum(a, axis=0, keepdims=True) ; nd.mean(a, axis=1) ; nd.mean(a, axis=0) ; nd.sum(r, axis=0) ; nd.norm(a)
nd.norm(r) ; nd.norm(a, axis=1) ; a.sum() ; a.abs() ; nd.dot(a, ones)
nd.dot(a, nd.ones((3, 2)), transpose_a=True) ; sparse.dot(a, ones) ; nd.dot(a, r)
nd.dot(d, a, transpose_b=True) ; nd.dot(d, a, transpose_a=True) ; nd.dot(a, b, transpose_b=True)
nd.dot(nd.ones((2, 3)), a) ; nd.dot(a, ones, forward_stype='csr')
nd.dot(nd.ones((2, 3)), a, forward_stype='default')
sparse.dot(a, nd.ones((3, 2)), transpose_a=True, forward_stype='default')
sparse.retain(r, nd.array([1, 2])) ; sparse.retain(r, nd.array([3, 1])) ; sparse.retain(r, nd.array([2]))
nd.cast_storage(d, 'csr') ; nd.cast_storage(a, 'default') ; nd.cast_storage(e, 'row_sparse')
sparse.zeros('csr', (2, 3)) ; sparse.zeros('row_sparse', (2, 3)) ; sparse.zeros('default', (2, 3))
sparse.zeros('csr', (2, 3), dtype='int32') ; sparse.empty('csr', (2, 2)) ; nd.zeros((2, 3), stype='csr')
nd.zeros((2, 3), stype='row_sparse') ; nd.zeros_like(a) ; nd.zeros_like(r) ; nd.ones_like(a)
sparse.array(a) ; sparse.array(r) ; nd.array(a) ; nd.array(a, dtype='int32')
sparse.array(a, dtype='int32') ; a.slice(begin=(0,), end=(2,)) ; nd.slice(a, begin=(1, 0), end=(3, 2))
nd.slice(a, begin=(0, 1), end=(3, 3)) ; nd.slice_axis(a, axis=0, begin=0, end=2) ; nd.concat(a, b, dim=0)
nd.concat(a, b, dim=1) ; nd.stack(a, b) ; nd.concat(a, d, dim=0) ; nd.where(a, d, d + 1)
nd.elemwise_mul(a, d) ; nd.elemwise_mul(d, a) ; nd.elemwise_mul(r, e) ; nd.elemwise_sub(r, q)
nd.elemwise_div(r, q) ; nd.elemwise_sub(e, r) ; nd.broadcast_mul(a, nd.ones((1, 4)))
nd.broadcast_mul(d, a) ; nd.broadcast_div(a, nd.ones((1, 4))) ; nd.broadcast_add(a, nd.ones((1, 4)))
nd.add_n(r, q) ; nd.add_n(a, b) ; nd.add_n(r, e) ; nd.maximum(a, b) ; nd.take(e, a)
nd.FullyConnected(a, nd.ones((5, 4)), nd.zeros((5,)), num_hidden=5) ; nd.softmax(a)
nd.Embedding(nd.array([1]), r, input_dim=4, output_dim=2) ; nd.cast(a, dtype='int32') ; nd.transpose(a)
nd._internal._scatter_plus_scalar(r, scalar=1) ; nd._internal._scatter_elemwise_div(r, e)
nd._internal._square_sum(r, axis=1, keepdims=True) ; nd._internal._square_sum(r, axis=1)
sparse.csr_matrix((2, 3)) ; sparse.csr_matrix(([1, 2, 3], [0, 2, 1], [0, 2, 3]), shape=(2, 4))
sparse.csr_matrix(([1, 2, 3], [0, 2, 1], [0, 2, 3])) ; sparse.csr_matrix(d) ; sparse.csr_matrix(a)
sparse.csr_matrix(([1, 2, 3], [0, 2, 1], [0, 2, 3]), shape=(2, 4), dtype='int32')
sparse.csr_matrix(np.eye(2)) ; sparse.csr_matrix([[1, 0], [0, 2]])
sparse.csr_matrix(np.eye(2), dtype='float16') ; sparse.row_sparse_array((2, 3))
sparse.row_sparse_array((np.ones((2, 3)), [1, 4]), shape=(6, 3))
sparse.row_sparse_array((np.ones((2, 3)), [1, 4])) ; sparse.row_sparse_array(([[1, 2]], [1]))
sparse.row_sparse_array(d) ; sparse.row_sparse_array(r) ; sparse.row_sparse_array([[0, 0], [0, 2]])
sparse.row_sparse_array((2, 3, 4)) ; updated(nd.sgd_update, r, lr=0.1, wd=0.5)
updated(nd.sgd_update, r, lr=0.1, wd=0.5, lazy_update=False)
updated(nd.sgd_mom_update, r, nd.ones((4, 2)), lr=0.1, momentum=0.9, wd=0.5)
updated(nd.adam_update, r, nd.ones((4, 2)), nd.ones((4, 2)), lr=0.1, wd=0.5)
"""
# Where the original leaves memory behind its numbers, only the dense values say something.
MESSY = ("a - b", "a * b", "a + b", "sparse.add(a, b)", "nd.elemwise_add(a, b)")


def expressions() -> list[str]:
    lines = EXPRESSIONS.strip().replace("\n", " ; ").split(" ; ")
    return [line.strip() for line in lines] + list(MESSY)


def describe(value):
    """Storage type, shape, dtype and numbers of an array, with the places of a sparse one."""
    stored = {"stype": value.stype, "shape": list(value.shape), "dtype": value.dtype.__name__}
    stored["values"] = value.asnumpy().tolist()
    for part in {"csr": ("data", "indices", "indptr"), "row_sparse": ("data", "indices")}.get(
        value.stype, ()
    ):
        stored[part] = getattr(value, part).asnumpy().tolist()
    return stored


def evaluate(mx, np):
    """What every expression gives in a module that looks like mxnet."""
    scope = {"mx": mx, "nd": mx.nd, "sparse": mx.nd.sparse, "np": np, "operator": operator}

    def updated(rule, gradient, *states, **options):
        weight = mx.nd.ones((4, 2))
        rule(weight, gradient, *states, out=weight, **options)
        return mx.nd.stack(weight, *states)

    scope["updated"] = updated
    exec(SETUP, scope)
    results = {}
    for expression in expressions():
        results[expression] = describe(eval(expression, scope))
        if expression in MESSY:
            results[expression] = {k: results[expression][k] for k in ("stype", "shape", "dtype", "values")}
    return results


def main():
    import mxnet
    import numpy

    found = evaluate(mxnet, numpy)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (pathlib.Path(__file__).parent.parent / "sparse.json").write_text(text)
    print(len(found), "expressions")


if __name__ == "__main__":
    main()
