"""Run programs written for MXNet: import paths, API generation, and the ``regluon run`` command."""

from __future__ import annotations

from .install import install_as_mxnet, uninstall_as_mxnet

__all__ = ["install_as_mxnet", "uninstall_as_mxnet"]
