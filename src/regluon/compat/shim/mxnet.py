"""``import mxnet`` in a process started by a program under ``regluon run`` (this folder is on its path)."""

import os
import sys

import regluon

regluon.install_as_mxnet(os.environ.get("REGLUON_AS_MXNET", "2.0"))
# The import system gives what stands in sys.modules once this file has run: the facade put there now.
__facade = sys.modules["mxnet"]
