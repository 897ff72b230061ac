"""AT001 unfused-attention: use fused attention (scaled_dot_product_attention)."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "AT001"
