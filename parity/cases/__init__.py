"""Pairs, cases, selectors, the project's settings, and pairs made from a user's modules."""
