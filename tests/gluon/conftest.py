"""Blocks in both styles: ``hybrid_forward`` on mx.nd at API level 1, ``forward`` on mx.np at level 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon


class Style:
    """One way to write and call blocks; ``F`` of a body is mx.nd or mx.sym in one, mx.npx in the other."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.entered: list[Any] = []

    def array(self, values: Any, dtype: str = "float32") -> Any:
        host = numpy.asarray(values, dtype)
        return mx.nd.array(host, dtype=dtype) if self.level == 1 else mx.np.array(host, dtype=dtype)

    def block_class(self, body: Callable[..., Any], setup: Callable[[Any], None] | None = None) -> Any:
        """A class whose blocks compute ``body(block, F, *args)``; `entered` counts its runs."""
        entered = self.entered

        class Written(gluon.HybridBlock):
            def __init__(self) -> None:
                super().__init__()
                if setup is not None:
                    with self.name_scope():
                        setup(self)

        def hybrid_forward(self: Any, F: Any, *args: Any, **parameters: Any) -> Any:
            entered.append(F)
            return body(self, F, *args, **parameters)

        def forward(self: Any, *args: Any, **keywords: Any) -> Any:
            entered.append(mx.npx)
            return body(self, mx.npx, *args, **keywords)

        if self.level == 1:
            Written.hybrid_forward = hybrid_forward  # type: ignore[method-assign]
        else:
            Written.forward = forward  # type: ignore[method-assign, assignment]
        return Written

    def block(self, body: Callable[..., Any], setup: Callable[[Any], None] | None = None) -> Any:
        block = self.block_class(body, setup)()
        block.initialize()
        return block


@pytest.fixture(params=[1, 2], ids=["api1", "api2"])
def style(request: pytest.FixtureRequest) -> Style:
    mx.set_api(request.param)
    return Style(request.param)
