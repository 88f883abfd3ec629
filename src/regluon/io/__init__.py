"""``mx.io``: iterators over batches of data, as the Module API of 1.x takes them.

Gluon's own way to read data is `regluon.gluon.data`.
"""

from __future__ import annotations

from .arrays import NDArrayIter
from .base import DataBatch, DataDesc, DataIter
from .files import CSVIter, LibSVMIter, MNISTIter, MXDataIter
from .images import ImageRecordIter, ImageRecordUInt8Iter
from .wrappers import PrefetchingIter, ResizeIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageRecordIter",
    "ImageRecordUInt8Iter",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]
