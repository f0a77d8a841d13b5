"""Proves that two programs compute the same function in exact real arithmetic; see docs/exact.md."""

from parity.prove.exact.claim import Desk, Equality, Named, equal
from parity.prove.exact.relation import Link, Relation

__all__ = ["Desk", "Equality", "Link", "Named", "Relation", "equal"]
