"""mx.util: the NumPy modes as scopes, decorators and switches."""

from __future__ import annotations

import threading

import pytest

from regluon import util


def modes() -> tuple[bool, bool]:
    return util.is_np_shape(), util.is_np_array()


def test_set_and_reset() -> None:
    assert modes() == (False, False)
    util.set_np()
    assert modes() == (True, True)
    util.reset_np()
    assert modes() == (False, False)
    util.set_np(array=False)
    assert modes() == (True, False)
    with pytest.raises(ValueError, match="np arrays need NumPy's shapes"):
        util.set_np(shape=False, array=True)
    assert util.set_np_shape(False) is True


def test_scopes_nest_and_end_with_errors() -> None:
    with util.np_shape(), util.np_array():
        assert modes() == (True, True)
        with util.np_array(False):
            assert modes() == (True, False)
    with pytest.raises(KeyError, match="x"), util.np_shape():
        raise KeyError("x")
    assert modes() == (False, False)


def test_scopes_are_of_their_thread_and_switches_of_all() -> None:
    seen = []

    def look() -> None:
        seen.append(modes())

    def in_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with util.np_shape(), util.np_array():
        in_thread()
    util.set_np()
    in_thread()
    assert seen == [(False, False), (True, True)]


def test_decorators_of_functions_and_classes() -> None:
    @util.use_np
    def function(a: int, b: int = 2) -> tuple[int, tuple[bool, bool]]:
        return a + b, modes()

    @util.use_np_shape
    class Thing:
        value = 3

        def method(self) -> tuple[bool, bool]:
            return modes()

        @property
        def current(self) -> tuple[bool, bool]:
            return modes()

    assert function(1) == (3, (True, True)) and function.__name__ == "function"
    assert Thing().method() == Thing().current == (True, False) and Thing.value == 3
    assert util.use_np_array(modes)() == (False, True)
    with pytest.raises(TypeError, match="function or a class to decorate, got int"):
        util.use_np(3)  # type: ignore[type-var]


def test_default_dtype() -> None:
    with util.np_default_dtype():
        assert util.is_np_default_dtype()
    assert not util.is_np_default_dtype()
    assert util.use_np_default_dtype(util.is_np_default_dtype)()


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGLUON_TEST_VALUE", "a")
    assert util.getenv("REGLUON_TEST_VALUE") == "a"
    util.setenv("REGLUON_TEST_VALUE", None)
    assert util.getenv("REGLUON_TEST_VALUE") is None
    util.setenv("REGLUON_TEST_VALUE", "b")
    assert util.getenv("REGLUON_TEST_VALUE") == "b"


def test_device_argument_under_both_names() -> None:
    @util.wrap_ctx_to_device_func
    def place(device: str | None = None) -> str | None:
        return device

    assert place(ctx="a") == place(device="a") == "a"  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="both ctx and device"):
        place(ctx="a", device="b")  # type: ignore[call-arg]


def test_default_array_follows_the_mode() -> None:
    import regluon as mx

    assert type(util.default_array([1, 2])) is mx.nd.NDArray
    with util.np_shape(), util.np_array():
        assert type(util.default_array([1, 2])) is mx.np.ndarray
