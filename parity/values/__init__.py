"""Numbers: the ladder of rungs, noise floors, guards against checks that cannot fail, ties of routing.

Pure functions of host arrays; nothing here knows a case. Imports: `programs`. Gives: `ladder`, `noise`,
`vacuity`, `routing`.
"""
