"""Timing: times and bytes of two sides in one run, measured alternately, as ratios with their spread.

Imports: the rest of `compare`. Gives: `rounds.paired` and its `Paired`; `measure.measure_each`, which measures cases in
every way, and `measure.BOUNDS` for NNX over Linen; `scaling.measure_scaling`.
"""
