"""torch, eager or compiled: convolutions channels-last, attention and LSTM on torch's own fused layers."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from bench.networks.shapes import classes, input_shape
from bench.networks.torch_networks import build, input_for
from bench.workers.protocol import Prepared, Unsupported, serve, threads

COMPILED = sys.argv[1] == "torch.compile"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def network_of(work: dict[str, Any]) -> torch.nn.Module:
    module = build(work["network"], work["settings"], Path(sys.argv[2]))
    images = len(input_shape(work["network"], 1, work["settings"])) == 4
    return module.to(memory_format=torch.channels_last) if images else module


def example_for(work: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    shape = input_shape(work["network"], work["batch"], work["settings"])
    x: torch.Tensor = input_for(work["network"], shape, dtype)
    return x


def inference(work: dict[str, Any]) -> Prepared:
    if work["dtype"] not in DTYPES:
        raise Unsupported("torch's int8 is a separate package, torchao, with other models")
    dtype = DTYPES[work["dtype"]]
    module = network_of(work).eval().to(dtype)
    x = example_for(work, dtype)
    call = torch.compile(module) if COMPILED else module
    # Nothing records gradients in this process, which is faster than a scope around every call.
    torch.set_grad_enabled(False)
    for _ in range(3):
        call(x)
    return Prepared(partial(call, x))


def training(work: dict[str, Any]) -> Prepared:
    module = network_of(work).train()
    x = example_for(work, torch.float32)
    step = training_step(module, x, classes(work["network"]), DTYPES[work["dtype"]])
    for _ in range(3):
        step()
    return Prepared(step)


def training_step(
    module: torch.nn.Module, x: torch.Tensor, count: int | None, dtype: torch.dtype
) -> Callable[[], torch.Tensor]:
    """Forward, loss, backward and an update by SGD with momentum; bfloat16 by autocast."""
    call = torch.compile(module) if COMPILED else module
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)
    batch = x.shape[0]
    if count is None:
        loss_of, target = functional.mse_loss, torch.zeros_like(module(x))
    else:
        loss_of, target = functional.cross_entropy, torch.randint(count, (batch,))

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext():
            output = call(x)
        loss: torch.Tensor = loss_of(output.float(), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def first_call(work: dict[str, Any]) -> Prepared:
    module = network_of(work).eval()
    x = example_for(work, torch.float32)
    torch.set_grad_enabled(False)
    module(x)
    started = time.perf_counter()
    call = torch.compile(module)
    call(x)
    return Prepared(partial(call, x), first=time.perf_counter() - started)


def eager(work: dict[str, Any]) -> Prepared:
    torch.set_grad_enabled(False)
    return Prepared(partial(operator.add, torch.ones(4, 4), torch.ones(4, 4)))


def prepare(work: dict[str, Any]) -> Prepared:
    torch.manual_seed(0)
    torch.set_num_threads(threads())
    kind = work["kind"]
    if kind == "memory":
        return training(work) if work["settings"].get("training") else inference(work)
    kinds = {"inference": inference, "training": training, "eager": eager}
    # torch.compile leaves nothing to a second call.
    kinds |= {"first_call": first_call, "compiled": first_call}
    return kinds[kind](work)


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}


if __name__ == "__main__":
    serve(prepare, versions)
