"""Pairs, cases, selectors, the project's settings, and pairs made from a user's modules.

Imports `builds`, `ir`, `values` and `verdicts`. Offers `case.Case` and `case.Pair`, which projects register,
`settings.collect`, which finds them, and `twins.twins`.
"""
