"""Operators on images: (height, width, channel), or batches of them, in the layout of files and OpenCV.

Resampling, borders and decoding are OpenCV's, as in the originals; the rest is tensor arithmetic. The random
operators draw from the generator of the library and work without reading values back to the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.shape import keeps_dtype
from regluon.ops.opdef import Floats, Shape, Spec, operator

Attrs = dict[str, Any]


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MXNetError("this operator needs OpenCV: pip install opencv-python-headless") from error
    return cv2


def _check_image(shape: tuple[int, ...], name: str) -> None:
    if len(shape) not in (3, 4):
        raise MXNetError(
            f"{name}: expected an image (height, width, channel) or a batch of them, received {shape}"
        )


def _saturate(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert back to an image dtype: 8-bit values are limited to 0..255 and lose their fractions."""
    if dtype == torch.uint8:
        return values.clamp(0, 255).to(torch.uint8)
    return values.to(dtype)


# --- layout and geometry -------------------------------------------------------------------------


def _to_tensor_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    _check_image(shape, "to_tensor")
    return [Spec((*shape[:-3], shape[-1], shape[-3], shape[-2]), torch.float32)]


@operator(
    "_image_to_tensor", aliases=("_npx__image_to_tensor",), npx="image.to_tensor", infer=_to_tensor_infer
)
def to_tensor(data: Tensor) -> Tensor:
    """Turn (H, W, C) in 0..255 into float32 (C, H, W) in 0..1, also for batches."""
    _check_image(tuple(data.shape), "to_tensor")
    return data.movedim(-1, -3).to(torch.float32) / 255.0


