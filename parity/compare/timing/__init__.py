"""Timing: times, memory and bytes of two sides in one run, measured alternately, as ratios with their spread.

Imports: the rest of `compare`. Gives: `rounds.paired` and its `Paired`; `phases` and `fresh`, which
measure; `measure.measured`, which measures a case with all of them, and `measure.BOUNDS` for NNX over Linen.
"""
