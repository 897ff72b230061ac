"""`traceopt.api.analyze`: paths in, one document out, whatever lies beside the traces."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from support.traces import GetExample

import traceopt
from fixtures.generate import generate_ranks
from traceopt.api import analyze
from traceopt.document.timeline.spans import MOST_LETTERS
from traceopt.errors import ConfigError, InputError
from traceopt.result.document import Result
from traceopt.result.finding import Finding


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as TensorBoard's handler leaves it: rank 1 loads 20 ms longer, and rank 0 waits for it."""
    folder = tmp_path_factory.mktemp("job")
    for trace in generate_ranks("straggler", steps=4):
        trace.write(folder / "run" / f"host_{trace.rank + 7}.1700000000000.pt.trace.json.gz")
    return folder


@pytest.fixture(scope="module")
def merged(two_ranks: Path) -> Result:
    return analyze(str(two_ranks), debug=True)


def test_the_rank_that_the_others_wait_for_can_be_looked_at(merged: Result) -> None:
    """Its steps and spans are in the document, within the room that the report has for spans."""
    (view,) = merged.rank_views
    (late,) = {rank for finding in merged.findings if finding.code == "CM004" for rank in finding.ranks}
    assert (view.rank, view.late) == (late, True)
    assert merged.run.shown_rank != late
    assert view.step.typical_us in {row.step_us for row in merged.ranks if row.rank == late}
    assert view.step.series is not None
    assert {step.name for step in view.table.steps} <= set(view.step.series.names)
    assert merged.timeline is not None
    assert merged.timeline.table is not None
    assert len(merged.timeline.table.columns) + len(view.table.columns) <= MOST_LETTERS


def test_the_steps_of_all_ranks_are_side_by_side(merged: Result) -> None:
    series = merged.step.series
    assert series is not None
    assert [rank.rank for rank in series.ranks] == [0, 1]
    assert series.ranks[0].us == merged.step.per_step_us
    assert len(series.ranks[1].us) == merged.step.count


def test_one_file(example: GetExample) -> None:
    path = str(example("slow_loader").path)
    result = analyze(path)
    assert result.run.paths == [path]
    assert (result.run.ranks, result.run.shown_rank) == ([], None)
    assert [finding.ranks for finding in result.findings] == [[]] * len(result.findings)
    assert len(result.ranks) == len(result.run.files) == 1
    assert result.run.files[0].bytes == example("slow_loader").path.stat().st_size
    assert result.warnings == []
    assert analyze([path]) == result


def test_patches_of_a_source_folder(example: GetExample, tmp_path: Path) -> None:
    path = str(example("slow_loader").path)
    [place, *_] = next(one.locations for one in analyze(path).findings if one.code == "DL001")
    head = "from torch.utils.data import DataLoader\n"
    loop = f"def {place.function}():\n    for batch in DataLoader(data):\n        train(batch)\n"
    (tmp_path / place.file).write_text(head + "\n" * ((place.line or 0) - 2) + loop)
    for source in (tmp_path, str(tmp_path), [tmp_path / "..", tmp_path]):
        patches = [one.fix.patch for one in analyze(path, source=source).findings if one.code == "DL001"]
        assert "+    for batch in DataLoader(data, num_workers=" in (patches[0] or "")
    with pytest.raises(InputError, match="no such source folder"):
        analyze(path, source="gone")


