"""CV001 layout-conversion: use channels_last for convolutions."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "CV001"
