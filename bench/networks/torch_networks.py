"""The networks as torch modules: from a described Gluon network, or of torch's own layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .describe import Step, load
from .shapes import BERT, bert_layers


def build(network: str, settings: dict[str, int], models: Path) -> nn.Module:
    """A network of the table; ``models`` is the folder of the descriptions."""
    if network in ("bert", "bert_layer"):
        return nn.Sequential(*(BertLayer() for _ in range(bert_layers(network))))
    if network == "lstm":
        return Recurrent(settings["hidden"], settings["layers"])
    return from_steps(load(models / f"{network}.json"))


class Recurrent(nn.Module):
    """torch's LSTM, of which only the sequence of outputs is wanted."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden, layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.lstm(x)[0]
        return output


class BertLayer(nn.Module):
    """A post-norm encoder layer with separate projections, as `gluon_networks` has it."""

    def __init__(self) -> None:
        super().__init__()
        hidden = BERT["hidden"]
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.widen = nn.Linear(hidden, BERT["feed_forward"])
        self.narrow = nn.Linear(BERT["feed_forward"], hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (BERT["heads"], -1)).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x))
        )
        x = self.attention_norm(x + self.output(mixed.transpose(1, 2).flatten(2)))
        output: torch.Tensor = self.norm(x + self.narrow(functional.gelu(self.widen(x))))
        return output


def from_steps(steps: list[Step]) -> nn.Module:
    """A module whose generated ``forward`` is straight-line code, as a person would write it."""
    modules: dict[str, nn.Module] = {}
    graph = torch.fx.Graph()
    values = {"data": graph.placeholder("data")}
    for step in steps:
        arguments = [values[name] for name in step.inputs]
        if step.op in _LAYERS:
            target = "layer_" + re.sub(r"\W", "_", step.name)
            layer = _LAYERS[step.op](step)
            if step.op == "FullyConnected" and step.attributes.get("flatten", True):
                arguments = [graph.call_function(torch.flatten, (arguments[0], 1))]
            modules[target] = layer
            values[step.name] = graph.call_module(target, tuple(arguments))
        elif step.op == "Concat":
            values[step.name] = graph.call_function(torch.cat, (arguments, step.attributes.get("dim", 1)))
        elif step.op in ("broadcast_add", "elemwise_add", "_npi_add"):
            values[step.name] = graph.call_function(torch.add, tuple(arguments))
        elif step.op == "Flatten":
            values[step.name] = graph.call_function(torch.flatten, (arguments[0], 1))
        elif step.op == "_copy":
            values[step.name] = arguments[0]
        else:
            raise ValueError(f"The description has an operator {step.op}, which the torch twin lacks")
    graph.output(values[steps[-1].name])
    return torch.fx.GraphModule(modules, graph)


def _convolution(step: Step) -> nn.Module:
    attributes, weight = step.attributes, step.shapes["weight"]
    groups = attributes.get("num_group", 1)
    return nn.Conv2d(
        weight[1] * groups,
        weight[0],
        tuple(attributes["kernel"]),
        tuple(attributes.get("stride") or (1, 1)),
        tuple(attributes.get("pad") or (0, 0)),
        tuple(attributes.get("dilate") or (1, 1)),
        groups,
        bias="bias" in step.shapes,
    )


def _batch_norm(step: Step) -> nn.Module:
    attributes = step.attributes
    return nn.BatchNorm2d(
        step.shapes["gamma"][0], attributes.get("eps", 1e-5), 1.0 - attributes.get("momentum", 0.9)
    )


def _pooling(step: Step) -> nn.Module:
    attributes = step.attributes
    average = attributes.get("pool_type", "max") == "avg"
    if attributes.get("global_pool"):
        return nn.AdaptiveAvgPool2d(1) if average else nn.AdaptiveMaxPool2d(1)
    window = (
        tuple(attributes["kernel"]),
        tuple(attributes.get("stride") or (1, 1)),
        tuple(attributes.get("pad") or (0, 0)),
    )
    round_up = attributes.get("pooling_convention", "valid") == "full"
    if average:
        return nn.AvgPool2d(*window, round_up, attributes.get("count_include_pad", True))
    return nn.MaxPool2d(*window, ceil_mode=round_up)


def _activation(step: Step) -> nn.Module:
    return {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}[step.attributes["act_type"]]()


def _dense(step: Step) -> nn.Module:
    outputs, inputs = step.shapes["weight"]
    return nn.Linear(inputs, outputs, bias="bias" in step.shapes)


_LAYERS: dict[str, Callable[[Step], nn.Module]] = {
    "Convolution": _convolution,
    "BatchNorm": _batch_norm,
    "Pooling": _pooling,
    "Activation": _activation,
    "FullyConnected": _dense,
    "clip": lambda step: nn.Hardtanh(step.attributes["a_min"], step.attributes["a_max"]),
    "Dropout": lambda step: nn.Dropout(step.attributes.get("p", 0.5)),
}


def input_for(network: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    """A random input; images are channels-last, which is what torch's convolutions are fastest on."""
    x = torch.randn(shape).to(dtype)
    return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
