"""HS002 blocking-copy: avoid blocking copies to the host inside the step."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "HS002"
    within = 0.10
