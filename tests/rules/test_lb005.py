"""LB005 lazy-module-load: load GPU code during warm-up."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "LB005"
