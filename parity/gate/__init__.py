"""Judges flips: named changes of defaults that pass only if every affected feature has parity."""
