"""MXNet 1.9.1 or 2.0.0b1, hybridized; for prediction with its oneDNN backend where that is faster."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import mxnet as mx

from bench.workers import gluon_works
from bench.workers.protocol import Unsupported, best_seconds, serve

FIRST = mx.__version__.startswith("1.")
BACKEND = "MKLDNN" if FIRST else "ONEDNN"


class Mxnet(gluon_works.Gluon):
    """The original's own low precision and its subgraph backend."""

    asynchronous = True

    def compiled(self, net: Any, x: Any) -> Callable[[], Any]:
        call = super().compiled(net, x)
        plain = best_seconds(call)
        try:
            net.optimize_for(x, backend=BACKEND, clear=True, static_alloc=True, static_shape=True)
            if best_seconds(call) < plain:
                return call
        except Exception as error:
            warnings.warn(f"{BACKEND}: {error}", stacklevel=2)
        net.hybridize(static_alloc=True, static_shape=True)
        return call

    def converted(self, net: Any, x: Any, dtype: str) -> tuple[Any, Any]:
        if dtype == "int8":
            return self._quantized(net, x)
        amp = importlib.import_module("mxnet.contrib.amp" if FIRST else "mxnet.amp")
        cpu = {"ctx" if FIRST else "device": mx.cpu()}
        return amp.convert_hybrid_block(net, target_dtype=dtype, cast_optional_params=True, **cpu), x

    def _quantized(self, net: Any, x: Any) -> tuple[Any, Any]:
        quantization = importlib.import_module("mxnet.contrib.quantization")
        # 1.9.1 takes batches that are lists only.
        images = mx.gluon.data.SimpleDataset([(x[0],)])
        batches = mx.gluon.data.DataLoader(images, batch_size=1)
        count = {"num_calib_examples" if FIRST else "num_calib_batches": 1}
        quantized = quantization.quantize_net(
            net, quantized_dtype="auto", calib_data=batches, calib_mode="naive", **count
        )
        return quantized, x

    def start_training(self, net: Any, dtype: str) -> None:
        if dtype == "float32":
            return
        if FIRST:
            raise Unsupported("its bfloat16 is for inference only")
        importlib.import_module("mxnet.amp").init(target_dtype=dtype)


def prepare(work: dict[str, Any]) -> gluon_works.Prepared:
    # Low precision in 1.9.1 is for legacy arrays; the encoder here is written for the other kind.
    legacy = FIRST and work["dtype"] != "float32" and work["network"] != "bert"
    return gluon_works.prepare(Mxnet(mx, legacy), work)


def versions() -> dict[str, str]:
    return {"mxnet": mx.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
