"""The Flax Linen twin. The mathematics that both twins share is in `models_nnx.shared`."""
