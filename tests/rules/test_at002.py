"""AT002 sdpa-math-fallback: let scaled_dot_product_attention use a fused kernel."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "AT002"
