"""Files of findings by their path in the repository, whatever the trace calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.command_line import RESULT

from traceopt.cli.shared.repository_paths import in_repository
from traceopt.reports.ci.repository_places import repository_places
from traceopt.result.document import Result
from traceopt.result.finding import Evidence, Finding, Fix, Location


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    for file in ("examples/train.py", "src/acme/model.py", "setup.py"):
        (tmp_path / "repo" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / file).write_text("")
    (tmp_path / "outside.py").write_text("")
    monkeypatch.chdir(tmp_path / "repo" / "examples")
    return tmp_path / "repo"


def named(file: str) -> Result:
    at = Location(file, 3, "f")
    rows = [Evidence("op", location=at), Evidence("no place")]
    return replace(RESULT, findings=[Finding("DL001", "", "", "low", "high", "", "", None, "", rows, [at], Fix(""))])


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("train.py", "examples/train.py"),  # as the profiler names a script
        ("acme/model.py", "src/acme/model.py"),
        ("setup.py", "setup.py"),
        ("/other/machine/examples/train.py", "examples/train.py"),
        ("~/work/repo/setup.py", "setup.py"),
        ("gone.py", "gone.py"),
        ("../outside.py", "../outside.py"),
        ("/etc/passwd", "/etc/passwd"),
        ("transformers/models/gpt2/modeling_gpt2.py", "site-packages/transformers/models/gpt2/modeling_gpt2.py"),
        ("a\0b.py", "a\0b.py"),
        ("x" * 5_000 + ".py", "x" * 5_000 + ".py"),
    ],
)
def test_paths_start_at_the_root(repository: Path, file: str, expected: str) -> None:
    source = [repository / "examples", repository / "src", repository / "gone", Path()]
    (finding,) = in_repository(named(file), source).findings
    assert [str(place) for place in finding.locations] == [f"{expected}:3"]
    assert [str(row.location) for row in finding.evidence] == [f"{expected}:3", "None"]


def test_a_file_of_a_source_folder_elsewhere_keeps_its_name(repository: Path) -> None:
    (repository / "link.py").symlink_to(repository.parent / "outside.py")
    for file in ("outside.py", "link.py"):
        (finding,) = in_repository(named(file), [repository.parent]).findings
        assert finding.locations[0].file == file
    inside = str(repository / "setup.py")
    assert in_repository(named(inside)).findings[0].locations[0].file == "setup.py"


def test_code_hosts_get_the_users_line_where_a_model_is_the_place(repository: Path) -> None:
    result = named("transformers/models/gpt2/modeling_gpt2.py")
    (finding,) = result.findings
    both = replace(finding, locations=[*finding.locations, Location("train.py", 9, "main")])
    (moved,) = in_repository(replace(result, findings=[both]), [repository / "examples"]).findings
    assert [str(place) for place in repository_places(moved)] == ["examples/train.py:9"]
