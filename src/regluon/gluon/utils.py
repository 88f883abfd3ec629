"""Helpers of Gluon training code: splitting batches, clipping gradients, files and hooks."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import ssl
import urllib.error
import urllib.request
import uuid
import warnings
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlparse

import torch

from ..array import NDArray
from ..base.device import Context

__all__ = [
    "HookHandle",
    "check_sha1",
    "clip_global_norm",
    "download",
    "replace_file",
    "shape_is_known",
    "split_and_load",
    "split_data",
]


def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[Any]:
    """Split an array into ``num_slice`` parts along ``batch_axis``.

    Parameters
    ----------
    data : NDArray, np.ndarray or numpy.ndarray
        Shape ``(..., batch, ...)`` with the batch at ``batch_axis``.
    num_slice : int
        Number of parts.
    batch_axis : int
        The axis to split.
    even_split : bool
        Refuse a batch that does not divide evenly. Otherwise the first parts are one larger.

    Raises
    ------
    ValueError
        When ``even_split`` is set and the batch is no multiple of ``num_slice``.
    """
    if num_slice < 1:
        raise ValueError(f"split_data expected num_slice of at least 1, got {num_slice}")
    size = data.shape[batch_axis]
    if even_split and size % num_slice != 0:
        raise ValueError(
            f"data with shape {tuple(data.shape)} cannot be evenly split into {num_slice} slices along axis "
            f"{batch_axis}. Use a batch size that's multiple of {num_slice} or set even_split=False to allow "
            "uneven partitioning of data."
        )
    if num_slice == 1:
        return [data]
    axis = batch_axis % len(data.shape)
    each, extra = divmod(size, num_slice)
    slices = []
    start = 0
    for number in range(num_slice):
        stop = start + each + (number < extra)
        slices.append(data[(slice(None),) * axis + (slice(start, stop),)])
        start = stop
    return slices


def split_and_load(
    data: Any,
    ctx_list: Sequence[Context] | None = None,
    batch_axis: int = 0,
    even_split: bool = True,
    **kwargs: Any,
) -> list[NDArray]:
    """Split an array and put part ``i`` on device ``i`` of ``ctx_list`` (``device_list`` is the same
    argument).

    Lists and NumPy arrays become arrays first. See `split_data` for the other arguments and errors.
    """
    from .data._arrays import batch_kind, wrap

    devices = kwargs.pop("device_list", ctx_list)
    if kwargs:
        raise TypeError(f"split_and_load got an unexpected keyword argument {next(iter(kwargs))!r}")
    if isinstance(devices, Context):
        devices = [devices]
    if not devices:
        raise ValueError("split_and_load expected a list of one or more devices, got none")
    if not isinstance(data, NDArray):
        # Float32 whatever the input, as mx.nd.array and mx.np.array make it.
        data = wrap(torch.as_tensor(data).to(torch.float32).clone(), batch_kind([]))
    parts = split_data(data, len(devices), batch_axis, even_split)
    return [part.as_in_context(device) for part, device in zip(parts, devices, strict=True)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale arrays in place so that the 2-norm of all their elements together is at most ``max_norm``.

    Every array is multiplied by ``min(1, max_norm / (norm + 1e-8))`` (R. Pascanu, T. Mikolov, Y. Bengio, "On
    the difficulty of training recurrent neural networks", 2013, section 3.2).

    Parameters
    ----------
    arrays : list of NDArray
        The arrays, on any devices; modified in place.
    max_norm : float
        The largest norm to leave.
    check_isfinite : bool
        Warn when the norm is not finite; this waits for the value.

    Returns
    -------
    float or NDArray
        The norm before clipping: a number with ``check_isfinite``, else an array of shape ``(1,)``.

    Raises
    ------
    ValueError
        When ``arrays`` is empty.
    """
    if len(arrays) == 0:
        raise ValueError("clip_global_norm expected at least one array, got none")
    from .data._arrays import wrap

    tensors = [array._t for array in arrays]
    home = tensors[0].device
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(tensor.float()).to(home) for tensor in tensors]
        total = torch.linalg.vector_norm(torch.stack(norms))
        scale = torch.clamp(max_norm / (total + 1e-8), max=1.0)
    if check_isfinite and not math.isfinite(float(total)):
        warnings.warn(
            "nan or inf is detected. Clipping results will be undefined.", UserWarning, stacklevel=2
        )
    for array, tensor in zip(arrays, tensors, strict=True):
        array[:] = wrap((tensor * scale.to(tensor.device)).to(tensor.dtype), type(array))
    return float(total) if check_isfinite else wrap(total.reshape(1), type(arrays[0]))