class TestTwoRanks:
    def test_the_lowest_is_shown(self, merged: Result) -> None:
        assert (merged.run.world_size, merged.run.ranks, merged.run.shown_rank) == (2, [0, 1], 0)

    def test_a_row_for_each(self, merged: Result) -> None:
        assert [row.rank for row in merged.ranks] == [0, 1]
        assert len({row.path for row in merged.ranks}) == len(merged.run.files) == len(merged.run.paths) == 2
        for row in merged.ranks:
            assert row.step_us
            assert row.gpu_busy_share

    def test_findings_name_their_ranks(self, merged: Result) -> None:
        """Rank 0 waits in its collectives; rank 1 in its loader."""
        ranks = {finding.code: finding.ranks for finding in merged.findings}
        assert 0 in ranks["CM001"]
        assert ranks["DL001"] == [1]

    def test_what_the_fixes_give_together_belongs_to_the_first(self, tmp_path: Path) -> None:
        for trace in generate_ranks("exposed_allreduce", steps=4):
            trace.write(tmp_path / f"rank{trace.rank}.json")
        merged = analyze(str(tmp_path))
        assert merged.combined is not None
        assert merged.plan
        assert len(merged.planned) == len(merged.plan)
        for row, finding in merged.planned:
            assert finding.code == row.code
            assert 0 in finding.ranks
        first = merged.planned[0][1]
        assert first.saving is not None
        assert merged.combined.saving_us >= 0.99 * first.saving.est_us

    def test_what_no_single_rank_can_save_comes_first(self, merged: Result) -> None:
        """The plan of one rank does not hold it."""
        assert merged.findings[0].code == "CM004"
        assert merged.plan == []

    def test_order_of_the_paths_does_not_matter(self, two_ranks: Path, merged: Result) -> None:
        files = sorted(map(str, two_ranks.rglob("*.gz")), reverse=True)
        result = analyze(files)
        assert (result.run.shown_rank, result.findings, result.step) == (0, merged.findings, merged.step)

    def test_a_finding_of_both_is_one(self, tmp_path: Path) -> None:
        for trace in generate_ranks("exposed_allreduce", steps=4):
            trace.write(tmp_path / f"rank{trace.rank}.json")
        result = analyze(str(tmp_path))
        (finding,) = [f for f in result.findings if f.code == "CM001"]
        assert finding.ranks == [0, 1]

    def test_ranks_by_the_names_of_files(self, tmp_path: Path, example: GetExample) -> None:
        for rank in (10, 2):
            shutil.copy(example("slow_loader").path, tmp_path / f"trace_rank{rank}.json")
        result = analyze(str(tmp_path))
        assert (result.run.ranks, result.run.shown_rank) == ([2, 10], 2)


