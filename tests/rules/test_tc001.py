"""TC001 fp32-matmul: use mixed precision for matmuls and convolutions."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "TC001"