def _normalized(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


@operator(
    "_image_normalize",
    aliases=("_npx__image_normalize",),
    npx="image.normalize",
    infer=lambda specs, attrs: [Spec(specs[0].shape, _normalized(specs[0].dtype))],
)
def normalize(
    data: Tensor, *, mean: Floats = (0.0, 0.0, 0.0, 0.0), std: Floats = (1.0, 1.0, 1.0, 1.0)
) -> Tensor:
    """Subtract ``mean`` and divide by ``std``, one number or one per channel, of (C, H, W) or (N, C, H, W).

    Integers give float32.
    """
    _check_image(tuple(data.shape), "normalize")
    channels = data.shape[-3]
    if channels not in (1, 3):
        raise MXNetError(
            f"normalize: the image must have 1 or 3 channels, received shape {tuple(data.shape)}"
        )
    statistics = []
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 1 and len(values) < channels:
            raise MXNetError(f"normalize: {name}={values} needs 1 or {channels} numbers")
        chosen = values * channels if len(values) == 1 else values[:channels]
        held = torch.tensor(chosen, dtype=_normalized(data.dtype), device=data.device)
        statistics.append(held.reshape(channels, 1, 1))
    return (data - statistics[0]) / statistics[1]


def _check_window(shape: tuple[int, ...], x: int, y: int, width: int, height: int) -> None:
    _check_image(shape, "crop")
    if x < 0 or y < 0 or width < 1 or height < 1 or x + width > shape[-2] or y + height > shape[-3]:
        raise MXNetError(
            f"crop: a window of width {width} and height {height} at x={x}, y={y} does not fit "
            "into an image of "
            f"width {shape[-2]} and height {shape[-3]}"
        )


def _crop_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    _check_window(shape, attrs["x"], attrs["y"], attrs["width"], attrs["height"])
    return (*shape[:-3], attrs["height"], attrs["width"], shape[-1])


@operator("_image_crop", aliases=("_npx__image_crop",), npx="image.crop", infer=keeps_dtype(_crop_rule))
def crop(data: Tensor, *, x: int, y: int, width: int, height: int) -> Tensor:
    """Cut a window out of (H, W, C) or (N, H, W, C)."""
    _check_window(tuple(data.shape), x, y, width, height)
    return data[..., y : y + height, x : x + width, :]


def _resized(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, int]:
    """Return the new (height, width) of a resize."""
    _check_image(shape, "resize")
    size = attrs["size"]
    if len(size) == 2:
        width, height = size
    elif len(size) == 1:
        width = height = size[0]
        if attrs["keep_ratio"] and shape[-3] > shape[-2]:
            height = int(shape[-3] * width / shape[-2])
        elif attrs["keep_ratio"]:
            width = int(shape[-2] * height / shape[-3])
    else:
        raise MXNetError(f"resize: size must be one number or (width, height), received {size}")
    if width < 1 or height < 1:
        raise MXNetError(f"resize: size must be positive, received {size}")
    return height, width


# The types that OpenCV resizes and frames.
_OPENCV_TYPES = (torch.uint8, torch.int16, torch.float32, torch.float64)


def _to_opencv(image: Tensor) -> Any:
    """A NumPy image of a type that OpenCV takes; others go through float64, which holds them."""
    value = image.detach().cpu().contiguous()
    return (value if value.dtype in _OPENCV_TYPES else value.to(torch.float64)).numpy()


def _from_opencv(image: Any, like: Tensor) -> Tensor:
    value = torch.from_numpy(image)
    if not like.is_floating_point() and value.is_floating_point():
        value = value.round()
    return value.to(like.dtype)


def resize_image(data: Tensor, height: int, width: int, interp: int) -> Tensor:
    """Resize (H, W, C) or (N, H, W, C) with OpenCV's interpolation code ``interp``."""
    cv2 = _opencv()
    images = data.detach().cpu()
    batch = images.reshape(-1, *images.shape[-3:])
    results = []
    for image in batch:
        resized = cv2.resize(_to_opencv(image), (width, height), interpolation=interp)
        results.append(_from_opencv(resized, image).reshape(height, width, image.shape[-1]))
    stacked = torch.stack(results) if results else images.new_zeros((0, height, width, images.shape[-1]))
    return stacked.reshape(*data.shape[:-3], height, width, data.shape[-1]).to(data.device)


@operator(
    "_image_resize",
    aliases=("_npx__image_resize",),
    npx="image.resize",
    gradient="zero",
    infer=keeps_dtype(lambda shape, attrs: (*shape[:-3], *_resized(shape, attrs), shape[-1])),
)
def resize(data: Tensor, *, size: Shape = (), keep_ratio: bool = False, interp: int = 1) -> Tensor:
    """Resize (H, W, C) or (N, H, W, C) to ``size``, (width, height) or one number for both.

    One number with ``keep_ratio`` is the shorter edge. ``interp``: 0 nearest, 1 bilinear, 2 bicubic, 3 area,
    4 Lanczos.
    """
    height, width = _resized(tuple(data.shape), {"size": size, "keep_ratio": keep_ratio})
    return resize_image(data, height, width, interp)


def _flipped(data: Tensor, axis: int) -> Tensor:
    _check_image(tuple(data.shape), "flip")
    return data.flip(axis)


def _coin(probability: float, rng: torch.Generator | None, device: torch.device) -> Tensor:
    return torch.rand((), generator=rng, device=device) < probability


def _define_flip(side: str, axis: int) -> None:
    def flip(data: Tensor) -> Tensor:
        return _flipped(data, axis)

    def random_flip(data: Tensor, *, p: float = 0.5, _rng: torch.Generator | None = None) -> Tensor:
        return torch.where(_coin(p, _rng, data.device), _flipped(data, axis), data)

    flip.__name__ = flip.__qualname__ = f"flip_{side}"
    random_flip.__name__ = random_flip.__qualname__ = f"random_flip_{side}"
    text = side.replace("_", " to ")
    flip.__doc__ = f"Mirror (H, W, C) images {text}."
    random_flip.__doc__ = f"Mirror (H, W, C) images {text} with probability ``p``."
    for function in (flip, random_flip):
        name = f"_image_{function.__name__}"
        operator(
            name,
            aliases=(f"_npx_{name}",),
            npx=f"image.{function.__name__}",
            infer=lambda specs, attrs: [specs[0]],
        )(function)


_define_flip("left_right", -2)
_define_flip("top_bottom", -3)


def _window_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    _check_image(shape, "random crop")
    return (*shape[:-3], attrs["height"], attrs["width"], shape[-1])


def _uniform(low: float, high: float, rng: torch.Generator | None) -> float:
    return low + (high - low) * float(torch.rand((), generator=rng))


@operator(
    "_image_random_crop",
    aliases=("_npx__image_random_crop",),
    npx="image.random_crop",
    gradient="zero",
    infer=keeps_dtype(_window_rule),
)
def random_crop(
    data: Tensor,
    *,
    xrange: Floats = (0.0, 1.0),
    yrange: Floats = (0.0, 1.0),
    width: int,
    height: int,
    interp: int = 1,
    _rng: torch.Generator | None = None,
) -> Tensor:
    """Cut a window of (height, width) at a random place, whose position is drawn from the relative ranges.

    An image smaller than the window is enlarged first.
    """
    rows, columns = data.shape[-3], data.shape[-2]
    if rows < height or columns < width:
        scale = max(height / rows, width / columns)
        rows, columns = max(height, round(rows * scale)), max(width, round(columns * scale))
        data = resize_image(data, rows, columns, interp)
    x = int(_uniform(xrange[0], xrange[1], _rng) * (columns - width))
    y = int(_uniform(yrange[0], yrange[1], _rng) * (rows - height))
    return data[..., y : y + height, x : x + width, :]


@operator(
    "_image_random_resized_crop",
    aliases=("_npx__image_random_resized_crop",),
    npx="image.random_resized_crop",
    gradient="zero",
    infer=keeps_dtype(_window_rule),
)
def random_resized_crop(
    data: Tensor,
    *,
    width: int,
    height: int,
    area: Floats = (0.08, 1.0),
    ratio: Floats = (0.75, 4.0 / 3.0),
    xrange: Floats = (0.0, 1.0),
    yrange: Floats = (0.0, 1.0),
    interp: int = 1,
    max_trial: int = 10,
    _rng: torch.Generator | None = None,
) -> Tensor:
    """Cut a random part whose relative area and aspect ratio are drawn from ``area`` and ``ratio``; resize
    it."""
    rows, columns = data.shape[-3], data.shape[-2]
    for _ in range(max_trial):
        target = _uniform(area[0], area[1], _rng) * rows * columns
        aspect = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1]), _rng))
        part_width, part_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < part_width <= columns and 0 < part_height <= rows:
            x = int(_uniform(xrange[0], xrange[1], _rng) * (columns - part_width))
            y = int(_uniform(yrange[0], yrange[1], _rng) * (rows - part_height))
            part = data[..., y : y + part_height, x : x + part_width, :]
            return resize_image(part, height, width, interp)
    side = min(rows, columns)
    x, y = (columns - side) // 2, (rows - side) // 2
    return resize_image(data[..., y : y + side, x : x + side, :], height, width, interp)


