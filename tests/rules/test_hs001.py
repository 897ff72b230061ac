"""HS001 scalar-read: avoid reading single values from the GPU every step."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "HS001"
    within = 0.10
