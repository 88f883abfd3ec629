"""HybridBlock.OptConstraint: marks on nodes, in files and back."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

from regluon import gluon
from regluon.gluon import HybridBlock, nn

MARK = "__opt_constraint__"
DISABLE_AMP = HybridBlock.OptConstraint.Flag.DisableAMP


def network(style: Any) -> Any:
    """Three Dense layers; the second and what follows it up to the third are recorded in the scope."""

    def setup(block: Any) -> None:
        block.a, block.b, block.c = nn.Dense(3), nn.Dense(3, activation="relu"), nn.Dense(2)

    def body(self: Any, F: Any, x: Any) -> Any:
        x = self.a(x)
        with HybridBlock.OptConstraint.disable_amp():
            x = self.b(x) + 1
        return self.c(x)

    block = style.block(body, setup)
    block.hybridize()
    return block


def marks(text: str) -> list[str | None]:
    """The mark of every operator in a symbol's JSON, in order."""
    return [n.get("attrs", {}).get(MARK) for n in json.loads(text)["nodes"] if n["op"] != "null"]


EXPECTED = [None, "1", "1", "1", None]


def test_operators_in_the_scope_are_marked(style: Any) -> None:
    block = network(style)
    block(style.array(numpy.ones((1, 2))))
    symbol, _ = block.export(None)
    assert marks(symbol.tojson()) == EXPECTED
    attributes = symbol.attr_dict()
    assert sum(MARK in found for found in attributes.values()) == 3
    assert not any(MARK in attributes.get(name, {}) for name in symbol.list_arguments())


def test_marks_survive_files(style: Any, tmp_path: Path) -> None:
    block = network(style)
    x = style.array(numpy.ones((1, 2)))
    expected = block(x).asnumpy()
    for _ in range(3):
        files = block.export(tmp_path / "m")
        assert marks(Path(files[0]).read_text()) == EXPECTED
        block = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
        numpy.testing.assert_allclose(block(x).asnumpy(), expected, rtol=1e-6)
    # Also where the imported graph is recorded anew as part of another.
    outer = style.block_class(lambda self, F, x: self.inner(x), lambda self: setattr(self, "inner", block))()
    outer.hybridize()
    outer(x)
    assert marks(outer.export(None)[0].tojson()) == EXPECTED


def test_marks_survive_a_backend(style: Any) -> None:
    block = network(style)
    x = style.array(numpy.ones((1, 2)))
    block.optimize_for(x, backend="default")
    assert marks(block.export(None)[0].tojson()) == EXPECTED


def test_a_scope_around_the_call_marks_everything_and_is_a_guard(style: Any) -> None:
    block = style.block(lambda self, F, x: F.relu(x) * 2)
    block.hybridize()
    x = style.array([1.0])

    def recorded() -> list[str | None]:
        return marks(block.export(None)[0].tojson())

    block(x)
    assert recorded() == [None, None]
    entered = len(style.entered)
    with HybridBlock.OptConstraint.disable_amp():
        block(x)
        assert len(style.entered) == entered + 1
        block(x)
        assert recorded() == ["1", "1"]
    block(x)
    assert len(style.entered) == entered + 1


def test_composing_marks_too(style: Any) -> None:
    import regluon as mx

    block = network(style)
    out = block(mx.sym.var("data"))
    assert marks(out.tojson()) == EXPECTED


def test_get_and_set() -> None:
    assert HybridBlock.get_optimization_constraints() == 0
    with HybridBlock.OptConstraint.disable_amp():
        assert HybridBlock.get_optimization_constraints() == DISABLE_AMP.value == 1
        with HybridBlock.OptConstraint.disable_amp():
            assert HybridBlock.get_optimization_constraints() == 1
        assert HybridBlock.get_optimization_constraints() == 1
    assert HybridBlock.get_optimization_constraints() == 0
    assert HybridBlock.set_optimization_constraints(DISABLE_AMP) == 0
    assert HybridBlock.set_optimization_constraints(0) == 1
    for wrong in (2, -1, 8):
        with pytest.raises(ValueError, match=f"mask of HybridBlock.OptConstraint.Flag.*received {wrong}"):
            HybridBlock.set_optimization_constraints(wrong)


def test_an_error_inside_leaves_no_scope_behind() -> None:
    with pytest.raises(KeyError), HybridBlock.OptConstraint.disable_amp():
        raise KeyError("x")
    assert HybridBlock.get_optimization_constraints() == 0


def test_constraints_are_those_of_one_thread() -> None:
    found: list[int] = []
    with HybridBlock.OptConstraint.disable_amp():
        thread = threading.Thread(target=lambda: found.append(HybridBlock.get_optimization_constraints()))
        thread.start()
        thread.join()
    assert found == [0]


def test_imperative_results_are_the_same(style: Any) -> None:
    block = network(style)
    x = style.array(numpy.ones((1, 2)))
    expected = block(x).asnumpy()
    block.hybridize(False)
    numpy.testing.assert_allclose(block(x).asnumpy(), expected, rtol=1e-6)
