"""Parameter, Constant and ParameterDict, with the behaviour of both generations."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import regluon as mx
from regluon.base import config
from regluon.gluon import Constant, DeferredInitializationError, Parameter, ParameterDict


@pytest.fixture(params=[1, 2])
def level(request):
    config.set_api(request.param)
    return request.param


@pytest.fixture
def level_one():
    config.set_api(1)


def made(shape=(2, 3), **options):
    parameter = Parameter("weight", shape=shape, **options)
    parameter.initialize()
    return parameter


def test_shapes_and_repr(level):
    unknown = 0 if level == 1 else -1
    shown = " weight" if level == 1 else ""
    for shape in ((3, 0), (3, -1)):
        parameter = Parameter("weight", shape=shape, dtype="float32")
        if level == 2:
            assert parameter.shape == (3, unknown)
            assert repr(parameter) == "Parameter (shape=(3, -1), dtype=float32)"
        assert repr(Parameter("weight", shape=3)).startswith(f"Parameter{shown} (shape=(3,), dtype=")
    assert Parameter("w").shape is None


def test_initialize_and_access(level):
    parameter = made()
    assert parameter.data().shape == (2, 3) and np.abs(parameter.data().asnumpy()).max() <= 0.07
    assert parameter.grad().shape == (2, 3) and not parameter.grad().asnumpy().any()
    assert parameter.list_ctx() == parameter.list_device() == [mx.cpu()]
    assert len(parameter.list_data()) == len(parameter.list_grad()) == 1
    with pytest.raises(RuntimeError, match=r"was not initialized on cpu\(1\); it is on \[cpu\(0\)\]"):
        parameter.data(mx.cpu(1))
    with pytest.warns(UserWarning, match="already initialized and keeps its value"):
        parameter.initialize()
    parameter.initialize("ones", force_reinit=True)
    assert (parameter.data().asnumpy() == 1).all()


def test_kind_of_array_follows_npx_set_np():
    assert type(made().data()) is mx.nd.NDArray
    with mx.util.np_array(True):
        parameter = made()
    assert isinstance(parameter.data(), mx.np.ndarray) and isinstance(parameter.grad(), mx.np.ndarray)


def test_which_initializer():
    def value(own=None, **arguments):
        parameter = Parameter("any_name", shape=(2,), init=own)
        parameter.initialize(**arguments)
        return parameter.data().asnumpy()[0]

    assert value(mx.init.Constant(3)) == 3
    assert value(mx.init.Constant(3), default_init=mx.init.One()) == 3
    assert value(mx.init.Constant(3), init=mx.init.One()) == 1
    assert value(default_init="ones") == 1
    assert value("zeros", default_init="ones") == 0


def test_deferred_initialisation(level):
    parameter = Parameter("weight", shape=(3, 0), allow_deferred_init=True)
    with pytest.raises(RuntimeError, match=r"has not been initialized. Call initialize"):
        parameter.data()
    parameter.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    for read in (parameter.data, parameter.grad, parameter.list_data, parameter.list_grad):
        with pytest.raises(DeferredInitializationError, match="Run one batch through the network"):
            read()
    assert parameter.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    parameter.shape = (3, 4)
    parameter._finish_deferred_init()
    assert [array.shape for array in parameter.list_data()] == [(3, 4)] * 2
    assert (parameter.data(mx.cpu(1)).asnumpy() == 1).all()
    with pytest.raises(ValueError, match="the new shape \\(4, 4\\) contradicts it"):
        parameter.shape = (4, 4)
    with pytest.raises(ValueError, match="contradicts it"):
        parameter.shape = (3, 4, 1)


def test_shape_must_be_known_without_deferral():
    for shape in (None, (3, 0), (3, -1)):
        with pytest.raises(ValueError, match="cannot be initialized: its shape is"):
            Parameter("w", shape=shape).initialize()
    with pytest.raises(ValueError, match="received the shape \\(3, -2\\)"):
        Parameter("w", shape=(3, -2))


def test_set_data_while_deferred():
    parameter = Parameter("w", shape=(0, 2), allow_deferred_init=True)
    with pytest.raises(RuntimeError, match="nothing to write to"):
        parameter.set_data(mx.nd.ones((1, 2)))
    parameter = Parameter("w", shape=(0, 2), allow_deferred_init=True)
    parameter.initialize()
    parameter.set_data(mx.nd.ones((1, 2)) * 5)
    parameter._finish_deferred_init()
    assert parameter.data().asnumpy().tolist() == [[5, 5]]


def test_set_data():
    parameter = made((2, 2))
    before = parameter.data()
    parameter.set_data(mx.nd.ones((2, 2)))
    assert parameter.data() is before and (before.asnumpy() == 1).all()
    parameter.set_data([[1, 2], [3, 4]])
    assert before.asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="contradicts it"):
        parameter.set_data(mx.nd.ones((2, 5)))


def test_gradient_requests():
    parameter = made()
    with pytest.raises(ValueError, match="must be one of 'write', 'add' or 'null'; received 'xx'"):
        parameter.grad_req = "xx"
    parameter.grad_req = "null"
    with pytest.raises(RuntimeError, match="has no gradient because its grad_req is 'null'"):
        parameter.grad()
    parameter.grad_req = "add"
    for _ in range(2):
        with mx.autograd.record():
            loss = (parameter.data() * 3).sum()
        loss.backward()
    assert (parameter.grad().asnumpy() == 6).all()
    parameter.zero_grad()
    assert not parameter.grad().asnumpy().any()
    parameter.grad_req = "write"
    for _ in range(2):
        with mx.autograd.record():
            loss = (parameter.data() * 3).sum()
        loss.backward()
    assert (parameter.grad().asnumpy() == 3).all()
    assert Parameter("w", shape=(1,), differentiable=False).grad_req == "null"


def test_several_contexts():
    parameter = Parameter("w", shape=(2,), init="ones")
    parameter.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert [array.context for array in parameter.list_data()] == [mx.cpu(0), mx.cpu(1)]
    parameter.data(mx.cpu(1))[:] = 3
    assert parameter.data(mx.cpu(0)).asnumpy().tolist() == [1, 1]
    assert parameter.data().context == mx.cpu(0)
    with mx.cpu(1):
        assert parameter.data().context == mx.cpu(1)
    parameter.reset_ctx(mx.cpu(2))
    assert parameter.list_ctx() == [mx.cpu(2)] and parameter.data().asnumpy().tolist() == [2, 2]
    parameter.reset_device(device=[mx.cpu(3)])
    assert parameter.grad().context == mx.cpu(3)
    with pytest.raises(ValueError, match=r"Call initialize\(ctx=...\) instead"):
        Parameter("w", shape=(2,)).reset_ctx(mx.cpu(1))
    with pytest.raises(RuntimeError, match="'nowhere' is not a kind of device"):
        Parameter("w", shape=(2,)).initialize(ctx=["nowhere"])


def test_cast():
    parameter = made(init="ones")
    parameter.cast("float16")
    assert parameter.dtype == "float16"
    assert parameter.data().dtype == np.float16 and parameter.grad().dtype == np.float16


def test_var():
    parameter = Parameter("b_bias", shape=(2,), init="zeros", lr_mult=2.0, wd_mult=0.5, dtype="float16")
    attributes = parameter.var().list_attr()
    expected = {
        "__shape__": "(2,)",
        "__dtype__": "2",
        "__lr_mult__": "2.0",
        "__wd_mult__": "0.5",
        "__init__": "zeros",
    }
    assert {key: attributes[key] for key in expected} == expected
    assert parameter.var().name == "b_bias" and parameter.var() is parameter.var()
    parameter.name = "other"
    assert parameter.var().name == "other"


def test_constant(level):
    for constant in (Constant("c", [[1, 2], [3, 4]]), Constant([[1, 2], [3, 4]])):
        assert constant.grad_req == "null" and constant.shape == (2, 2)
        constant.initialize()
        assert constant.data().asnumpy().tolist() == [[1, 2], [3, 4]] and constant.data().dtype == np.float32
        constant.initialize(mx.init.One(), ctx=mx.cpu(1), force_reinit=True)
        assert constant.data().asnumpy().tolist() == [[1, 2], [3, 4]]
        assert constant.list_ctx() == [mx.cpu(1)]
        with pytest.warns(UserWarning, match="never differentiated"):
            constant.grad_req = "write"
        with pytest.raises(RuntimeError, match="grad_req is 'null'"):
            constant.grad()
    kept = Constant("c", mx.nd.array([1, 2], dtype="int32"))
    kept.initialize()
    assert kept.data().dtype == np.int32
    with pytest.raises(ValueError, match="needs a value"):
        Constant("c")


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies(copier):
    parameter = made(init="ones")
    with mx.autograd.record():
        loss = (parameter.data() * 2).sum()
    loss.backward()
    twin = copier(parameter)
    assert (twin.data().asnumpy() == 1).all() and (twin.grad().asnumpy() == 2).all()
    twin.data()[:] = 5
    assert (parameter.data().asnumpy() == 1).all()
    with mx.autograd.record():
        loss = (twin.data() * 3).sum()
    loss.backward()
    assert (twin.grad().asnumpy() == 3).all() and (parameter.grad().asnumpy() == 2).all()


def test_deferred_initialisation_from_many_threads():
    for _ in range(5):
        parameter = Parameter("w", shape=(64, 0), allow_deferred_init=True)
        parameter.initialize()
        parameter.shape = (64, 32)
        found, barrier = [], threading.Barrier(8)

        def work(parameter=parameter, found=found, barrier=barrier):
            barrier.wait()
            parameter._finish_deferred_init()
            found.append(parameter.data())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and len({id(array) for array in found}) == 1


# ParameterDict


def test_get_makes_and_shares(level_one):
    params = ParameterDict("net_")
    weight = params.get("weight", shape=(2, 0), allow_deferred_init=True)
    assert weight.name == "net_weight" and list(params) == ["net_weight"]
    assert params.get("weight", shape=(0, 3)) is weight and weight.shape == (2, 3)
    with pytest.raises(ValueError, match="contradicts it"):
        params.get("weight", shape=(9, 9))
    with pytest.raises(ValueError, match=r"exists with lr_mult=1.0, but lr_mult=2.0 was asked for"):
        params.get("weight", lr_mult=2.0)
    shared = ParameterDict("net_", shared=params)
    assert shared.get("weight") is weight and "net_weight" in shared
    assert params.get("net_nothing", None) is None
    assert repr(params).splitlines()[0] == "net_ (" and "  Parameter net_weight (shape=(2, 3)" in repr(params)


def test_constants(level_one):
    params = ParameterDict("net_")
    constant = params.get_constant("c", [1, 2])
    assert params.get_constant("c", [1, 2]) is constant and params.get_constant("c") is constant
    with pytest.raises(ValueError, match="exists with another value"):
        params.get_constant("c", [1, 3])
    with pytest.raises(KeyError, match="no constant named 'net_d'"):
        params.get_constant("d")
    params.get("w", shape=(1,))
    with pytest.raises(ValueError, match="is a Parameter and not a Constant"):
        params.get_constant("w", [1])


def test_mapping_of_structural_names():
    params = ParameterDict()
    params.structural = True
    params["0.weight"] = made()
    assert params.get("0.bias") is None and params.get("0.bias", 3) == 3
    assert repr(params).startswith("{'0.weight': Parameter (shape=")
    assert isinstance(params, dict) and list(params.copy()) == ["0.weight"] and params.copy().structural


def test_update_refuses_another_parameter(level_one):
    first, second = ParameterDict("a_"), ParameterDict("a_")
    first.get("w", shape=(1,))
    second.get("w", shape=(1,))
    second.get("v", shape=(1,))
    with pytest.raises(ValueError, match="Parameter 'a_w' exists here"):
        first.update(second)
    del second["a_w"]
    first.update(second)
    assert list(first) == ["a_w", "a_v"]


def test_acting_on_all():
    params = ParameterDict("a_")
    params.get("w_weight", shape=(2,))
    params.get("b_bias", shape=(2,), init="zeros")
    params.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    assert [one.data().asnumpy().tolist() for one in params.values()] == [[1, 1], [0, 0]]
    assert params.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    params.reset_ctx(mx.cpu(1))
    assert params.list_device() == [mx.cpu(1)]
    params.setattr("grad_req", "null")
    assert all(one._grad is None for one in params.values())
    params.setattr("lr_mult", 0.5)
    params.zero_grad()
    assert params["a_w_weight"].lr_mult == 0.5


def test_files(level_one, tmp_path):
    path = str(tmp_path / "p.params")
    params = ParameterDict("net_")
    params.get("weight", shape=(2,), init="ones")
    params.get("bias", shape=(1,), init="zeros")
    params.initialize()
    params.save(path, strip_prefix="net_")
    assert sorted(mx.nd.load(path)) == ["bias", "weight"]
    with pytest.raises(ValueError, match="does not begin with strip_prefix='x_'"):
        params.save(path, strip_prefix="x_")
    other = ParameterDict("other_")
    other.get("weight", shape=(0,), allow_deferred_init=True)
    other.get("bias", shape=(1,))
    other.load(path, ctx=mx.cpu(1), restore_prefix="other_")
    assert other["other_weight"].data().asnumpy().tolist() == [1, 1]
    assert other.list_ctx() == [mx.cpu(1)]
    with pytest.raises(
        ValueError, match=r"'other_bias', 'other_weight' is missing|'other_weight', 'other_bias' is missing"
    ):
        other.load(path)
    other.get("more", shape=(1,))
    with pytest.raises(ValueError, match="Parameter 'other_more' is missing in file"):
        other.load(path, restore_prefix="other_")
    other.load(path, allow_missing=True, restore_prefix="other_")
    del other["other_weight"], other["other_more"]
    with pytest.raises(ValueError, match=r"Parameter 'other_weight' in file .* has no counterpart here"):
        other.load(path, restore_prefix="other_")
    other.load(path, ignore_extra=True, restore_prefix="other_")


def test_loading_with_tags_and_types():
    params = ParameterDict("")
    params.get("w", shape=(2,))
    params.initialize()
    values = {"arg:w": mx.nd.array([1, 2], dtype="float16")}
    with pytest.raises(ValueError, match="its dtype is float32, the file holds float16"):
        params.load_dict(values)
    params.load_dict(values, cast_dtype=True)
    assert params["w"].data().dtype == np.float32 and params["w"].data().asnumpy().tolist() == [1, 2]
    params.load_dict(values, cast_dtype=True, dtype_source="saved")
    assert params["w"].data().dtype == np.float16
    with pytest.raises(ValueError, match="its shape is \\(2,\\), the file holds \\(3,\\)"):
        params.load_dict({"w": mx.nd.zeros((3,), dtype="float16")})
    with pytest.raises(ValueError, match="it was initialized on \\[cpu\\(0\\)\\]"):
        params.load_dict(values, ctx=mx.cpu(1))


def test_dictionary_copies(level_one):
    params = ParameterDict("net_")
    params.get("weight", shape=(2,), init="ones")
    params.initialize()
    twin = copy.deepcopy(params)
    assert twin.prefix == "net_" and twin["net_weight"] is not params["net_weight"]
    assert twin["net_weight"].data().asnumpy().tolist() == [1, 1]
