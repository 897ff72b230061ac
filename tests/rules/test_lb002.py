"""LB002 cuda-graph-candidate: replay the step as a CUDA graph."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LB002"
