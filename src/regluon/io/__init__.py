"""``mx.io``: iterators over batches of data, as the Module API of 1.x takes them.

Gluon's own way to read data is `regluon.gluon.data`.
"""

from __future__ import annotations

from .arrays import NDArrayIter
from .base import DataBatch, DataDesc, DataIter
from .detection import ImageDetRecordIter
from .files import CSVIter, LibSVMIter, MNISTIter, MXDataIter
from .images import (
    ImageRecordInt8Iter,
    ImageRecordIter,
    ImageRecordIter_v1,
    ImageRecordUInt8Iter,
    ImageRecordUInt8Iter_v1,
)
from .wrappers import PrefetchingIter, ResizeIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]
