"""TC004 cast-churn: cast weights once, not in every step."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "TC004"
