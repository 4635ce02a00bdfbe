"""A mapping that keeps the entries used last and forgets the others."""

from collections import OrderedDict
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Recent(Generic[KeyT, ValueT]):
    """At most ``limit`` entries; reading or writing one makes it the newest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._entries

    def get(self, key: KeyT, default: ValueT) -> ValueT:
        """The value of a key, or the default when it was never there or is forgotten."""
        value = self._entries.get(key, default)
        if key in self._entries:
            self._entries.move_to_end(key)
        return value

    def put(self, key: KeyT, value: ValueT) -> None:
        """Set a value, and forget the entry that was used longest ago when there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
