"""What rules make of the settings and totals that `traceopt run` writes into a trace."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_values import JSON, paths, put
from recorded_facts import NOT_RECORDED, RULES, answer, document_of, facts_of, finding, generated, reason

from fixtures.generate import generate
from fixtures.scenarios import CPU
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.loaders import Loader
from traceopt.document import sections
from traceopt.result.finding import Finding
from traceopt.result.rows import BreakdownPart
from traceopt.rules.engine import run_rules
from traceopt.rules.fixes.advice.loader_workers import SHARED_CORE, LoaderPlan
from traceopt.rules.savings.known_error import GAIN_ERROR

NEED_SETTINGS = ("DL005", "DL006", "CV003", "PY002")


@pytest.mark.parametrize("code", NEED_SETTINGS)
def test_without_traceopt_run_it_is_said_so(code: str) -> None:
    scenario = "layout_conversion" if code == "CV003" else "healthy"
    assert NOT_RECORDED in reason(generated(scenario, metadata=False), code, "not_checked")


class TestWorkers:
    """DL001: how many, and what else to set."""

    def test_the_number_follows_from_batch_and_step(self) -> None:
        fix = finding(generated("slow_loader", pinned=True), "DL001").fix
        assert fix.text.startswith("With num_workers=0 and 16 cores, building a batch takes 24.0 ms, and without the ")
        assert fix.text.endswith(" ms. 3 workers are enough.")
        assert fix.code == "DataLoader(..., num_workers=3, persistent_workers=True, prefetch_factor=4)"

    def test_without_settings_it_says_what_it_takes_for_granted(self) -> None:
        fix = finding(generated("slow_loader", metadata=False), "DL001").fix
        assert "3 workers are enough, if as many CPU cores are free." in fix.text
        assert "pin_memory=True" in str(fix.code)

    def test_ranks_share_the_cores(self) -> None:
        text = finding(generated("slow_loader", world_size=2, cores=8), "DL001").fix.text
        assert text.startswith("With num_workers=0 and 4 cores, ")

    def test_too_few_cores(self) -> None:
        found = finding(generated("slow_loader", cores=2), "DL001")
        assert "3 workers would hide this, but the free cores can run only 2. Use them, and" in found.fix.text
        assert "decode once and cache" in found.fix.text
        assert "num_workers=2" in str(found.fix.code)
        assert found.confidence == "medium"
        assert found.saving is not None
        assert found.why.startswith("The GPU waits 8.9 ms ")
        rest_ms = 17.4  # and 24 ms to build a batch, so two busy cores take (17.4 + 24) / 2 ms
        assert found.saving.est_us == pytest.approx(8_900 - 1e3 * ((rest_ms + 24) / 2 - rest_ms), rel=0.01)
        assert " of it remains, because the workers take CPU time, cache and memory" in found.saving.basis
        assert "bandwidth from the main thread." in found.saving.basis

    def test_one_worker_if_a_second_saves_little(self) -> None:
        plan = LoaderPlan(False, 24e6, 22e6, 1.0, Loader(), 2, 1, gpu=False)
        assert plan.wanted == 1
        assert "the free cores can run only 1. Use it, and" in plan.advice

    def test_no_reserve(self) -> None:
        text = finding(generated("slow_loader", cores=3), "DL001").fix.text
        assert "2 workers are enough on average, and the free cores can run no more." in text

    def stalled(self, **fields: Any) -> Finding:
        """Four workers, and a wait of 30 ms in every step."""
        return finding(generated("slow_steps", every=1, load_us=30_000, **fields), "DL001")

    def test_the_workers_own_measure_counts(self) -> None:
        found = self.stalled(build_us=140_000.0)
        assert found.title == "Use more data loader workers"
        assert found.fix.text.startswith("With num_workers=4 and 16 cores, building a batch takes 140.0 ms, ")
        assert "Of the build time, 90% is computing." in found.fix.text
        assert found.fix.code == "DataLoader(..., num_workers=10, prefetch_factor=4)"

    def test_workers_that_wait_need_no_core_each(self) -> None:
        found = self.stalled(build_us=140_000.0, build_cpu_share=0.1, cores=2)
        time = (
            "Of the build time, 10% is computing, the rest is waiting for data. To shorten it, read from faster storage"
        )
        assert f"10 workers are enough. {time}" in found.fix.text

    @pytest.mark.parametrize(
        ("build_ms", "rest_ms", "cores", "most"),
        [
            (40.0, 5.0, 2, 2),  # the main thread waits for the workers, which can use its core meanwhile
            (40.0, 38.0, 2, 1),
            (300.0, 10.0, 4, 4),
            (20.0, 10.0, 8, 7),
            (20.0, 10.0, 1, 1),
        ],
    )
    def test_a_main_thread_that_waits_needs_little_of_a_core(
        self, build_ms: float, rest_ms: float, cores: int, most: int
    ) -> None:
        plan = LoaderPlan(False, build_ms * 1e6, rest_ms * 1e6, 1.0, Loader(), cores, 1, gpu=False)
        assert plan.most == most

    def test_a_worker_without_a_core_does_not_wait_for_data(self) -> None:
        times = {"dataset": "data.Items", "workers": 4, "batches": 30, "batch_us": 140_000.0, "batch_cpu_us": 14_000.0}
        wait = {"us": 30 * 120_000.0, "cpu_us": 30 * 14_000.0, "wall_us": 30 * 140_000.0}
        fields: dict[str, Any] = {"every": 1, "load_us": 30_000, "cores": 3}
        facts = generated("slow_steps", change={"loader_workers": [{**times, "core_wait": wait}]}, **fields)
        found = finding(facts, "DL001")
        assert "10% is computing, 86% is waiting for a free core." in found.fix.text
        assert "the free cores can run only 4, which already run. To save more, make items cheaper" in found.fix.text
        assert found.title == "Make batches cheaper to load"
        assert found.fix.code is None
        assert found.saving is None  # it depends on the batches
        said = "More workers would not help: make batches cheaper to load"
        assert said in document_of(facts).verdict
        assert "they waited for a free core for 86% of the time." in found.why
        assert found.confidence == "low"

    @pytest.mark.parametrize(("waited_us", "status"), [(0.0, "found"), (2e5, "passed")])
    def test_a_busy_machine_makes_batches_late_and_not_the_workers(self, waited_us: float, status: str) -> None:
        """Each step waits for data for less than the main thread waits for a free core."""
        wait = {"ledger.core_wait": {"us": waited_us, "cpu_us": 8e5, "wall_us": 1e6}}
        facts = generated("slow_steps", every=1, load_us=18_000, build_us=20_000.0, change=wait)
        check, _ = answer(facts, "DL001")
        assert check.status == status
        assert ("the main thread waits for a free core for 20%, which may be in it" in check.reason) == (
            status == "passed"
        )

    def without_workers(
        self,
        scenario: str,
        hand_over_ms: float,
        cpu_ms: float = 24.0,
        slowdown: float | None = None,
        epochs: dict[str, int] | None = None,
        **fields: Any,
    ) -> Facts:
        """A batch takes 24 ms to build, and was measured to take `hand_over_ms` from a worker."""
        hand_over = {"us": 1e3 * hand_over_ms, "worker_us": 1e3 * hand_over_ms, "slowdown": slowdown}
        row = {
            "dataset": "data.Items", "num_workers": 0, "batches": 8, "fetch_us": 8 * 24_000.0,
            "fetch_cpu_us": 8e3 * cpu_ms, "hand_over": hand_over,
            **(epochs or {}),
        }  # fmt: skip
        return generated(scenario, change={"loaders": [row]}, **fields)

    def test_what_receiving_costs_is_not_saved(self) -> None:
        """Workers that wait for data do not slow the model down."""
        savings = [
            finding(self.without_workers("cpu_only", cost, cpu_ms=0.01), "DL001").saving for cost in (0.5, 2.0, 8.0)
        ]
        waits_us = [24_030 - saving.est_us for saving in savings if saving is not None]
        assert waits_us == pytest.approx([500, 2_000, 8_000], abs=30)

    def test_workers_that_save_no_more_than_receiving_costs_are_not_advised(self) -> None:
        told = reason(self.without_workers("cpu_only", 13.0, cpu_ms=0.5), "DL001", "passed")
        assert told == (
            "Waiting for data takes 65% of the step. Receiving batches from workers would take about as long (13.0 ms)."
        )

    def test_a_gpu_s_work_hides_what_it_hides_of_loading(self) -> None:
        found = finding(self.without_workers("slow_loader", 13.0), "DL001")
        assert found.confidence == "high"
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(8_900, abs=10)

    def test_on_a_cpu_workers_slow_the_model_down(self) -> None:
        found = finding(self.without_workers("cpu_only", 0.5, threads=1), "DL001")
        stall_us, rest_us = 24_000, 12_900
        slower_us = (SHARED_CORE - 1) * rest_us
        assert found.confidence == "medium"
        assert found.saving is not None
        assert found.saving.low_us == pytest.approx(0.8 * (stall_us - slower_us - 500), rel=0.01)
        assert found.saving.est_us == pytest.approx(stall_us - slower_us / 2 - 500, rel=0.01)
        assert found.saving.high_us == pytest.approx(stall_us - 500, rel=0.01)
        assert "because the workers take CPU time, cache and memory bandwidth from the model." in found.saving.basis

    @pytest.mark.parametrize("slowdown", [1.0, 1.1, 9.0])
    def test_how_much_they_do_is_measured_by_the_run(self, slowdown: float) -> None:
        facts = self.without_workers("cpu_only", 0.5, threads=1, slowdown=slowdown)
        saving = finding(facts, "DL001").saving
        assumed = finding(self.without_workers("cpu_only", 0.5, threads=1), "DL001").saving
        assert saving is not None
        assert assumed is not None
        slower_us = (min(slowdown, SHARED_CORE) - 1) * 12_900
        assert saving.est_us == pytest.approx(24_000 - slower_us - 500, rel=0.01)
        ends = assumed.low_us, max(assumed.high_us, (1 + GAIN_ERROR) * saving.est_us)
        assert (saving.low_us, saving.high_us) == pytest.approx(ends), "the range covers both ends"

    def test_no_worker_has_the_first_batch_of_an_epoch_ready(self) -> None:
        epochs = {"iterators": 2, "objects": 1}  # of four batches
        found = finding(self.without_workers("cpu_only", 0.5, cpu_ms=0.01, epochs=epochs), "DL001")
        assert found.confidence == "medium"
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx((24_000 - 500) * 3 / 4, rel=0.01)
        assert "because workers begin to build batches when an epoch begins." in found.saving.basis
        assert "new DataLoader" not in found.fix.text

    def test_what_starting_workers_for_each_epoch_costs_is_unknown(self) -> None:
        epochs = {"iterators": 2, "objects": 2}
        found = finding(self.without_workers("cpu_only", 0.5, cpu_ms=0.01, epochs=epochs), "DL001")
        assert found.confidence == "low"
        assert found.saving is not None
        assert found.saving.low_us == 0
        assert "construct it once, outside the loop over epochs." in found.fix.text

    def test_epochs_of_one_batch_need_no_workers(self) -> None:
        epochs = {"iterators": 8, "objects": 1}
        found = finding(self.without_workers("cpu_only", 0.5, cpu_ms=0.01, epochs=epochs), "DL001")
        assert (found.title, found.saving, found.fix.code) == ("Make batches cheaper to load", None, None)
        assert "24.0 ms of the wait would remain, because workers begin to build batches when" in found.fix.text

    def test_on_one_core_a_worker_only_takes_the_model_s_time(self) -> None:
        """The wait is told all the same: it takes most of the step."""
        found = finding(self.without_workers("cpu_only", 0.5, threads=1, cores=1), "DL001")
        assert (found.title, found.saving, found.fix.code) == ("Make batches cheaper to load", None, None)
        assert "waits 24.0 ms of each" in found.why
        assert found.effort == "A few lines"
        assert "Workers would not help" in found.fix.text

    def test_the_saving_is_that_of_the_workers_that_the_cores_can_run(self) -> None:
        found = finding(self.without_workers("cpu_only", 0.5, threads=1, cores=2), "DL001")
        assert found.saving is not None
        build_us, rest_us, send_us, receive_us = 24_000, 12_900, 500, 500
        both_cores_us = (build_us + rest_us + send_us + receive_us) / 2
        slower_us = (SHARED_CORE - 1) * both_cores_us  # if all computing takes as long as on a shared core
        assert found.saving.high_us == pytest.approx(build_us + rest_us - both_cores_us, rel=0.01)
        assert found.saving.low_us == pytest.approx(0.8 * (build_us + rest_us - both_cores_us - slower_us), rel=0.01)
        assert "num_workers=2" in str(found.fix.code)

    def test_without_a_measure_of_the_workers_the_cores_do_not_limit_them(self) -> None:
        facts = generated("slow_steps", every=1, load_us=30_000, cores=2, change={"loader_workers": []})
        found = finding(facts, "DL001")
        assert found.title == "Use more data loader workers"
        assert "12 workers are enough, if as many CPU cores are free." in found.fix.text

    def test_late_batches_after_a_recorded_restart_have_its_cause(self) -> None:
        """The queue is empty while new workers start."""
        shared = []
        for step in (0, 25):
            starts = [{"step": at, "us": 9.0, "first_batch_us": 9.0, "end_us": 9.0} for at in (0, step)]
            facts = generated("slow_steps", every=1, load_us=30_000, build_us=20_000.0)
            [loader] = facts.trace.meta.header["traceopt"]["loaders"]
            shared.append(
                self.stalled(build_us=20_000.0, change={"loaders": [loader | {"starts": starts}]}).shares_cause_with
            )
        assert shared == [[], ["DL006"]]

    def test_enough_workers_are_told_apart(self) -> None:
        found = self.stalled(build_us=20_000.0)
        assert found.title == "Prefetch more batches in the data loader"
        assert found.fix.code is None  # it saves almost nothing
        assert found.saving is not None
        assert found.saving.low_us == pytest.approx(0, abs=1_000)
        assert "receiving a ready batch takes that long" in found.saving.basis

    def test_a_batch_that_is_ready_takes_a_moment_all_the_same(self) -> None:
        facts = generated("slow_steps", every=1, load_us=16_200, build_us=20_000.0)
        assert facts.stalls.typical_ns("data_loading") > 0.03 * facts.step_ns
        assert answer(facts, "DL001")[1] == []


class TestMovedInputWork:
    """DL002: 20 ms of tokenizing on the main thread."""

    def test_on_a_cpu_workers_slow_the_model_down(self) -> None:
        facts = generated("input_work_main_thread", **CPU, threads=1)
        found = finding(facts, "DL002")
        work_us = facts.stalls.typical_ns("input_work") / 1e3
        slower_us = (SHARED_CORE - 1) * min(work_us, facts.step_ns / 1e3 - work_us)
        assert found.saving is not None
        assert found.saving.low_us == pytest.approx(0.7 * (work_us - slower_us), rel=0.01)
        assert found.saving.est_us == pytest.approx(0.95 * (work_us - slower_us / 2), rel=0.01)
        assert found.saving.high_us == pytest.approx(work_us, rel=0.01)
        assert "because the workers take CPU time, cache and memory bandwidth from the model." in found.saving.basis

    def test_how_much_they_do_is_measured_by_the_run(self) -> None:
        hand_over = {"us": 500.0, "worker_us": 500.0, "slowdown": 1.0}
        row = {"dataset": "data.Items", "num_workers": 0, "batches": 8, "fetch_us": 8e3, "hand_over": hand_over}
        facts = generated("input_work_main_thread", **CPU, threads=1, change={"loaders": [row]})
        found = finding(facts, "DL002")
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.95 * facts.stalls.typical_ns("input_work") / 1e3, rel=0.01)
        assert "the workers take CPU time" not in found.saving.basis

    def test_a_single_core_gains_nothing_from_workers(self) -> None:
        found = finding(generated("input_work_main_thread", **CPU, threads=1, cores=1), "DL002")
        assert found.saving is None
        assert "Or prepare the data once and store it." in found.fix.text

    def test_under_a_gpu_the_workers_that_the_cores_can_run_are_advised(self) -> None:
        found = finding(generated("input_work_main_thread", cores=2, change={"loaders": []}), "DL002")
        assert "num_workers=1" in (found.fix.code or "")


class TestTurns:
    """DL005."""

    def test_another_period_than_the_number_of_workers_is_no_turn(self) -> None:
        facts = generated("slow_steps", every=3, load_us=40_000)
        assert "no costly periodic waits" in reason(facts, "DL005", "passed")

    def test_one_worker_has_no_turns(self) -> None:
        assert "single worker" in reason(generated("slow_steps", workers=1), "DL005", "not_applicable")

    def test_waits_in_every_step_are_dl001_s(self) -> None:
        facts = generated("slow_steps", every=1)
        assert answer(facts, "DL005")[1] == []

    def test_a_wait_beside_a_busy_gpu_costs_nothing(self) -> None:
        facts = generated("slow_steps", load_us=12_000)
        assert answer(facts, "DL005")[1] == []


class TestRestarts:
    """DL006."""

    def test_the_cost_is_spread_over_the_run(self) -> None:
        def est_us(epoch_steps: int) -> float:
            saving = finding(generated("worker_restart", epoch_steps=epoch_steps, start_us=200_000.0), "DL006").saving
            assert saving is not None
            return saving.high_us

        assert est_us(8) == pytest.approx(2 * est_us(16), rel=0.6)

    def test_the_place_is_the_line_that_constructs_the_loader(self) -> None:
        facts = generated("worker_restart", epoch_steps=6, start_us=200_000.0)
        [loader] = facts.trace.meta.header["traceopt"]["loaders"]
        built = [["torch/utils/data/dataloader.py(3): x", "data.py(7): loaders", "train.py(30): main"]]
        facts = generated(
            "worker_restart", epoch_steps=6, start_us=200_000.0, change={"loaders": [loader | {"built": built}]}
        )
        assert [str(place) for place in finding(facts, "DL006").locations] == ["data.py:7"]

    def new_loaders(self, build_us: float) -> Facts:
        """Each epoch of six steps constructs its own loader."""
        facts = generated("worker_restart", epoch_steps=6, start_us=200_000.0, build_us=build_us)
        [loader] = facts.trace.meta.header["traceopt"]["loaders"]
        fields = {"epoch_steps": 6, "start_us": 200_000.0, "build_us": build_us}
        return generated("worker_restart", change={"loaders": [loader | {"objects": len(loader["starts"])}]}, **fields)

    def test_workers_of_new_loaders_cannot_persist(self) -> None:
        found = finding(self.new_loaders(build_us=90_000.0), "DL006")
        assert found.title == "Build the data loader once, with persistent workers"
        assert found.why.endswith(" Each start is for a new DataLoader.")
        assert found.fix.code is None

    def test_short_epochs_do_not_pay_for_workers(self) -> None:
        kept, inline = (finding(self.new_loaders(build_us), "DL006") for build_us in (90_000.0, 2_000.0))
        assert inline.title == "Load short epochs without worker processes"
        assert inline.fix.code == "DataLoader(..., num_workers=0)"
        assert inline.saving is not None
        assert kept.saving is not None
        assert inline.saving.est_us < kept.saving.high_us
        assert inline.why.endswith(" It takes 10.7 ms to build all batches of one.")

    def test_rare_restarts_are_no_finding(self) -> None:
        facts = generated("worker_restart", epoch_steps=24, start_us=4_000.0)
        assert reason(facts, "DL006", "passed").startswith("Restarting workers takes ")

    def test_without_workers_nothing_restarts(self) -> None:
        assert "worker processes" in reason(generated("slow_loader"), "DL006", "not_applicable")


class TestCollector:
    """PY001."""

    def test_recorded_totals_are_sure_but_a_gap_without_events_is_a_guess(self) -> None:
        assert finding(generated("gc_pause", metadata=False), "PY001").confidence == "low"
        found = finding(generated("gc_pause", warmup=10), "PY001")
        assert found.confidence == "high"
        assert "20.0 ms of each 22.3 ms step" in found.why

    def test_a_gap_without_collections_is_not_the_collector(self) -> None:
        none = {"collections": 0, "us": 0.0}
        facts = generated("gc_pause", change={"gc": none, "ledger.gc_us": None})
        assert reason(facts, "PY001", "passed") == "Garbage collection takes 0% of the run's steps."

    def test_collections_outside_of_the_recorded_steps_count(self) -> None:
        change = {"ledger.gc_us": [0.0] * 10 + [60_000.0] * 6 + [0.0] * 6, "gc": {"collections": 6, "us": 360_000.0}}
        found = finding(generated("healthy", warmup=16, change=change), "PY001")
        assert found.saving is not None
        assert found.saving.low_us == 0

    def test_the_collector_never_takes_more_than_the_step(self) -> None:
        """The profiler makes collections of the recorded steps longer; they are compared with their own steps only."""
        change = {"ledger.gc_us": [0.0] * 6 + [1_000.0] * 10 + [900_000.0] * 6, "gc": {"collections": 16, "us": 5.41e6}}
        why = finding(generated("healthy", warmup=16, change=change), "PY001").why
        taken, step = (
            float(number.replace(",", "")) for number in re.findall(r"([\d.,]+) ms (?:of each|step)", why)[:2]
        )
        assert taken <= step

    def test_objects_that_are_already_frozen(self) -> None:
        gc = {"collections": 9, "us": 1e5, "full_collections": 9, "full_us": 1e5, "frozen_objects": 1_000_000}
        assert "already frozen" in finding(generated("gc_churn", change={"gc": gc}), "PY001").fix.text


class TestContention:
    """PY002."""

    def test_more_threads_than_cores(self) -> None:
        found = finding(generated("cpu_contention"), "PY002")
        assert "24 threads (20 for operators and 4 workers) on 8 cores" in found.why
        assert found.fix.code == "OMP_NUM_THREADS=4"

    def test_workers_and_operators_that_share_the_cores_have_the_same_work_to_do(self) -> None:
        found = finding(generated("cpu_contention", threads=6), "PY002")
        assert "10 threads (6 for operators and 4 workers) on 8 cores" in found.why
        assert found.saving is None
        assert "traceopt try --env OMP_NUM_THREADS=4" in found.fix.text

    def test_other_programs_are_no_fault_of_the_job(self) -> None:
        found = finding(generated("cpu_contention", threads=2), "PY002")
        assert found.title == "Find out what else runs on these cores"
        assert found.saving is None
        assert found.fix.code is None, "more threads would not help"

    @pytest.mark.parametrize(("threads", "noted"), [(2, True), (20, False)])
    def test_other_programs_make_all_numbers_less_sure(self, threads: int, noted: bool) -> None:
        quality = document_of(generated("cpu_contention", threads=threads)).quality
        text = "the main thread was ready but waited for a free one for 30% of the run."
        assert any(note.code == "TQ012" and text in note.text for note in quality.notes) is noted
        assert (quality.verdict == "limited") is noted

    def test_the_share_of_the_run_is_in_the_document(self) -> None:
        run = document_of(generated("cpu_contention")).whole_run
        assert run is not None
        assert run.core_wait_share == pytest.approx(0.3, rel=0.01)
        run = document_of(generated("cpu_contention", change={"ledger.core_wait": None})).whole_run
        assert run is not None
        assert run.core_wait_share is None

    def test_numa_nodes_are_named_where_there_are_several(self) -> None:
        change = {"environment.numa_nodes": {"all": 2, "used": 2}}
        assert "2 NUMA nodes" in finding(generated("cpu_contention", change=change), "PY002").fix.text

    def test_a_system_that_does_not_count(self) -> None:
        facts = generated("cpu_contention", change={"ledger.core_wait": None})
        assert "does not record" in reason(facts, "PY002", "not_applicable")


class TestPrecision:
    """TC002 and CV001 know what is set already."""

    def test_settings_that_are_already_right_are_not_advised(self) -> None:
        change = {"environment.matmul_tf32": True}
        assert "TF32 was recorded as allowed" in reason(generated("tf32_off", change=change), "TC002", "not_applicable")

    def test_only_settings_that_are_off_are_advised(self) -> None:
        found = finding(generated("tf32_off"), "TC002")
        assert found.fix.code == 'torch.set_float32_matmul_precision("high")'
        assert "TF32 for matmuls: off" in [row.what for row in found.evidence]

    def test_a_variable_overrides_the_script(self) -> None:
        change = {"environment.matmul_tf32": True, "environment.variables": {"NVIDIA_TF32_OVERRIDE": "0"}}
        found = finding(generated("tf32_off", change=change), "TC002")
        assert found.fix.code == "unset NVIDIA_TF32_OVERRIDE"

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
        assert reason(facts_of(json.loads(text)), "OP002", "not_applicable") == "torch has no fused NAdam."

    def test_hidden_under_a_busy_gpu(self) -> None:
        assert answer(generated("healthy", optimizer="foreach"), "OP002")[1] == []


def busy_us(breakdown: list[BreakdownPart]) -> float:
    return sum(part.us_per_step for part in breakdown if part.busy)


class TestStretch:
    """TQ006."""

    def window(self, stretch: float) -> dict[str, Any]:
        step_us = [10_000.0] * 16 + [stretch * 10_000.0] * 6
        return {"ledger.step_us": step_us, "ledger.fetch_us": None}

    @pytest.mark.parametrize("scenario", ["launch_bound", "cpu_only"])
    def test_the_measured_ratio_is_reported(self, scenario: str) -> None:
        facts = generated(scenario, warmup=16, change=self.window(1.34))
        [note] = run_rules([RULES["TQ006"]], facts, debug=True).notes
        assert note.text.startswith("Recorded steps took 1.34 times as long as unrecorded ones")
        assert ("the GPU's wait for the host" in note.text) == (scenario == "launch_bound")

    @pytest.mark.parametrize(("stretch", "known"), [(1.02, False), (1.34, True), (2.5, False)])
    def test_the_plan_says_what_to_expect_of_unrecorded_steps(self, stretch: float, known: bool) -> None:
        """The profiler slows the host only: the GPU is as busy in them, and idle for a shorter time. If the recorded
        steps are far longer, they are not like the others.
        """
        recorded = {"ledger.step_us": [26_300 / stretch] * 16 + [26_300.0] * 6, "ledger.fetch_us": None}
        result = document_of(generated("slow_loader", warmup=16, change=recorded))
        combined, step_us = result.combined, sum(part.us_per_step for part in result.breakdown)
        assert combined is not None
        assert (combined.unrecorded is not None) == known
        if combined.unrecorded is not None:
            bare_us = 26_300 / stretch
            idle_left = (bare_us - busy_us(result.breakdown)) / (step_us - busy_us(result.breakdown))
            idle_after_us = idle_left * (combined.step_us_after - busy_us(combined.breakdown_after))
            assert combined.unrecorded.step_us == pytest.approx(bare_us, abs=0.1)
            assert combined.unrecorded.step_us_after == pytest.approx(
                busy_us(combined.breakdown_after) + idle_after_us, rel=0.01
            )

    def test_a_stack_that_cost_nothing_is_no_note(self) -> None:
        facts = generated("launch_bound", warmup=16, change=self.window(1.02))
        assert "1.02 times" in reason(facts, "TQ006", "passed")

    def test_recorded_steps_that_are_far_shorter_are_not_those_of_the_run(self) -> None:
        facts = generated("healthy", warmup=16, change=self.window(0.24))
        [note] = run_rules([RULES["TQ006"]], facts, debug=True).notes
        assert "only 0.24 times as long" in note.text


def test_the_report_names_the_settings() -> None:
    change = {"environment.variables": {"OMP_NUM_THREADS": "1"}}
    found = {setting.name: setting.value for setting in sections.settings(generated("tf32_off", change=change))}
    assert found["CPU cores"] == "16"
    assert found["TF32 for matmuls"] == "off"
    assert found["OMP_NUM_THREADS"] == "1"
    assert "cudnn.benchmark" not in {one.name for one in sections.settings(generated("cpu_only"))}
    [workers] = sections.settings(generated("healthy", metadata=False))
    assert (workers.name, workers.value) == (sections.LOADER_WORKERS, "some")  # as the trace's names tell


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(generate("worker_restart", steps=2, warmup=8, layers=1, stacks=False, memory=False).to_bytes())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), JSON)
def test_no_rule_fails_on_odd_metadata(document: dict[str, Any], data: st.DataObject, odd: Any) -> None:
    own = document["traceopt"]
    path = data.draw(st.sampled_from(paths(own)))
    outcome = run_rules(list(RULES.values()), facts_of({**document, "traceopt": put(own, path, odd)}), debug=True)
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
