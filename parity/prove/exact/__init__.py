"""Proves that two programs compute the same function in exact real arithmetic; see docs/exact.md."""

from parity.prove.exact.claim import Equality, equal
from parity.prove.exact.interpreter import Named
from parity.prove.exact.relation import Link, Relation

__all__ = ["Equality", "Link", "Named", "Relation", "equal"]
