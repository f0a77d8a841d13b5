"""Numeric comparison: the ladder of rungs, noise floors, guards against checks that cannot fail, ties of routing.

Most functions are pure functions of host arrays; none depends on a case. The package imports `builds`, `ir` and
`verdicts`. It contains `ladder`, `noise`, `vacuity` and `routing` for results of runs, `constants` and `static` for
lowered programs, and `rng` for random draws.
"""
