"""The first lines of every format speak of what is below them, with the same numbers: on every trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from support.traces import FILES, GENERATED, TWINS, AnalyzedTrace, GetExample, over

from traceopt.document.filling_work import FILLS
from traceopt.reports.agent.report import render_agent
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes.headline import NOTHING_FOUND
from traceopt.reports.words.safe_text import split_sentences
from traceopt.result.document import Result
from traceopt.result.words.quantities import in_sentence, percent
from traceopt.rules.registry import builtin_rules

CODES = re.compile(rf"\b(?:{'|'.join(rule.code for rule in builtin_rules())})\b")
A_FIX = re.compile(r"First fix:|Biggest lever:|Start with:")
NAMED_WORK = re.compile(r" takes? (?:more than |>|<)?[\d.]+% of ")


def formats(result: Result) -> dict[str, str]:
    """What each format shows, as plain text on one line."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", render_html(result, static=True), flags=re.DOTALL)
    texts = {
        "terminal": render_terminal(result, width=100, color=False, unicode=True),
        "markdown": render_markdown(result),
        "agent": render_agent(result),
        "html": re.sub(r"<[^>]+>", " ", page),
    }
    return {name: " ".join(text.replace("\u00a0", " ").split()) for name, text in texts.items()}


def faults_of(result: Result) -> Iterator[str]:
    said = str(result.verdict)
    if found := CODES.search(said):
        yield f"the verdict has a rule's code: {found[0]}"
    yield from other_numbers(result)
    for name, text in formats(result).items():
        if NOTHING_FOUND in text and A_FIX.search(text):
            yield f"{name}: no fix is found, and one is named"
    shown = for_display(result)
    sentences = [
        s for text in (shown.verdict, *(note.text for note in shown.quality.notes)) for s in split_sentences(text)
    ]
    repeated = [sentence for sentence, times in Counter(sentences).items() if times > 1]
    if result.quality.verdict != "unusable" and repeated:
        yield f"said twice: {repeated}"


def other_numbers(result: Result) -> Iterator[str]:
    """Shares in the verdict that are not those of the parts in the chart."""
    for part in result.breakdown:
        label = re.escape(in_sentence(part.label))
        for share in re.findall(rf"(?i)\b{label}(?: \(|: | takes? )([<>]?[\d.]+%)", str(result.verdict)):
            if share != percent(part.share):
                yield f"{part.label}: {share} in the verdict, {percent(part.share)} in the chart"


def unnamed_work(result: Result) -> Iterator[str]:
    """A kernel that takes a third of a step for which there is no fix."""
    kernel, step_us = next(iter(result.kernels), None), result.step.typical_us
    if kernel is None or not step_us or result.quality.verdict == "unusable" or result.quality.sampled_share:
        return
    priced = any(finding.saving is not None for finding in result.findings)
    is_work = kernel.kind not in ("collective", "memcpy", "memset")
    if (
        is_work
        and not priced
        and kernel.us_per_step >= 1.01 * FILLS * step_us
        and not NAMED_WORK.search(result.verdict)
    ):
        yield f"{kernel.label} takes {kernel.us_per_step / step_us:.0%} of the step: {result.verdict}"


@over(GENERATED, TWINS, FILES)
def test_of_every_trace(trace: AnalyzedTrace) -> None:
    found = [*faults_of(trace.result), *unnamed_work(trace.result)]
    assert found == []


@pytest.mark.parametrize(
    ("verdict", "fault"),
    [
        ("The fix for waiting for data, DL001, saves 8.0 ms alone.", "code"),
        ("No fix was found for what takes most, launching GPU work (99%).", "in the chart"),
        ("First fix: avoid this.", "no fix is found, and one is named"),
        ("GPU-bound. GPU-bound.", "said twice"),
    ],
)
def test_each_fault_is_seen(example: GetExample, verdict: str, fault: str) -> None:
    result = replace(example("healthy").result, verdict=verdict)
    assert any(fault in one for one in faults_of(result))


def test_work_that_fills_the_step_unnamed_is_seen(example: GetExample) -> None:
    result = example("healthy").result
    kernel = replace(result.kernels[0], us_per_step=result.step.typical_us)
    result = replace(result, kernels=[kernel], findings=[], verdict="GPU-bound.")
    assert [*unnamed_work(result)]
    assert not [*unnamed_work(replace(result, verdict="Matmul takes 100% of the step."))]
