"""Functions of the namespaces are made when they are first asked for, and nobody can tell."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import threading
import types
from typing import Any
from unittest import mock

import pytest

import regluon as mx
from regluon.ops.registry import get
from regluon.runtime import namespaces

SPACES = ("ndarray", "ndarray._internal", "ndarray.op", "symbol", "numpy", "numpy_extension")
FRESH = """
import regluon as mx

assert "khatri_rao" not in vars(mx.nd) and "khatri_rao" in dir(mx.nd) and hasattr(mx.nd, "khatri_rao")
assert vars(mx.nd)["khatri_rao"] is mx.nd.khatri_rao is mx.nd.op.khatri_rao
assert mx.nd.khatri_rao.__module__ == "regluon.ndarray"
everything = {}
exec("from regluon.ndarray import *", everything)
assert set(mx.nd.__all__) <= set(everything)
"""


def test_functions_are_there_before_they_are_made() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SPACES)
def test_all_that_is_listed_can_be_had(name: str) -> None:
    module = importlib.import_module(f"regluon.{name}")
    for each in module.__all__:
        assert getattr(module, each) is getattr(module, each)
    with pytest.raises(AttributeError, match=f"module 'regluon.{name}' has no attribute 'no_such_function'"):
        module.no_such_function  # noqa: B018


@pytest.mark.parametrize("name", ["ndarray", "symbol", "numpy", "numpy_extension"])
def test_functions_are_pickled_by_name(name: str) -> None:
    module = importlib.import_module(f"regluon.{name}")
    made = [getattr(module, each) for each in module.__all__]
    functions = [each for each in made if hasattr(each, "__operator__")]
    assert functions and all(pickle.loads(pickle.dumps(each)) is each for each in functions)


def _space(monkeypatch: pytest.MonkeyPatch, *definitions: Any) -> Any:
    module = types.ModuleType("lazy_space")
    monkeypatch.setitem(sys.modules, "lazy_space", module)
    for name in ("_internal", "op"):
        monkeypatch.setitem(sys.modules, f"lazy_space.{name}", types.ModuleType(f"lazy_space.{name}"))
    monkeypatch.setattr(namespaces, "all_definitions", lambda: list(definitions))
    return module


def test_threads_get_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _space(monkeypatch, get("tanh"))
    namespaces.fill_namespace(module, "nd")
    make, together, found = namespaces.make_function, threading.Barrier(4), list[Any]()

    def slow(*given: Any) -> Any:
        together.wait(60)
        return make(*given)

    monkeypatch.setattr(namespaces, "make_function", slow)
    threads = [threading.Thread(target=lambda: found.append(module.tanh)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and {id(each) for each in found} == {id(module.tanh)} == {id(module.op.tanh)}


def test_what_a_module_has_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _space(monkeypatch, get("tanh"))
    module.tanh = own = lambda x: x
    namespaces.fill_namespace(module, "nd")
    assert module.tanh is own and module.op.tanh.__operator__ is get("tanh")


def test_a_function_can_be_replaced_for_a_while() -> None:
    before = mx.nd.arctanh
    with mock.patch.object(mx.nd, "arctanh", lambda x: "replaced"):
        assert mx.nd.arctanh(1) == "replaced"
    assert mx.nd.arctanh is before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regluon.ndarray.arctanh", None)
        assert mx.nd.arctanh is None
    assert mx.nd.arctanh is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_forked_while_functions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _space(monkeypatch, get("tanh"), get("sinh"))
    namespaces.fill_namespace(module, "nd")
    make, begun, go_on = namespaces.make_function, threading.Event(), threading.Event()

    def waiting(definition: Any, *more: Any) -> Any:
        if definition is get("tanh"):
            begun.set()
            go_on.wait(60)
        return make(definition, *more)

    monkeypatch.setattr(namespaces, "make_function", waiting)
    thread = threading.Thread(target=lambda: module.tanh)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(30)
        os._exit(0 if module.sinh.__operator__ is get("sinh") else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def _public(module: Any, seen: set[str]) -> Any:
    """Every public callable of a namespace and of its submodules, with the name that it is reached by."""
    seen.add(module.__name__)
    for name in dir(module):
        value = None if name.startswith("_") else getattr(module, name)
        if isinstance(value, types.ModuleType):
            if value.__name__.startswith(f"{module.__name__}.") and value.__name__ not in seen:
                yield from _public(value, seen)
        elif callable(value):
            yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize("space", ["nd", "sym", "np", "npx", "random"])
def test_public_functions_are_pickled_by_reference(space: str) -> None:
    found = list(_public(getattr(mx, space), set()))
    assert len(found) > (10 if space == "random" else 100)
    wrong = []
    for name, value in found:
        try:
            same = pickle.loads(pickle.dumps(value)) is value and copy.deepcopy(value) is value
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            same = False
            name = f"{name}: {error}"
        wrong += [] if same else [name]
    assert wrong == []
