"""A case at work: its two sides traced, lowered, compiled and run once each, and what channels ask of them.

Imports: everything below. Gives: `comparison.Comparison` and the `session.Session` that cases share; `side`, `pairing`,
`layout`, `certificate` answer single questions; `inspection` and `summary` serve the commands that only look.
"""
