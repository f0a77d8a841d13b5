"""Mutants of pipelines against the sequence: each is refused, or shown by running to compute the same."""
