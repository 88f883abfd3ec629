"""Functions on one image: reading, resampling, cropping, rotating, normalising."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ..array import NDArray
from ..base.errors import MXNetError
from ..gluon.data._arrays import batch_kind, wrap, wrap_numpy
from ..gluon.data.vision.transforms import kernels

__all__ = [
    "center_crop",
    "color_normalize",
    "copyMakeBorder",
    "fixed_crop",
    "imdecode",
    "imread",
    "imresize",
    "imrotate",
    "random_crop",
    "random_rotate",
    "random_size_crop",
    "resize_short",
    "scale_down",
]

CUBIC, AREA, BILINEAR, AUTOMATIC, BY_CHANCE = 2, 3, 1, 9, 10


def opened(src: Any, what: str) -> tuple[Tensor, type[NDArray]]:
    """The tensor of an image and the class of its array.

    Raises
    ------
    TypeError
        For what is no array.
    ValueError
        For an array that is no image.
    """
    if isinstance(src, numpy.ndarray):
        src = wrap_numpy(src, batch_kind([]))
    if not isinstance(src, NDArray):
        raise TypeError(f"{what} expected an image as an array, got {type(src).__name__}")
    if src.ndim != 3:
        raise ValueError(f"{what} expected an image of shape (height, width, channels), got {src.shape}")
    return src._t.detach(), type(src)


def _given_out(result: NDArray, out: Any) -> NDArray:
    if out is None:
        return result
    out[:] = result
    return out  # type: ignore[no-any-return]


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: Any = None) -> NDArray:
    """Decode the bytes of an image file to (height, width, channels), uint8.

    Parameters
    ----------
    buf : bytes, bytearray, numpy.ndarray or array
        The content of the file.
    flag : int
        1 for three channels, 0 for grey, -1 as stored.
    to_rgb : bool
        RGB order, else BGR.
    out : array, optional
        Takes the result.

    Raises
    ------
    ValueError
        For a buffer of another type.
    MXNetError
        For an empty buffer or one that is no image.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, bytes | bytearray | memoryview):
        buf = numpy.frombuffer(buf, numpy.uint8)
    if not isinstance(buf, numpy.ndarray):
        raise ValueError(
            f"imdecode expected the bytes of an image file as bytes, bytearray or numpy.ndarray, got "
            f"{type(buf).__name__}"
        )
    if buf.size == 0:
        raise MXNetError("imdecode expected the bytes of an image file, got none")
    cv2 = kernels.opencv("decoding images")
    image = cv2.imdecode(buf.astype(numpy.uint8, copy=False).ravel(), flag)
    if image is None:
        raise MXNetError("imdecode: the bytes are no image that OpenCV can read")
    if image.ndim == 2:
        image = image[..., None]
    elif to_rgb:
        image = image[..., [2, 1, 0, 3][: image.shape[2]]]
    return _given_out(wrap_numpy(image, batch_kind([])), out)


def imread(filename: Any, flag: int = 1, to_rgb: bool = True, out: Any = None) -> NDArray:
    """Read an image file; see `imdecode`.

    Raises
    ------
    MXNetError
        For a file that is missing or no image; the message names it.
    """
    try:
        content = Path(filename).read_bytes()
    except OSError as error:
        raise MXNetError(f"imread could not open {str(filename)!r}: {error.strerror}") from error
    try:
        return imdecode(content, flag, to_rgb, out)
    except MXNetError as error:
        raise MXNetError(f"imread: {str(filename)!r}: {error}") from error


def interpolation(method: int, old: tuple[int, int], new: tuple[int, int]) -> int:
    """OpenCV's number of an interpolation: 9 is cubic to enlarge, area to shrink and else bilinear; 10 is any
    by chance. Sizes are (height, width)."""
    if method == AUTOMATIC:
        if new[0] > old[0] and new[1] > old[1]:
            return CUBIC
        return AREA if new[0] < old[0] and new[1] < old[1] else BILINEAR
    if method == BY_CHANCE:
        return int(kernels.uniform(0, 5))
    if method not in range(5):
        raise ValueError(
            "an interpolation is 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 automatic, 10 random; "
            f"got {method}"
        )
    return method


