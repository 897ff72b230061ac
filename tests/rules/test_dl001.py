"""DL001 dataloader-stall: load data in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cpu_steps import STEPS, Events, cpu_answer
from support.findings import document_of
from support.planted import PlantedFault
from support.recorded_facts import answer, finding, generated, reason
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.loaders import Loader
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.result.finding import Finding
from traceopt.result.words.effort_and_risk import Effort
from traceopt.rules.catalogue.dl001_dataloader_stall import DataloaderStall
from traceopt.rules.fixes.advice.loading.loader_workers import EXPECTED, SHARED_CORE, LoaderPlan
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import assert_finds, assert_silent
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "DL001"
    within = 0.10


def test_the_threshold_decides(example: GetExample) -> None:
    facts = example("slow_loader").facts
    share = facts.stalls.typical_ns(DATA_LOADING) / facts.step_ns
    assert_finds(DataloaderStall, facts, min_share=share * 0.99)
    assert_silent(DataloaderStall, facts, min_share=share * 1.01)


class TestSlowLineOfADataSet:
    """DL001 names the deepest line that holds most of the loading."""

    def step(self, sleep_us: float, call: str = "numpy/rec.py(3): decode") -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("torch/utils/data/dataloader.py(720): __next__", t, 5_000)
            yield build.python("data.py(7): __getitem__", t + 100, 4_600)
            yield build.python("data.py(11): augment", t + 200, 4_400)
            yield build.python(call, t + 300, sleep_us)
            yield build.python("<built-in function sort>", t + 4_300, 200)
            yield build.op("aten::mm", t + 6_000, 3_000)

        return events

    def lines(self, of_call: int) -> dict[str, object]:
        """Of the six Python events of each step, the last four have the line of their call."""
        count = 6 * STEPS
        rows = [row for row in range(count) if row % 6 in (2, 3, 4, 5)]
        lines = {2: 8, 3: 9, 4: of_call, 5: of_call + 1}
        return {"call_lines": {"count": count, "rows": rows, "lines": [lines[row % 6] for row in rows]}}

    def test_the_call_that_takes_most(self) -> None:
        _, [finding] = cpu_answer("DL001", self.step(sleep_us=3_500), traceopt=self.lines(of_call=13))
        assert finding.why.endswith(" 70% of the loading is at data.py:13.")
        assert "data.py:13" in [str(place) for place in finding.locations]

    @pytest.mark.parametrize(
        ("call", "advice"),
        [
            ("pandas/core/series.py(3): __getitem__", "convert the columns to arrays or tensors once"),
            ("<built-in method tensor of type object at 0x7f>", "make one tensor of all items once"),
        ],
    )
    def test_what_is_converted_item_by_item(self, call: str, advice: str) -> None:
        _, [finding] = cpu_answer("DL001", self.step(3_500, call), traceopt=self.lines(of_call=13))
        assert advice in finding.fix.text

    def test_what_cannot_be_done_once(self) -> None:
        _, [finding] = cpu_answer("DL001", self.step(3_500), traceopt=self.lines(of_call=13))
        assert "once" not in finding.fix.text

    def test_the_line_where_a_function_begins_is_no_slow_line(self) -> None:
        _, [finding] = cpu_answer("DL001", self.step(sleep_us=3_500))
        assert finding.why.endswith(" 88% of the loading is in augment.")

    def test_a_function_whose_own_code_takes_most(self) -> None:
        """What is converted in it takes little."""
        step = self.step(50, "<built-in method tensor of type object at 0x7f>")
        _, [finding] = cpu_answer("DL001", step, traceopt=self.lines(of_call=13))
        assert "the Python code of augment itself" in finding.fix.text
        assert "item by item" not in finding.fix.text

    @pytest.mark.parametrize("first", ["rotate", "resize"])
    def test_pictures_are_made_smaller_first(self, first: str) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("torch/utils/data/dataloader.py(720): __next__", t, 5_000)
            yield build.python("data.py(7): __getitem__", t + 100, 4_600)
            yield build.python("PIL/Image.py(2477): rotate", t + (200 if first == "rotate" else 700), 3_500)
            yield build.python("PIL/Image.py(2332): resize", t + (3_800 if first == "rotate" else 200), 400)
            yield build.op("aten::mm", t + 6_000, 3_000)

        _, [finding] = cpu_answer("DL001", step)
        assert ("70% of the loading changes whole pictures" in finding.fix.text) is (first == "rotate")

    def test_time_that_is_spread(self) -> None:
        """No call in augment() takes most of it."""
        _, [finding] = cpu_answer("DL001", self.step(sleep_us=1_000), traceopt=self.lines(of_call=13))
        assert "of the loading is at" not in finding.why
        assert [(row.what, str(row.location)) for row in finding.evidence][-2:] == [
            ("numpy/rec.py(3): decode", "data.py:13"),
            ("<built-in function sort>", "data.py:14"),
        ]


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
        said = "More workers would gain little: make batches cheaper to load"
        assert said in document_of(facts).verdict
        assert "they waited for a free core for 86% of the time." in found.why
        assert found.confidence == "low"

    def test_a_short_wait_that_workers_do_not_shorten_is_no_subject_of_the_verdict(self) -> None:
        times = {"dataset": "data.Items", "workers": 4, "batches": 30, "batch_us": 60_000.0, "batch_cpu_us": 6_000.0}
        wait = {"us": 30 * 50_000.0, "cpu_us": 30 * 6_000.0, "wall_us": 30 * 60_000.0}
        fields: dict[str, Any] = {"every": 1, "load_us": 16_000, "cores": 3}
        facts = generated("slow_steps", change={"loader_workers": [{**times, "core_wait": wait}]}, **fields)
        assert finding(facts, "DL001").saving is None
        assert "workers" not in document_of(facts).verdict

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
        epochs: dict[str, int | str] | None = None,
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
        assert found.saving.high_us == pytest.approx((1 + ERROR_ON_CPU) * found.saving.est_us, rel=0.01)
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
        ends = min(assumed.low_us, (1 - ERROR_ON_CPU) * saving.est_us), max(23_500, (1 + ERROR_ON_CPU) * saving.est_us)
        assert (saving.low_us, saving.high_us) == pytest.approx(ends, rel=0.01), "the range covers both ends"

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
        assert found.effort is Effort.FEW_LINES
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

    def test_workers_need_a_core_that_no_operator_of_the_model_uses(self) -> None:
        """With two threads on two cores, one is free only beside operators on small tensors."""

        def plan(parallel_ms: float) -> LoaderPlan:
            times = {"wait_ns": 20e6, "rest_ns": 20e6, "parallel_ns": 1e6 * parallel_ms}
            return LoaderPlan(
                False, fetches=1.0, settings=Loader(), cores=2, threads=2, gpu=False, slowdown=1.0, **times
            )

        busy, free = (plan(ms).left(0.0, EXPECTED).ns for ms in (20.0, 0.0))
        assert (busy, free) == (20e6, 0.0)
        assert plan(15.0).left(0.0, EXPECTED).ns == pytest.approx(15e6)

    @pytest.mark.parametrize("sampler", ["RandomSampler", "_InfiniteConstantSampler"])
    def test_workers_divide_an_iterable_data_set(self, sampler: str) -> None:
        """Each would deliver all of it, so no argument is changed without a word on that."""
        epochs = {"sampler": f"torch.utils.data.dataloader.{sampler}"}
        found = finding(self.without_workers("cpu_only", 0.5, cpu_ms=0.01, epochs=epochs), "DL001")
        iterable = sampler.startswith("_")
        assert bool(found.fix.edits) is not iterable
        assert ("get_worker_info()" in found.fix.text) is iterable

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
        assert facts.stalls.typical_ns(DATA_LOADING) > 0.03 * facts.step_ns
        assert answer(facts, "DL001")[1] == []


class TestPinning:
    """DL001 does not advise workers where the thread that pins batches is the limit."""

    def finding(self, pinning_us: float, tensors: int) -> Finding:
        def step(t: float, _: int) -> Events:
            loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            yield build.annotation(loader, t, 5_000)
            yield build.python("torch/utils/data/_utils/pin_memory.py(25): _pin_memory_loop", t, 9_990, tid=77)
            yield build.python("torch/utils/data/_utils/pin_memory.py(64): pin_memory", t + 1, pinning_us, tid=77)
            for index in range(tensors):
                at = t + 2 + index * pinning_us / tensors
                yield build.python("<built-in method pin_memory of Tensor object at 0x7f>", at, 1, tid=77)
            yield build.op("aten::mm", t + 6_000, 3_000)

        _, [finding] = cpu_answer("DL001", step)
        return finding

    @pytest.mark.parametrize(
        ("tensors", "title", "advice"),
        [(200, "Pin fewer, larger tensors", "in collate_fn"), (4, "Pin less data per batch", "smaller in bytes")],
    )
    def test_the_thread_that_pins_is_the_limit(self, tensors: int, title: str, advice: str) -> None:
        finding = self.finding(pinning_us=4_500, tensors=tensors)
        assert (finding.title, finding.confidence) == (title, "medium")
        pinned = f"a thread copies batches to pinned memory: {tensors} tensors per step."
        assert finding.why.endswith(f"In 90% of that time, {pinned}")
        assert advice in finding.fix.text
        assert not finding.fix.edits
        assert finding.saving is not None
        assert finding.saving.low_us == 0
        assert finding.saving.est_us == pytest.approx(2_250, rel=0.01)
        assert finding.saving.high_us == pytest.approx(4_500, rel=0.01)

    def test_a_thread_that_waits_for_workers_is_not(self) -> None:
        assert self.finding(pinning_us=1_500, tensors=200).title == "Use more data loader workers"
