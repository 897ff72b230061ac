"""`traceopt whatif`: the step with fixes made, in text and as JSON, and clear words for what cannot be replayed."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, median

import pytest
from click.testing import CliRunner, Result
from support.traces import GetExample

from fixtures.generate import generate_ranks
from fixtures.job import Job
from fixtures.scenarios import SCENARIOS
from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.errors import InputError
from traceopt.reports.text.what_if import render_whatif
from traceopt.rules.fixes.advice.loading.loader_workers import EXPECTED, SHARED_CORE
from traceopt.testing.machine import Machine
from traceopt.what_if import what_if

# DL001 expects 1 ms to receive a batch from a worker. It also expects that workers slow the model's 12.9 ms on a CPU
# down, by half of the worst case. In the fixed twin they do not.
WORKERS_US = 1_000 - Job.load_us + 12_900 * EXPECTED * (SHARED_CORE - 1)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["whatif", *arguments])


@pytest.mark.parametrize(
    ("scenario", "fix", "limit", "more_us"),
    [
        ("slow_loader", "DL001", "compute", 0),
        ("item_stall", "HS001", "compute", 0),
        ("logging_stall", "logging-in-step", "compute", 0),
        ("cpu_only", "DL001", "backward", WORKERS_US),
    ],
)
def test_the_step_of_the_fixed_twin(example: GetExample, scenario: str, fix: str, limit: str, more_us: float) -> None:
    subject = example(scenario)
    document = what_if(str(subject.path), [fix])
    assert document.after_us == pytest.approx(fmean(subject.planted.fixed_step_us) + more_us, rel=0.02)
    assert document.before_us - document.saving_us == pytest.approx(document.after_us, abs=0.01)
    assert document.limit_after == limit
    assert document.trusted


def test_two_fixes_are_replayed_together(example: GetExample) -> None:
    path = str(example("five_faults").path)
    both, loader, logging = (what_if(path, fixes) for fixes in (["DL001", "LG001"], ["DL001"], ["LG001"]))
    assert both.saving_us == pytest.approx(loader.saving_us + logging.saving_us, rel=0.01)
    assert [fix.code for fix in both.fixes] == ["DL001", "LG001"]
    assert both.fixes[0].alone_us == loader.saving_us


def test_a_fix_of_the_plan_stays_beside_another_finding_of_a_code(example: GetExample) -> None:
    """HS001 has two findings here. One of them treats the cause of DL001, and alone saves more."""
    asked = what_if(str(example("five_faults").path), ["DL001", "HS001"])
    assert [fix.code for fix in asked.fixes] == ["DL001", "HS001"]
    assert any("HS001" in text and "is left out" in text for text in asked.warnings)


def test_a_fix_that_only_moves_the_bottleneck_says_so(example: GetExample) -> None:
    """Kernels that take a tenth of their time: the loader, until then hidden, is the step."""
    document = what_if(str(example("hidden_host_work").path), scales=[("kernel~.", 0.1)])
    parts = {part.name: part for part in document.parts}
    assert parts["compute"].after_us == pytest.approx(0.1 * parts["compute"].before_us, rel=0.01)
    assert document.after_us > 1.5 * parts["compute"].after_us
    assert (document.limit_before, document.limit_after) == ("compute", "data_loading")


def test_parts_sum_to_the_mean_step(example: GetExample) -> None:
    document = what_if(str(example("five_faults").path), ["DL001"])
    assert sum(part.before_us for part in document.parts) == pytest.approx(document.before_us, rel=0.01)
    assert sum(part.after_us for part in document.parts) == pytest.approx(document.after_us, rel=0.01)


def test_host_work_is_scaled_by_name(example: GetExample) -> None:
    path = str(example("logging_stall").path)
    gone = what_if(path, scales=[("host~log_metrics", 0.0)])
    doubled = what_if(path, scales=[("host~log_metrics", 2.0)])
    assert gone.saving_us == pytest.approx(what_if(path, ["LG001"]).saving_us, rel=0.05)  # a finding is limited
    assert doubled.saving_us == pytest.approx(-20_000, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fix", "TC001"], "TC001 finds nothing to fix in this trace; you can replay: DL001"),
        (["--fix", "XX999"], "XX999"),
        (["--scale", "gemm", "0.5"], "cannot scale 'gemm': write kernel~PATTERN or host~PATTERN"),
        (["--scale", "kernel~(", "0.5"], "cannot scale 'kernel~('"),
        (["--scale", "kernel~gemm", "-1"], "the factor must be 0 or more"),
        (["--scale", "kernel~gemm", "nan"], "the factor must be 0 or more"),
        (["--scale", "kernel~nothing_like_it", "1"], "no kernel matches 'nothing_like_it'"),
        (["--scale", "host~nothing_like_it", "1"], "nothing on the host matches 'nothing_like_it'"),
        ([], "nothing to change: add --fix CODE"),
    ],
)
def test_what_cannot_be_replayed_is_told_in_one_line(example: GetExample, arguments: list[str], message: str) -> None:
    result = run(str(example("slow_loader").path), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


LEAST_PID = 100  # smaller ones are GPUs


def test_traces_that_are_not_ranks_of_one_run_are_refused(example: GetExample, tmp_path: Path) -> None:
    for worker, scenario in enumerate(("slow_loader", "item_stall")):
        document = {**json.loads(example(scenario).path.read_bytes()), "baseTimeNanoseconds": 1_700_000_000_000_000_000}
        for event in document["traceEvents"]:
            if isinstance(event["pid"], int) and event["pid"] >= LEAST_PID:
                event["pid"] += worker
        (tmp_path / f"host_{worker}.pt.trace.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="pass the file of one rank"):
        what_if(str(tmp_path), ["DL001"])


def without_launches(example: GetExample, scenario: str, folder: Path) -> str:
    """A file that lost all calls of the runtime, as a recording without `cuda_runtime` events has."""
    document = json.loads(example(scenario).path.read_bytes())
    launches = ("cuda_runtime", "cuda_driver")
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") not in launches]
    path = folder / f"{scenario}.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_without_launches_nothing_is_replayed(example: GetExample, tmp_path: Path) -> None:
    result = run(without_launches(example, "exposed_allreduce", tmp_path), "--fix", "CM001")
    assert result.exit_code == 2
    assert result.stderr.endswith("holds no launch of its GPU work, so nothing can be replayed\n")


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("launch_bound", "it does not show why"),
        ("fp32_matmul", "GPU-bound"),
        ("exposed_allreduce", "Exposed (non-overlapped) communication"),
        ("slow_loader", "The data loader is the bottleneck"),
    ],
)
def test_the_verdict_says_no_cause_that_only_launches_show(
    example: GetExample, tmp_path: Path, scenario: str, said: str
) -> None:
    verdict = analyze(without_launches(example, scenario, tmp_path), debug=True).verdict
    assert said in verdict
    assert "aunch-bound" not in verdict
    assert "launch nothing" not in verdict


def test_text_and_json_say_the_same(example: GetExample) -> None:
    path = str(example("slow_loader").path)
    text = run(path, "--fix", "DL001")
    document = json.loads(run(path, "--fix", "DL001", "--json", "-").stdout)
    assert json.loads(run(path, "--fix", "DL001", "--json", "-q").stdout) == document  # without a path, too
    assert text.exit_code == 0
    assert "26.3 ms → about 17.4 ms (≈ 8.9 ms less, 34%)" in text.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert round(document["after_us"] / 1e3, 1) == 17.4
    assert "Limit:   input-bound now, GPU-bound then" in text.stdout
    (fix,) = document["fixes"]
    assert (fix["code"], fix["title"]) == ("DL001", "Load data in worker processes")
    assert fix["alone_us"] == fix["saving_us"] == document["saving_us"]


@pytest.mark.parametrize("scenario", ["straggler", "load_imbalance"])
def test_ranks_of_a_folder_are_replayed_together(scenario: str, tmp_path: Path) -> None:
    traces = generate_ranks(scenario)
    for trace in traces:
        (tmp_path / f"rank{trace.rank}.json").write_bytes(trace.to_bytes())
    code = SCENARIOS[scenario].codes[0]
    document = what_if(str(tmp_path), [code])
    assert (document.ranks, document.fixes[0].code) == (2, code)
    assert document.before_us == pytest.approx(median(traces[0].planted.step_us), rel=0.01)
    assert document.after_us >= 0.98 * median(traces[0].planted.fixed_step_us)
    assert document.saving_share > 0.1
    lines = run(str(tmp_path), "--fix", code).output.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert f"2 ranks, 6 steps, {document.meetings} collectives entered together" in " ".join(" ".join(lines).split())


def test_a_fix_of_ranks_counts_once_however_it_is_named(tmp_path: Path) -> None:
    for trace in generate_ranks("straggler"):
        (tmp_path / f"rank{trace.rank}.json").write_bytes(trace.to_bytes())
    code = SCENARIOS["straggler"].codes[0]
    once, twice = what_if(str(tmp_path), [code]), what_if(str(tmp_path), [code, f"{code}-012345"])
    assert twice.fixes == once.fixes


def test_too_many_ranks_are_not_replayed_together(tmp_path: Path) -> None:
    for rank in range(17):
        (tmp_path / f"rank{rank}.json").write_text("{}")
    with pytest.raises(InputError, match="has 17 traces; at most 16 ranks can be replayed together"):
        what_if(str(tmp_path), ["DL001"])


def test_the_text_says_how_well_steps_are_predicted(tmp_path: Path) -> None:
    def told(steps: int, slow_us: float) -> str:
        machine = Machine()
        for step in range(steps):
            with machine.step():
                machine.work(1_000 + 100 * step)
                machine.launch(500)
                machine.synchronize()
                machine.call("cudaDeviceSynchronize", slow_us)
        path = tmp_path / f"{steps}_{slow_us}.json"
        path.write_bytes(machine.to_bytes())
        return " ".join(render_whatif(what_if(str(path), scales=[("kernel~gemm", 0.5)])).splitlines())

    missed = (
        "How far to trust this: replayed without changes, the step is 0% off the measured one; "
        "0 of 8 waits are inferred."
    )
    predicted = "Each step, predicted from a replay of the others, is off by 0% (by 9.0% if predicted as their median)."
    assert told(4, 2).endswith(f" {missed} {predicted}")
    assert told(2, 2).endswith(" Too few steps are alike to predict one from the others.")
    slow = "Slow calls for which the trace shows no reason take 26% of the step. The replay keeps them."
    assert told(4, 600).endswith(f" {slow}")
