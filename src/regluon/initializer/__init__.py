"""Initializers: how the first values of parameters are made.

An initializer is called with a description (the parameter's name and attributes) and the array to fill. An
explicit initializer in the attributes always decides; without one, the end of the name does: weights are
filled as the initializer says, biases and betas with zeros, gammas with ones.
"""

from __future__ import annotations

from .base import InitDesc, Initializer, InitializerError, alias, create, register
from .composite import Load, Mixed, load
from .rnn import FusedRNN, LSTMBias, RNNFused
from .standard import (
    Bilinear,
    Constant,
    Fixed,
    MSRAPrelu,
    Normal,
    One,
    Orthogonal,
    Uniform,
    Xavier,
    Zero,
)

__all__ = [
    "Bilinear",
    "Constant",
    "Fixed",
    "FusedRNN",
    "InitDesc",
    "Initializer",
    "InitializerError",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "Normal",
    "One",
    "Orthogonal",
    "RNNFused",
    "Uniform",
    "Xavier",
    "Zero",
    "alias",
    "create",
    "load",
    "register",
]
