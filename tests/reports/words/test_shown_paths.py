"""Paths in reports: nothing of the machine's folders outside the working one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.html.page import render_html
from traceopt.reports.words.shown_paths import shown_path, shown_paths


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/ann/job/logs/rank0.json", "logs/rank0.json"),
        ("/home/ann/jobs/rank0.json", "rank0.json"),
        ("/data/secret/report.sqlite.gz/process0", "report.sqlite.gz/process0"),
        ("/data/secret/logs.zip/run/rank0.json", "logs.zip/run/rank0.json"),
        ("../other/rank0.json", "../other/rank0.json"),
        ("s3://bucket/rank0.json", "s3://bucket/rank0.json"),
    ],
)
def test_only_the_working_folder_is_known(path: str, shown: str) -> None:
    assert shown_path(path, "/home/ann/job") == shown


@pytest.mark.parametrize(
    ("folder", "shown"),
    [
        ("/data/secret/resnet50", ["resnet50/rank0.json", "resnet50/rank1.json"]),
        ("/home/ann/job", ["rank0.json", "rank1.json"]),
        ("/home/ann", ["rank0.json", "rank1.json"]),
        ("/", ["rank0.json", "rank1.json"]),
    ],
)
def test_several_files_have_the_name_of_their_folder(folder: str, shown: list[str]) -> None:
    """ "8 files" says nothing; "resnet50: 8 files" does."""
    assert shown_paths([f"{folder}/rank{rank}.json" for rank in (0, 1)], "/home/ann/job") == shown


def test_a_report_shows_no_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = sample.rich()
    path = "/home/ann/private/trace.json.gz"
    run = replace(result.run, paths=[path], files=[replace(file, path=path) for file in result.run.files])
    page = render_html(replace(result, run=run, ranks=[replace(row, path=path) for row in result.ranks]))
    visible = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "trace.json.gz" in visible
    assert "/home/ann" not in visible
