"""Converts checkpoints from one flavour to the other with an exported weight map."""
