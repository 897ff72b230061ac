"""A rule that raises is named, with its code and reason, in every output; NumPy scalars in a finding are no failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from traceopt.cli import cli
from traceopt.rules import Evidence, Facts, Findings, Fix, Rule
from traceopt.testing import A100, Machine, assert_finds

TRACE = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / "healthy.json.gz"
RULE = '''
"""Broken."""
from traceopt.rules import Rule

class Broken(Rule):
    """My page."""
    code, name, title, family = "ZZ001", "broken", "Never mind", "mine"

    def check(self, facts):
        raise RuntimeError("the cable is loose")
'''


@pytest.fixture
def rules_dir(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "broken.py").write_text(RULE)
    return tmp_path / "rules"


@pytest.mark.parametrize("output", ["text", "concise", "markdown", "json", "html"])
def test_a_rule_that_raises_is_named(output: str, rules_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    html = ["--html", str(page), "--static"] if output == "html" else ["--no-html", "--format", output]
    done = CliRunner().invoke(cli, ["analyze", str(TRACE), "--rules-dir", str(rules_dir), *html])
    assert done.exit_code == 0
    text = page.read_text(encoding="utf-8") if output == "html" else done.stdout
    assert "ZZ001" in text
    assert "the cable is loose" in text


class Counts(Rule):
    """Findings as rules compute them: with NumPy."""

    code, name, title, family = "ZZ002", "counts", "Count less", "mine"

    def check(self, facts: Facts) -> Findings:
        calls = np.int64(len(facts.gpu.work))
        row = Evidence("kernels", us_per_step=np.float64(1.5), calls_per_step=np.float32(calls))  # type: ignore[arg-type]
        yield self.finding(why="So many.", fix=Fix("Fewer."), saving=None, evidence=[row])


def steps(machine: Machine) -> Machine:
    for _ in range(3):
        with machine.step():
            machine.launch(100)
            machine.synchronize()
    return machine


def test_numpy_scalars_become_plain_numbers() -> None:
    (row,) = assert_finds(Counts, steps(Machine(A100))).evidence
    assert (type(row.us_per_step), row.us_per_step) == (float, 1.5)
    assert (type(row.calls_per_step), row.calls_per_step) == (float, 3.0)


def test_regions_without_a_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="kinds of slices"):
        steps(Machine(A100)).facts().regions.named(lambda name: name == "aten::mm")
