"""gluon.rnn: recurrent layers over whole sequences, and cells that make single steps."""

from __future__ import annotations

from .rnn_layer import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN"]
