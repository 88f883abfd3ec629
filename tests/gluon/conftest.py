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

    @staticmethod
    def assert_same(first: Any, second: Any) -> None:
        """Compare two nested results: shapes, types, and values within float32's reach."""
        left, right = _leaves(first), _leaves(second)
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            if isinstance(a, numpy.ndarray):
                assert a.shape == b.shape and a.dtype == b.dtype
                numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            else:
                assert a == b

    @staticmethod
    def gradients(net: Any, inputs: list[Any]) -> list[Any]:
        """Gradients of the inputs, for the sum of squares of all results."""
        for x in inputs:
            x.attach_grad()
        with mx.autograd.record():
            out = net(*inputs)
            parts = out if isinstance(out, (list, tuple)) else [out]
            total = sum((part * part).sum() for part in parts)
        total.backward()
        return [x.grad for x in inputs]

    def block(self, body: Callable[..., Any], setup: Callable[[Any], None] | None = None) -> Any:
        block = self.block_class(body, setup)()
        block.initialize()
        return block


def _leaves(value: Any) -> list[Any]:
    """All arrays of a nested result as NumPy arrays, and its other leaves as they are."""
    if isinstance(value, dict):
        return [item for key in value for item in (key, *_leaves(value[key]))]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _leaves(part)]
    return [value.asnumpy()] if hasattr(value, "asnumpy") else [value]


@pytest.fixture(params=[1, 2], ids=["api1", "api2"])
def style(request: pytest.FixtureRequest) -> Style:
    mx.set_api(request.param)
    return Style(request.param)
