"""Harmless edits of sources, made by rules at lines that a case executes: each must raise no alarm."""
