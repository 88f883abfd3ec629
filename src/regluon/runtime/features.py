"""``mx.runtime.Features``: what this build can do, under the originals' names."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

import torch

__all__ = ["Feature", "Features", "feature_list"]


@dataclass(frozen=True, repr=False)
class Feature:
    """A feature's name, and whether it is there."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


# In the order in which processors got them; torch runs without the first ones nowhere.
_INSTRUCTIONS = ("SSE", "SSE2", "SSE3", "SSE4_1", "SSE4_2", "SSE4A", "AVX", "AVX2")


def _processor() -> dict[str, bool]:
    level = torch.backends.cpu.get_cpu_capability()
    vectors = level.startswith("AVX")
    found = {f"CPU_{name}": vectors for name in _INSTRUCTIONS}
    # Only AMD's processors had it; nothing uses it.
    found["CPU_SSE4A"] = False
    return {**found, "SSE": vectors, "F16C": vectors}


def _found() -> dict[str, bool]:
    mkl, mac = torch.backends.mkl.is_available(), sys.platform == "darwin"
    cuda = torch.cuda.is_available()
    onednn = torch.backends.mkldnn.is_available()
    return {
        "CUDA": cuda,
        "CUDNN": cuda and torch.backends.cudnn.is_available(),
        "NCCL": cuda and torch.distributed.is_available() and torch.distributed.is_nccl_available(),
        "CUDA_RTC": False,
        "TENSORRT": False,
        "CUTENSOR": False,
        **_processor(),
        "OPENMP": torch.backends.openmp.is_available(),
        "JEMALLOC": False,
        "BLAS_OPEN": not mkl and not mac,
        "BLAS_ATLAS": False,
        "BLAS_MKL": mkl,
        "BLAS_APPLE": mac,
        "LAPACK": True,
        # The one library under its old and its new name.
        "MKLDNN": onednn,
        "ONEDNN": onednn,
        "OPENCV": importlib.util.find_spec("cv2") is not None,
        "CAFFE": False,
        "PROFILER": True,
        "DIST_KVSTORE": False,
        "CXX14": False,
        "INT64_TENSOR_SIZE": True,
        "SIGNAL_HANDLER": False,
        "DEBUG": False,
        "TVM_OP": False,
    }


def feature_list() -> list[Feature]:
    """All features of both generations, with whether this build has them."""
    return [Feature(name, enabled) for name, enabled in _found().items()]


class Features(dict[str, Feature]):
    """Features by name: ``mx.runtime.Features()["CUDA"].enabled``."""

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def __repr__(self) -> str:
        return repr(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """Whether a feature is there; upper or lower case.

        Raises
        ------
        RuntimeError
            For an unknown name; the message lists those there are.
        """
        name = feature_name.upper()
        if name not in self:
            raise RuntimeError(f"Feature '{name}' is unknown, known features are: {list(self)}")
        return self[name].enabled
