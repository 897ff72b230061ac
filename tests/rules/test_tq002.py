"""TQ002 no-steps: mark several steps with prof.step()."""

from __future__ import annotations

import pytest
from support.quality import STEP_US, notes, on_a_gpu, outcome, steps, why_silent
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.document.rank_document import rank_document
from traceopt.testing import events as small_traces


class TestNoSteps:
    def test_fires_on_a_whole_file_and_is_silent_on_steps(self, example: GetExample) -> None:
        assert "TQ002" in notes(example("no_profiler_step").facts)
        assert "TQ002" not in notes(example("slow_loader").facts)

    def test_one_step_cannot_tell_a_one_off(self) -> None:
        assert "Only one step" in notes(on_a_gpu([*steps(1, busy_us=5_000)]))["TQ002"]

    def test_an_annotation_is_used_as_the_step(self) -> None:
        found = notes(on_a_gpu([*steps(4, busy_us=5_000, name="train_step")]))
        assert "the 4 ranges named 'train_step'" in found["TQ002"]

    def test_what_repeats_in_the_loop_is_used_as_the_step(self) -> None:
        update = "Optimizer.step#SGD.step"
        updates = [small_traces.annotation(update, (i + 1) * STEP_US - 9, 5) for i in range(6)]
        facts = on_a_gpu([*steps(6, busy_us=5_000, name="batch {}"), *updates])
        assert f"so a step probably ends with each {update}." in notes(facts)["TQ002"]
        passes = [event for event in updates for _ in range(2)]
        in_turn = [event | {"ts": event["ts"] - 4_000 * (i % 2)} for i, event in enumerate(passes)]
        more = [small_traces.op("aten::relu", event["ts"] - 900 + i, 1) for event in updates for i in range(9)]
        facts = on_a_gpu([*steps(6, busy_us=5_000, name="batch {}"), *in_turn, *more])
        assert f"so a step probably holds 2 times {update!r}." in notes(facts)["TQ002"]

    def test_a_busy_window_needs_no_steps(self) -> None:
        facts = on_a_gpu([*steps(1)])
        assert "idle for only" in why_silent(facts, "TQ002")

    @staticmethod
    def without_launches(mark_us: float) -> Facts:
        """Five kernels of 10 ms, one after the other, and step marks of the host of another length."""
        events = [small_traces.op("aten::mm", 0, 5)]
        for index in range(5):
            events.append(small_traces.annotation(f"ProfilerStep#{index}", index * mark_us, mark_us))
            events.append(small_traces.kernel("ampere_sgemm_128x64_tn", 100 + index * STEP_US, 9_900, index + 1))
        return on_a_gpu(events)

    def test_marks_of_a_host_that_runs_ahead_say_nothing_without_launches(self) -> None:
        """The host is through its five steps after 5 ms, and the device works for 50 ms."""
        facts = self.without_launches(mark_us=1_000)
        assert (facts.steps.source, facts.steps.count) == ("window", 1)
        assert facts.step_ns == pytest.approx(50e6, rel=0.01)
        assert "Nothing shows to which step the work belongs" in notes(facts)["TQ002"]
        document = rank_document(facts, outcome(facts))
        assert "of the trace" in document.verdict
        assert document.step.source == "window"
        labels = {part.label for part in document.breakdown if not part.busy}
        assert [label for label in labels if "aunch" in label] == []

    def test_marks_that_the_device_keeps_up_with_are_steps(self) -> None:
        facts = self.without_launches(mark_us=STEP_US)
        assert (facts.steps.source, facts.steps.count) == ("profiler_step", 5)
        assert "TQ002" not in notes(facts)