def check_sha1(filename: str, sha1_hash: str) -> bool:
    """Whether the SHA-1 digest of a file starts with ``sha1_hash`` (hexadecimal, whole or shortened)."""
    digest = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return bool(sha1_hash) and digest.hexdigest().startswith(sha1_hash.lower())


def replace_file(src: str, dst: str) -> None:
    """Move ``src`` to ``dst``, replacing it in one step (both on one file system)."""
    os.replace(src, dst)


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Fetch a file, unless it is there with the right digest, and return its path.

    Parameters
    ----------
    url : str
        Address of the file.
    path : str
        File or existing folder to write to; the working folder by default.
    overwrite : bool
        Fetch even when the file exists.
    sha1_hash : str
        SHA-1 digest that the file must have.
    retries : int
        How often to try again after a failure.
    verify_ssl : bool
        Whether the server's certificate is checked.

    Raises
    ------
    OSError
        When the address cannot be reached or the digest is wrong; the message says where to put the file by
        hand.
    """
    if retries < 0:
        raise ValueError(f"download expected retries of at least 0, got {retries}")
    name = os.path.basename(urlparse(url).path)
    target = os.path.expanduser(path) if path is not None else name
    if os.path.isdir(target) or not target:
        target = os.path.join(target, name)
    if not name and os.path.isdir(target):
        raise ValueError(f"Cannot tell a file name from the address {url!r}: pass path=")
    if os.path.exists(target) and not overwrite and (not sha1_hash or check_sha1(target, sha1_hash)):
        return target
    if not verify_ssl:
        warnings.warn("Unverified HTTPS request is being made (verify_ssl=False).", UserWarning, stacklevel=2)
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    failure: Exception = OSError("not tried")
    for _ in range(retries + 1):
        temporary = f"{target}.{uuid.uuid4().hex}"
        try:
            _fetch(url, temporary, verify_ssl)
            if sha1_hash and not check_sha1(temporary, sha1_hash):
                raise OSError(f"the content's SHA-1 digest is not {sha1_hash}")
            replace_file(temporary, target)
            return target
        except (OSError, urllib.error.URLError) as error:
            failure = error
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)
    raise OSError(
        f"Could not download {url}: {failure}. Without a network, put the file at "
        f"{os.path.abspath(target)} yourself; it is used when its digest is right."
    ) from failure


def _fetch(url: str, target: str, verify_ssl: bool) -> None:
    context = None if verify_ssl else ssl._create_unverified_context()
    with urllib.request.urlopen(url, timeout=30, context=context) as response, open(target, "wb") as file:
        shutil.copyfileobj(response, file)


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Whether a shape has no unknown part: it is not None and no dimension is -1.

    A dimension of 0 means "unknown" in NumPy-less code (``npx.is_np_shape()`` false at API level 1).
    """
    from ..base import config

    if shape is None:
        return False
    zero_is_size = config.is_np_shape() or config.api_level() == 2
    if not zero_is_size and len(shape) == 0:
        return False
    return all(size > 0 or (size == 0 and zero_is_size) for size in shape)


class HookHandle:
    """The right to take a registered hook away again: ``detach()``, or leave its ``with`` block."""

    def __init__(self) -> None:
        self._hooks: Callable[[], MutableMapping[int, Any] | None] | None = None
        self._id: int | None = None

    def attach(self, hooks_dict: MutableMapping[int, Any], hook: Callable[..., Any]) -> None:
        """Put ``hook`` into ``hooks_dict``; a handle holds one hook at a time."""
        if self._hooks is not None:
            raise RuntimeError("The handle already holds a hook: detach() it first, or use a new HookHandle")
        self._id = id(hook)
        hooks_dict[self._id] = hook
        self._hooks = weakref.ref(hooks_dict)

    def detach(self) -> None:
        """Remove the hook; nothing happens when it is gone already."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None and self._id is not None:
            hooks.pop(self._id, None)
        self._hooks = None

    def __getstate__(self) -> tuple[Any, int | None]:
        return (self._hooks() if self._hooks is not None else None, self._id)

    def __setstate__(self, state: tuple[Any, int | None]) -> None:
        self._hooks = None if state[0] is None else weakref.ref(state[0])
        self._id = state[1]

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.detach()
