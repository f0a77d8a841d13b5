"""The Flax NNX twin; `shared` holds the framework-free code of both twins."""
