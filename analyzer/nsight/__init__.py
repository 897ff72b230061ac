"""Exports of Nsight Systems (SQLite databases) to the same tables as a trace of torch.profiler."""
