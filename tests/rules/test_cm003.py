"""CM003 slow-collective: find the late rank or the slow link."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "CM003"
