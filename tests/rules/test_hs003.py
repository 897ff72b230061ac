"""HS003 explicit-synchronize: remove explicit synchronization from the step."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "HS003"
    within = 0.10
