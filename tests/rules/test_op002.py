"""OP002 foreach-not-fused: pass fused=True to the optimizer."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "OP002"
