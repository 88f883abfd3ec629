"""Vocabularies: words and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from ...gluon.parameter_errors import ParameterValueError

__all__ = ["Vocabulary"]


class VocabularyError(ParameterValueError):
    """A vocabulary cannot be made from what is given."""


class Vocabulary:
    """Tokens with numbers: first the unknown token, then reserved ones, then the others by frequency.

    Parameters
    ----------
    counter : collections.Counter, optional
        How often each token occurs. Tokens that occur equally often come in alphabetical order.
    most_freq_count : int, optional
        How many of the counter's tokens are taken at most, the most frequent first.
    min_freq : int
        How often a token has to occur to be taken.
    unknown_token : hashable
        What stands for all tokens that are not there; its number is 0.
    reserved_tokens : list of hashable, optional
        Tokens that are there in any case, such as padding.

    Raises
    ------
    ValueError
        (an AssertionError too) when ``min_freq`` is not positive, or reserved tokens are given twice or have
        the unknown token among them.
    """

    def __init__(
        self,
        counter: Counter[Any] | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: Hashable = "<unk>",
        reserved_tokens: Sequence[Hashable] | None = None,
    ) -> None:
        if min_freq < 1:
            raise VocabularyError(f"`min_freq` must be set to a positive value; received {min_freq}")
        reserved = list(reserved_tokens or ())
        if unknown_token in reserved:
            raise VocabularyError("`reserved_token` cannot contain `unknown_token`.")
        if len(set(reserved)) != len(reserved):
            raise VocabularyError("`reserved_tokens` cannot contain duplicate reserved tokens.")
        self._unknown_token = unknown_token
        self._reserved_tokens = reserved or None
        self._idx_to_token: list[Any] = [unknown_token, *reserved]
        special = set(self._idx_to_token)
        ordered = sorted((counter or Counter()).items(), key=lambda item: str(item[0]))
        ordered.sort(key=lambda item: item[1], reverse=True)
        room = len(ordered) if most_freq_count is None else most_freq_count
        for token, count in ordered:
            if count < min_freq or room <= 0:
                break
            if token not in special:
                self._idx_to_token.append(token)
                room -= 1
        self._token_to_idx: dict[Any, int] = {
            token: number for number, token in enumerate(self._idx_to_token)
        }

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """Numbers by token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """Tokens in the order of their numbers."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        """What stands for tokens that are not there."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        """The reserved tokens, None when there are none."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """The number of a token, or those of a list; 0 for what is not there."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, 0) for token in tokens]
        return self._token_to_idx.get(tokens, 0)

    def to_tokens(self, indices: Any) -> Any:
        """The token of a number, or those of a list.

        Raises
        ------
        ValueError
            For a number that no token has.
        """
        numbers = indices if isinstance(indices, list) else [indices]
        for number in numbers:
            if not isinstance(number, int) or not 0 <= number < len(self):
                raise ValueError(
                    f"Token index {number} in the provided `indices` is invalid: a whole number from 0 to "
                    f"{len(self) - 1} is expected"
                )
        found = [self._idx_to_token[number] for number in numbers]
        return found if isinstance(indices, list) else found[0]
