"""Measuring: times, memory and bytes of two sides in one run, by turns, as ratios with their spread.

Imports: the rest of `compare`. Gives: `rounds.paired` and its `Paired`; `phases`, `dispatch` and `fresh`, which
measure; `bounds`, what NNX over Linen is held to; `measure.measured`, which puts a case through all of them; and
`overhead`, the harness against a script without it.
"""
