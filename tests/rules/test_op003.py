"""OP003 zero-grad-kernels: set gradients to None instead of zeroing them."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "OP003"
