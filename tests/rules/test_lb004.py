"""LB004 recompilation: avoid recompilation in steady-state steps."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LB004"
