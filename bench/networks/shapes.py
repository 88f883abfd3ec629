"""Shapes of the inputs and the sizes of the networks; read by every peer, so the standard library only."""

from __future__ import annotations

CLASSES = 1000
DIGITS = 10
BERT = {"layers": 12, "hidden": 768, "heads": 12, "feed_forward": 3072, "length": 128}
IMAGES = {
    "resnet18": (3, 224, 224),
    "resnet50": (3, 224, 224),
    "mobilenet1": (3, 224, 224),
    "mobilenet2": (3, 224, 224),
    "vgg16": (3, 224, 224),
    "densenet121": (3, 224, 224),
    "inception3": (3, 299, 299),
    "lenet": (1, 28, 28),
    "mlp": (10,),
}
# Names of the networks above in gluon.model_zoo.vision.
MODEL_ZOO = {
    "resnet18": "resnet18_v1",
    "resnet50": "resnet50_v1",
    "mobilenet1": "mobilenet1.0",
    "mobilenet2": "mobilenetv2_1.0",
    "vgg16": "vgg16",
    "densenet121": "densenet121",
    "inception3": "inceptionv3",
}


def input_shape(network: str, batch: int, settings: dict[str, int]) -> tuple[int, ...]:
    """The shape of a network's input: images NCHW, sequences (batch, length, channels) or, for the LSTM,
    (length, batch, channels).

    Raises
    ------
    KeyError
        For a network that has no input here.
    """
    if network in ("bert", "bert_layer"):
        return (batch, BERT["length"], BERT["hidden"])
    if network == "lstm":
        return (settings["length"], batch, settings["hidden"])
    if network == "chain":
        return (4, 16)
    return (batch, *IMAGES[network])


def classes(network: str) -> int | None:
    """How many classes the network tells apart; None for one whose output is compared with an array."""
    if network in MODEL_ZOO:
        return CLASSES
    return DIGITS if network == "lenet" else None


def bert_layers(network: str) -> int:
    """How many encoder layers the network has."""
    return BERT["layers"] if network == "bert" else 1
