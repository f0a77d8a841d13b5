"""The weight map: pairs the leaves of both sides and transforms their arrays.

Imports `builds` only. Offers `inference.infer`, `map` (rules and the map) and `transforms` (each with its inverse).
"""
