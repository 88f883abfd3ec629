"""The augmentation of `ImageRecordIter`: its options, and what they do to one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import pixels
from .pixels import Image, Random

__all__: list[str] = []

NO_LIMIT = 1e10


@dataclass(frozen=True)
class ImageAugmentation:
    """Options under their names in MXNet; `__call__` applies them to an image in their fixed order.

    They are, in that order: ``resize``; ``rotate``, ``max_rotate_angle``, ``max_shear_ratio``,
    ``min_random_scale`` to ``max_random_scale``, the aspect ratio, ``min_img_size`` and ``max_img_size``;
    ``pad``; the crop to ``shape`` (of one size for each image with ``min_crop_size`` and ``max_crop_size``);
    ``brightness``, ``contrast`` and ``saturation`` in any order; ``pca_noise``; ``random_h``, ``random_s``
    and ``random_l``. With ``random_resized_crop`` the areas and aspect ratios choose the crop instead.
    """

    shape: tuple[int, int, int]
    resize: int = -1
    rand_crop: bool = False
    random_resized_crop: bool = False
    max_rotate_angle: int = 0
    max_aspect_ratio: float = 0
    min_aspect_ratio: float | None = None
    max_shear_ratio: float = 0
    max_crop_size: int = -1
    min_crop_size: int = -1
    max_random_scale: float = 1
    min_random_scale: float = 1
    max_random_area: float = 1
    min_random_area: float = 1
    max_img_size: float = NO_LIMIT
    min_img_size: float = 0
    brightness: float = 0
    contrast: float = 0
    saturation: float = 0
    pca_noise: float = 0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    rotate: int = -1
    fill_value: int = 255
    inter_method: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        if self.inter_method not in (0, 1, 2, 3, 4, 9, 10):
            raise ValueError(
                "inter_method is 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 automatic, 10 random; "
                f"got {self.inter_method}"
            )
        scales = self.min_random_scale, self.max_random_scale
        sized = max(self.min_crop_size, self.max_crop_size) > 0
        if self.random_resized_crop and (self.rand_crop or scales != (1, 1) or sized):
            raise ValueError(
                "random_resized_crop chooses the crop itself: it cannot be combined with rand_crop, "
                "min_random_scale, max_random_scale, min_crop_size or max_crop_size"
            )
        for low, high in (
            ("min_random_scale", "max_random_scale"),
            ("min_random_area", "max_random_area"),
            ("min_img_size", "max_img_size"),
            ("min_crop_size", "max_crop_size"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{low} must not be above {high}, got {getattr(self, low)} and {getattr(self, high)}"
                )

    def __call__(self, image: Image, random: Random) -> Image:
        """An image of ``shape``'s height and width; all chance is drawn from ``random``."""
        _, height, width = self.shape
        if self.resize > 0:
            image = pixels.shorter_side(image, self.resize, self.inter_method, random)
        if self._transforms:
            image = self._transformed(image, random)
        if self.pad > 0:
            image = pixels.bordered(image, self.pad, self.fill_value)
        return self._coloured(self._cropped(image, height, width, random), random)

    @property
    def _transforms(self) -> bool:
        aspect = self.max_aspect_ratio != 0 and not self.random_resized_crop
        scales = (self.max_random_scale, self.min_random_scale) != (1, 1)
        turns = self.max_rotate_angle > 0 or self.max_shear_ratio > 0 or self.rotate > 0
        return turns or aspect or scales or (self.min_img_size, self.max_img_size) != (0, NO_LIMIT)

    def _ratios(self) -> tuple[float, float]:
        """The range of width over height."""
        if self.min_aspect_ratio is not None:
            return self.min_aspect_ratio, self.max_aspect_ratio
        return 1 - self.max_aspect_ratio, 1 + self.max_aspect_ratio

    def _transformed(self, image: Image, random: Random) -> Image:
        angle = self.rotate if self.rotate > 0 else 0
        if self.rotate <= 0 and self.max_rotate_angle > 0:
            angle = int(random.randint(-self.max_rotate_angle, self.max_rotate_angle + 1))
        shear = random.uniform(-self.max_shear_ratio, self.max_shear_ratio)
        scale = random.uniform(self.min_random_scale, self.max_random_scale)
        has_aspect = self.max_aspect_ratio != 0 and not self.random_resized_crop
        aspect = random.uniform(*self._ratios()) if has_aspect else 1.0
        method = pixels.interpolation(self.inter_method, image.shape, image.shape, random)
        limits = self.min_img_size, self.max_img_size
        return pixels.transformed(image, angle, shear, scale, aspect, limits, self.fill_value, method)

    def _cropped(self, image: Image, height: int, width: int, random: Random) -> Image:
        size = height, width
        areas = self.min_random_area, self.max_random_area
        # A part of all the area and of the ratio 1 asks for nothing: then the original crops the middle.
        if self.random_resized_crop and (areas, self._ratios()) != ((1, 1), (1, 1)):
            part = pixels.random_part(image, areas, self._ratios(), random)
            if part is not None:
                method = pixels.interpolation(self.inter_method, part.shape, size, random)
                return pixels.resized(part, height, width, method)
        chance = random if self.rand_crop else None
        if self.max_crop_size > 0:
            length = int(random.randint(max(self.min_crop_size, 1), self.max_crop_size + 1))
            image = pixels.at_least(image, length, length, self.inter_method, random)
            part = pixels.cut(image, length, length, chance)
            method = pixels.interpolation(self.inter_method, part.shape, size, random)
            return pixels.resized(part, height, width, method)
        image = pixels.at_least(image, height, width, self.inter_method, random)
        return pixels.cut(image, height, width, chance)

    def _coloured(self, image: Image, random: Random) -> Image:
        changes: list[tuple[float, Any]] = [
            (self.brightness, pixels.brightness),
            (self.contrast, pixels.contrast),
            (self.saturation, pixels.saturation),
        ]
        if any(amount for amount, _ in changes):
            for place in random.permutation(len(changes)):
                amount, change = changes[place]
                if amount:
                    image = change(image, 1 + random.uniform(-amount, amount))
        if self.pca_noise:
            image = pixels.principal_noise(image, random.normal(0, self.pca_noise, 3))
        hue, lightness, saturated = (
            int(random.randint(-most, most + 1)) if most else 0
            for most in (self.random_h, self.random_l, self.random_s)
        )
        return pixels.shift_hls(image, hue, lightness, saturated)
