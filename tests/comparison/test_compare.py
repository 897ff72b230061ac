"""Comparing two sides: from every kind of file, with what changed and what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from sample import cpu_only, rich

import traceopt
from traceopt.comparison.compare import compare_runs
from traceopt.comparison.findings import finding_changes
from traceopt.comparison.runs import slim
from traceopt.errors import ConfigError, InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.comparison_terminal import render_comparison
from traceopt.reports.words.comparing.comparison_words import group_of, other_place
from traceopt.result.comparison import AllSteps, Comparison, FindingChange
from traceopt.result.document import Check, Note, Quality, Result
from traceopt.result.finding import Location
from traceopt.result.sections.run import Device, Setting
from traceopt.result.sections.work_rows import Kernel, Op
from traceopt.rules.fingerprint import with_ids
from traceopt.run_comparison import runs_of

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
GetExample = Callable[..., object]


def compared(base: Result | list[Result], head: Result | list[Result]) -> Comparison:
    return compare_runs(
        runs_of(base if isinstance(base, list) else [base]), runs_of(head if isinstance(head, list) else [head])
    )


def statuses(comparison: Comparison) -> dict[str, str]:
    return {finding.code: finding.status for finding in comparison.findings}


def kernel(name: str, us: float, calls: float = 1.0) -> Kernel:
    return Kernel(name, "gemm", calls, us, us / calls, us / 412_000, None, None, None)


# From files.


def test_traces_results_baselines_and_reports_are_the_same_run(example: GetExample, tmp_path: Path) -> None:
    planted = example("slow_loader")
    result = planted.result
    files = {
        "result.json": result.to_json(),
        "baseline.json": slim(result).to_json(),
        "report.html": render_html(result, static=True).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for path in (planted.path, *(tmp_path / name for name in files)):
        comparison = traceopt.compare(result, str(path))
        assert comparison.step.verdict == "within_noise"
        assert comparison.step.change_share == 0.0
        assert {finding.status for finding in comparison.findings} == {"kept"}
        assert comparison.kernels == comparison.ops == []
        assert comparison.head.runs[0].label == path.name


def test_the_planted_bottleneck_is_what_changed(example: GetExample) -> None:
    comparison = traceopt.compare(example("slow_loader", fixed=True).path, example("slow_loader").path)
    assert comparison.step.verdict == "slower"
    assert comparison.verdict.startswith("The step takes 5")
    assert "waiting for data grew by 8.9 ms" in comparison.verdict
    assert comparison.breakdown[0].name == "data_loading"
    assert statuses(comparison)["DL001"] == "new"
    back = traceopt.compare(example("slow_loader").path, example("slow_loader", fixed=True).path)
    assert back.step.verdict == "faster"
    assert statuses(back)["DL001"] == "fixed"


def test_a_glob_gives_one_run_per_match(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        (tmp_path / f"main-{number}.json").write_bytes(rich().to_json())
    comparison = traceopt.compare(str(tmp_path / "main-*.json"), rich())
    assert [run.label for run in comparison.base.runs] == ["main-1.json", "main-2.json", "main-10.json"]
    with pytest.raises(InputError, match="nothing matches"):
        traceopt.compare(str(tmp_path / "branch-*"), rich())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"tool": {"name": "traceopt", "version": "9"}}', "not a result document"),
        (b'{"tool": {"name": "traceopt", "version": "9"}, "verdict": ' + b"[" * 100_000, "not a result document"),
        (rich().to_json().replace(b'"schema_version": 1', b'"schema_version": 2'), "of schema 2"),
        (b"<!doctype html><p>no report", "embeds no result document"),
        (b"<!doctype html>\xff", "cannot read"),
        (b"[1, 2]", "run.json"),
    ],
)
def test_bad_files_are_reported_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        traceopt.compare(rich(), path)
    assert "\n" not in str(caught.value)


def test_runs_of_one_side_have_one_rank() -> None:
    other = replace(rich(), run=replace(rich().run, shown_rank=1))
    with pytest.raises(InputError, match="different ranks"):
        traceopt.compare([rich(), other], rich())


def test_runs_in_turn_make_pairs() -> None:
    assert traceopt.compare([rich()] * 3, [rich()] * 3, in_turn=True).step.in_turn
    with pytest.raises(InputError, match="there are 2 and 1"):
        traceopt.compare([rich()] * 2, rich(), in_turn=True)


def test_missing_runs_and_unknown_gates_are_errors() -> None:
    with pytest.raises(InputError, match="no run to compare"):
        traceopt.compare([], rich())
    with pytest.raises(ConfigError, match="did you mean 'gpu_idle'"):
        traceopt.compare(rich(), rich(), fail_on=["gpu_idel=0.4"])


# The document.


def test_json_round_trip() -> None:
    comparison = traceopt.compare(rich(), rich(), fail_on=["high"], warn_on=["gpu_idle=0.9"])
    assert Comparison.from_json(comparison.to_json()) == comparison
    assert [(gate.level, gate.status) for gate in comparison.gates] == [("fail", "failed"), ("warn", "passed")]


@pytest.mark.parametrize(
    ("calls", "time_us", "status"),
    [
        (8, 9_000, "more_calls"),
        (4, 9_000, "slower"),
        (2, 2_600, "fewer_calls"),
        (4, 2_600, "faster"),
        (2, 9_000, "slower"),
    ],
)
def test_what_changed_the_time_of_a_kernel(calls: int, time_us: float, status: str) -> None:
    base, head = (replace(rich(), kernels=[kernel("k", *one)]) for one in ((5_000, 4), (time_us, calls)))
    (row,) = compared(base, head).kernels
    assert row.status == status


def test_kernels_that_appear_vanish_and_slow_down() -> None:
    base = replace(
        rich(), kernels=[kernel("stays", 9_000), kernel("repeated", 5_000, 4), kernel("gone", 2_500), kernel("tiny", 1)]
    )
    head = replace(rich(), kernels=[kernel("stays", 9_100), kernel("repeated", 9_000, 8), kernel("new", 3_000)])
    rows = compared(base, head).kernels
    assert [(row.name, row.status, row.change_us) for row in rows] == [
        ("repeated", "more_calls", 4_000),
        ("new", "appeared", 3_000),
        ("gone", "vanished", -2_500),
    ]
    assert (rows[0].base_calls, rows[0].head_calls) == (4, 8)
    assert (rows[1].base_us, rows[2].head_us) == (None, None)


def test_a_kernel_that_a_full_table_may_have_cut_off_has_not_appeared() -> None:
    """The table has the 200 longest: a kernel hardly longer than the shortest of them may have been cut off."""
    full = [kernel(f"k{number}", 1_000) for number in range(200)]
    base, head = replace(rich(), kernels=full), replace(rich(), kernels=[kernel("longer", 1_500), *full[1:]])
    assert compared(base, head).kernels == []
    new = replace(rich(), kernels=[kernel("new", 15_000), *full[1:]])
    assert [(row.name, row.status) for row in compared(base, new).kernels] == [("new", "appeared")]


def test_with_several_runs_rows_must_change_beyond_noise() -> None:
    def runs(*times: float) -> list[Result]:
        return [replace(rich(), kernels=[kernel("k", us)]) for us in times]

    assert compared(runs(10_000, 30_000), runs(25_000, 40_000)).kernels == []
    assert [row.name for row in compared(runs(10_000, 10_100), runs(40_000, 40_100)).kernels] == ["k"]


def test_cpu_only_runs_compare_operators_by_self_time() -> None:
    op = cpu_only().ops[0]
    slower = replace(cpu_only(), ops=[replace(op, cpu_self_us_per_step=3_000)])
    (row,) = compared(cpu_only(), slower).ops
    assert (row.name, row.status, row.change_us) == ("aten::linear", "slower", 1_100)


def test_a_finding_whose_first_place_changes_is_the_same() -> None:
    """Which of two places costs more may differ from run to run."""
    finding = rich().findings[0]
    places = [Location("train.py", 61, "build_loader"), Location("data.py", 7, "load")]

    def run(at: list[Location]) -> Result:
        return replace(rich(), findings=with_ids([replace(finding, locations=at, id="")]))

    base, head = run(places), run(places[::-1])
    assert statuses(compared(base, head)) == {"DL001": "kept"}
    moved = compared(base, run([Location("other.py", 1, "f")])).findings
    assert [f.status for f in moved] == ["new", "fixed"]
    assert [f.reason.split(" at ")[0] for f in moved if f.reason] == ["BASE has it", "HEAD has it"]
    assert moved[1].reason == "HEAD has it at other.py:1."


@pytest.mark.parametrize(
    ("longer", "group", "beside"),
    [
        (1.0, "new", ""),
        (20.0, "small", "Only 1.8% of the step of BASE."),
        (2_000.0, "small", "Only <0.1% of the step of BASE."),
    ],
)
def test_a_new_finding_that_is_small_beside_the_step_of_base_may_not_be_new(
    longer: float, group: str, beside: str
) -> None:
    head = rich()
    (finding,) = (one for one in head.findings if one.code == "DL001")
    slower = replace(head.step, typical_us=head.step.typical_us * longer)
    base = replace(head, findings=[one for one in head.findings if one is not finding], step=slower)
    (new,) = (one for one in finding_changes([base], [head])[0] if one.code == "DL001")
    assert new.status == "new"
    assert (group_of(new), other_place(new)) == (group, beside)


@pytest.mark.parametrize(("name", "before"), [("item_each_step", 53), ("explicit_synchronize", 3)])
def test_syncs_that_are_gone_are_said_although_the_step_varies(name: str, before: int) -> None:
    folder = TRACES / "h100" / name
    comparison = traceopt.compare(folder / "plain", folder / "fixed")
    assert comparison.step.verdict == "unclear"
    assert "host sync (waiting for the GPU) shrank by 2.0 ms, beyond noise" in comparison.verdict
    assert f"host syncs are gone ({before} → 0 per step)" in comparison.verdict
    shown = render_comparison(comparison, width=100, color=False, unicode=True)
    assert "estimated" in shown
    assert "Worse: idle with work queued" in shown or "No part of the step got worse" in shown
    kernels, findings = shown.find("by kernel"), shown.find("Findings:")
    assert 0 < findings < kernels, "what was mended comes before its details"


def test_without_stacks_findings_are_matched_by_rule() -> None:
    finding = rich().findings[0]
    nowhere = replace(rich(), findings=[replace(finding, locations=[], evidence=[])])
    assert statuses(compared(replace(rich(), findings=[finding]), nowhere)) == {"DL001": "kept"}


def test_findings_that_come_and_go_are_left_out() -> None:
    without = replace(rich(), findings=[])
    assert compared([without] * 3, [rich(), without, without]).findings == []
    assert set(statuses(compared([without] * 3, [rich(), rich(), without])).values()) == {"new"}


def test_unchecked_findings_are_neither_new_nor_fixed() -> None:
    unchecked = replace(rich(), findings=[], checks=[])
    for comparison in (compared(unchecked, rich()), compared(rich(), unchecked)):
        assert {finding.status for finding in comparison.findings} == {"unknown"}


def test_changes_have_the_ids_of_the_findings() -> None:
    changes: list[FindingChange] = compared(rich(), rich()).findings
    counted = {one.id: one.saving is not None or one.impact != "info" for one in rich().findings}
    assert {change.id for change in changes} == {identity for identity, counts in counted.items() if counts}
    assert not all(counted.values())


def test_reasons_why_sides_are_hard_to_compare() -> None:
    other = replace(
        rich(),
        run=replace(
            rich().run,
            device=Device("nvidia", "NVIDIA A100", 4, None, "8.0"),
            torch_version="2.8.0",
            recorded=replace(rich().run.recorded, stacks=False),
            settings=[Setting("CPU cores", "32"), Setting("TF32 for matmuls", "on")],
        ),
    )
    comparison = compared(rich(), other)
    notes = " ".join(comparison.notes)
    assert comparison.differences == ["devices (NVIDIA H100 80GB HBM3 and NVIDIA A100)"]
    assert "2.9.1 and 2.8.0" in notes
    assert "Only some runs were recorded with stacks" in notes
    assert [(s.name, s.base, s.head) for s in comparison.settings] == [("TF32 for matmuls", "off", "on")]
    assert compared(rich(), rich()).notes == ["BASE and HEAD hold the same trace."]


def test_a_note_on_stacks_is_of_both_sides_if_both_have_them() -> None:
    """Whether a run has the note depends on how long the GPU waits for the host."""
    stacks = "Python stacks were recorded, which slows the host, and the GPU waits for 15% of the step. More."
    plain = replace(rich(), quality=Quality("good", []), step=replace(rich().step, stretch=None))
    noted = replace(plain, quality=Quality("good", [Note("TQ006", "profiler-overhead", stacks, "stacks")]))
    alike = "Python stacks were recorded on both sides, which slows the host."
    assert alike in compared(plain, noted).notes
    assert not any("15%" in note for note in compared(plain, noted).notes)
    assert alike not in compared(plain, plain).notes
    without = replace(plain, run=replace(plain.run, recorded=replace(plain.run.recorded, stacks=False)))
    assert any(note.startswith("HEAD ") and "15%" in note for note in compared(without, noted).notes)


def test_a_note_that_is_true_of_all_runs_is_said_once() -> None:
    noted = replace(rich(), quality=Quality("limited", [Note("TQ002", "no-steps", "No profiler step was recorded.")]))
    told = [note for note in compared([noted, noted], noted).notes if "No profiler step" in note]
    assert told == ["Both sides: No profiler step was recorded."]


def test_findings_without_an_estimate_are_named_and_count_for_nothing() -> None:
    """They are no findings of the comparison, and a rule that a side did not check is left out."""
    info = replace(rich().findings[0], code="EF002", title="Slow steps", saving=None, impact="info", id="EF002-1")
    other = replace(info, code="TC003", title="Below the peak", id="TC003-1")
    unchecked = replace(info, code="MM001", title="Free memory", id="MM001-1")
    ran = [Check(code, "", "", "passed", "") for code in ("TC003", "EF002")]
    base = replace(rich(), findings=[other, unchecked], checks=ran, plan=[])
    head = replace(rich(), findings=[info], checks=ran, plan=[])
    comparison = compared(base, head)
    assert comparison.findings == []
    assert [(one.status, one.code) for one in comparison.unestimated] == [("new", "EF002"), ("fixed", "TC003")]
    assert compared(head, head).unestimated == []


def test_unusual_steps_are_counted_and_compared_with_the_others() -> None:
    """A few slow steps are left out of the typical step, and make the mean of all steps longer."""
    usual = replace(rich().step, count=6, typical_us=100.0, per_step_us=[100.0] * 6, typical_steps=[0, 1, 2, 3, 4, 5])
    slow = replace(usual, per_step_us=[100.0, 100.0, 100.0, 100.0, 190.0, 170.0], typical_steps=[0, 1, 2, 3])
    base, head = replace(rich(), step=usual), replace(rich(), step=slow)
    assert compared(base, head).step.change_share == 0
    assert compared(base, head).all_steps == AllSteps(6, 6, 0, 2, 100.0, 126.667, 0.266667, decisive=True)
    assert compared(base, base).all_steps is None
    several = compared([base, base], [head, base]).all_steps
    assert several is not None
    assert (several.head_steps, several.head_unusual) == (12, 2)


def test_the_verdict_names_the_mean_of_all_steps_if_many_are_left_out() -> None:
    """The typical step of HEAD takes 30 % less time, the run only 20 % less: that is what throughput shows."""

    def side(us: list[float], typical: list[int]) -> Result:
        return replace(rich(), step=replace(rich().step, count=len(us), per_step_us=us, typical_steps=typical))

    base = side([177_600.0] * 6, [*range(6)])
    many = compared(base, side([125_000.0, 182_000.0, 125_100.0, 163_000.0, 125_200.0, 125_100.0], [0, 2, 4, 5]))
    assert many.verdict.startswith(
        "The typical step takes 30% less time (177.6 ms → 125.1 ms), the mean of all steps 21% less."
    )
    one = compared(base, side([177_600.0] * 39 + [190_000.0], [*range(39)]))
    assert one.all_steps is not None
    assert one.verdict.startswith("Within noise: 177.6 ms"), "one step of 40 does not change the answer"
    spike = compared(base, side([177_600.0] * 39 + [900_000.0], [*range(39)]))
    assert spike.verdict.startswith(
        "The typical step is within noise (177.6 ms → 177.6 ms), but the mean of all steps takes 10% more time"
    )


def test_a_kernel_that_varies_as_runs_of_the_same_code_is_not_slower() -> None:
    """One run per side: the assumed noise, which also decides on the step. Another number of calls is no noise."""

    def side(us: float, calls: float = 100.0) -> Result:
        return replace(rich(), kernels=[kernel("k", us, calls)])

    assert compared(side(90_000), side(95_000)).kernels == []
    assert [row.status for row in compared(side(90_000), side(99_000)).kernels] == ["slower"]
    assert [row.status for row in compared(side(90_000), side(95_000, 106)).kernels] == ["more_calls"]


def test_copies_on_the_host_are_no_launches_of_an_operator() -> None:
    """aten::copy_ of resnet50: 98 calls, of which 2 launch a copy, against 2 calls, of which both do."""

    def side(calls: float, us: float, launches: float | None) -> Result:
        return replace(rich(), ops=[Op("aten::copy_", calls, us, 10.0, 0.1, None, launches)])

    comparison = compared(side(98, 9_000, 2), side(2, 19_000, 2))
    [row] = comparison.ops
    assert (row.status, row.base_calls, row.head_calls, row.counted) == ("slower", 2, 2, "launches")
    assert not any("copy_" in text for text in comparison.explanation)
    [unknown] = compared(side(98, 9_000, None), side(2, 19_000, 2)).ops
    assert (unknown.status, unknown.base_calls) == ("slower", None)


def test_a_kernel_with_one_long_call_is_not_slower() -> None:
    def side(us: float, median_us: float | None) -> Result:
        return replace(rich(), kernels=[replace(kernel("k", us), median_us_per_step=median_us)])

    steady, odd = side(6_000, 6_000), side(25_000, 6_010)
    assert [row.status for row in compared(steady, odd).kernels] == ["outlier"]
    assert [row.status for row in compared(odd, steady).kernels] == ["outlier"]
    assert [row.status for row in compared(steady, side(25_000, 24_000)).kernels] == ["slower"]
    assert [row.status for row in compared(steady, side(25_000, None)).kernels] == ["slower"], "not known"


def test_what_a_finding_saves_in_the_plan_is_compared_too() -> None:
    result = rich()
    planned = result.plan[0]
    change = next(one for one in compared(result, result).findings if one.code == planned.code)
    assert change.base_plan_us == change.head_plan_us == planned.saving_us
    unplanned = replace(result, plan=[])
    assert {one.head_plan_us for one in compared(result, unplanned).findings} == {None}


def test_findings_of_one_title_have_their_functions() -> None:
    one = rich()
    first, *rest = one.findings
    again = replace(first, id=f"{first.code}-012345", locations=[Location("train.py", 33, "read_loss")])
    changes, _ = finding_changes([replace(one, findings=rest)], [replace(one, findings=[first, again, *rest])])
    titles = {change.id: change.title for change in changes}
    assert [titles[each.id] for each in (first, again)] == [
        f"{first.title}, in {function}" for function in ("build_loader", "read_loss")
    ]
