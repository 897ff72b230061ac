"""LB001 launch-bound: reduce launch overhead: larger batch, torch.compile or CUDA graphs."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LB001"
