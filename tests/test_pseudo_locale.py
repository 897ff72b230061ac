"""No program reads a sentence: with all words replaced, everything but the words stays as it is."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from support.traces import GENERATED, READABLE, AnalyzedTrace, over, result_of_facts

from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.runs import RunOfSide
from traceopt.reports.agent.report import render_agent
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.document import Result
from traceopt.result.words.message import Message, Slot, pseudo_locale
from traceopt.trying.changes import changes_of

AROUND_SLOTS = re.compile("[\\ue000-\\ue002]")
GATES = [Gate.parse(text, "fail") for text in ("medium", "new-high", "step_time=+5%", "gpu_idle=40%")]


def nonsense(words: str) -> str:
    """Other letters in the same places, so that lines break where they did."""
    return re.sub("[A-Za-z]", lambda letter: "X" if letter[0].isupper() else "x", words)


def meaning(value: Any) -> Any:
    """A document without its words: of each message, what its slots speak of."""
    if isinstance(value, Message):
        return [(part.kind, part.value) for part in value.parts if isinstance(part, Slot)]
    if isinstance(value, Struct):
        return {field: meaning(getattr(value, field)) for field in value.__struct_fields__}
    return [meaning(item) for item in value] if isinstance(value, list | tuple) else value


def decisions(result: Result, html: str) -> dict[str, Any]:
    """What a program makes of a result."""
    changes, not_tried = changes_of(result, [], None)
    run = RunOfSide("run", result)
    comparison = compare_runs([run], [run], GATES)
    page = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    return {
        "document": meaning(result),
        "changes": [(one.name, one.kind, one.via, one.switches, one.environment, one.needs) for one in changes],
        "not tried": [one.code for one in not_tried],
        "findings compared": [(one.status, one.id) for one in comparison.findings],
        "gates": [outcome.status for outcome in comparison.gates],
        "parts and links of the page": re.findall(r"<\w+|\s(?:id|href|class|data-[\w-]+)=[^\s>]+", page),
        "terminal": nonsense(render_terminal(result, width=100, color=True, unicode=True)),
        "markdown": nonsense(render_markdown(result)),
        "agent": nonsense(render_agent(result)),
    }


@over(GENERATED, READABLE)
def test_only_words_differ(trace: AnalyzedTrace) -> None:
    """Also that nothing of how slots are written is seen outside."""
    in_english = trace.result
    with pseudo_locale(nonsense):
        elsewhere = result_of_facts(trace.facts)  # which have no messages
        decided = decisions(elsewhere, render_html(elsewhere, static=True))
    assert in_english.verdict != elsewhere.verdict
    for subject, value in decisions(in_english, trace.page).items():
        assert decided[subject] == value, subject
        assert not AROUND_SLOTS.search(str(value)), subject
    assert not AROUND_SLOTS.search(in_english.to_json().decode())
