"""HS004 data-dependent-shape: avoid data-dependent tensor shapes."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "HS004"
    within = 0.10
