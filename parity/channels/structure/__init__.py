"""Comparisons of loops, collectives, memory, dtypes and donation that the channels of structure share."""
