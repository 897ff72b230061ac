"""Imports torch without garbage collections: they take an eighth of the time."""

import gc

gc.disable()
import torch  # noqa: E402, F401

gc.enable()