# --- colour --------------------------------------------------------------------------------------

# Luma weights of ITU-R BT.601.
_LUMA = (0.299, 0.587, 0.114)
# Principal components of the colours of ImageNet, A. Krizhevsky et al., "ImageNet classification with deep
# convolutional neural networks", 2012: each column is an eigenvector.
_EIGENVALUES = (55.46, 4.794, 1.148)
_EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


def _gray(values: Tensor) -> Tensor:
    if values.shape[-1] == 1:
        return values
    weights = torch.tensor(_LUMA, dtype=values.dtype, device=values.device)
    return (values * weights).sum(-1, keepdim=True)


def _brightness(values: Tensor, factor: Tensor) -> Tensor:
    return values * factor


def _contrast(values: Tensor, factor: Tensor) -> Tensor:
    mean = _gray(values).mean((-3, -2, -1), keepdim=True)
    return values * factor + mean * (1 - factor)


def _saturation(values: Tensor, factor: Tensor) -> Tensor:
    if values.shape[-1] == 1:
        return values
    return values * factor + _gray(values) * (1 - factor)


def _hue(values: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by ``turn`` (1 is the whole circle) in the hue-lightness-saturation model."""
    if values.shape[-1] == 1:
        return values
    scaled = values / 255.0
    high, low = scaled.amax(-1), scaled.amin(-1)
    spread = high - low
    light = (high + low) / 2
    safe = torch.where(spread > 0, spread, torch.ones_like(spread))
    red, green, blue = scaled.unbind(-1)
    hue = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    span = torch.where(light < 0.5, high + low, 2 - high - low)
    saturation = torch.where(spread > 0, spread / torch.where(span > 0, span, torch.ones_like(span)), spread)
    hue = (torch.where(spread > 0, hue, torch.zeros_like(hue)) / 6 + turn).remainder(1.0)
    upper = torch.where(light < 0.5, light * (1 + saturation), light + saturation - light * saturation)
    lower = 2 * light - upper

    def channel(offset: float) -> Tensor:
        position = (hue + offset).remainder(1.0) * 6
        slope = upper - lower
        rising = lower + slope * position
        falling = lower + slope * (4 - position)
        outer = torch.where(position < 4, falling, lower)
        return torch.where(position < 1, rising, torch.where(position < 3, upper, outer))

    result: Tensor = torch.stack((channel(1 / 3), channel(0.0), channel(-1 / 3)), -1) * 255.0
    return result


Adjust = Callable[[Tensor, Tensor], Tensor]
_ADJUSTMENTS: dict[str, Adjust] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
}


def _draw(low: float, high: float, rng: torch.Generator | None, device: torch.device) -> Tensor:
    return torch.rand((), generator=rng, device=device) * (high - low) + low


def _define_adjustment(name: str, adjust: Adjust) -> None:
    def random_adjustment(
        data: Tensor, *, min_factor: float, max_factor: float, _rng: torch.Generator | None = None
    ) -> Tensor:
        _check_image(tuple(data.shape), name)
        factor = _draw(min_factor, max_factor, _rng, data.device)
        return _saturate(adjust(data.to(torch.float32), factor), data.dtype)

    function_name = f"random_{name}"
    random_adjustment.__name__ = random_adjustment.__qualname__ = function_name
    random_adjustment.__doc__ = (
        f"Change the {name} of (H, W, C) images by a factor drawn from [min_factor, max_factor)."
    )
    operator(
        f"_image_{function_name}",
        aliases=(f"_npx__image_{function_name}",),
        npx=f"image.{function_name}",
        infer=lambda specs, attrs: [specs[0]],
    )(random_adjustment)


for _name, _adjust in _ADJUSTMENTS.items():
    _define_adjustment(_name, _adjust)


@operator(
    "_image_random_color_jitter",
    aliases=("_npx__image_random_color_jitter",),
    npx="image.random_color_jitter",
    infer=lambda specs, attrs: [specs[0]],
)
def random_color_jitter(
    data: Tensor,
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    _rng: torch.Generator | None = None,
) -> Tensor:
    """Change brightness, contrast, saturation and hue, by factors drawn around 1 (hue: 0), in any order."""
    _check_image(tuple(data.shape), "random_color_jitter")
    strengths = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    values = data.to(torch.float32)
    order = torch.randperm(len(strengths), generator=_rng, device=data.device).tolist()
    for name, strength in (list(strengths.items())[place] for place in order):
        if strength > 0:
            centre = 0.0 if name == "hue" else 1.0
            factor = _draw(centre - strength, centre + strength, _rng, data.device)
            values = _ADJUSTMENTS[name](values, factor)
            if data.dtype == torch.uint8:
                values = values.clamp(0, 255)
    return _saturate(values, data.dtype)


def _light(data: Tensor, alpha: Tensor) -> Tensor:
    vectors = torch.tensor(_EIGENVECTORS, dtype=torch.float32, device=data.device)
    values = torch.tensor(_EIGENVALUES, dtype=torch.float32, device=data.device)
    if data.shape[-1] == 1:
        return data
    return _saturate(data.to(torch.float32) + vectors @ (alpha * values), data.dtype)


@operator(
    "_image_adjust_lighting",
    aliases=("_npx__image_adjust_lighting",),
    npx="image.adjust_lighting",
    infer=lambda specs, attrs: [specs[0]],
)
def adjust_lighting(data: Tensor, *, alpha: Floats) -> Tensor:
    """Add the principal colour components of ImageNet, times ``alpha`` (three numbers), to every pixel."""
    _check_image(tuple(data.shape), "adjust_lighting")
    if len(alpha) != 3:
        raise MXNetError(f"adjust_lighting: alpha must hold three numbers, received {alpha}")
    return _light(data, torch.tensor(alpha, dtype=torch.float32, device=data.device))


@operator(
    "_image_random_lighting",
    aliases=("_npx__image_random_lighting",),
    npx="image.random_lighting",
    infer=lambda specs, attrs: [specs[0]],
)
def random_lighting(data: Tensor, *, alpha_std: float = 0.05, _rng: torch.Generator | None = None) -> Tensor:
    """Add principal colour components with normally distributed weights of standard deviation
    ``alpha_std``."""
    _check_image(tuple(data.shape), "random_lighting")
    return _light(data, torch.randn(3, generator=_rng, device=data.device) * alpha_std)


# --- OpenCV --------------------------------------------------------------------------------------


@operator(
    "_cvimresize",
    aliases=("_npi_cvimresize",),
    gradient="zero",
    infer=keeps_dtype(lambda shape, attrs: (attrs["h"], attrs["w"], *shape[2:])),
)
def cvimresize(src: Tensor, *, w: int, h: int, interp: int = 1) -> Tensor:
    """Resize (H, W, C) to (h, w, C) with OpenCV's interpolation code ``interp``."""
    return resize_image(src, h, w, interp)


@operator(
    "_cvcopyMakeBorder",
    gradient="zero",
    infer=keeps_dtype(
        lambda shape, attrs: (
            shape[0] + attrs["top"] + attrs["bot"],
            shape[1] + attrs["left"] + attrs["right"],
            *shape[2:],
        )
    ),
)
def cv_copy_make_border(
    src: Tensor,
    *,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Floats = (),
) -> Tensor:
    """Add a border to (H, W, C); ``type`` is OpenCV's border code, ``values`` the colour of a constant
    border."""
    cv2 = _opencv()
    colour = tuple(values) or (value,) * 4
    result = cv2.copyMakeBorder(_to_opencv(src), top, bot, left, right, type, value=colour)
    return _from_opencv(result, src).reshape(result.shape[0], result.shape[1], *src.shape[2:]).to(src.device)


def _decode(content: Any, flag: int, to_rgb: bool) -> Tensor:
    cv2 = _opencv()
    image = cv2.imdecode(content, flag)
    if image is None:
        raise MXNetError("imdecode: the bytes are no image of a format that OpenCV knows")
    if image.ndim == 2:
        image = image[:, :, None]
    elif to_rgb and image.shape[2] >= 3:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return torch.from_numpy(image)


@operator("_cvimdecode", aliases=("_npi_cvimdecode",), gradient="zero", dynamic=True)
def cvimdecode(buf: Tensor, *, flag: int = 1, to_rgb: bool = True) -> Tensor:
    """Decode the bytes of an image file to uint8 (H, W, C); ``flag`` 1 colour, 0 gray, -1 as stored."""
    return _decode(buf.detach().cpu().contiguous().numpy(), flag, to_rgb)


@operator("_cvimread", aliases=("_npi_cvimread",), gradient="zero", dynamic=True)
def cvimread(*, filename: str, flag: int = 1, to_rgb: bool = True) -> Tensor:
    """Read an image file; see ``_cvimdecode``."""
    with open(filename, "rb") as file:
        content = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    return _decode(content.numpy(), flag, to_rgb)
