"""Optimizers: rules that change weights by their gradients, with the interfaces of 1.x and 2.0 (see
README.md)."""

from __future__ import annotations

from regluon.optimizer import contrib
from regluon.optimizer.adam import LAMB, LANS, AdaBelief, Adam, Adamax, AdamW, Nadam
from regluon.optimizer.adaptive import FTML, AdaDelta, AdaGrad, Ftrl, GroupAdaGrad, RMSProp
from regluon.optimizer.momentum import DCASGD, LARS, LBSGD, NAG, SGD, SGLD, Signum, ccSGD
from regluon.optimizer.optimizer import Optimizer, Test, create, register
from regluon.optimizer.updater import Updater, get_updater

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LANS",
    "LARS",
    "LBSGD",
    "NAG",
    "SGD",
    "SGLD",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "GroupAdaGrad",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Signum",
    "Test",
    "Updater",
    "ccSGD",
    "contrib",
    "create",
    "get_updater",
    "register",
]
