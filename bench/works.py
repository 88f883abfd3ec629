"""The table of works: what is timed, and how fast regluon is to be beside its peers."""

from __future__ import annotations

from dataclasses import dataclass, field

PEERS = (
    "regluon",
    "mxnet-1.9.1",
    "mxnet-2.0.0b1",
    "torch",
    "torch.compile",
    "jax",
    "onnxruntime",
    "openvino",
)
MXNET = ("mxnet-1.9.1", "mxnet-2.0.0b1")
TORCH = ("torch", "torch.compile")
ENGINES = ("onnxruntime", "openvino")
EVERYBODY = PEERS[1:]
# No row may be slower than either original; two hundredths are what two runs of one program differ by.
NEVER_SLOWER = 1.02
# The environment, the worker module and the flavour that a peer is run with.
RUNS_IN = {
    "regluon": ("regluon", "regluon_worker"),
    "mxnet-1.9.1": ("mxnet-1", "mxnet_worker"),
    "mxnet-2.0.0b1": ("mxnet-2", "mxnet_worker"),
    "torch": ("torch", "torch_worker"),
    "torch.compile": ("torch", "torch_worker"),
    "jax": ("jax", "jax_worker"),
    "onnxruntime": ("onnxruntime", "onnxruntime_worker"),
    "openvino": ("openvino", "openvino_worker"),
}


@dataclass(frozen=True)
class Bar:
    """The ratio of medians to the best of some peers that regluon is to stay under.

    With ``absolute``, the limit is a number of seconds; with ``work``, a ratio to regluon's own median at
    another work. An ``aim`` is reported, and not counted as a failure when missed.
    """

    limit: float
    against: tuple[str, ...] = ()
    absolute: bool = False
    work: str | None = None
    aim: bool = False


@dataclass(frozen=True)
class Work:
    """One row: a network, how it is used, and on what.

    ``kind`` is "inference", "training", "first_call", "compiled", "memory", "graph" or "eager". ``fresh``
    works can be measured once a process, so that every round starts new ones. Memory is in bytes, all else in
    seconds.
    """

    name: str
    title: str
    network: str
    kind: str = "inference"
    batch: int = 1
    dtype: str = "float32"
    bars: tuple[Bar, ...] = ()
    peers: tuple[str, ...] = PEERS
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def fresh(self) -> bool:
        return self.kind in ("first_call", "compiled", "memory", "graph")

    @property
    def unit(self) -> str:
        return "bytes" if self.kind == "memory" else "seconds"

    def request(self) -> dict[str, object]:
        """What a worker is told about the work."""
        return {
            "name": self.name,
            "network": self.network,
            "kind": self.kind,
            "batch": self.batch,
            "dtype": self.dtype,
            "settings": self.settings,
        }


def _inference(network: str, title: str, batch: int, limit: float, dtype: str = "float32") -> Work:
    short = {"float32": "f32", "bfloat16": "bf16", "int8": "int8"}[dtype]
    return Work(
        name=f"{network}-b{batch}-{short}",
        title=f"{title}, batch {batch}, {short}",
        network=network,
        batch=batch,
        dtype=dtype,
        bars=(Bar(limit, EVERYBODY),),
    )


def _classification() -> list[Work]:
    return [
        _inference("resnet18", "ResNet-18, 224", 1, 1.0),
        _inference("resnet18", "ResNet-18, 224", 32, 1.0),
        _inference("resnet18", "ResNet-18, 224", 1, 1.0, "bfloat16"),
        _inference("resnet18", "ResNet-18, 224", 32, 1.0, "bfloat16"),
        _inference("resnet50", "ResNet-50, 224", 1, 1.05),
        _inference("mobilenet1", "MobileNet v1, 224", 1, 1.05),
        _inference("mobilenet2", "MobileNet v2, 224", 1, 1.05),
        _inference("vgg16", "VGG-16, 224", 1, 1.05),
        _inference("densenet121", "DenseNet-121, 224", 1, 1.05),
        _inference("inception3", "Inception v3, 299", 1, 1.05),
        _inference("resnet50", "ResNet-50, 224", 1, 1.1, "int8"),
    ]


def _small() -> list[Work]:
    return [
        Work(
            "lenet-b16",
            "LeNet, batch 16",
            "lenet",
            batch=16,
            bars=(Bar(0.9, TORCH), Bar(1.0, ("onnxruntime",), aim=True)),
        ),
        Work(
            "mlp-b1",
            "MLP 10-20-20, one call",
            "mlp",
            bars=(Bar(0.7, TORCH), Bar(1.5, ("onnxruntime",), aim=True)),
        ),
        Work(
            "add-4x4",
            "eager a + b, 4x4",
            "add",
            kind="eager",
            bars=(Bar(2.0, ("torch",)),),
            peers=("regluon", *MXNET, "torch", "jax"),
        ),
    ]


