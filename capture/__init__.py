"""The wrapper round torch.profiler: records the steps of an unmodified training script.

It runs inside the user's process: only the standard library is imported, torch never before the script did. The
injected sitecustomize loads it under a private name, without `traceopt`, so its modules import each other relatively.
"""
