"""A run of the decoder twins on synthetic data, step by step, from scratch or a checkpoint."""
