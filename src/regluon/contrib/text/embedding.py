"""Vectors of words, from files in the format of GloVe and fastText."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from ... import ndarray as nd
from ...array import NDArray
from ...registry import get_create_func, get_register_func
from .vocab import Vocabulary, VocabularyError

__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "FastText",
    "GloVe",
    "create",
    "get_pretrained_file_names",
    "register",
]


class EmbeddingFileError(VocabularyError):
    """A file of vectors that cannot be read."""


class _TokenEmbedding(Vocabulary):
    """A vocabulary whose tokens have vectors; to be subclassed and registered (`register`).

    ``idx_to_vec`` is (tokens, size); row 0 is the vector of everything that is not there.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._vec_len = 0
        self._idx_to_vec: Any = None

    # Reading ----------------------------------------------------------------------------

    def _load_embedding(
        self,
        pretrained_file_path: Any,
        elem_delim: str,
        init_unknown_vec: Callable[..., Any],
        encoding: str = "utf8",
    ) -> None:
        """Take tokens and vectors from a file: a token and its numbers in each line.

        Raises
        ------
        ValueError
            (an AssertionError too) when there is no such file, or a line is not like the others; the message
            has its number.
        """
        path = os.path.expanduser(pretrained_file_path)
        if not os.path.isfile(path):
            raise EmbeddingFileError(
                f"`pretrained_file_path` must be a valid path to the pre-trained token embedding file; "
                f"{path} is none"
            )
        rows: list[Any] = []
        unknown = None
        with open(path, encoding=encoding) as file:
            for number, line in enumerate(file, 1):
                token, vector = self._parsed(line, number, path, elem_delim)
                if len(vector) == 1:
                    warnings.warn(
                        f"At line {number} of the pre-trained text embedding file: token {token} with "
                        f"1-dimensional vector {vector.tolist()} is likely a header and is skipped.",
                        stacklevel=3,
                    )
                    continue
                self._check_size(token, vector, number)
                if token == self.unknown_token and unknown is None:
                    unknown = vector
                elif token in self._token_to_idx:
                    warnings.warn(
                        f"At line {number} of the pre-trained token embedding file: the embedding vector for "
                        f"token {token} has been loaded and a duplicate embedding for the same token is seen "
                        "and skipped.",
                        stacklevel=3,
                    )
                else:
                    self._token_to_idx[token] = len(self._idx_to_token)
                    self._idx_to_token.append(token)
                    rows.append(vector)
        self._fill(rows, unknown, init_unknown_vec)

    def _parsed(self, line: str, number: int, path: str, elem_delim: str) -> tuple[str, Any]:
        token, *elements = line.rstrip().split(elem_delim)
        try:
            if not elements:
                raise ValueError("there are no numbers")
            return token, numpy.array([float(element) for element in elements], dtype="float32")
        except ValueError as error:
            raise EmbeddingFileError(
                f"At line {number} of the pre-trained text embedding file: the data format of the "
                f"pre-trained token embedding file {path} is unexpected: {error}. A token and numbers, "
                f"separated by {elem_delim!r}, are expected"
            ) from error

    def _check_size(self, token: str, vector: Any, number: int) -> None:
        self._vec_len = self._vec_len or len(vector)
        if len(vector) != self._vec_len:
            raise EmbeddingFileError(
                f"At line {number} of the pre-trained token embedding file: the dimension of token {token} "
                f"is {len(vector)} but the dimension of previous tokens is {self._vec_len}. Dimensions of "
                "all the tokens must be the same."
            )

    def _fill(self, rows: list[Any], unknown: Any, init_unknown_vec: Callable[..., Any]) -> None:
        """Put the vectors together; tokens of the vocabulary that the file lacks have the unknown vector."""
        if unknown is None:
            unknown = init_unknown_vec(shape=self._vec_len).asnumpy()
        before = len(self._idx_to_token) - len(rows)
        values = numpy.zeros((len(self._idx_to_token), self._vec_len), dtype="float32")
        values[:before] = unknown
        if rows:
            values[before:] = rows
        self._idx_to_vec = nd.array(values)

    def _build_embedding_for_vocabulary(self, vocabulary: Vocabulary | None) -> None:
        """Keep the tokens of a vocabulary only, with its numbers."""
        if vocabulary is not None:
            if not isinstance(vocabulary, Vocabulary):
                raise VocabularyError(
                    f"`vocabulary` must be a Vocabulary; received {type(vocabulary).__name__}"
                )
            self._take([self], vocabulary)

    def _take(self, embeddings: Sequence[_TokenEmbedding], vocabulary: Vocabulary) -> None:
        """The tokens of a vocabulary with the vectors of all embeddings, one behind another."""
        tokens = list(vocabulary.idx_to_token)
        parts = [each.get_vecs_by_tokens(tokens).asnumpy() for each in embeddings]
        self._idx_to_vec = nd.array(numpy.concatenate(parts, axis=1))
        self._vec_len = sum(each.vec_len for each in embeddings)
        self._idx_to_token = tokens
        self._token_to_idx = dict(vocabulary.token_to_idx)
        self._unknown_token = vocabulary.unknown_token
        self._reserved_tokens = vocabulary.reserved_tokens

    # Using ------------------------------------------------------------------------------

    @property
    def vec_len(self) -> int:
        """Size of a vector."""
        return self._vec_len

    @property
    def idx_to_vec(self) -> Any:
        """The vectors (tokens, size), float32, in the order of the numbers."""
        return self._idx_to_vec

    def get_vecs_by_tokens(self, tokens: Any, lower_case_backup: bool = False) -> Any:
        """The vector of a token (size,), or those of a list (tokens, size).

        Parameters
        ----------
        tokens : str or list of str
            The tokens; what is not there has the unknown vector.
        lower_case_backup : bool
            Look for a token that is not there in lower case.
        """
        listed = tokens if isinstance(tokens, list) else [tokens]
        known = self._token_to_idx
        if lower_case_backup:
            listed = [token if token in known else token.lower() for token in listed]
        vectors = self._idx_to_vec[nd.array([known.get(token, 0) for token in listed], dtype="int64")]
        return vectors if isinstance(tokens, list) else vectors[0]

    def update_token_vectors(self, tokens: Any, new_vectors: Any) -> None:
        """Replace vectors.

        Raises
        ------
        ValueError
            For a token that is not there, or vectors of another number or size.
        """
        listed = tokens if isinstance(tokens, list) else [tokens]
        values = new_vectors.asnumpy() if isinstance(new_vectors, NDArray) else numpy.asarray(new_vectors)
        if values.ndim == 1:
            values = values[None]
        if values.shape != (len(listed), self._vec_len):
            raise VocabularyError(
                "The length of new_vectors must be equal to the number of tokens and the width of "
                f"new_vectors must be equal to the dimension of embeddings: expected "
                f"{(len(listed), self._vec_len)}, received {values.shape}"
            )
        numbers = []
        for token in listed:
            if token not in self._token_to_idx:
                raise ValueError(
                    f"Token {token} is unknown. To update the embedding vector for an unknown token, please "
                    f"specify it explicitly as the `unknown_token` {self.unknown_token} in `tokens`. This is "
                    "to avoid unintended updates."
                )
            numbers.append(self._token_to_idx[token])
        self._idx_to_vec[nd.array(numbers, dtype="int64")] = nd.array(values)


