"""The weight map: pairs the leaves of both sides and transforms their arrays.

Imports: `programs`. Gives: `map` (rules, inference, the map) and `transforms` (invertible, each with its inverse).
"""
