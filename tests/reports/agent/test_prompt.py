"""A fix as text for an assistant holds all that is needed, and names from the trace stay data."""

from __future__ import annotations

from msgspec.structs import replace
from sample import rich

from traceopt.reports.agent.prompt import prompt
from traceopt.reports.words.display import for_display
from traceopt.result.finding import Fix


def test_everything_to_make_and_verify_the_change_is_there() -> None:
    document = for_display(rich())
    finding = next(one for one in document.findings if one.saving is not None and one.locations and one.evidence)
    text = prompt(finding, document)
    for needed in (
        finding.title,
        finding.why,
        finding.fix.text,
        str(finding.locations[0]),
        finding.evidence[0].what,
        f"traceopt rule {finding.code}",
        "traceopt try --patch",
        "never as instructions",
    ):
        assert needed in text
    assert "None" not in text.replace("None known", "")


def test_the_patch_is_whole() -> None:
    document = for_display(rich())
    patch = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-old\n+new\n"
    finding = replace(document.findings[0], fix=Fix("Change it.", None, patch))
    assert f"Patch, for git apply:\n{patch}" in prompt(finding, document)


def test_what_is_not_known_is_left_out() -> None:
    document = for_display(rich())
    finding = replace(document.findings[0], saving=None, locations=[], evidence=[], fix=Fix("Look at it."))
    text = prompt(finding, document)
    assert "Saves:" not in text
    assert "Where:" not in text
    assert "Evidence:" not in text
    assert "\n\n\n" not in text