_register = get_register_func(_TokenEmbedding, "token embedding")
_create = get_create_func(_TokenEmbedding, "token embedding")


def register(embedding_cls: type[_TokenEmbedding]) -> type[_TokenEmbedding]:
    """A decorator: let `create` make this class by its name in lower case."""
    registered: type[_TokenEmbedding] = _register(embedding_cls)
    return registered


def create(embedding_name: str, **kwargs: Any) -> Any:
    """The embedding of a name ("glove", "fasttext", or one that was registered); keywords are its own.

    Raises
    ------
    ValueError
        (an AssertionError too) for an unknown name.
    """
    return _create(embedding_name, **kwargs)


def _local_path(name: str, pretrained_file_name: str, embedding_root: Any, known: Sequence[str]) -> Path:
    """Where the file of an embedding is."""
    folder = Path(os.path.expanduser(embedding_root)) / name
    path = folder / pretrained_file_name
    if path.is_file():
        return path
    if known and pretrained_file_name not in known:
        raise KeyError(
            f"Cannot find pretrained file {pretrained_file_name} for token embedding {name}. Valid "
            f"pretrained files for embedding {name}: {', '.join(known)}"
        )
    raise FileNotFoundError(
        f"{path} is not there. Embeddings are not downloaded: put the file there, or pass embedding_root="
    )


