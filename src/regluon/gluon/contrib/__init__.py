"""gluon.contrib: training loops (`estimator`), data sets of 1.x, and names that live elsewhere now."""

from __future__ import annotations

from . import cnn, data, estimator, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]
