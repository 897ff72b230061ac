"""How to load data sooner: workers, pinned memory, cheaper items."""
