"""mx.contrib.text: vocabularies and pretrained vectors of words, read from local files."""

from __future__ import annotations

from . import embedding, utils, vocab

__all__ = ["embedding", "utils", "vocab"]
