"""The Flax NNX twin; `shared` holds what both twins use and no framework touches."""
