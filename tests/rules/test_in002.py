"""IN002 decode-launch-bound: use CUDA graphs for decoding, or an inference engine."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "IN002"
