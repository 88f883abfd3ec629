"""Write small files of arrays and optimizer states with the original: ``python serial_files.py
../serial``."""

import os
import sys

import mxnet as mx

VERSION = "2.0.0b1" if mx.__version__.startswith("2") else "1.9.1"


def main(target):
    folder = os.path.join(target, VERSION)
    os.makedirs(folder, exist_ok=True)

    def path(name):
        return os.path.join(folder, name)

    matrix, small = mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([1, -2], dtype="int8")
    mx.nd.save(path("dict.params"), {"arg:w": matrix, "b": small})
    mx.nd.save(path("list.params"), [matrix, small])
    mx.nd.save(path("one.params"), matrix)
    mx.nd.save(path("empty.params"), [])
    types = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")
    mx.nd.save(path("types.params"), {name: mx.nd.array([1, 2, 3], dtype=name) for name in types})
    if VERSION == "1.9.1":
        rows = mx.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 3]), shape=(5, 2))
        mx.nd.save(path("row_sparse.params"), {"r": rows})
        csr = mx.nd.sparse.csr_matrix(([1.0, 2, 3], [0, 2, 1], [0, 2, 2, 3]), shape=(3, 4))
        mx.nd.save(path("csr.params"), {"c": csr})
        mx.npx.set_np()
        mx.npx.save(
            path("scalar.params"), {"s": mx.np.array(3.0), "e": mx.np.zeros((0, 3)), "n": mx.np.ones((2,))}
        )
        mx.npx.reset_np()
    else:
        mx.npx.savez(path("named.npz"), mx.np.ones((2,)), k=mx.np.zeros((2, 2)), s=mx.np.array(3.0))
        mx.npx.save(path("scalar.npy"), mx.np.array(3.0))
    create = mx.nd.array if VERSION == "1.9.1" else mx.np.array
    for name, options, dtype in [
        ("sgd", {"momentum": 0.9, "learning_rate": 0.1}, "float32"),
        ("sgd_half", {"momentum": 0.9, "learning_rate": 0.1, "multi_precision": True}, "float16"),
        ("adam", {"learning_rate": 0.05}, "float32"),
    ]:
        scheduler = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.05) if name == "adam" else None
        optimizer = mx.optimizer.create(name.split("_")[0], lr_scheduler=scheduler, **options)
        updater = mx.optimizer.get_updater(optimizer)
        for _ in range(3):
            updater(0, create([1.0, 2.0], dtype=dtype), create([1.0, -1.0], dtype=dtype))
        for suffix, dump in (("states", False), ("full.states", True)):
            with open(path(f"{name}.{suffix}"), "wb") as stream:
                stream.write(updater.get_states(dump_optimizer=dump))


if __name__ == "__main__":
    main(sys.argv[1])
