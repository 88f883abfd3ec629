"""gluon.contrib: names of 1.x that live elsewhere now."""

from __future__ import annotations

from . import cnn, nn, rnn

__all__ = ["cnn", "nn", "rnn"]
