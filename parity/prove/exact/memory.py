"""What is kept of a walk for the rest of it, and for the walks of other programs: keyed by all it depends on."""

from collections.abc import Hashable
from typing import Any

__all__ = ["ProofMemory"]


class ProofMemory:
    """Results by everything that they depend on, keys compared in full; what is long unused is forgotten.

    Args:
        most: entries of a generation; two are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """Returns what was put under a key; None if there is nothing, or no more."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: Any) -> None:
        """Keeps a value, which must not be None."""
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value
