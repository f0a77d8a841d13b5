"""Compiled programs: the parser of optimised HLO text; loops, collectives and memory read from it."""
