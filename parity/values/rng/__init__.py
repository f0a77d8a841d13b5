"""Random draws of traced programs: their keys, and a check that no key is used twice."""
