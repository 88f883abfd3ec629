"""Optimizer states as bytes: our own format, and a reader of MXNet's pickled ones that cannot run anything.

Our format is a ``.params`` file. Its first entry, ``__states__``, is JSON text (as bytes): the tree of
states, with the names of the arrays that follow, and what the optimizer counts. MXNet pickles ``{index:
state}``, or a pair of that and the optimizer. Such a pickle is read by an unpickler that knows a short list
of names, each replaced by a record of ours, and that counts what it makes: everything else in it, and more
than a file of its size can hold, is an error.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from regluon.array import NDArray
from regluon.base import limits
from regluon.graph.json import read_json
from regluon.serial import params
from regluon.serial.params import ParamsError, SparseTensor

HEADER = "__states__"
_FORMAT = "regluon-optimizer-states-1"
_PLAIN = (bool, int, float, str, type(None))

#: Names of attributes in pickles of 1.x -> ours.
_RENAMED = {"gamma1": "rho", "gamma2": "momentum", "float_stable_eps": "epsilon", "eps": "epsilon"}
#: Attributes that belong to the running program and not to the file.
_OWN_ATTRIBUTES = {
    "param_dict",
    "sym_info",
    "allow_np_array",
    "use_fused_step",
    "weight_previous",
    "cumgrads",
}
#: 1.x puts the float32 copy of the weight second for these.
_MASTER_SECOND = {"SGD", "ccSGD", "NAG", "LARS"}


# Writing ----------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A JSON form of numbers, text and containers of them; None for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return {"value": value}
    if isinstance(value, dict):
        pairs = [(_plain(key), _plain(item)) for key, item in value.items()]
        return None if any(key is None or item is None for key, item in pairs) else {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return None if any(item is None for item in items) else {type(value).__name__: items}
    return None


def _unplain(tree: Any) -> Any:
    if "value" in tree:
        return tree["value"]
    if "dict" in tree:
        return {_unplain(key): _unplain(item) for key, item in tree["dict"]}
    if "tuple" in tree:
        return tuple(_unplain(item) for item in tree["tuple"])
    return [_unplain(item) for item in tree["list"]]


def _attributes(thing: Any) -> dict[str, Any]:
    """The plain attributes of an optimizer or scheduler, as JSON."""
    result = {}
    for name, value in thing.__dict__.items():
        described = None if name in _OWN_ATTRIBUTES else _plain(value)
        if described is not None:
            result[name] = described
    return result


def _describe_optimizer(optimizer: Any) -> dict[str, Any]:
    description: dict[str, Any] = {"class": type(optimizer).__name__, "attributes": _attributes(optimizer)}
    scheduler = optimizer.lr_scheduler
    if scheduler is not None:
        description["attributes"].pop("lr_scheduler", None)
        description["scheduler"] = {"class": type(scheduler).__name__, "attributes": _attributes(scheduler)}
    return description


def dumps(states: dict[Any, Any], optimizer: Any = None) -> bytes:
    """Bytes of states by index (None, arrays, numbers and tuples of those) and of the optimizer."""
    arrays: dict[str, torch.Tensor] = {}

    def tree(state: Any, index: Any) -> Any:
        if isinstance(state, NDArray):
            name = str(len(arrays))
            arrays[name] = state._t
            return {"array": name}
        if isinstance(state, list | tuple):
            return {type(state).__name__: [tree(part, index) for part in state]}
        described = _plain(state)
        if described is None:
            raise TypeError(
                f"The state of parameter {index} holds a {type(state).__name__}; states are arrays, "
                "numbers, text, None and tuples or lists of those."
            )
        return described

    header: dict[str, Any] = {
        "format": _FORMAT,
        "states": [[_plain(index), tree(state, index)] for index, state in states.items()],
    }
    if optimizer is not None:
        header["optimizer"] = _describe_optimizer(optimizer)
    text = json.dumps(header).encode("utf-8")
    stream = io.BytesIO()
    params.write(stream, {HEADER: torch.frombuffer(bytearray(text), dtype=torch.uint8), **arrays})
    return stream.getvalue()


# Reading our format ----------------------------------------------------------------------


def _loads_own(data: bytes, current: Any) -> tuple[dict[Any, Any], Any]:
    loaded = params.loads(data)
    if not isinstance(loaded, dict):
        raise ParamsError("These bytes are arrays without names, not the states of an optimizer.")
    header_tensor = loaded.get(HEADER)
    if not isinstance(header_tensor, torch.Tensor) or header_tensor.dtype != torch.uint8:
        raise ParamsError(
            "These bytes are arrays, but not the states of an optimizer: there is no entry '__states__'."
        )
    arrays = loaded
    try:
        header = _read_header(
            header_tensor.numpy().tobytes().decode("utf-8"), "The header of the states", len(data)
        )
        if header["format"] != _FORMAT:
            raise ParamsError(f"The states are of format {header['format']!r}; {_FORMAT!r} was expected.")

        def build(tree: Any) -> Any:
            if "array" in tree:
                return NDArray._wrap(_as_tensor(arrays[tree["array"]], len(data)), None)
            if "tuple" in tree:
                return tuple(build(part) for part in tree["tuple"])
            if "list" in tree:
                return [build(part) for part in tree["list"]]
            return _unplain(tree)

        states = {_unplain(index): build(tree) for index, tree in header["states"]}
        described = header.get("optimizer")
        if described is None:
            return states, None
        scheduler = described.get("scheduler")
        values = {name: _unplain(value) for name, value in described["attributes"].items()}
        if scheduler is not None:
            attributes = {name: _unplain(value) for name, value in scheduler["attributes"].items()}
            values["lr_scheduler"] = (scheduler["class"], attributes)
        return states, _make_optimizer(described["class"], values, current)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ParamsError):
            raise
        raise ParamsError(f"The header of the optimizer states is damaged: {error!r}.") from error


def _read_header(text: str, source: str, size: int) -> Any:
    with limits.paused_collection():
        return read_json(text, source, size)


def _as_tensor(value: torch.Tensor | SparseTensor, size: int) -> torch.Tensor:
    """The whole array, if a file of ``size`` bytes may be that large."""
    if not isinstance(value, SparseTensor):
        return value
    needed = math.prod(value.shape) * value.data.dtype.itemsize
    if limits.exceeds(needed, size):
        raise ParamsError(
            f"A state is a {value.storage} array of shape {value.shape}, which is kept whole here: it would "
            f"take {needed} bytes, and the file has {size}. {limits.REMEDY}"
        )
    return value.to_dense()


def _make_scheduler(name: str, attributes: dict[str, Any]) -> Any:
    from regluon import lr_scheduler

    klass = getattr(lr_scheduler, name, None) if name in lr_scheduler.__all__ else None
    if klass is None:
        return None
    scheduler = klass.__new__(klass)
    scheduler.__dict__.update(attributes)
    return scheduler


def _make_optimizer(name: str, values: dict[str, Any], current: Any) -> Any:
    """An optimizer of a known class with the stored attributes; ``current``'s class if that is the same.

    A class or scheduler of the user's is never looked up by name: the running one is kept.
    """
    from regluon.optimizer import Optimizer

    klass: Any = type(current) if current is not None and type(current).__name__ == name else None
    if klass is None:
        klass = Optimizer.opt_registry.get(name.lower())
    if klass is None:
        raise ParamsError(
            f"The states were saved with an optimizer named '{name}', which is not registered here. "
            "Register the class with mx.optimizer.register, or save the states without the optimizer."
        )
    if current is not None and type(current) is klass:
        optimizer: Any = object.__new__(klass)
        optimizer.__dict__.update(current.__dict__)
    else:
        optimizer = klass()
    scheduler = values.pop("lr_scheduler", None)
    for key, value in values.items():
        key = _RENAMED.get(key, key) if not key.startswith("_") and key not in optimizer.__dict__ else key
        if key in optimizer.__dict__ and key not in _OWN_ATTRIBUTES:
            optimizer.__dict__[key] = value
    if isinstance(scheduler, tuple):
        made = _make_scheduler(*scheduler)
        if made is not None:
            optimizer.lr_scheduler = made
    else:
        optimizer.lr_scheduler = None
    counts = optimizer.__dict__.get("_all_index_update_counts")
    if (
        not isinstance(counts, dict)
        or 0 not in counts
        or not all(isinstance(one, dict) for one in counts.values())
    ):
        optimizer._all_index_update_counts = {0: dict(values.get("_index_update_count") or {})}
    optimizer._index_update_count = optimizer._all_index_update_counts[0]
    return optimizer


# Reading MXNet's pickles ----------------------------------------------------------------------


class _PickledArray:
    """Stands for an NDArray of MXNet: its bytes are one array in the ``.params`` format."""

    tensor: torch.Tensor | None = None
    version = 0
    # The unpickler that makes it.
    reader: _StatesUnpickler

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        handle = state.get("handle") if isinstance(state, dict) else None
        if handle is not None:
            if not isinstance(handle, bytes | bytearray):
                raise pickle.UnpicklingError("an array whose handle is not bytes")
            self.reader.charge(_ARRAY_BYTES + len(handle))
            value, self.version = params.loads_array(bytes(handle), "An array in the pickle")
            self.tensor = _as_tensor(value, self.reader.size)


class _Record:
    """Stands for an object of a known class: its name and attributes."""

    class_name = ""

    def __init__(self, *_: Any) -> None:
        self.attributes: dict[str, Any] = {}

    def __new__(cls, *_: Any) -> _Record:
        record = super().__new__(cls)
        record.attributes = {}
        return record

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.attributes = {key: value for key, value in state.items() if isinstance(key, str)}


class _Dtype:
    """Stands for a numpy.dtype: the text that describes it."""

    def __init__(self, text: Any = "f8", *_: Any) -> None:
        self.dtype = np.dtype(_short_text(text))
        if self.dtype.kind not in "fiub":
            raise pickle.UnpicklingError(f"numbers of type {text!r}")

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _short_text(value: Any) -> str:
    """A text of a few letters. The text of anything else could take for ever to make."""
    if not isinstance(value, str) or len(value) > 20:
        raise pickle.UnpicklingError("something else than a short text where one was expected")
    return value


def _safe_scalar(dtype: Any, data: Any) -> Any:
    raw = data.encode("latin-1") if isinstance(data, str) else bytes(data)
    return np.frombuffer(raw, dtype=dtype.dtype, count=1)[0].item()


def _safe_bytearray(*arguments: Any) -> bytearray:
    # bytearray(10**12) would allocate that much, so only contents are taken.
    if not arguments:
        return bytearray()
    content = arguments[0]
    if isinstance(content, str):
        return bytearray(content.encode("latin-1"))
    if isinstance(content, bytes | bytearray | list):
        return bytearray(content)
    raise pickle.UnpicklingError("a bytearray made from something other than its contents")


def _safe_encode(text: Any, encoding: Any = "latin-1") -> bytes:
    if not isinstance(text, str):
        raise pickle.UnpicklingError("something else than text to encode")
    encoding = _short_text(encoding)
    if encoding.lower() not in ("latin1", "latin-1", "iso-8859-1", "utf-8", "utf8"):
        raise pickle.UnpicklingError(f"text in the encoding {encoding!r}")
    return text.encode(encoding)


def _safe_set(*arguments: Any) -> set[Any]:
    for value in arguments[:1]:
        _check_keys(value)
    return set(*arguments[:1])


def _safe_ordered(*arguments: Any) -> OrderedDict[Any, Any]:
    pairs = list(arguments[0]) if arguments else []
    _check_keys(pair[0] for pair in pairs)
    return OrderedDict(pairs)


def _check_keys(keys: Iterable[Any]) -> None:
    """Refuse keys that take very long to tell apart: tuples that hold one another, chosen large numbers."""
    for key in keys:
        if isinstance(key, tuple | frozenset) or (isinstance(key, int) and abs(key) >= 1 << 60):
            raise pickle.UnpicklingError(f"a key that is a {type(key).__name__}, or a very large number")


def _safe_reconstructor(kind: Any, _base: Any = None, _state: Any = None) -> Any:
    if isinstance(kind, type) and issubclass(kind, _Record | _PickledArray):
        return kind()
    raise pickle.UnpicklingError(f"an object of {kind!r}")


class _Maker:
    """One of the functions above, which a pickle may call but not change, with what calls are counted by."""

    __slots__ = ("_function", "_reader")

    def __init__(self, function: Callable[..., Any], reader: _StatesUnpickler) -> None:
        self._function, self._reader = function, reader

    def __call__(self, *arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, str | bytes | bytearray):
                self._reader.charge(len(argument))
            elif isinstance(argument, list | dict | set | tuple):
                self._reader.charge(_ITEM_BYTES * len(argument))
        self._reader.charge(_CALL_BYTES)
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function that is given attributes")


# What making things takes in memory, about: a call, an item of a container, an array, a set.
_CALL_BYTES, _ITEM_BYTES, _ARRAY_BYTES, _SET_BYTES = 512, 120, 1536, 280
# Operations that a pickle may have, and one more for so many bytes of it: arrays are most of a real one.
_FREE_STEPS, _BYTES_OF_STEP = 1 << 19, 32

_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "bytearray"): _safe_bytearray,
    ("builtins", "set"): _safe_set,
    ("_codecs", "encode"): _safe_encode,
    ("copyreg", "_reconstructor"): _safe_reconstructor,
    ("collections", "OrderedDict"): _safe_ordered,
    ("numpy.core.multiarray", "scalar"): _safe_scalar,
    ("numpy._core.multiarray", "scalar"): _safe_scalar,
}
_CLASSES: dict[tuple[str, str], Any] = {("builtins", "object"): object, ("numpy", "dtype"): _Dtype}
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_ARRAY_CLASSES = {"NDArray", "ndarray", "RowSparseNDArray", "CSRNDArray"}
_NUMPY_TYPES = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool_"}


class _Operations(dict[int, Any]):
    """The unpickler's operations, which counts how many are asked for."""

    def __init__(self, size: int) -> None:
        super().__init__(_Unpickler.dispatch)
        changed = {name: value for name, value in vars(_StatesUnpickler).items() if name.startswith("load_")}
        for code, function in _Unpickler.dispatch.items():
            self[code] = changed.get(function.__name__, function)
        self._size, self.done, self._most = size, 0, _FREE_STEPS + size // _BYTES_OF_STEP

    def __getitem__(self, code: int) -> Any:
        self.done += 1
        if self.done > self._most and limits.exceeds(self.done << 20, self._size):
            raise ParamsError(
                f"The pickled optimizer states are damaged: {self.done} operations in {self._size} bytes are "
                f"more than arrays need. {limits.REMEDY}"
            )
        return super().__getitem__(code)


