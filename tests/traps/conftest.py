"""Both ways of writing Gluon code: 1.x (hybrid_forward, mx.nd) and 2.0 (forward, mx.np)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon


class Style:
    """One API generation: its level, its arrays, and blocks made from a function of (self, *arrays)."""

    def __init__(self, level: int) -> None:
        self.level = level

    def array(self, value: Any, dtype: Any = "float32") -> Any:
        """An array of this generation's kind."""
        module = mx.nd if self.level == 1 else mx.np
        return module.array(numpy.asarray(value), dtype=dtype)

    def range(self, *shape: int) -> Any:
        """0, 1, 2, ... in this shape."""
        return self.array(numpy.arange(numpy.prod(shape)).reshape(shape))

    def block(self, body: Callable[..., Any], prepare: Callable[[Any], Any] | None = None) -> Any:
        """An initialized block that computes ``body(self, *arguments)``; ``prepare`` adds children."""
        outer = self

        class Net(gluon.HybridBlock):
            def __init__(self) -> None:
                super().__init__()
                if prepare is not None:
                    prepare(self)

            if outer.level == 1:

                def hybrid_forward(self, F: Any, *args: Any, **parameters: Any) -> Any:
                    return body(self, *args, **parameters)

            else:

                def forward(self, *args: Any) -> Any:
                    return body(self, *args)

        net = Net()
        net.initialize()
        return net


@pytest.fixture(params=[1, 2], ids=["1.x", "2.0"])
def style(request: pytest.FixtureRequest) -> Style:
    mx.set_api(request.param)
    if request.param == 2:
        mx.npx.set_np()
    return Style(request.param)
