"""A LeNet-style network, written once: it runs operator by operator, and compiled after ``hybridize()``."""

from __future__ import annotations

from typing import Any

from .. import gluon
from ..gluon import nn

__all__ = ["DigitNetwork"]


class DigitNetwork(gluon.HybridBlock):
    """Two convolutions with pooling, two dense layers, and a last product written by hand.

    Input ``(batch, 1, 28, 28)``, output ``(batch, classes)``: scores before softmax. After Y. LeCun et al.,
    "Gradient-based learning applied to document recognition", 1998, with rectifiers and max pooling.
    """

    def __init__(self, classes: int = 10, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.hidden1 = nn.Dense(120)
            self.hidden2 = nn.Dense(84)
            self.output_weight = self.params.get("output_weight", shape=(classes, 84))

    def hybrid_forward(self, F: Any, x: Any, output_weight: Any) -> Any:
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = x.reshape((0, -1))
        x = F.relu(self.hidden1(x))
        x = F.relu(self.hidden2(x))
        return F.dot(x, output_weight, transpose_b=True)
