"""regluon, hybridized; nothing is chosen here that a user would not get from ``hybridize()``."""

from __future__ import annotations

from typing import Any

import torch

import regluon as mx
from bench.workers import gluon_works
from bench.workers.protocol import serve, threads


class Regluon(gluon_works.Gluon):
    """regluon's own low precision, as its documentation tells to use it."""

    # The first one runs the graph as it was recorded.
    calls_to_compile = 2

    def converted(self, net: Any, x: Any, dtype: str) -> tuple[Any, Any]:
        if dtype == "int8":
            return self._quantized(net, x)
        return mx.amp.convert_hybrid_block(net, target_dtype=dtype, cast_optional_params=True), x

    def _quantized(self, net: Any, x: Any) -> tuple[Any, Any]:
        batches = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(x), batch_size=1)
        return mx.contrib.quantization.quantize_net(
            net, calib_data=batches, calib_mode="naive", num_calib_batches=1
        ), x

    def start_training(self, net: Any, dtype: str) -> None:
        if dtype != "float32":
            mx.amp.init(target_dtype=dtype)


def prepare(work: dict[str, Any]) -> gluon_works.Prepared:
    torch.set_num_threads(threads())
    mx.random.seed(0)
    return gluon_works.prepare(Regluon(mx), work)


def versions() -> dict[str, str]:
    return {"regluon": mx.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
