"""Language model data sets: sequences of words, each with the sequence that follows a word later."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from typing import Any

import numpy
import torch

from ....base.config import is_np_array
from ....runtime.handles import kinds
from ...data.dataset import Dataset

__all__ = ["WikiText2", "WikiText103"]

_END = "<eos>"
_SEGMENTS = {"train": "train", "validation": "valid", "val": "valid", "test": "test"}


class _WikiText(Dataset):
    """Sequences of ``seq_len`` word numbers of one segment; see `WikiText2`."""

    _archive = ""

    def __init__(self, root: Any, segment: str, vocab: Any, seq_len: int) -> None:
        if segment not in _SEGMENTS:
            raise ValueError(f"segment is one of {', '.join(_SEGMENTS)}; received {segment!r}")
        if seq_len < 1:
            raise ValueError(f"seq_len must be at least 1; received {seq_len}")
        self._root = os.path.expanduser(os.fspath(root))
        self._vocab = vocab
        self._counter: Counter[str] | None = None
        words = self._words(self._read(f"wiki.{_SEGMENTS[segment]}.tokens"))
        if self._vocab is None:
            from ....contrib.text.vocab import Vocabulary

            self._counter = Counter(word for word in words if word != _END)
            self._vocab = Vocabulary(self._counter, reserved_tokens=[_END])
        numbers = numpy.asarray(self._vocab.to_indices(words), "int32")
        count = (len(numbers) - 1) // seq_len
        if count < 1:
            raise ValueError(
                f"{self._root}: segment {segment} has {len(numbers)} words, seq_len={seq_len} needs one more "
                "than that. Use a smaller seq_len."
            )
        self._data = numbers[: count * seq_len].reshape(count, seq_len)
        self._label = numbers[1 : count * seq_len + 1].reshape(count, seq_len)

    def _read(self, name: str) -> str:
        """The text of a file of the segment, which lies in ``root`` or in the archive that does."""
        path = os.path.join(self._root, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                return stream.read()
        archive = os.path.join(self._root, self._archive)
        if os.path.exists(archive):
            with zipfile.ZipFile(archive) as content:
                for member in content.namelist():
                    if os.path.basename(member) == name:
                        return content.read(member).decode("utf-8")
        raise FileNotFoundError(
            f"{type(self).__name__} looked for {name} or {self._archive} in {self._root}. Nothing is "
            "downloaded: the store of MXNet is gone. Put the file there (from Salesforce's WikiText), "
            "or give the folder as root=."
        )

    def _words(self, text: str) -> list[str]:
        lines = [line.split() for line in text.splitlines()]
        return [word for line in lines if line for word in (*line, _END)]

    @property
    def vocabulary(self) -> Any:
        """The `contrib.text.vocab.Vocabulary` of the words."""
        return self._vocab

    @property
    def frequencies(self) -> Counter[str] | None:
        """How often each word occurs; None when a vocabulary was given."""
        return self._counter

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        kind = kinds.np if is_np_array() else kinds.nd
        data, label = (kind._wrap(torch.from_numpy(part[idx].copy())) for part in (self._data, self._label))
        return data, label


class WikiText2(_WikiText):
    """The WikiText-2 language model data set, from ``wiki.<segment>.tokens`` or ``wikitext-2-v1.zip``.

    Parameters
    ----------
    root : str
        Folder of the files. Nothing is downloaded.
    segment : {'train', 'validation', 'test'}
        Which part.
    vocab : Vocabulary, optional
        The numbers of words; by default made from this segment, with ``<eos>``, the end of a line, reserved.
    seq_len : int
        Words of one sample.

    A sample is (data, label), both (seq_len,) of int32; the label is one word ahead.

    Raises
    ------
    FileNotFoundError
        If neither file is in the folder.
    ValueError
        For a wrong segment, or a text shorter than ``seq_len``.
    """

    _archive = "wikitext-2-v1.zip"

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-2"),
        segment: str = "train",
        vocab: Any = None,
        seq_len: int = 35,
    ) -> None:
        super().__init__(root, segment, vocab, seq_len)


class WikiText103(_WikiText):
    """The WikiText-103 language model data set, from ``wiki.<segment>.tokens`` or ``wikitext-103-v1.zip``.

    Arguments, samples and errors are those of `WikiText2`.
    """

    _archive = "wikitext-103-v1.zip"

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-103"),
        segment: str = "train",
        vocab: Any = None,
        seq_len: int = 35,
    ) -> None:
        super().__init__(root, segment, vocab, seq_len)
