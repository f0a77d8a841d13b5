"""Generators of our own matrix, which write its core and its covering cases as data into `parity.matrix`; large pairs.

The pairs `pipeline_grid` and `plans` are too many cases for the daily run. Separate commands and tests use them.
"""
