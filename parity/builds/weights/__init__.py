"""The weight map: which leaves of one side are which leaves of the other, and how arrays turn into each other.

Imports: `programs`. Gives: `map` (rules, inference, the map) and `transforms` (invertible, each with its inverse).
"""
