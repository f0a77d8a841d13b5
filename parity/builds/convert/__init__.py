"""Checkpoints carried from one flavour to the other through an exported weight map."""
