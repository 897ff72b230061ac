"""LG001 logging-in-step: log every N steps, off the main thread."""

from __future__ import annotations

import pytest
from support.cpu_steps import Events, silent, the
from support.planted import PlantedFault

from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "LG001"
    within = 0.10


class TestLogging:
    """LG001."""

    def test_images_that_every_step_writes(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 5_000)
            yield build.python("vae.py(9): save_grid", t + 5_000, 4_000)
            yield build.python("PIL/Image.py(7): resize", t + 5_000, 1_000)
            yield build.python("PIL/Image.py(8): save", t + 6_000, 3_000)
            yield build.op("aten::mm", t + 9_000, 1_000)

        finding, saved_us, places = the("LG001", step)
        assert finding.title == "Save images every N steps, off the main thread"
        assert saved_us == pytest.approx(4_000, rel=0.05)
        assert places == ["vae.py:9"]
        assert silent("DL002", step)
