"""Cache of results of a walk, shared with the walks of other programs; keys include all dependencies."""

from collections.abc import Hashable
from typing import Any

__all__ = ["ProofMemory"]


class ProofMemory:
    """Cache of results; keys are compared in full, and entries that are unused for long are dropped.

    Args:
        most: entries of a generation; two generations are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """Returns the value of a key; None if there is none, or if it was dropped."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: Any) -> None:
        """Stores a value, which must not be None."""
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value
