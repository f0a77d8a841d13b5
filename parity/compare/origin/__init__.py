"""Finds the first operation with different values: the origin of a difference, by evaluating both programs.

`evaluated` evaluates both sides (`trace`, `sketch`) and matches their values (`alignment`). `divergence` finds the
places where they diverge, `blame` chooses the lines, and `operation` returns the text: `operation.locate`.
"""
