"""DL004 exposed-input-copy: overlap input copies with compute."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "DL004"
