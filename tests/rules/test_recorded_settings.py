"""What rules make of the settings and totals that `traceopt run` writes into a trace."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_values import JSON, paths, put
from support.compiled import compilation
from support.findings import RULES, document_of
from support.recorded_facts import NOT_RECORDED, finding, generated, of_document, reason

from fixtures.generate import generate
from traceopt.document import run_section
from traceopt.rules.engine import run_rules

NEED_SETTINGS = ("DL005", "DL006", "CV003", "PY002")


@pytest.mark.parametrize("code", NEED_SETTINGS)
def test_without_traceopt_run_it_is_said_so(code: str) -> None:
    scenario = "layout_conversion" if code == "CV003" else "healthy"
    assert NOT_RECORDED in reason(generated(scenario, metadata=False), code, "not_checked")


class TestPrecision:
    """TC002 and CV001 know what is set already."""

    @pytest.mark.parametrize(("channels_last", "converts"), [(True, False), (False, True), (None, True)])
    def test_a_model_in_channels_last_is_not_converted_again(self, channels_last: bool | None, converts: bool) -> None:
        change = {"models": [{"class": "cnn.Net", "channels_last": channels_last}]}
        fix = finding(generated("layout_conversion", change=change), "CV001").fix
        assert ("model.to(" in str(fix.code)) == converts


class TestForeach:
    """OP002."""

    def test_an_optimizer_that_torch_cannot_fuse(self) -> None:
        document = generate("foreach_optimizer").document
        text = json.dumps(document).replace("Optimizer.step#AdamW.step", "Optimizer.step#NAdam.step")
        assert (
            reason(of_document(json.loads(text)), "OP002", "not_applicable")
            == "This torch has no fused NAdam for this run."
        )

    def test_under_a_busy_gpu_only_kernel_time_is_saved(self) -> None:
        """7.4 ms of kernels where one pass over the parameters takes 4.6; the host is ahead."""
        saving = finding(generated("healthy", optimizer="foreach"), "OP002").saving
        assert saving is not None
        assert (saving.low_us, saving.est_us) == (0, pytest.approx(2_800, rel=0.05))


def test_the_report_names_the_settings() -> None:
    change = {"environment.variables": {"OMP_NUM_THREADS": "1"}}
    found = {setting.name: setting.value for setting in run_section.settings(generated("tf32_off", change=change))}
    assert found["CPU cores"] == "16"
    assert found["TF32 for matmuls"] == "off"
    assert found["OMP_NUM_THREADS"] == "1"
    assert "cudnn.benchmark" not in {one.name for one in run_section.settings(generated("cpu_only"))}
    [workers] = run_section.settings(generated("healthy", metadata=False))
    assert (workers.name, workers.value) == (
        run_section.LOADER_WORKERS,
        "some (number not recorded)",
    )  # as the trace's names tell


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(generate("worker_restart", steps=2, warmup=8, layers=1, stacks=False, memory=False).to_bytes())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), JSON)
def test_no_rule_fails_on_odd_metadata(document: dict[str, Any], data: st.DataObject, odd: Any) -> None:
    own = document["traceopt"]
    path = data.draw(st.sampled_from(paths(own)))
    outcome = run_rules(list(RULES.values()), of_document({**document, "traceopt": put(own, path, odd)}), debug=True)
    for one in outcome.findings:
        assert one.saving is None or math.isfinite(one.saving.est_us)
    assert all(check.reason and "nan" not in check.reason.split() for check in outcome.checks)


def bursts(every: int, long_us: float, steps: int = 80) -> dict[str, Any]:
    """One step in `every` takes longer: a rollout before several updates."""
    step_us = [10_000.0 + (long_us if step % every == 0 else 0.0) for step in range(steps)]
    end = {"file": "ppo.py", "line": 41, "function": "update", "count": steps // every, "us": long_us}
    return {
        "ledger.step_us": step_us,
        "ledger.fetch_us": None,
        "ledger.windows": [],
        "ledger.evaluations": [],
        "ledger.long_steps": [end],
    }


class TestLongSteps:
    """Rollouts between bursts of updates: the recorded steps may not hold any."""

    def test_are_said_first_if_they_take_more_than_the_steps(self) -> None:
        document = document_of(generated("healthy", change=bursts(every=16, long_us=490_000.0)))
        assert document.verdict.startswith(
            "Other work in 4 long steps takes 71% of the run after its first step (ending at "
            "ppo.py:41), the steps 29%. "
        )
        assert document.whole_run is not None
        parts = {part.name: part.us for part in document.whole_run.parts}
        assert parts == {"long_steps": 1_960_000.0, "startup": 500_000.0, "steps": 790_000.0}

    def test_compiling_in_them_is_recompiling(self) -> None:
        reason = "0/0: L['x'].size()[0] == 4"
        again = [compilation(0, number, recompile_reason=reason, duration_us=260_000) for number in range(1, 5)]
        change = bursts(every=16, long_us=490_000.0) | {"dynamo": {"compilations": again}}
        document = document_of(generated("healthy", change=change))
        assert document.whole_run is not None
        parts = {part.name: part.us for part in document.whole_run.parts}
        assert parts == {"recompiling": 1_040_000.0, "long_steps": 920_000.0, "startup": 500_000.0, "steps": 790_000.0}
        assert document.verdict.startswith(
            "Recompiling takes 38% of the run after its first step (train.py:5), the steps 29%. "
        )

    def test_have_a_line_in_ef002(self) -> None:
        found = finding(generated("healthy", change=bursts(every=16, long_us=490_000.0)), "EF002")
        assert [str(location) for location in found.locations] == ["ppo.py:41"]
        assert found.saving is None

    def test_one_in_a_short_recording_is_named_without_saying_what_it_is(self) -> None:
        """As with --stop-after: one rollout in 19 steps may also be a pause."""
        document = document_of(generated("healthy", change=bursts(every=10, long_us=490_000.0, steps=19)))
        assert document.verdict.startswith(
            "1 long step took 73% of the run after its first step (ending at ppo.py:41), the rest of the steps 27%. "
            "More recorded steps would show whether that recurs. "
        )

    @pytest.mark.parametrize(("waited_us", "named"), [(900_000.0, True), (1_100_000.0, False)])
    def test_are_not_named_if_threads_may_have_waited_for_cores_in_them(self, waited_us: float, named: bool) -> None:
        """On a busy machine: all waits of the run could lie in the long steps, which take 1.96 s longer."""
        wait = {"us": waited_us, "cpu_us": 2e6, "wall_us": 3.25e6}
        change = bursts(every=16, long_us=490_000.0) | {"ledger.core_wait": wait}
        document = document_of(generated("healthy", change=change))
        assert ("Other work" in document.verdict) == named
        assert document.whole_run is not None
        assert ("long_steps" in {part.name for part in document.whole_run.parts}) == named

    @pytest.mark.parametrize(("waited_us", "named"), [(400_000.0, True), (480_000.0, False)])
    def test_a_long_step_is_other_work_if_it_is_long_without_its_wait(self, waited_us: float, named: bool) -> None:
        """A long step takes 500 ms, a usual one 10 ms. The time that is named contains the waits."""
        wait = {"us": 4 * waited_us, "cpu_us": 2e6, "wall_us": 3.25e6}
        waits = {"ledger.core_wait": wait, "ledger.long_waits": [[step, waited_us] for step in range(0, 80, 16)]}
        document = document_of(generated("healthy", change=bursts(every=16, long_us=490_000.0) | waits))
        assert ("long steps takes 71%" in document.verdict) == named

    @pytest.mark.parametrize("odd", [[[0]], [["x", 1]], [[1e9, 5]], [None], [[0, -1.0]]])
    def test_without_a_wait_of_its_own_no_step_is_other_work(self, odd: Any) -> None:
        change = bursts(every=16, long_us=490_000.0) | {"ledger.long_waits": odd}
        assert "Other work" not in document_of(generated("healthy", change=change)).verdict

    @pytest.mark.parametrize(("every", "long_us"), [(16, 30_000.0), (2, 490_000.0)])
    def test_short_or_frequent_ones_do_not_count(self, every: int, long_us: float) -> None:
        """A step four times as long, or every second one, is no burst of updates."""
        document = document_of(generated("healthy", change=bursts(every=every, long_us=long_us)))
        assert "long steps" not in document.verdict
        assert document.whole_run is not None
        assert "long_steps" not in {part.name for part in document.whole_run.parts}


class TestFailure:
    """A command that failed after its traces were written."""

    @pytest.mark.parametrize(
        ("failure", "sentence"),
        [
            ({"exit_code": 3, "signal": None, "steps": 1}, "The script failed (exit code 3) after 1 step."),
            ({"exit_code": None, "signal": "SIGKILL", "steps": 19}, "The script was killed by SIGKILL after 19 steps."),
            ({"exit_code": 1}, "The script failed (exit code 1)."),
        ],
    )
    def test_is_said_before_the_verdict(self, failure: dict[str, Any], sentence: str) -> None:
        plain = document_of(generated("healthy"))
        document = document_of(generated("healthy", change={"failure": failure}))
        assert document.verdict == f"{sentence} {plain.verdict}"
        assert document.warnings == [f"{sentence} The report covers the steps that were recorded before."]
        assert plain.warnings == []

    @pytest.mark.parametrize("odd", [None, [], {}, {"exit_code": 0}, {"exit_code": "1", "signal": 9}, {"steps": 4}])
    def test_odd_values_say_nothing(self, odd: Any) -> None:
        assert generated("healthy", change={"failure": odd}).captured.failure is None
