"""OP001 single-tensor-optimizer: use a fused or foreach optimizer."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "OP001"
