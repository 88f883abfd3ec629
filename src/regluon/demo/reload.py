"""Load exported files and predict: the demo runs this in a new process (``python -m
regluon.demo.reload``)."""

from __future__ import annotations

import sys

import numpy

import regluon as mx

__all__ = ["main"]


def main(prefix: str, questions: str, answers: str) -> None:
    """Write the class probabilities of the images in ``questions`` (.npy) to ``answers`` (.npy)."""
    network = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    scores = network(mx.nd.array(numpy.load(questions)))
    numpy.save(answers, mx.nd.softmax(scores, axis=1).asnumpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
