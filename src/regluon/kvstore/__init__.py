"""Key-value stores: how gradients of several devices become one."""

from __future__ import annotations

from regluon.kvstore.base import KVStoreBase, create
from regluon.kvstore.kvstore import KVStore

__all__ = ["KVStore", "KVStoreBase", "create"]
