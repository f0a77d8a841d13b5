"""The Flax Linen twin."""