def _sequences() -> list[Work]:
    lstm = {"length": 35, "hidden": 650, "layers": 2}
    bert = [
        _inference("bert", "BERT-base encoder, length 128", batch, 1.05, dtype)
        for dtype in ("float32", "bfloat16")
        for batch in (1, 8)
    ]
    return [
        *bert,
        Work(
            "lstm-b32",
            "LSTM 2x650, batch 32, length 35",
            "lstm",
            batch=32,
            bars=(Bar(0.95, TORCH),),
            settings=lstm,
        ),
        Work(
            "lstm-training-b32",
            "LSTM 2x650 training, batch 32, length 35",
            "lstm",
            kind="training",
            batch=32,
            bars=(Bar(0.95, TORCH),),
            peers=("regluon", *MXNET, *TORCH, "jax"),
            settings=lstm,
        ),
    ]


def _training(name: str, title: str, network: str, batch: int, limit: float, dtype: str = "float32") -> Work:
    return Work(
        name,
        title,
        network,
        kind="training",
        batch=batch,
        dtype=dtype,
        bars=(Bar(limit, (*TORCH, "jax")),),
        peers=("regluon", *MXNET, *TORCH, "jax"),
    )


def _compiling() -> list[Work]:
    gluons = ("regluon", *MXNET)
    half, whole = 5000, 10000
    compilers = (*gluons, "torch.compile", "jax", *ENGINES)
    return [
        Work(
            "first-call-resnet50",
            "hybridize + first call, ResNet-50",
            "resnet50",
            kind="first_call",
            bars=(Bar(0.1, ("torch.compile",)),),
            peers=compilers,
        ),
        Work(
            "compiled-resnet50",
            "hybridize until calls run at full speed, ResNet-50",
            "resnet50",
            kind="compiled",
            bars=(Bar(0.1, ("torch.compile",)),),
            peers=compilers,
        ),
        Work(
            f"graph-{half}",
            f"trace and compile {half:,} nodes",
            "chain",
            kind="graph",
            peers=gluons,
            settings={"nodes": half},
        ),
        Work(
            f"graph-{whole}",
            f"trace and compile {whole:,} nodes",
            "chain",
            kind="graph",
            bars=(Bar(3.0, absolute=True), Bar(2.2, work=f"graph-{half}")),
            peers=gluons,
            settings={"nodes": whole},
        ),
    ]


def _memory() -> list[Work]:
    training = ("regluon", *MXNET, *TORCH)
    return [
        Work(
            "memory-resnet50-b32",
            "peak memory, ResNet-50 inference, batch 32",
            "resnet50",
            kind="memory",
            batch=32,
            bars=(Bar(1.0, EVERYBODY),),
        ),
        Work(
            "memory-resnet50-training-b32",
            "peak memory, ResNet-50 training, batch 32",
            "resnet50",
            kind="memory",
            batch=32,
            bars=(Bar(1.0, training[1:]),),
            peers=training,
            settings={"training": 1},
        ),
    ]


WORKS = {
    work.name: work
    for work in (
        *_classification(),
        *_small(),
        *_sequences(),
        _training("lenet-training-b64", "LeNet training, batch 64", "lenet", 64, 0.8),
        _training("resnet18-training-b8-f32", "ResNet-18 training, batch 8, f32", "resnet18", 8, 0.85),
        _training(
            "resnet18-training-b8-bf16", "ResNet-18 training, batch 8, bf16", "resnet18", 8, 0.85, "bfloat16"
        ),
        _training("bert-layer-training-b8", "BERT-base layer training, batch 8", "bert_layer", 8, 0.95),
        *_compiling(),
        *_memory(),
    )
}


def bars_of(work: Work) -> tuple[Bar, ...]:
    """The bars of a row, with the one that holds for every row: never slower than an original."""
    originals = tuple(peer for peer in MXNET if peer in work.peers)
    return (*work.bars, *(Bar(NEVER_SLOWER, (peer,)) for peer in originals))


def chosen(patterns: list[str]) -> list[Work]:
    """The works whose name, or a later word of it, starts with one of the patterns; all of them for none.

    Raises
    ------
    ValueError
        For a pattern that matches no work.
    """
    if not patterns:
        return list(WORKS.values())
    for pattern in patterns:
        if not any(_matches(pattern, name) for name in WORKS):
            raise ValueError(f"No work is called like {pattern!r}; there are {', '.join(WORKS)}")
    exact = [WORKS[pattern] for pattern in patterns if pattern in WORKS]
    if len(exact) == len(patterns):
        return exact
    return [work for name, work in WORKS.items() if any(_matches(pattern, name) for pattern in patterns)]


def _matches(pattern: str, name: str) -> bool:
    return f"-{name}".find(f"-{pattern}") >= 0
