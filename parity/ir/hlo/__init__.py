"""Compiled programs: the parser of optimised HLO text; loops, collectives, memory and cycles read from it."""
