"""Timing: times and bytes of two sides in one run, measured alternately, as ratios with their spread.

Imports: the rest of `compare`. Gives: `rounds.paired` and its `Paired`; `phases`, which measures; `measure.measured`,
which measures a case in every way, and `measure.BOUNDS` for NNX over Linen.
"""
