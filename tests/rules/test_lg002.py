"""LG002 metric-sync: read metrics only at the logging interval."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LG002"
    within = 0.10
