"""Our own pairs: the only place that imports both model packages."""
