"""Samples of the image operators. Random ones are sampled where their result does not depend on the draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from . import Sample

IMAGE = np.random.RandomState(60).randint(0, 256, (4, 6, 3)).astype(np.uint8)
FLOATS = IMAGE.astype(np.float32)
MIRRORED = np.concatenate([IMAGE, IMAGE[:, ::-1]], 1)
BYTES = cv2.imencode(".png", IMAGE)[1].reshape(-1)
CHANNELS = (IMAGE.transpose(2, 0, 1) / 255).astype(np.float32)
MEAN, STD = np.float32([0.1, 0.2, 0.3]), np.float32([0.5, 0.6, 0.7])


def _write_image() -> str:
    import tempfile

    path = Path(tempfile.gettempdir()) / "regluon-sample.png"
    path.write_bytes(BYTES.tobytes())
    return str(path)


def _gray(x: np.ndarray) -> np.ndarray:
    return x @ np.float32([0.299, 0.587, 0.114])


def _saturated(x: np.ndarray, factor: float) -> np.ndarray:
    return x * factor + _gray(x)[..., None] * (1 - factor)


def _contrasted(x: np.ndarray, factor: float) -> np.ndarray:
    return x * factor + _gray(x).mean() * (1 - factor)


def _lit(x: np.ndarray) -> np.ndarray:
    vectors = np.float32([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
    return x + vectors @ (np.float32([0.1, -0.2, 0.3]) * np.float32([55.46, 4.794, 1.148]))


def _hue(x: np.ndarray, turn: float) -> np.ndarray:
    """Turn hues with OpenCV's own conversion of floating images."""
    hls = cv2.cvtColor(x / 255, cv2.COLOR_RGB2HLS)
    hls[..., 0] = (hls[..., 0] + 360 * turn) % 360
    return cv2.cvtColor(hls, cv2.COLOR_HLS2RGB) * 255


def _fixed(factor: float) -> dict[str, Any]:
    return {"min_factor": factor, "max_factor": factor}


def _bordered(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((1, 2), (0, 1), (0, 0)), "edge")


SAMPLES: dict[str, list[Sample]] = {
    "_image_to_tensor": [
        Sample([IMAGE], {}, lambda x: (x.transpose(2, 0, 1) / 255).astype(np.float32), False)
    ],
    "_image_normalize": [
        Sample(
            [CHANNELS],
            {"mean": tuple(MEAN.tolist()), "std": tuple(STD.tolist())},
            lambda x: (x - MEAN[:, None, None]) / STD[:, None, None],
        )
    ],
    "_image_crop": [Sample([IMAGE], {"x": 1, "y": 2, "width": 3, "height": 2}, lambda x: x[2:4, 1:4], False)],
    "_image_resize": [
        Sample([IMAGE], {"size": (5, 3)}, lambda x: cv2.resize(x, (5, 3)), gradient=False),
        Sample(
            [FLOATS], {"size": (8,), "keep_ratio": True}, lambda x: cv2.resize(x, (12, 8)), gradient=False
        ),
    ],
    "_image_flip_left_right": [Sample([IMAGE], {}, lambda x: x[:, ::-1], gradient=False)],
    "_image_flip_top_bottom": [Sample([FLOATS], {}, lambda x: x[::-1])],
    "_image_random_flip_left_right": [
        Sample([MIRRORED], {}, lambda x: x, gradient=False),
        Sample([IMAGE], {"p": 1.0}, lambda x: x[:, ::-1], gradient=False),
    ],
    "_image_random_flip_top_bottom": [Sample([IMAGE], {"p": 0.0}, lambda x: x, gradient=False)],
    "_image_random_crop": [Sample([IMAGE], {"width": 6, "height": 4}, lambda x: x, gradient=False)],
    "_image_random_resized_crop": [
        Sample(
            [IMAGE],
            {"width": 6, "height": 4, "area": (1.0, 1.0), "ratio": (1.5, 1.5)},
            lambda x: x,
            gradient=False,
        )
    ],
    "_image_random_brightness": [
        Sample([FLOATS], _fixed(1.2), lambda x: x * np.float32(1.2), gradient=False)
    ],
    "_image_random_contrast": [Sample([FLOATS], _fixed(1.2), lambda x: _contrasted(x, 1.2), False, 1e-4)],
    "_image_random_saturation": [Sample([FLOATS], _fixed(1.3), lambda x: _saturated(x, 1.3), False, 1e-4)],
    "_image_random_hue": [Sample([FLOATS], _fixed(0.1), lambda x: _hue(x, 0.1), False, 1e-3, 0.05)],
    "_image_random_color_jitter": [
        Sample(
            [IMAGE],
            {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0},
            lambda x: x,
            gradient=False,
        )
    ],
    "_image_adjust_lighting": [Sample([FLOATS], {"alpha": (0.1, -0.2, 0.3)}, _lit, False, 1e-4)],
    "_image_random_lighting": [Sample([IMAGE], {"alpha_std": 0.0}, lambda x: x, gradient=False)],
    "_cvimresize": [Sample([IMAGE], {"w": 3, "h": 5}, lambda x: cv2.resize(x, (3, 5)), gradient=False)],
    "_cvcopyMakeBorder": [
        Sample([IMAGE], {"top": 1, "bot": 2, "left": 0, "right": 1, "type": 1}, _bordered, gradient=False)
    ],
    "_cvimdecode": [
        Sample([BYTES], {"to_rgb": False}, lambda x: IMAGE, gradient=False),
        Sample([BYTES], {}, lambda x: IMAGE[..., ::-1], gradient=False),
    ],
    "_cvimread": [Sample([], {"filename": _write_image(), "to_rgb": False}, lambda: IMAGE, gradient=False)],
}
