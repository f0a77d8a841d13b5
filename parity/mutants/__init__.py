"""Mutation testing: plants bugs and reports which are caught, the kill matrix. Benign edits must pass."""
