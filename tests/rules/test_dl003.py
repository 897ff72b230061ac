"""DL003 pageable-copy: copy batches from pinned memory without blocking."""

from __future__ import annotations

from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "DL003"
