"""Finds the cause of a failing case: the operation, module, weight, settings, size, commit or version."""
