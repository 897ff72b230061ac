"""`traceopt bisect`: which commit it finds, and what it says where it finds none."""

from __future__ import annotations

import json
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from machine import Machine, a_change
from projects import SCRIPT, Project, refused

from traceopt.result.comparison import Comparison
from traceopt.result.document import Result
from traceopt.try_script.bisection import Candidate, Search, Span
from traceopt.try_script.two_sides import State, of_commit
from traceopt.trying.measured_run import Failure
from traceopt.trying.rounds import Rounds, measure

TRACE = Path(__file__).parents[2] / "fixtures" / "traces" / "slow_loader.json.gz"
HASHES = {f"{number:040x}": f"change {number}" for number in range(1, 17)}
SPAN = Span(of_commit("good"), [Candidate(name, what, of_commit(name, what)) for name, what in HASHES.items()])


class SimulatedSides:
    """Commits whose steps take `factor` times as long from the number `slower` on; those of `broken` fail."""

    def __init__(self, slower: int, factor: float = 1.05, broken: tuple[int, ...] = ()) -> None:
        self._factors = {str(n): factor if n >= slower else 1.0 for n in range(17)}
        self._machine = Machine(0.005, slower, **self._factors)
        self._broken = broken
        self.compared: Comparison | None = None
        self.pair = ("", "")

    @property
    def left_s(self) -> float:
        return 2_000 - self._machine.now_s

    def rounds(self, base: State, head: State, enough: Callable[[Rounds], bool], steps: int, budget_s: float) -> Rounds:
        assert base.name == "commit good", "a machine that slows down favors no commit"
        assert steps > 0
        number = int((head.changes[0].revision or "0"), 16)
        if number in self._broken:
            return Rounds([], [], ("after", Failure("it ended with exit code 1")))
        until = self._machine.now_s + budget_s
        return measure(
            self._machine.run,
            [a_change("0")],
            [a_change(str(number))],
            wanted_us=lambda _: None,
            time_left=lambda: until - self._machine.now_s,
            enough=enough,
        )

    def compare(self, base: State, head: State, analyze: object) -> None:  # noqa: ARG002
        self.pair = (base.name, head.name)


def never(*_: object) -> Result:
    raise AssertionError("nothing is recorded here")


def searched(sides: SimulatedSides) -> Search:
    search = Search(sides, "good", "bad", SPAN, None)
    search.run(never)
    return search


@pytest.mark.parametrize("planted", range(1, 17))
def test_the_planted_commit_among_16_is_found_in_6_tests(planted: int) -> None:
    sides = SimulatedSides(planted)
    found = searched(sides).document()
    assert found.first is not None
    assert found.first.subject == f"change {planted}"
    assert len(found.tested) <= 6
    assert [f"change {planted - 1}" in sides.pair[0] or planted == 1, f"change {planted}" in sides.pair[1]] == [
        True
    ] * 2
    assert found.left == []


def test_a_faster_step_is_a_change_too() -> None:
    found = searched(SimulatedSides(9, 0.9)).document()
    assert found.first is not None
    assert found.first.subject == "change 9"


def test_commits_that_fail_are_left_out_or_left_over() -> None:
    found = searched(SimulatedSides(11, broken=(8, 9))).document()
    assert found.first is not None
    assert found.first.subject == "change 11"
    beside = searched(SimulatedSides(11, broken=(10,))).document()
    assert beside.first is None
    assert [int(commit, 16) for commit in beside.left] == [10, 11]
    assert "2 commits" in beside.verdict


def test_without_a_difference_nothing_is_searched() -> None:
    found = searched(SimulatedSides(17)).document()
    assert (found.first, found.left, len(found.tested)) == (None, [], 1)
    assert "certain" in found.verdict


def test_the_command_finds_a_commit_and_says_what_it_changed(project: Project) -> None:
    before = project.state
    for number in range(1, 5):
        text = project.script.read_text() + f"# {number}\n"
        project.script.write_text(text.replace("STEP_US = 1000.0", "STEP_US = 1200.0") if number == 3 else text)
        project.git("commit", "--quiet", "--all", "--message", f"change {number}")
    with project.start("--json", "-", "HEAD~4", "HEAD", command="bisect", TRACE=str(TRACE)) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["first"]["subject"] == "change 3"
    assert found["comparison"]["step"]["change_share"] == pytest.approx(0.2, abs=0.02)
    project.git("reset", "--quiet", "--hard", "HEAD~4")
    assert project.state == before


def environment_with(folder: Path, version: str) -> str:
    """The folder of an environment that has the package "pace" in this version, and nothing else."""
    venv.create(folder / version, with_pip=False, symlinks=True)
    [packages] = (folder / version).glob("lib/python*/site-packages")
    (packages / f"pace-{version}.dist-info").mkdir()
    (packages / f"pace-{version}.dist-info" / "METADATA").write_text(f"Name: pace\nVersion: {version}\n")
    return str(folder / version)


def search_in(pythons: Sequence[str], *versions: str) -> list[str]:
    return ["--package", "pace", *(word for python in pythons for word in ("--python", python)), *versions]


def test_the_version_of_a_package_that_changed_the_step_is_found(plain_project: Project, tmp_path: Path) -> None:
    pythons = [environment_with(tmp_path, version) for version in ("1000.0", "1001.0", "1200.0", "1201.0")]
    text = plain_project.script.read_text()  # whose steps take as long as the version of the package says
    text = text.replace("STEP_US = 1000.0", 'STEP_US = float(importlib.metadata.version("pace"))')
    plain_project.script.write_text(text.replace("import json\n", "import importlib.metadata\nimport json\n"))
    words = ["--json", "-", *search_in(pythons, "1000.0", "1201.0")]
    with plain_project.start(*words, command="bisect", TRACE=str(TRACE)) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["verdict"].startswith(f"pace 1200.0 ({pythons[2]}/bin/python) changed the step: +20%"), found[
        "verdict"
    ]
    assert found["commits"] == 3
    labels = [found["comparison"][side]["runs"][0]["label"] for side in ("base", "head")]
    assert labels == ["pace 1001.0", "pace 1200.0"]


@pytest.mark.parametrize(
    ("versions", "between", "reason"),
    [
        (["1.0", "2.0"], ("1.0", "3.0"), "no --python has pace 3.0; found: 1.0, 2.0"),
        (["2.0", "1.0"], ("1.0", "2.0"), "name the environment of pace 1.0 before that of 2.0"),
        ([], ("1.0", "2.0"), "belong together"),
    ],
)
def test_versions_that_cannot_be_searched_are_one_line(
    plain_project: Project, tmp_path: Path, versions: list[str], between: tuple[str, str], reason: str
) -> None:
    pythons = [environment_with(tmp_path, version) for version in versions]
    assert reason in refused(plain_project, *search_in(pythons, *between), SCRIPT, command="bisect")


@pytest.mark.parametrize(
    ("revisions", "reason"),
    [
        (("HEAD", "HEAD"), "no commit between"),
        (("gone", "HEAD"), "gone is no commit"),
        (("-x", "HEAD"), "no such option"),
    ],
)
def test_what_cannot_be_searched_is_one_line(project: Project, revisions: tuple[str, str], reason: str) -> None:
    assert reason in refused(project, *revisions, SCRIPT, command="bisect").lower()
