"""GM003 tile-waste: merge projections of the same input."""

from __future__ import annotations

from support.findings import found
from support.planted import PlantedFault
from support.traces import GetExample


class TestPlanted(PlantedFault):
    code = "GM003"


def test_gm003_names_the_projections(example: GetExample) -> None:
    (finding,) = found("GM003", example("split_projections").facts)
    assert "3 x aten::mm" in finding.evidence[0].what
    assert "64 thread blocks each on 108" in (finding.evidence[0].detail or "")
