"""LB007 cpu-operator: move CPU operators to the GPU or out of the step."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LB007"
    within = 0.10
