"""Sentences of rules: without step marks nothing is "per step", and busy copies are no compute."""

from __future__ import annotations

import io
import re
from typing import Any

from support.findings import document_of, outcome_of

from fixtures.generate import generate
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.result.words.message import plain
from traceopt.rules import each_step, per_step, the_step, times
from traceopt.rules.engine import RulesOutcome

OF_STEPS = re.compile(r"\bper step\b|\beach [\d.,]+ ms step\b|\bof the step\b|\ba step runs\b", re.IGNORECASE)
OTHER_STEPS = "TQ"  # notes on the trace may say that steps are missing
COPIES = {"prefetch": False, "input_bytes": 2**30, "batch": 1, "tokens": 256}


def facts_with(scenario: str, **job: Any) -> Facts:
    return Facts(read_trace(io.BytesIO(generate(scenario, **job).to_bytes()), "trace.json"))


def sentences(outcome: RulesOutcome) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in outcome.priced:
        texts = [one.finding.why, *(row.detail or "" for row in one.finding.evidence)]
        found.setdefault(one.finding.code, []).extend(texts)
    for check in outcome.checks:
        found.setdefault(check.code, []).append(check.reason or "")
    return found


def test_a_recording_without_step_marks_has_no_times_per_step() -> None:
    outcomes = [outcome_of(facts_with(name, steps=1, profiler_steps=False)) for name in ("five_faults", "exposed_copy")]
    codes = {one.finding.code for outcome in outcomes for one in outcome.priced}
    assert {"DL001", "DL004", "GM001", "HS001", "LG001"} <= codes
    said = [(code, text) for outcome in outcomes for code, texts in sentences(outcome).items() for text in texts]
    assert [one for one in said if not one[0].startswith(OTHER_STEPS) and OF_STEPS.search(one[1])] == []
    (copies,) = (one.finding.why for one in outcomes[1].priced if one.finding.code == "DL004")
    assert " MB in total is copied" in copies
    assert re.search(r"In the [\d.,]+ ms recording, ", copies)


def test_the_words_follow_the_marks() -> None:
    marked, window = facts_with("healthy", steps=2), facts_with("healthy", steps=1, profiler_steps=False)
    assert (the_step(marked), per_step(marked)) == ("the step", "per step")
    assert (the_step(window), per_step(window)) == ("the recording", "in total")
    assert re.fullmatch(r"each [\d.]+ ms step", plain(each_step(marked)))
    assert re.fullmatch(r"the [\d.]+ ms recording", plain(each_step(window)))
    assert [times(marked, number) for number in (0.97, 12.5, 1_202)] == [
        "once per step",
        "12.5 times per step",
        "1,202 times per step",
    ]
    assert times(window, 107) == "107 times in total"
    assert each_step(RunFacts([summarize(marked)])).startswith("each ")
    assert each_step(RunFacts([summarize(marked), summarize(window)])).startswith("the ")


def test_a_step_of_copies_is_not_called_gpu_bound() -> None:
    facts = facts_with("exposed_copy", **COPIES)
    document = document_of(facts)
    share = {part.name: part.share for part in document.breakdown}
    assert share["copies"] > share["compute"]
    assert document.verdict.startswith("Exposed (non-overlapped) copies take ")
    assert ", mostly to the GPU. They are the bottleneck." in document.verdict


def test_a_little_idle_time_is_not_called_launch_bound() -> None:
    facts = facts_with("slow_loader", load_us=18_000)
    document = document_of(facts)
    assert 0.1 < sum(part.share for part in document.breakdown if not part.busy) < 0.2
    assert ". Largest cause of idle time: waiting for data (1" in document.verdict
