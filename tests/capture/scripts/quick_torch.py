"""Imports torch, and what the first optimizer imports, without garbage collections: they take a third of the time."""

import gc

gc.disable()
import torch._dynamo  # noqa: E402, F401

gc.enable()
