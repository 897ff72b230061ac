"""CV002 conv-bias-before-norm: drop the bias of convolutions before a batch norm."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "CV002"
