"""Records the steps of an unmodified training script with torch.profiler.

This package runs inside the user's process, so it imports only the standard library, and never torch before the script
does. The injected sitecustomize loads it under a private name, without `traceopt`, so its modules use relative imports.
"""