# The unpickler in C hashes whatever a file has as a key, and allocates by the numbers in a file.
_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _StatesUnpickler(_Unpickler):  # type: ignore[misc]
    """Builds numbers, text, containers, arrays, and records of known optimizers and schedulers only.

    ``size`` is that of the file: what may be made is limited by it.
    """

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.dispatch = _Operations(self.size)
        self.stream = io.BytesIO(data)
        self._spent = 0
        self._classes: dict[tuple[str, str], Any] = {}
        super().__init__(self.stream, encoding="latin-1")

    def charge(self, count: int) -> None:
        """Count bytes of memory; an error when they are more than the file may take."""
        self._spent += count
        if limits.exceeds(self._spent, self.size):
            raise ParamsError(
                f"The pickled optimizer states are damaged: up to byte {self.stream.tell()} of {self.size}, "
                f"what they hold takes {self._spent} bytes. {limits.REMEDY}"
            )

    def load_empty_set(self) -> None:
        self.charge(_SET_BYTES)
        super().load_empty_set()

    def load_long_binput(self) -> None:
        (place,) = struct.unpack("<I", self.read(4))
        if place > self.dispatch.done:
            raise ParamsError(
                f"The pickled optimizer states are damaged: at byte {self.stream.tell()} of {self.size}, the "
                f"value number {place} is kept after {self.dispatch.done} operations."
            )
        self.memo[place] = self.stack[-1]

    def load_frame(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        if length > self.size - self.stream.tell():
            raise ParamsError(
                f"The pickled optimizer states are damaged: at byte {self.stream.tell()} of {self.size}, a "
                f"frame of {length} bytes begins."
            )
        self._unframer.load_frame(length)

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        content = self.read(length)
        if len(content) < length:
            raise pickle.UnpicklingError(f"an array of {length} bytes that the file does not have")
        self.append(bytearray(content))

    def load_build(self) -> None:
        state = self.stack[-1]
        parts = state if isinstance(state, tuple) else (state,)
        self.charge(sum(_ITEM_BYTES * len(part) for part in parts if isinstance(part, dict)))
        super().load_build()

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    def load_additems(self) -> None:
        _check_keys(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        _check_keys(self.stack)
        super().load_frozenset()

    def find_class(self, module: str, name: str) -> Any:
        self.charge(_CALL_BYTES)
        key = (_OLD_MODULES.get(module, module), name)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = self._known(*key)
        return found

    def _known(self, module: str, name: str) -> Any:
        from regluon import lr_scheduler
        from regluon.optimizer import Optimizer

        if (module, name) in _FUNCTIONS:
            return _Maker(_FUNCTIONS[module, name], self)
        if (module, name) in _CLASSES:
            return _CLASSES[module, name]
        if module.split(".")[0] in ("mxnet", "regluon"):
            if name in _ARRAY_CLASSES:
                return type("_Array", (_PickledArray,), {"reader": self})
            if ".lr_scheduler" in module and name in lr_scheduler.__all__:
                return type("_SchedulerRecord", (_Record,), {"class_name": name})
            if ".optimizer" in module and name.lower() in Optimizer.opt_registry:
                return type("_OptimizerRecord", (_Record,), {"class_name": name})
        if module == "numpy" and name in _NUMPY_TYPES:
            return type("_NumpyType", (_Record,), {"class_name": name})
        raise ParamsError(
            f"The pickled optimizer states ask for '{module[:80]}.{name[:80]}'. Only arrays, numbers, "
            "containers and the optimizers of MXNet are read, since anything else could run code. Save the "
            "states again without the optimizer (dump_optimizer=False), or remove user-made classes from it."
        )

    def persistent_load(self, pid: Any) -> Any:
        raise ParamsError("The pickled optimizer states refer to something outside the file.")


def _convert(state: Any, name: str, budget: list[int]) -> Any:
    """Arrays for the stand-ins; the float32 copy first, where 1.x puts it second.

    Tuples that hold one another many times would be walked for ever; ``budget`` is how many values may
    follow.
    """
    budget[0] -= 1
    if budget[0] < 0:
        raise ParamsError("The pickled optimizer states are damaged: their values hold one another.")
    if isinstance(state, _PickledArray):
        return None if state.tensor is None else NDArray._wrap(state.tensor, None)
    if isinstance(state, list | tuple):
        parts = list(state)
        if name in _MASTER_SECOND and len(parts) == 2 and isinstance(parts[1], _PickledArray):
            first = parts[0]
            if first is None or (isinstance(first, _PickledArray) and first.version == 2):
                parts.reverse()
        return tuple(_convert(part, name, budget) for part in parts)
    if isinstance(state, _Record):
        raise ParamsError(
            f"The state of a parameter is a {state.class_name}; arrays and numbers were expected."
        )
    return state


def _count(value: Any, budget: list[int]) -> None:
    """Take what a value holds from the budget; an error where that is more than the file can have made."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ParamsError("The pickled optimizer states are damaged: their values hold one another.")
    if isinstance(value, dict):
        for part in value.values():
            _count(part, budget)
    elif isinstance(value, list | tuple):
        for part in value:
            _count(part, budget)


def _plain_values(attributes: dict[str, Any], budget: list[int]) -> dict[str, Any]:
    """The attributes that are numbers, text and containers of those; a scheduler as (class, attributes)."""
    result: dict[str, Any] = {}
    for name, value in attributes.items():
        _count(value, budget)
        if name == "lr_scheduler" and isinstance(value, _Record):
            result[name] = (value.class_name, _plain_values(value.attributes, budget))
        elif _plain(value) is not None:
            result[name] = value
    return result


def _loads_pickle(data: bytes, current: Any) -> tuple[dict[Any, Any], Any]:
    reader = _StatesUnpickler(data)
    try:
        with limits.paused_collection():
            loaded = reader.load()
    except ParamsError:
        raise
    except Exception as error:
        # A damaged pickle fails in many ways, all of which mean the same.
        raise ParamsError(
            f"These bytes are not the states of an optimizer: {type(error).__name__}({str(error)[:200]}), up "
            f"to byte {reader.stream.tell()} of {len(data)}."
        ) from error
    record = None
    if isinstance(loaded, tuple) and len(loaded) == 2 and isinstance(loaded[1], _Record):
        loaded, record = loaded
    if not isinstance(loaded, dict):
        raise ParamsError(
            f"The states of an optimizer were expected (a dict); the pickle holds {type(loaded).__name__}."
        )
    name = record.class_name if record is not None else type(current).__name__
    # Every value takes at least one operation to make.
    budget = [reader.dispatch.done]
    try:
        states = {index: _convert(state, name, budget) for index, state in loaded.items()}
        values = {} if record is None else _plain_values(record.attributes, budget)
    except RecursionError as error:
        raise ParamsError("The pickled optimizer states are nested too deeply.") from error
    if record is None:
        return states, None
    return states, _make_optimizer(record.class_name, values, current)


def loads(data: bytes, current: Any = None) -> tuple[dict[Any, Any], Any]:
    """States, and the optimizer if it is in there, from bytes of :func:`dumps` or of MXNet.

    ``current`` is the optimizer in use; if its class is the stored one, settings that are not stored are its.

    Raises
    ------
    ParamsError
        If the bytes are damaged, or hold something that is not read.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"The states were expected as bytes; received {type(data).__name__}.")
    data = bytes(data)
    if data[:8] == struct.pack("<Q", params.LIST_MAGIC):
        return _loads_own(data, current)
    return _loads_pickle(data, current)