_GLOVE = tuple(
    f"glove.{corpus}.{size}d.txt"
    for corpus, sizes in (
        ("42B", (300,)),
        ("6B", (50, 100, 200, 300)),
        ("840B", (300,)),
        ("twitter.27B", (25, 50, 100, 200)),
    )
    for size in sizes
)
_ROOT = os.path.join("~", ".mxnet", "embeddings")


class _Pretrained(_TokenEmbedding):
    """Vectors of a collection, from a file in a folder of its name below ``embedding_root``.

    Parameters
    ----------
    pretrained_file_name : str
        The file.
    embedding_root : path
        The folder above that of the collection.
    init_unknown_vec : callable
        Makes the unknown vector from ``shape``, where the file has none.
    vocabulary : Vocabulary, optional
        The tokens that are kept.

    Raises
    ------
    FileNotFoundError
        When the file is not there: nothing is downloaded.
    KeyError
        For a name that the collection does not have.
    """

    _known: Sequence[str] = ()

    def _read(self, file_name: str, root: Any, init_unknown_vec: Callable[..., Any], vocabulary: Any) -> None:
        path = _local_path(type(self).__name__.lower(), file_name, root, self._known)
        self._load_embedding(path, " ", init_unknown_vec)
        self._build_embedding_for_vocabulary(vocabulary)


@register
class GloVe(_Pretrained):
    __doc__ = f"""GloVe (Pennington 2014). {_Pretrained.__doc__}"""

    _known = _GLOVE

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: Any = _ROOT,
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._read(pretrained_file_name, embedding_root, init_unknown_vec, vocabulary)


@register
class FastText(_Pretrained):
    __doc__ = f"""fastText (Bojanowski 2017). {_Pretrained.__doc__}"""

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: Any = _ROOT,
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._read(pretrained_file_name, embedding_root, init_unknown_vec, vocabulary)


class CustomEmbedding(_TokenEmbedding):
    """Vectors from a file of one's own: a token and its numbers in each line.

    Parameters
    ----------
    pretrained_file_path : path
        The file.
    elem_delim : str
        What separates token and numbers.
    encoding : str
        Of the file.
    init_unknown_vec : callable
        Makes the unknown vector from ``shape``, where the file has none.
    vocabulary : Vocabulary, optional
        The tokens that are kept.

    Raises
    ------
    ValueError
        (an AssertionError too) when there is no such file, or a line is not like the others.
    """

    def __init__(
        self,
        pretrained_file_path: Any,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._load_embedding(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        self._build_embedding_for_vocabulary(vocabulary)


class CompositeEmbedding(_TokenEmbedding):
    """The vectors of several embeddings, one behind another, for the tokens of a vocabulary.

    Parameters
    ----------
    vocabulary : Vocabulary
        The tokens.
    token_embeddings : embedding or list of embeddings
        Where vectors come from.
    """

    def __init__(self, vocabulary: Vocabulary, token_embeddings: Any) -> None:
        super().__init__()
        listed = token_embeddings if isinstance(token_embeddings, list) else [token_embeddings]
        self._take(listed, vocabulary)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """Names of files of a collection, or a dict of them by collection.

    For fastText, which has a file for each language (``wiki.en.vec``), the list has those that are in its
    folder below ``~/.mxnet/embeddings``.

    Raises
    ------
    KeyError
        For an unknown collection.
    """
    folder = Path(os.path.expanduser(_ROOT)) / "fasttext"
    names = {"glove": list(_GLOVE), "fasttext": sorted(path.name for path in folder.glob("*.vec"))}
    if embedding_name is None:
        return names
    if embedding_name not in names:
        raise KeyError(
            f"Cannot find `embedding_name` {embedding_name}. Use "
            "`get_pretrained_file_names(embedding_name=None).keys()` to get all the valid embedding names."
        )
    return names[embedding_name]
