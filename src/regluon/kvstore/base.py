"""The interface of key-value stores, and their registry."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

_StoreClass: TypeAlias = "type[KVStoreBase]"


class KVStoreBase:
    """What a :class:`~regluon.gluon.Trainer` needs of a store: broadcast first values, sum gradients.

    Register a class of your own with ``@mx.kv.KVStoreBase.register``; its lower-case name is then a
    ``kvstore=`` argument.
    """

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, _StoreClass]] = {}

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Make ``value`` of the first worker the value of ``key``, and write it to ``out`` everywhere."""
        raise NotImplementedError(f"{type(self).__name__} must define broadcast(key, value, out, priority).")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum ``value`` over devices and workers, into ``out`` or, without it, into ``value`` itself."""
        raise NotImplementedError(f"{type(self).__name__} must define pushpull(key, value, out, priority).")

    def set_optimizer(self, optimizer: Any) -> None:
        """Update values with this optimizer when gradients are pushed."""
        raise NotImplementedError(f"{type(self).__name__} cannot run an optimizer.")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can do this; the one capability asked for is ``KVStoreBase.OPTIMIZER``."""
        raise NotImplementedError("A key-value store must define is_capable(capability).")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer that runs in the store."""
        raise NotImplementedError(f"{type(self).__name__} has no optimizer states.")

    def load_optimizer_states(self, fname: str) -> None:
        """Read the states of the optimizer that runs in the store."""
        raise NotImplementedError(f"{type(self).__name__} has no optimizer states.")

    @property
    def type(self) -> str:
        """Name of the store's kind."""
        raise NotImplementedError(f"{type(self).__name__} must define type.")

    @property
    def rank(self) -> int:
        """Number of this worker."""
        raise NotImplementedError(f"{type(self).__name__} must define rank.")

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        raise NotImplementedError(f"{type(self).__name__} must define num_workers.")

    @staticmethod
    def register(klass: _StoreClass) -> _StoreClass:
        """Class decorator that makes a store known by its lower-case class name."""
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass


def create(name: str = "local") -> KVStoreBase:
    """Make a store: "local" or "device" (the same here), or one that was registered.

    Raises
    ------
    TypeError
        If the name is no text.
    ValueError
        If there is no such store.
    """
    from regluon.kvstore.kvstore import LOCAL_KINDS, KVStore

    if not isinstance(name, str):
        raise TypeError(f"The name of a key-value store must be a str; received {name!r}.")
    kind = name.lower()
    if kind in LOCAL_KINDS:
        return KVStore(kind)
    if kind in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[kind]()
    raise ValueError(
        f"There is no key-value store named '{name}'. On one machine use 'local' or 'device'; registered are "
        f"{', '.join(sorted(KVStoreBase.kv_registry)) or 'no others'}. Add one with "
        "mx.kv.KVStoreBase.register."
    )
