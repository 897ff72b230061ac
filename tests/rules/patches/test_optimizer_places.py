"""Patches of several optimizers, each at the line that constructs it."""

from __future__ import annotations

from pathlib import Path

from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules.fixes.optimizers import fused
from traceopt.rules.fixes.patches.patch import with_patches

GAN = """from torch import optim
def main():
    generator = optim.Adam(g.parameters())
    discriminator = optim.Adam(d.parameters())
    unused = optim.Adam(e.parameters())
    for batch in loader:
        discriminator.step()
        generator.step()
"""


def test_every_recorded_line_is_changed(tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    places = [Location("gan.py", line, "main") for line in (3, 4, 7)]
    fix = Fix("Pass fused=True to the optimizer.", edits=fused(["Adam"]))
    finding = Finding("OP001", "", "", "high", "high", Effort.ONE_LINE, Risk.NONE, None, "", [], places, fix)
    [patched] = with_patches([finding], [tmp_path], debug=True)
    added = [line for line in (patched.fix.patch or "").splitlines() if line.startswith("+    ")]
    assert added == [
        "+    generator = optim.Adam(g.parameters(), fused=True)",
        "+    discriminator = optim.Adam(d.parameters(), fused=True)",
    ]
