"""Counting the words of a text."""

from __future__ import annotations

from collections import Counter

__all__ = ["count_tokens_from_str"]


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter[str] | None = None,
) -> Counter[str]:
    """How often each token occurs.

    Parameters
    ----------
    source_str : str
        The text.
    token_delim, seq_delim : str
        What separates tokens and sequences.
    to_lower : bool
        Whether tokens are put into lower case.
    counter_to_update : collections.Counter, optional
        Counts to add to, in place.

    Returns
    -------
    collections.Counter
    """
    text = source_str.lower() if to_lower else source_str
    counter = Counter() if counter_to_update is None else counter_to_update
    for sequence in text.split(seq_delim):
        counter.update(token for token in sequence.split(token_delim) if token)
    return counter