BROKEN = {
    "empty.json": b"",
    "text.json": b"hello",
    "other.json": b'{"key": [1, 2, 3]}',
    "no_events.json": b'{"traceEvents": []}',
    "cut.json.gz": b"\x1f\x8b\x08\x00\x00",
    "image.json": b"\x89PNG\r\n\x1a\n\x00\x00",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_beside_good_ones_is_a_warning(tmp_path: Path, example: GetExample, name: str) -> None:
    good = tmp_path / "good.json"
    shutil.copy(example("slow_loader").path, good)
    (tmp_path / name).write_bytes(BROKEN[name])
    result = analyze(str(tmp_path))
    assert result.run.paths == [str(good)]
    assert len(result.warnings) == 1
    assert name in result.warnings[0]
    assert "\n" not in result.warnings[0]
    assert result.findings == analyze(str(good)).findings


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_by_name_is_an_error(tmp_path: Path, example: GetExample, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(InputError, match=name) as caught:
        analyze([str(example("slow_loader").path), str(path)])
    assert "\n" not in str(caught.value)


def measured(findings: list[Finding]) -> set[tuple[str, str, float]]:
    """What findings say of their own fault; their order and what they can save with others depend on the others."""
    return {(one.code, one.why, one.saving.est_us if one.saving else 0.0) for one in findings}


@pytest.mark.parametrize("path", ["missing.json", "empty_folder", "*.nothing", "https://example.invalid/trace.json"])
def test_nothing_to_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty_folder").mkdir()
    with pytest.raises(InputError) as caught:
        analyze(path if "://" in path else str(tmp_path / path))
    assert Path(path).name in str(caught.value)


def test_a_folder_of_broken_files_alone(tmp_path: Path) -> None:
    for name, content in BROKEN.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"^no trace in {tmp_path} can be read: {tmp_path}/"):
        analyze(str(tmp_path))


def test_a_folder_with_another_json_file_alone(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(
        InputError, match=r"^no trace in .* can be read: .*settings\.json is not a PyTorch profiler trace"
    ):
        analyze(str(tmp_path))


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems know only UTF-8")
def test_a_name_that_is_no_utf8(example: GetExample, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"trace\xff.json")
    path.write_bytes(example("healthy").path.read_bytes())
    result = analyze(str(path))
    assert Result.from_json(result.to_json()).run.paths == [f"{tmp_path}/trace%FF.json"]


class TestChoosingRules:
    def test_select(self, example: GetExample) -> None:
        result = analyze(str(example("five_faults").path), select=["DL", "gc-pause"])
        advice = {check.code for check in result.checks if not check.code.startswith("TQ")}
        assert advice == {c.code for c in example("five_faults").result.checks if c.code.startswith("DL")} | {"PY001"}
        assert {finding.code for finding in result.findings} == {"DL001", "PY001"}

    def test_ignore(self, example: GetExample) -> None:
        whole = example("five_faults").result
        result = analyze(str(example("five_faults").path), ignore=["DL001", "HS"])
        kept = [f for f in whole.findings if f.code != "DL001" and not f.code.startswith("HS")]
        assert measured(kept) == measured(result.findings)
        assert not any(check.code == "DL001" for check in result.checks)

    def test_what_was_measured_stays(self, example: GetExample) -> None:
        whole = example("five_faults").result
        result = analyze(str(example("five_faults").path), select=["CV001"])
        assert result.findings == []
        assert result.combined is None
        assert (result.step, result.breakdown, result.gpu) == (whole.step, whole.breakdown, whole.gpu)

    def test_thresholds(self, example: GetExample) -> None:
        path = str(example("slow_loader").path)
        assert analyze(path, select=["DL001"], thresholds={"DL001": {"min_share": 0.9}}).findings == []
        assert len(analyze(path, select=["DL001"], thresholds={"dataloader-stall": {"min_share": 0.1}}).findings) == 1

    @pytest.mark.parametrize(
        "settings",
        [
            {"select": ["XX001"]},
            {"ignore": ["dataloader-stahl"]},
            {"thresholds": {"DL001": {"min_shore": 0.5}}},
            {"thresholds": {"DL001": {"min_share": "much"}}},
            {"thresholds": {"DL999": {}}},
            {"rules_dir": "no/such/folder"},
        ],
    )
    def test_settings_that_do_not_exist(self, example: GetExample, settings: dict[str, object]) -> None:
        with pytest.raises(ConfigError):
            analyze(str(example("slow_loader").path), **settings)  # type: ignore[arg-type]


RULE = '''
from traceopt.rules.rule import Rule

class {name}(Rule):
    """Measures nothing."""
    code = "{code}"
    name = "{kebab}"
    title = "Do nothing"
    family = "tests"

    def check(self, facts):
        {body}
'''


def test_a_rule_that_raises_is_no_crash(tmp_path: Path, example: GetExample) -> None:
    (tmp_path / "bad.py").write_text(RULE.format(name="Bad", code="ZZ001", kebab="bad", body="yield 1 / 0"))
    path = str(example("slow_loader").path)
    result = analyze(path, rules_dir=tmp_path)
    (check,) = [check for check in result.checks if check.code == "ZZ001"]
    assert (check.status, "division by zero" in check.reason) == ("error", True)
    assert result.findings == example("slow_loader").result.findings
    with pytest.raises(ZeroDivisionError):
        analyze(path, rules_dir=tmp_path, debug=True)


@pytest.mark.parametrize("scenario", ["five_faults", "cpu_only", "small_collectives"])
def test_the_same_bytes_each_time(example: GetExample, scenario: str) -> None:
    """Also if the facts are there already, as in the tests of a trace (support/traces.py)."""
    known = example(scenario)
    assert analyze(str(known.path)).to_json() == known.result.to_json()


def test_progress_is_told(example: GetExample) -> None:
    told: list[str] = []
    analyze(str(example("slow_loader").path), progress=told.append)
    assert told[0].startswith("reading ")
    assert told[-1].startswith("analyzing ")


def test_the_package_shows_what_is_public() -> None:
    assert dir(traceopt) == ["__version__", "analyze", "compare", "find_runs", "load_ipython_extension", "profile"]
    assert all(hasattr(traceopt, name) for name in dir(traceopt))
