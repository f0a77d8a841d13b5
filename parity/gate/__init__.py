"""Judges flips: named changes of defaults that pass only if every affected feature has parity.

Flips, requirements, budgets, baselines and relaxed settings are data of ``[tool.parity]``. The gate reads a report and
finds the blocking cells of feature x mesh x channel. It imports reports and lower packages; the command line uses it.
"""
