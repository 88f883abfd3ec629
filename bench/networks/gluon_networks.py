"""The networks as Gluon blocks, written once for regluon and for both generations of MXNet.

Each function takes the package to build with. MXNet 1.x calls ``hybrid_forward``, MXNet 2 and regluon
``forward``; a block here writes ``compute(np, npx, x)``, and `hybrid` gives it the method that its package
calls.
"""

from __future__ import annotations

from typing import Any

from .shapes import BERT, DIGITS, MODEL_ZOO, bert_layers


def build(mx: Any, network: str, settings: dict[str, int]) -> Any:
    """A network of the table as a HybridBlock that is not initialized yet."""
    if network in MODEL_ZOO:
        return mx.gluon.model_zoo.vision.get_model(MODEL_ZOO[network])
    if network in ("bert", "bert_layer"):
        return _encoder(mx, bert_layers(network))
    if network == "lstm":
        hidden = settings["hidden"]
        return mx.gluon.rnn.LSTM(hidden, num_layers=settings["layers"], input_size=hidden)
    if network == "chain":
        return _chain(mx, settings["nodes"])
    return {"lenet": _lenet, "mlp": _mlp}[network](mx)


def hybrid(mx: Any) -> type:
    """The base class of blocks that write ``compute(self, np, npx, x)``."""
    if mx.__version__.startswith("1.") and mx.__name__ == "mxnet":

        class First(mx.gluon.HybridBlock):
            def hybrid_forward(self, F: Any, x: Any) -> Any:
                return self.compute(F.np, F.npx, x)

        return First

    class Second(mx.gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return self.compute(mx.np, mx.npx, x)

    return Second


def _lenet(mx: Any) -> Any:
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(16, 5, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Dense(120, activation="relu"),
        nn.Dense(84, activation="relu"),
        nn.Dense(DIGITS),
    )
    return net


def _mlp(mx: Any) -> Any:
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Dense(20, activation="relu"), nn.Dense(20))
    return net


def _encoder(mx: Any, layers: int) -> Any:
    """BERT's encoder: the input is a sequence of embeddings (batch, length, 768); no mask, no dropout.

    Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018, and the post-norm
    layer of Vaswani et al., "Attention Is All You Need", 2017.
    """
    nn = mx.gluon.nn
    base: Any = hybrid(mx)
    hidden, heads = BERT["hidden"], BERT["heads"]
    scale = (hidden // heads) ** -0.5

    class Attention(base):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Dense(hidden, flatten=False, in_units=hidden)
            self.key = nn.Dense(hidden, flatten=False, in_units=hidden)
            self.value = nn.Dense(hidden, flatten=False, in_units=hidden)
            self.output = nn.Dense(hidden, flatten=False, in_units=hidden)

        def compute(self, np: Any, npx: Any, x: Any) -> Any:
            def split(y: Any) -> Any:
                y = npx.reshape(y, (-2, -2, heads, -1))
                return npx.reshape(np.transpose(y, (0, 2, 1, 3)), (-5, -2, -2))

            query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
            weights = npx.softmax(npx.batch_dot(query * scale, key, transpose_b=True), axis=-1)
            mixed = npx.reshape(npx.batch_dot(weights, value), (-6, -1, heads, -2, -2))
            return self.output(npx.reshape(np.transpose(mixed, (0, 2, 1, 3)), (-2, -2, -5)))

    class Layer(base):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention()
            self.attention_norm = nn.LayerNorm(in_channels=hidden, epsilon=1e-12)
            self.widen = nn.Dense(BERT["feed_forward"], flatten=False, in_units=hidden)
            self.gelu = nn.GELU()
            self.narrow = nn.Dense(hidden, flatten=False, in_units=BERT["feed_forward"])
            self.norm = nn.LayerNorm(in_channels=hidden, epsilon=1e-12)

        def compute(self, np: Any, npx: Any, x: Any) -> Any:
            x = self.attention_norm(x + self.attention(x))
            return self.norm(x + self.narrow(self.gelu(self.widen(x))))

    net = nn.HybridSequential()
    net.add(*(Layer() for _ in range(layers)))
    return net


def _chain(mx: Any, nodes: int) -> Any:
    """A graph of ``nodes`` operators, one after another, each a small pointwise one."""
    if nodes % 4:
        raise ValueError(f"A chain has a multiple of 4 nodes; received {nodes}")

    base: Any = hybrid(mx)

    class Chain(base):
        def compute(self, np: Any, npx: Any, x: Any) -> Any:
            y = x
            for _ in range(nodes // 4):
                y = npx.relu(np.tanh(y) * 0.5 + x)
            return y

    return Chain()
