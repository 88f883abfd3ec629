"""Image arithmetic on NumPy images of shape (height, width, channels) or (height, width), in BGR order.

What the iterators over RecordIO files are made of. Resampling, borders and colour spaces are OpenCV's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..gluon.data.vision.transforms.kernels import EIGENVALUES, EIGENVECTORS, GREY, opencv

__all__: list[str] = []

Image = Any
Random = numpy.random.RandomState

CUBIC, AREA, BILINEAR, AUTOMATIC, BY_CHANCE = 2, 3, 1, 9, 10
RESIZED_CROP_TRIES = 10


def interpolation(method: int, old: tuple[int, ...], new: tuple[int, ...], random: Random) -> int:
    """OpenCV's number of an interpolation: 9 is cubic to enlarge, area to shrink and else bilinear; 10 is any
    by chance."""
    if method == AUTOMATIC:
        if new[0] > old[0] and new[1] > old[1]:
            return CUBIC
        return AREA if new[0] < old[0] and new[1] < old[1] else BILINEAR
    return int(random.randint(5)) if method == BY_CHANCE else method


def resized(image: Image, height: int, width: int, method: int) -> Image:
    """Resample to a size."""
    if image.shape[:2] == (height, width):
        return image
    return opencv("resizing images").resize(image, (width, height), interpolation=method)


def shorter_side(image: Image, length: int, method: int, random: Random) -> Image:
    """Resample so that the shorter side has a length and the longer one, rounded down, keeps the shape."""
    rows, columns = image.shape[:2]
    new = (length * rows // columns, length) if rows > columns else (length, length * columns // rows)
    return resized(image, new[0], new[1], interpolation(method, (rows, columns), new, random))


def at_least(image: Image, height: int, width: int, method: int, random: Random) -> Image:
    """Enlarge an image that is lower or narrower than a size, first to the height, then to the width."""
    chosen = interpolation(method, image.shape, (height, width), random)
    if image.shape[0] < height:
        image = resized(image, height, height * image.shape[1] // image.shape[0], chosen)
    if image.shape[1] < width:
        image = resized(image, width * image.shape[0] // image.shape[1], width, chosen)
    return image


def cut(image: Image, height: int, width: int, random: Random | None) -> Image:
    """A rectangle out of the middle, or of any place where there is chance."""
    free = image.shape[0] - height, image.shape[1] - width
    top, left = (space // 2 if random is None else int(random.randint(space + 1)) for space in free)
    return image[top : top + height, left : left + width]


def transformed(
    image: Image,
    angle: float,
    shear: float,
    scale: float,
    aspect: float,
    limits: tuple[float, float],
    fill: int,
    method: int,
) -> Image:
    """Rotate by ``angle`` degrees, scale (wide to high by ``aspect``) and shear, about the centre.

    The result has the size of the scaled image within ``limits``; pixels from outside are ``fill``.
    """
    turn = math.radians(angle)
    rotation = numpy.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    across = 2 * scale / (1 + aspect)
    matrix = numpy.array([[1, shear], [0, 1]]) @ numpy.diag([across, across * aspect]) @ rotation
    old = numpy.array(image.shape[1::-1])
    new = numpy.clip(scale * old, *limits)
    shift = (new - matrix @ old) / 2
    cv2 = opencv("transforming images")
    return cv2.warpAffine(
        image,
        numpy.column_stack([matrix, shift]),
        (max(int(new[0]), 1), max(int(new[1]), 1)),
        flags=method,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(fill,) * 4,
    )


def bordered(image: Image, width: int, fill: int) -> Image:
    """Add a border of one value on all sides."""
    sides = [(width, width), (width, width), (0, 0)][: image.ndim]
    return numpy.pad(image, sides, constant_values=fill)


def random_part(image: Image, areas: tuple[float, float], ratios: tuple[float, float], random: Random) -> Any:
    """A rectangle of a random share of the area and random width over height; None when none fits.

    After C. Szegedy et al., "Going deeper with convolutions", 2015, section 6.
    """
    rows, columns = image.shape[:2]
    for _ in range(RESIZED_CROP_TRIES):
        area = random.uniform(*areas) * rows * columns
        ratio = random.uniform(*ratios)
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= columns and 0 < height <= rows:
            return cut(image, height, width, random)
    return None


def _saturated(values: Any) -> Any:
    return numpy.clip(numpy.rint(values), 0, 255).astype(numpy.uint8)


def _luminance(image: Image) -> Any:
    return image if image.ndim == 2 else image[..., :3] @ numpy.array(GREY[::-1])


def brightness(image: Image, factor: float) -> Image:
    """Multiply all values."""
    return _saturated(image * factor)


def contrast(image: Image, factor: float) -> Image:
    """Blend with the mean luminance."""
    return _saturated(image * factor + (1 - factor) * _luminance(image).mean())


def saturation(image: Image, factor: float) -> Image:
    """Blend with each pixel's luminance; grey images stay."""
    if image.ndim == 2:
        return image
    return _saturated(image * factor + (1 - factor) * _luminance(image)[..., None])


def principal_noise(image: Image, weights: Any) -> Image:
    """Add the principal components of ImageNet's colours by weight; grey images stay."""
    if image.ndim == 2:
        return image
    shift = numpy.array(EIGENVECTORS) @ (numpy.asarray(weights) * numpy.array(EIGENVALUES))
    return _saturated(image + shift[::-1])


def shift_hls(image: Image, hue: int, lightness: int, saturated: int) -> Image:
    """Add to hue (0 to 180), lightness and saturation (0 to 255), within their ranges; grey images stay."""
    if image.ndim == 2 or not (hue or lightness or saturated):
        return image
    cv2 = opencv("changing colours")
    values = cv2.cvtColor(image, cv2.COLOR_BGR2HLS).astype(numpy.int32)
    values += numpy.array([hue, lightness, saturated])
    limited = numpy.clip(values, 0, (180, 255, 255)).astype(numpy.uint8)
    return cv2.cvtColor(limited, cv2.COLOR_HLS2BGR)


def planes(image: Image) -> Any:
    """From (height, width[, channels]) in BGR order to (channels, height, width) in RGB order."""
    if image.ndim == 2:
        return image[None]
    order = [2, 1, 0, 3][: image.shape[2]]
    return image[:, :, order].transpose(2, 0, 1)
