"""Generators of our own matrix: its core and its covering cases, both written as data into `parity.matrix`."""