def _resized(image: Tensor, width: int, height: int, interp: int) -> Tensor:
    old = (image.shape[0], image.shape[1])
    return kernels.resize(image, width, height, interpolation(interp, old, (height, width)))


def imresize(src: Any, w: int, h: int, interp: int = 1, out: Any = None) -> NDArray:
    """Resample an image to width ``w`` and height ``h``; ``interp`` is OpenCV's number, 9 automatic, 10
    random."""
    image, kind = opened(src, "imresize")
    if w < 1 or h < 1:
        raise ValueError(f"imresize expected a positive size, got width {w} and height {h}")
    return _given_out(wrap(_resized(image, int(w), int(h), interp), kind), out)


def resize_short(src: Any, size: int, interp: int = 2) -> NDArray:
    """Resample an image so that its shorter side has a length; the longer one is rounded down."""
    image, kind = opened(src, "resize_short")
    rows, columns = image.shape[:2]
    width, height = (size, size * rows // columns) if rows > columns else (size * columns // rows, size)
    return wrap(_resized(image, width, height, interp), kind)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """A crop's (width, height) made small enough for an image's (width, height), of the same shape."""
    width, height = map(float, size)
    across, along = src_size
    if along < height:
        width, height = width * along / height, along
    if across < width:
        width, height = across, height * across / width
    return int(width), int(height)


def fixed_crop(
    src: Any, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """Cut out the rectangle of width ``w`` and height ``h`` at column ``x0`` and row ``y0``, as far as it is
    in the image; resample it to ``size`` (width, height) if that is given and another."""
    image, kind = opened(src, "fixed_crop")
    part = image[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        part = _resized(part, int(size[0]), int(size[1]), interp)
    return wrap(part.contiguous(), kind)


def random_crop(
    src: Any, size: tuple[int, int], interp: int = 2
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Cut ``size`` (width, height) out of a random place; a smaller image is cut less and enlarged.

    Also gives the rectangle (x0, y0, width, height).
    """
    image, _ = opened(src, "random_crop")
    rows, columns = image.shape[:2]
    width, height = scale_down((columns, rows), size)
    left, top = (int(kernels.uniform(0, space + 1)) for space in (columns - width, rows - height))
    return fixed_crop(src, left, top, width, height, size, interp), (left, top, width, height)


def center_crop(
    src: Any, size: tuple[int, int], interp: int = 2
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Cut ``size`` (width, height) out of the middle; a smaller image is cut less and enlarged.

    Also gives the rectangle (x0, y0, width, height).
    """
    image, _ = opened(src, "center_crop")
    rows, columns = image.shape[:2]
    width, height = scale_down((columns, rows), size)
    left, top = (columns - width) // 2, (rows - height) // 2
    return fixed_crop(src, left, top, width, height, size, interp), (left, top, width, height)


def random_size_crop(
    src: Any,
    size: tuple[int, int],
    area: Any,
    ratio: tuple[float, float],
    interp: int = 2,
    *,
    min_area: float | None = None,
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Cut out a random part and resample it to ``size`` (width, height).

    Parameters
    ----------
    src : array
        The image.
    size : tuple of int
        Width and height of the result.
    area : float or tuple of float
        The smallest part of the image's area, or the smallest and largest. ``min_area`` is its old name.
    ratio : tuple of float
        The range of width over height, uniform in the logarithm.
    interp : int
        The interpolation.

    Returns
    -------
    tuple
        The image, and the rectangle (x0, y0, width, height); the middle where no part fits.
    """
    image, _ = opened(src, "random_size_crop")
    rows, columns = image.shape[:2]
    low, high = (area, 1.0) if isinstance(area, int | float) else tuple(area)
    low = low if min_area is None else min_area
    for _ in range(10):
        wanted = kernels.uniform(low, high) * rows * columns
        shape = math.exp(kernels.uniform(math.log(ratio[0]), math.log(ratio[1])))
        width, height = round(math.sqrt(wanted * shape)), round(math.sqrt(wanted / shape))
        if 0 < width <= columns and 0 < height <= rows:
            left, top = (int(kernels.uniform(0, space + 1)) for space in (columns - width, rows - height))
            return fixed_crop(src, left, top, width, height, size, interp), (left, top, width, height)
    return center_crop(src, size, interp)


def color_normalize(src: Any, mean: Any, std: Any = None) -> NDArray:
    """Subtract ``mean`` and divide by ``std``, each an array, numbers for the channels, or None for nothing.

    Integer images become float32.
    """
    image, kind = opened(src, "color_normalize")
    image = image if image.is_floating_point() else image.float()
    if mean is not None:
        image = image - _values(mean, image)
    if std is not None:
        image = image / _values(std, image)
    return wrap(image, kind)


def _values(given: Any, like: Tensor) -> Tensor:
    found = given._t if isinstance(given, NDArray) else torch.as_tensor(numpy.asarray(given))
    return found.to(like.dtype)


def imrotate(src: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate a float32 image (channels, height, width), or a batch of them, about its centre.

    Parameters
    ----------
    src : array
        The image or batch.
    rotation_degrees : float or array
        The angle in degrees; for a batch also one for each image.
    zoom_in : bool
        Enlarge until no empty corner is left.
    zoom_out : bool
        Shrink until no part is lost.

    Raises
    ------
    TypeError
        For images that are not float32, or several angles for one image.
    ValueError
        For both zooms, another number of axes, or another number of angles than images.
    """
    if zoom_in and zoom_out:
        raise ValueError("imrotate: `zoom_in` and `zoom_out` cannot be both True")
    if not isinstance(src, NDArray) or src._t.dtype != torch.float32:
        raise TypeError(
            "imrotate: only float32 images are supported; use ToTensor or astype('float32') first"
        )
    if src.ndim not in (3, 4):
        raise ValueError(f"imrotate expected (channels, height, width) or a batch of them, got {src.shape}")
    image = src._t.detach()
    if not isinstance(rotation_degrees, NDArray | numpy.ndarray | list | tuple):
        return wrap(kernels.rotate(image, float(rotation_degrees), zoom_in, zoom_out), type(src))
    held = rotation_degrees.asnumpy() if isinstance(rotation_degrees, NDArray) else rotation_degrees
    angles = numpy.asarray(held, numpy.float64).reshape(-1)
    if image.ndim == 3:
        raise TypeError("imrotate: one image is rotated by one number, not by an array")
    if len(angles) != len(image):
        raise ValueError(f"imrotate expected an angle for each of {len(image)} images, got {len(angles)}")
    turned = [
        kernels.rotate(one, float(angle), zoom_in, zoom_out) for one, angle in zip(image, angles, strict=True)
    ]
    return wrap(torch.stack(turned), type(src))


def random_rotate(
    src: Any, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by an angle drawn from ``angle_limits`` (degrees), for a batch one for each image."""
    if getattr(src, "ndim", 3) == 3:
        return imrotate(src, kernels.uniform(*angle_limits), zoom_in, zoom_out)
    return imrotate(src, [kernels.uniform(*angle_limits) for _ in range(len(src))], zoom_in, zoom_out)


def copyMakeBorder(
    src: Any,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Any = (),
    out: Any = None,
) -> NDArray:
    """Add a border; ``type`` is OpenCV's number (0 constant, 1 replicate, 2 reflect, 3 wrap, 4 reflect 101).

    ``values`` gives a constant border one value for each channel instead of ``value``.
    """
    image, kind = opened(src, "copyMakeBorder")
    cv2 = kernels.opencv("adding borders")
    filled = [float(one) for one in values] if len(values) else [float(value)] * 4
    framed = cv2.copyMakeBorder(image.contiguous().numpy(), top, bot, left, right, type, value=filled)
    framed = framed[..., None] if framed.ndim == 2 else framed
    return _given_out(wrap_numpy(framed, kind), out)
