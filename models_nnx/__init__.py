"""The Flax NNX twin, and the framework-free modules both twins share."""
