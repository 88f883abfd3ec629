"""Reader of the golden cases: calls of the original MXNet releases with everything they gave.

``<version>/<family>.json`` lists the cases, ``<version>/<family>.npz`` holds their arrays. The field
meanings are in README.md. Only NumPy is needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent
VERSIONS = ("1.9.1", "2.0.0b1")


@dataclass
class Statistic:
    """Moments of one sampled output, reduced over ``axes`` (``samples`` values each)."""

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[int, ...]
    samples: int
    mean: np.ndarray
    variance: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray


@dataclass
class Case:
    """One call of an original, with its arrays loaded."""

    version: str
    id: str
    family: str
    kind: str
    operator: str
    call: dict[str, Any]
    attributes: dict[str, str]
    training: bool
    inputs: list[np.ndarray]
    input_kinds: list[str]
    outputs: list[Any]
    structure: str | None
    heads: list[np.ndarray | None]
    gradients: list[np.ndarray | None]
    mutated: list[tuple[int, np.ndarray]]
    statistics: list[Statistic]
    rtol: float
    atol: float
    seed: int | None
    raw: dict[str, Any] = field(repr=False)

    @property
    def key(self) -> str:
        """The name of this case over both versions."""
        return f"{self.version}:{self.id}"

    @property
    def array_kind(self) -> str:
        """``nd`` or ``np``: the kind of array that the call was made with."""
        return "np" if self.call["api"] == "py" else "nd"

    def call_digest(self) -> str:
        """Identity of the call alone: same call, same attributes, same input values."""
        parts = json.dumps([self.call, self.attributes, self.training, self.raw["np_shape"]], sort_keys=True)
        digest = hashlib.sha1(parts.encode())
        for array in [*self.inputs, *(head for head in self.heads if head is not None)]:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def families(version: str) -> list[str]:
    """Names of the families that ``version`` has cases of."""
    return sorted(path.stem for path in (ROOT / version).glob("*.json"))


@cache
def load_family(version: str, family: str) -> tuple[Case, ...]:
    """All cases of one family, arrays included."""
    records = json.loads((ROOT / version / f"{family}.json").read_text())
    with np.load(ROOT / version / f"{family}.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return tuple(_case(version, record, arrays) for record in records)


def _case(version: str, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Case:
    def value(key: Any) -> Any:
        if key is None:
            return None
        return key["$py"] if isinstance(key, dict) else arrays[key]

    inputs = [value(key) for key in record["inputs"]]
    return Case(
        version=version,
        id=record["id"],
        family=record["family"],
        kind=record["kind"],
        operator=record["op"],
        call=record["call"],
        attributes=record["attrs"],
        training=record["train_mode"],
        inputs=inputs,
        input_kinds=record.get("input_stypes") or ["default"] * len(inputs),
        outputs=[value(key) for key in record["outputs"]],
        structure=record.get("out_struct"),
        heads=[value(key) for key in record["head_grads"]],
        gradients=[value(key) for key in record["input_grads"]],
        mutated=[(item["index"], value(item["array"])) for item in record["mutated_inputs"]],
        statistics=[
            Statistic(
                tuple(item["shape"]),
                item["dtype"],
                tuple(item["stat_axes"]),
                item["samples"],
                value(item["mean"]),
                value(item["var"]),
                value(item["min"]),
                value(item["max"]),
            )
            for item in record.get("stats", [])
        ],
        rtol=record["rtol"],
        atol=record["atol"],
        seed=record.get("seed"),
        raw=record,
    )


@cache
def superseded(version: str, family: str) -> frozenset[str]:
    """Ids of ``version`` whose same call gives something else in the release that this project follows.

    ``nd`` calls follow 1.9.1 and ``np`` calls 2.0.0b1 where the two releases differ.
    """
    other = VERSIONS[1 - VERSIONS.index(version)]
    if family not in families(other):
        return frozenset()
    leading = {case.call_digest(): case for case in load_family(other, family)}
    found = set()
    for case in load_family(version, family):
        followed = "1.9.1" if case.array_kind == "nd" else "2.0.0b1"
        twin = leading.get(case.call_digest())
        if version != followed and twin is not None and _differ(case, twin):
            found.add(case.id)
    return frozenset(found)


def _differ(one: Case, two: Case) -> bool:
    if one.kind != two.kind or len(one.outputs) != len(two.outputs) or len(one.mutated) != len(two.mutated):
        return True
    pairs = [
        *zip(one.outputs, two.outputs, strict=True),
        *((a, b) for (_, a), (_, b) in zip(one.mutated, two.mutated, strict=True)),
        *zip(one.gradients, two.gradients, strict=False),
    ]
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    return any(not same(a, b, max(one.rtol, two.rtol), max(one.atol, two.atol)) for a, b in pairs)


def same(one: Any, two: Any, rtol: float, atol: float) -> bool:
    """Whether two values agree in type, shape and, within tolerance, value."""
    if one is None or two is None:
        return (one is None) == (two is None)
    if not (isinstance(one, np.ndarray) and isinstance(two, np.ndarray)):
        return type(one) is type(two) and bool(np.allclose(np.asarray(one, float), np.asarray(two, float)))
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return bool(np.allclose(one.astype(np.float64), two.astype(np.float64), rtol, atol, equal_nan=True))


def decode(argument: Any, arrays: Sequence[Any], dtype: Callable[[str], Any] = np.dtype) -> Any:
    """The Python value of an encoded argument; ``arrays`` are the inputs in the array kind under test."""
    if isinstance(argument, list):
        return [decode(item, arrays, dtype) for item in argument]
    if not isinstance(argument, dict):
        return argument
    if len(argument) == 1:
        tag, body = next(iter(argument.items()))
        if tag == "$in":
            return arrays[body]
        if tag == "$dtype":
            return dtype(body)
        if tag == "$tuple":
            return tuple(decode(item, arrays, dtype) for item in body)
        if tag == "$slice":
            return slice(*body)
        if tag == "$ellipsis":
            return Ellipsis
        if tag == "$float":
            return float(body)
    return {name: decode(item, arrays, dtype) for name, item in argument.items()}
