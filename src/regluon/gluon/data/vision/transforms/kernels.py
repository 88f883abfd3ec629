"""Image arithmetic on tensors of shape (height, width, channels): what the transform blocks call."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..._arrays import host_seed

GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601
# Eigenvalues and eigenvectors of the colours of ImageNet (A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet
# classification with deep convolutional neural networks", 2012, section 4.1).
EIGENVALUES = (55.46, 4.794, 1.148)
EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))
BILINEAR = 1


def opencv(purpose: str) -> ModuleType:
    """The cv2 module, or an error that says how to get it."""
    try:
        import cv2
    except ImportError as error:
        raise ImportError(f"OpenCV is needed for {purpose}: pip install 'regluon[image]'") from error
    return cv2


def uniform(low: float, high: float) -> float:
    """A random number that follows ``mx.random.seed``."""
    generator = torch.Generator().manual_seed(host_seed())
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def normal(scale: float, count: int) -> list[float]:
    """Normal random numbers around 0 that follow ``mx.random.seed``."""
    generator = torch.Generator().manual_seed(host_seed())
    return (torch.randn(count, generator=generator, dtype=torch.float64) * scale).tolist()


def restore(image: Tensor, like: Tensor) -> Tensor:
    """Back to the dtype of ``like``: integers are limited to their range and truncated."""
    if like.dtype.is_floating_point:
        return image.to(like.dtype)
    limits = torch.iinfo(like.dtype)
    return image.clamp(limits.min, limits.max).to(like.dtype)


def grey(image: Tensor) -> Tensor:
    """Luminance, with one channel kept."""
    if image.shape[-1] == 1:
        return image.float()
    return (image.float() * torch.tensor(GREY)).sum(-1, keepdim=True)


def brightness(image: Tensor, factor: float) -> Tensor:
    """Multiply by ``factor``."""
    return restore(image.float() * factor, image)


def contrast(image: Tensor, factor: float) -> Tensor:
    """Blend with the image's mean luminance: ``factor`` of the image, the rest of the mean."""
    mean = grey(image).mean(dim=(-3, -2, -1), keepdim=True)
    return restore(image.float() * factor + mean * (1 - factor), image)


def saturation(image: Tensor, factor: float) -> Tensor:
    """Blend with every pixel's luminance."""
    return restore(image.float() * factor + grey(image) * (1 - factor), image)


def resize(image: Tensor, width: int, height: int, interpolation: int = BILINEAR) -> Tensor:
    """Resample to a size.

    ``interpolation`` is OpenCV's number: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos.
    """
    if image.ndim == 4:
        return torch.stack([resize(item, width, height, interpolation) for item in image])
    if (image.shape[1], image.shape[0]) == (width, height):
        return image
    cv2 = opencv("resizing images")
    # OpenCV has no kernels for 64-bit and most wide integers: go through float32 there.
    native = image.dtype in (torch.uint8, torch.int16, torch.float32, torch.float64)
    source = (image if native else image.float()).contiguous().numpy()
    result = torch.from_numpy(cv2.resize(source, (width, height), interpolation=interpolation))
    result = result if result.ndim == 3 else result[..., None]
    return result if native else restore(result, image)


def limit_size(image: Tensor, width: int, height: int) -> tuple[int, int]:
    """The size of the largest rectangle of the same shape as asked that fits into the image."""
    total_height, total_width = image.shape[-3:-1]
    scale = min(1.0, total_width / width, total_height / height)
    return max(1, int(width * scale)), max(1, int(height * scale))


def rotate(image: Tensor, degrees: float, zoom_in: bool, zoom_out: bool) -> Tensor:
    """Rotate float images of shape (channels, height, width), or a batch of them, about the centre.

    Without zooming the corners that turn in are 0; ``zoom_in`` enlarges until none is left, ``zoom_out``
    shrinks until the whole image is seen. Bilinear.
    """
    batch = image if image.ndim == 4 else image[None]
    height, width = batch.shape[-2:]
    angle = math.radians(degrees)
    sine, cosine = math.sin(angle), math.cos(angle)
    scale = 1.0
    if zoom_in or zoom_out:
        # Half extents of the rotated frame, relative to the frame itself.
        across = (width * abs(cosine) + height * abs(sine)) / width
        along = (width * abs(sine) + height * abs(cosine)) / height
        scale = max(across, along) if zoom_out else 1 / max(across, along)
    ratio = (height - 1) / max(width - 1, 1)
    matrix = [[scale * cosine, -scale * sine * ratio, 0.0], [scale * sine / ratio, scale * cosine, 0.0]]
    grid = torch.nn.functional.affine_grid(
        torch.tensor([matrix] * len(batch), dtype=batch.dtype), list(batch.shape), align_corners=True
    )
    turned = torch.nn.functional.grid_sample(
        batch, grid, mode="bilinear", padding_mode="zeros", align_corners=True
    )
    return turned if image.ndim == 4 else turned[0]


def size_pair(size: Any, what: str) -> tuple[int, int]:
    """A size given as one number or as (width, height)."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(part, int) and part > 0 for part in pair):
        raise ValueError(
            f"{what} expected a size as a positive number or a pair (width, height), got {size!r}"
        )
    return pair
