"""regluon: Gluon's hybrid imperative and symbolic deep learning on PyTorch kernels.

``import regluon as mx`` and write a network once; run it operator by operator, ``hybridize()`` it into a
compiled graph, export it, and load it anywhere MXNet's files go.
"""

from __future__ import annotations

from .base.memory import use_large_pages as _use_large_pages

# Before any array is made, so that all of them lie in this memory.
_use_large_pages()

from .ops import registry as _registry  # noqa: E402

_registry.load()

# isort: off
# The classes of arrays and Symbols come before the namespaces, which give them their methods.
from . import base, context, error, ops, symbol  # noqa: E402
from . import array as _array  # noqa: E402, F401
from . import ndarray, numpy, numpy_extension  # noqa: E402

# isort: on
from . import ndarray as nd  # noqa: E402
from . import numpy as np  # noqa: E402
from . import numpy_extension as npx  # noqa: E402
from . import symbol as sym  # noqa: E402

ndarray._link()
symbol._link()

from . import (  # noqa: E402
    attribute,
    autograd,
    config,
    gluon,
    initializer,
    kvstore,
    lr_scheduler,
    optimizer,
    random,
    serial,
    util,
)
from . import initializer as init  # noqa: E402
from . import kvstore as kv  # noqa: E402
from . import name as name  # noqa: E402
from .array import NDArray, from_torch, waitall  # noqa: E402
from .base import MXNetError  # noqa: E402
from .base.config import api_level, set_api  # noqa: E402
from .base.device import (  # noqa: E402
    Context,
    Device,
    cpu,
    cpu_pinned,
    current_context,
    current_device,
    device,
    gpu,
    gpu_memory_info,
    num_gpus,
)
from .base.later import imported_later as _imported_later  # noqa: E402
from .base.naming import AttrScope  # noqa: E402
from .compat import install_as_mxnet  # noqa: E402
from .symbol import Symbol  # noqa: E402
from .util import (  # noqa: E402
    is_np_array,
    is_np_default_dtype,
    is_np_shape,
    np_array,
    np_default_dtype,
    np_shape,
    set_np_shape,
    use_np,
    use_np_array,
    use_np_default_dtype,
    use_np_shape,
)

rnd = random

# What few programs use.
__getattr__, __dir__ = _imported_later(
    globals(),
    *("amp", "callback", "contrib", "engine", "executor", "executor_manager", "image", "io", "libinfo"),
    *("library", "log", "metric", "model", "module", "monitor", "onnx", "operator", "profiler", "recordio"),
    *("registry", "rnn", "test_utils", "visualization"),
    img=".image",
    mod=".module",
    mon=".monitor",
    viz=".visualization",
)

__version__ = "0.1.0"

__all__ = [
    "AttrScope",
    "Context",
    "Device",
    "MXNetError",
    "NDArray",
    "Symbol",
    "api_level",
    "attribute",
    "autograd",
    "base",
    "config",
    "context",
    "cpu",
    "cpu_pinned",
    "current_context",
    "current_device",
    "device",
    "error",
    "from_torch",
    "gluon",
    "gpu",
    "gpu_memory_info",
    "init",
    "initializer",
    "install_as_mxnet",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "kv",
    "kvstore",
    "lr_scheduler",
    "metric",
    "name",
    "nd",
    "ndarray",
    "np",
    "np_array",
    "np_default_dtype",
    "np_shape",
    "npx",
    "num_gpus",
    "numpy",
    "numpy_extension",
    "ops",
    "optimizer",
    "random",
    "recordio",
    "serial",
    "set_api",
    "set_np_shape",
    "sym",
    "symbol",
    "use_np",
    "use_np_array",
    "use_np_default_dtype",
    "use_np_shape",
    "util",
    "waitall",
]
