"""HS005 clip-or-scaler-sync: clip and scale gradients without a host sync."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "HS005"
