"""DataLoaders: how they are set, what a batch takes to build and to hand over, and which files they open."""
