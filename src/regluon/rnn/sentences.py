"""Sentences as numbers, and batches of sentences of similar length."""

from __future__ import annotations

import bisect
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from ..gluon.parameter_errors import ParameterValueError
from ..io import DataBatch, DataDesc, DataIter
from ..ndarray import array as nd_array

__all__ = ["BucketSentenceIter", "encode_sentences"]


class UnknownTokenError(ParameterValueError):
    """A sentence has a word that the vocabulary lacks."""


def encode_sentences(
    sentences: Iterable[Sequence[Any]],
    vocab: dict[Any, int] | None = None,
    invalid_label: int = -1,
    invalid_key: Any = "\n",
    start_label: int = 0,
    unknown_token: Any = None,
) -> tuple[list[list[int]], dict[Any, int]]:
    """Sentences of words as lists of numbers.

    Parameters
    ----------
    sentences : list of list of str
        The sentences.
    vocab : dict of str to int, optional
        Numbers of the words. Without one it is made, from ``start_label`` on, and has ``invalid_key`` too.
    invalid_label : int
        The number of padding, given to no word.
    invalid_key : str
        The word of padding.
    start_label : int
        The first number of a vocabulary that is made.
    unknown_token : str, optional
        The word in place of those that the given vocabulary lacks; it is added where that lacks it as well.

    Returns
    -------
    sentences : list of list of int
    vocab : dict of str to int

    Raises
    ------
    ValueError
        (an AssertionError too) for a word that the given vocabulary lacks, without ``unknown_token``.
    """
    made = vocab is None
    known: dict[Any, int] = {invalid_key: invalid_label} if vocab is None else vocab
    number = start_label
    encoded = []
    for sentence in sentences:
        numbers = []
        for word in sentence:
            if word not in known:
                if not made and unknown_token is None:
                    raise UnknownTokenError(
                        f"Unknown token {word}: the vocabulary given lacks it; name an unknown_token to "
                        "take its place"
                    )
                if not made:
                    word = unknown_token
                if word not in known:
                    number += number == invalid_label
                    known[word] = number
                    number += 1
            numbers.append(known[word])
        encoded.append(numbers)
    return encoded, known


class BucketSentenceIter(DataIter):
    """Batches of sentences, each padded to the length of its bucket, for a language model.

    The label of a word is the next one; at a sentence's end, and of padding, it is ``invalid_label``. Which
    sentences meet in a batch is drawn anew in every epoch, with Python's and NumPy's generators. Sentences
    that do not fill a batch are left out; sentences longer than the largest bucket are discarded with a
    warning in the log.

    Parameters
    ----------
    sentences : list of list of int
        Encoded sentences.
    batch_size : int
        Sentences in a batch.
    buckets : list of int, optional
        Lengths of the buckets; all lengths of which there is at least a batch by default.
    invalid_label : int
        What fills up.
    data_name, label_name : str
        The variables of the symbol.
    dtype : dtype
        Type of data and labels.
    layout : {"NT", "TN"}
        Whether the batch or the time is the first axis.

    Raises
    ------
    ValueError
        For another layout, or when there is no bucket.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        layout: str = "NT",
    ) -> None:
        super().__init__(batch_size)
        if layout not in ("NT", "TN"):
            raise ValueError(f"Invalid layout {layout!r}: must be NT (batch major) or TN (time major)")
        if not buckets:
            counts = numpy.bincount([len(sentence) for sentence in sentences] or [0])
            buckets = [length for length, count in enumerate(counts) if count >= batch_size]
        if not buckets:
            raise ValueError(
                f"BucketSentenceIter: of no length there are {batch_size} sentences, which make a batch; "
                "give buckets="
            )
        self.buckets = sorted(buckets)
        self.invalid_label = invalid_label
        self.data_name, self.label_name = data_name, label_name
        self.dtype, self.layout = dtype, layout
        self.major_axis = layout.find("N")
        self.default_bucket_key = max(self.buckets)
        self.data = self._padded(sentences)
        self.nddata: list[Any] = []
        self.ndlabel: list[Any] = []
        self.provide_data = [self._described(data_name, self.default_bucket_key)]
        self.provide_label = [self._described(label_name, self.default_bucket_key)]
        self.idx = [
            (bucket, start)
            for bucket, rows in enumerate(self.data)
            for start in range(0, len(rows) - batch_size + 1, batch_size)
        ]
        self.reset()

    def _described(self, name: str, length: int) -> DataDesc:
        shape = (self.batch_size, length) if self.major_axis == 0 else (length, self.batch_size)
        return DataDesc(name, shape, self.dtype, self.layout)

    def _padded(self, sentences: Sequence[Sequence[int]]) -> list[numpy.ndarray[Any, Any]]:
        """The sentences of each bucket as rows of an array."""
        rows: list[list[Any]] = [[] for _ in self.buckets]
        discarded = 0
        for sentence in sentences:
            bucket = bisect.bisect_left(self.buckets, len(sentence))
            if bucket == len(self.buckets):
                discarded += 1
                continue
            row = numpy.full(self.buckets[bucket], self.invalid_label, dtype=self.dtype)
            row[: len(sentence)] = sentence
            rows[bucket].append(row)
        if discarded:
            logging.warning("discarded %d sentences longer than the largest bucket.", discarded)
        return [
            numpy.asarray(found, dtype=self.dtype).reshape(-1, length)
            for found, length in zip(rows, self.buckets, strict=True)
        ]

    def reset(self) -> None:
        """Draw a new order."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        for rows in self.data:
            numpy.random.shuffle(rows)
        self.nddata, self.ndlabel = [], []
        for rows in self.data:
            label = numpy.full_like(rows, self.invalid_label)
            label[:, :-1] = rows[:, 1:]
            self.nddata.append(nd_array(rows, dtype=self.dtype))
            self.ndlabel.append(nd_array(label, dtype=self.dtype))

    def next(self) -> DataBatch:
        """The next batch, with its bucket's length as ``bucket_key``.

        Raises
        ------
        StopIteration
            After the last one.
        """
        if self.curr_idx == len(self.idx):
            raise StopIteration
        bucket, start = self.idx[self.curr_idx]
        self.curr_idx += 1
        rows = slice(start, start + self.batch_size)
        data, label = self.nddata[bucket][rows], self.ndlabel[bucket][rows]
        if self.major_axis == 1:
            data, label = data.T, label.T
        length = self.buckets[bucket]
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=length,
            provide_data=[self._described(self.data_name, length)],
            provide_label=[self._described(self.label_name, length)],
        )
