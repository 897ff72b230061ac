"""The pull-request comment, as GitHub renders it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import sample
from msgspec.structs import replace
from rendered_page import Page

from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.reports.text.markdown import FIXES, LIMIT, PLANNED, UNCHANGED, render_markdown, tag
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words.fixes import headline
from traceopt.result.comparison import Comparison, GateOutcome, StepChange
from traceopt.result.document import Check, Result
from traceopt.result.finding import Fix, Location
from traceopt.result.sections.step import Serving, ServingPhase
from traceopt.rules.fingerprint import with_ids
from traceopt.run_comparison import runs_of

WIDE = {"width": 100, "color": False, "unicode": True}


@pytest.mark.parametrize("build", sample.ALL)
def test_a_comment_is_a_tag_a_verdict_and_folded_details(build) -> None:
    comment = render_markdown(build())
    page = Page(comment)
    assert comment.startswith("<!-- traceopt:traceopt -->\n")
    assert page.comments == ["traceopt:traceopt"]
    assert page.tags.count("h3") == 1
    assert len(comment) <= LIMIT
    assert sample.hidden_in(comment) == []
    assert not re.findall(r"@everyone|#1\b|https?://", page.outside_code)
    assert build is not sample.hostile or '<img src=x onerror="window.pwned=3">' in page.text
    assert set(page.tags) <= {
        "h3", "h4", "p", "strong", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "blockquote",
        "details", "summary",
    }  # fmt: skip


def test_bars_show_the_step_now_and_after() -> None:
    rich = sample.rich()
    assert rich.combined is not None
    after = [replace(part, us_per_step=part.us_per_step / 2) for part in rich.breakdown]
    comment = render_markdown(replace(rich, combined=replace(rich.combined, breakdown_after=after)))
    now, then, legend = re.search("```text\n(.*?)\n(.*?)\n(.*?)\n```", comment).groups()  # type: ignore[union-attr]
    assert now.startswith("Now ")
    assert then.startswith("After the plan  ≈ 214")
    assert [tuple(map(bar.count, "░▒█")) for bar in (now, then)] == [(24, 4, 12), (12, 2, 6)]
    assert legend.strip() == "░ GPU idle   ▒ exposed communication and copies   █ compute"
    assert "```text" not in render_markdown(replace(rich, combined=None))


def test_says_what_the_report_says() -> None:
    page = Page(render_markdown(sample.rich()))
    assert "traceopt: The GPU is idle for 61% of each step.\nThe data loader is the bottleneck." in page.text
    assert page.bold == [
        "The top 3 fixes save about 198\u00a0ms per step (48%, likely 35–59%): 412.0 → about 214\u00a0ms."
    ]
    assert page.folded == ["Why, and how to change it", "Where the time goes", "More findings", "Warnings"]
    for cells in (
        "Load data in worker processes (DL001)", "150\u00a0ms", "262\u00a0ms", "train.py:61",
        "Stop copying logits to the CPU every step (HS002, needs fix 1)", "22\u00a0ms", "9\u00a0ms", "214\u00a0ms",
        "Pin host memory for input batches",
        "so the savings add up. The largest come first", "3 more findings below.",
        "Saves 112–187\u00a0ms per step.", "and 7.0–12\u00a0ms alone.",
        "+    drop_last=True, pin_memory=True)",  # the patch
        "Waiting for data", "187.0", "45%",  # the breakdown
        "Reach more of the GPU's peak (TC003)",  # noted, without an estimate
        "NVIDIA H100 80GB HBM3", "12 steps", "rank 0 of 4", "traceopt 0.1.0",
    ):  # fmt: skip
        assert cells in page.text


def with_unusual_steps() -> Result:
    step = replace(sample.rich().step, count=6, typical_steps=[0, 1, 2, 4], mean_us=431_000.0)
    return replace(sample.rich(), step=step)


@pytest.mark.parametrize("render", [render_markdown, lambda result: render_terminal(result, **WIDE)])
def test_steps_that_are_left_out_are_told(render: Callable[[Result], str]) -> None:
    """As the tile of the HTML report does."""
    said = "2 of 6 steps are unusual and left out of the typical step. Mean of all steps: 431.0 ms."
    text = re.sub(r"\s+", " ", render(with_unusual_steps()))
    assert said in text
    note = headline.tiles(with_unusual_steps())[0].note.replace("\u00a0", " ")
    assert "mean of 4 of 6 steps (431.0 ms with the unusual ones)" in note
    every = replace(with_unusual_steps().step, typical_steps=[*range(6)])
    assert "unusual" not in render(replace(with_unusual_steps(), step=every))
    phases = [ServingPhase(name, 3, 412_000.0, 0.5, 8.0, None) for name in ("decode", "prefill")]
    serving = replace(with_unusual_steps(), serving=Serving("vLLM", phases))
    assert "are unusual" not in render(serving), "they are steps of another phase"


def test_a_fix_that_saves_more_in_the_plan_says_why() -> None:
    """The table says 48 ms in the plan, and another number alone."""
    [first, second, *rest] = sample.rich().plan
    alone = [replace(first, alone_us=first.saving_us), replace(second, alone_us=second.saving_us / 10)]
    text = render_markdown(replace(sample.rich(), plan=[*alone, *rest])).replace("\u00a0", " ")
    why = "per step in the plan, where the fixes above uncover it, and"
    advice = re.search(rf"^Saves (\S+) ms {why} (\S+) ms alone\.", text, re.M)
    assert advice is not None
    assert advice[1] != advice[2]
    more = replace(second, alone_us=second.saving_us * 2)
    text = render_markdown(replace(sample.rich(), plan=[alone[0], more, *rest]))
    assert "in the plan, where the fixes above save a part of it, and " in text


def test_a_fix_below_one_percent_has_no_block_of_its_own() -> None:
    """Here all are: their titles are enough."""
    result = sample.rich()
    small = [
        replace(one, saving=replace(one.saving, est_us=800.0, share=0.002)) for one in result.findings if one.saving
    ]
    document = replace(result, findings=small[:1], plan=[], combined=None)
    comment = render_markdown(document)
    assert small[0].fix.text not in comment
    assert f"- {small[0].title} ({small[0].code}), saves 0.80" in comment
    terminal = render_terminal(document, **WIDE)
    assert f"Each saves less than 1% of the step:\n 1 0.80 ms  {small[0].code} {small[0].title}\n" in terminal
    assert small[0].fix.text not in terminal


def test_an_alternative_says_why_it_is_not_in_the_plan() -> None:
    result = sample.rich()
    first, *rest = result.findings
    other = replace(rest[-1], saving=first.saving, shares_cause_with=[first.code], instead_lost_us=3300.0)
    comment = render_markdown(replace(result, findings=[first, *rest[:-1], other])).replace("\u00a0", " ")
    assert "(same cause as fix 1; with it instead, the plan saves 3.3 ms less)" in comment


@pytest.mark.parametrize("render", [render_markdown, lambda result: render_terminal(result, **WIDE)])
def test_the_only_finding_has_its_reason_and_fix(render: Callable[[Result], str]) -> None:
    noted = next(finding for finding in sample.rich().findings if finding.saving is None)
    only = replace(sample.rich(), findings=[noted], plan=[], combined=None)
    text = re.sub(r"[\s`*_\\]+", " ", render(only))
    for said in (noted.title, noted.why, noted.fix.text):
        assert re.sub(r"[\s`*_]+", " ", said) in text
    beside = re.sub(r"[\s`*_\\]+", " ", render(sample.rich()))
    assert re.sub(r"[\s`*_]+", " ", noted.fix.text) not in beside, "beside fixes, a title is enough"


def test_the_heading_is_one_sentence() -> None:
    verdict = "The GPU is idle for 16% of the step. Largest cause: launching GPU work. Two ranks are missing."
    comment = render_markdown(replace(sample.rich(), verdict=verdict))
    assert "\n### traceopt: The GPU is idle for 16% of the step.\n\nLargest cause: launching" in comment


def test_reviewers_read_it_in_ten_seconds() -> None:
    """No list of what was not checked, no small parts one by one, no column of dashes."""
    rich = sample.rich()
    checks = [Check(f"MM00{number}", "rule", "Change it", "not_checked", "No memory.") for number in range(5)]
    small = [replace(rich.breakdown[0], name=f"p{n}", label=f"Tiny {n}", us_per_step=9.0, share=2e-5) for n in range(4)]
    apart = replace(rich.findings[-1], code="CM004", saving=rich.findings[0].saving)
    many = replace(
        rich, checks=[*rich.checks, *checks], breakdown=[*rich.breakdown, *small], findings=[*rich.findings, apart]
    )
    comment = render_markdown(many)
    open_part, _, details = comment.partition("<details>")
    assert "No memory." not in comment
    assert "Tiny" not in details
    assert "4 smaller parts" in details
    assert "| – |" not in open_part
    assert "CM004" not in open_part
    assert "CM004" in details
    assert "| Where |" in open_part
    assert "train.py:61" in open_part
    assert comment.rstrip().splitlines()[-1].startswith("Measured: `")
    assert "Savings are estimates." in comment


def test_the_first_short_patch_needs_no_click() -> None:
    rich = sample.rich()
    [first, second, *rest] = rich.findings
    patch = "--- a/train.py\n+++ b/train.py\n-old\n+new line"
    patched = [first, replace(second, fix=replace(second.fix, patch=patch)), *rest]
    comment = render_markdown(replace(rich, findings=patched))
    assert comment.count("+new line") == 1
    assert "Patch of fix 2:\n\n```diff\n" in comment.partition("<details>")[0]
    long = replace(second, fix=replace(second.fix, patch=patch + "\n+more" * 30))
    assert "+new line" not in render_markdown(replace(rich, findings=[first, long, *rest])).partition("<details>")[0]


def test_at_most_five_fixes() -> None:
    rich = sample.rich()
    more = [replace(rich.findings[0], code=f"DL00{number}", title=f"Fix number {number}") for number in range(1, 9)]
    page = Page(render_markdown(replace(rich, findings=more, plan=[], combined=None)))
    assert page.tags[: page.tags.index("details")].count("tr") == 1 + FIXES
    assert page.tags.count("h4") == FIXES
    assert "3 more findings below." in page.text
    assert "Fix number 8 (DL008), saves 150\u00a0ms alone, train.py:61" in page.text  # under "More findings"


@pytest.mark.parametrize("fixes", [1, 6, 8, 11])
def test_the_table_ends_at_the_step_of_the_bold_line(fixes: int) -> None:
    """The last row has the step after the whole plan, also if it stands for the fixes that have no row."""
    rich = sample.rich()
    findings = [replace(rich.findings[0], code=f"DL{number:03}", id=str(number)) for number in range(fixes)]
    plan = [
        replace(rich.plan[0], finding=one.id, saving_us=10_000.0, step_us_after=412_000.0 - 10_000 * number)
        for number, one in enumerate(findings, 1)
    ]
    assert rich.combined is not None
    combined = replace(rich.combined, saving_us=10_000.0 * fixes, step_us_after=412_000.0 - 10_000 * fixes)
    comment = render_markdown(replace(rich, findings=findings, plan=plan, combined=combined))
    rows = [line for line in comment.partition("<details>")[0].splitlines() if line.startswith("| ")]
    assert re.search(rf"\| {412 - 10 * fixes}(\.0)?\sms \|", rows[-1])
    assert len(rows) == 2 + min(fixes, PLANNED) + (fixes > PLANNED)
    assert ("3 more of the plan" in rows[-1]) == (fixes == 11)
    below = re.findall(r"^- .*, saves 10\sms in the plan", comment, re.MULTILINE)
    assert len(below) == max(0, fixes - PLANNED), "under More findings"


def compared(head: Result, *gates: str) -> Comparison:
    """Compared with the rich run as the baseline."""
    return compare_runs(runs_of([sample.rich()]), runs_of([head]), [Gate.parse(gate, "fail") for gate in gates])


def slower() -> Result:
    """The rich run with 60 ms more per step, one finding more and one less."""
    rich = sample.rich()
    us = [step + 60_000 for step in rich.step.per_step_us]
    (new,) = with_ids([replace(rich.findings[0], code="GM001", name="misaligned-gemm", id="")])
    return replace(
        rich,
        step=replace(rich.step, typical_us=472_000.0, per_step_us=us),
        findings=[*rich.findings[1:], new],
        checks=[*rich.checks, Check("DL001", "dataloader-stall", "Load data in worker processes", "passed", "")],
    )


def test_with_a_baseline_the_bold_line_is_the_change() -> None:
    page = Page(render_markdown(slower(), comparison=compared(slower())))
    assert len(page.bold) == 1
    assert page.bold[0].startswith("The step takes 15% more time: 412.0\u00a0ms → 472.0\u00a0ms.")
    [line] = [line for line in page.text.splitlines() if line.startswith("Against the baseline: ")]
    change = r"Against the baseline: typical step: \+15% \(99% interval \+\S+% to \+\S+%\)\."
    assert re.match(f"{change} Findings: 1 new, 1 no ", line)
    assert line.endswith(" save about 198\u00a0ms per step (48%, likely 35–59%): 412.0 → about 214\u00a0ms.")
    assert page.folded[0] == "What changed"
    for phrase in (
        "New: Load data in worker processes (GM001), train.py:61",
        "No longer seen: Load data in worker processes (DL001)",
    ):
        assert phrase in page.text


def test_a_comment_about_noise_is_marked_as_unchanged() -> None:
    same = compared(sample.rich())
    comment = render_markdown(sample.rich(), comparison=same)
    assert comment.splitlines()[:2] == [tag("traceopt"), UNCHANGED]
    page = Page(comment)
    assert page.comments == ["traceopt:traceopt", "nothing changed"]
    assert page.bold[0].startswith("Within noise: 412.0\u00a0ms → 412.0\u00a0ms per step.")
    gates = compared(sample.rich(), "gpu_idle=40%").gates
    for news in (
        render_markdown(slower(), comparison=compared(slower())),
        render_markdown(sample.rich(), comparison=same, gates=gates),
        render_markdown(sample.rich(), comparison=replace(same, findings=[replace(same.findings[0], status="fixed")])),
        render_markdown(sample.rich(), comparison=replace(same, step=StepChange("not_measured", reason="No marks."))),
        render_markdown(sample.rich()),
    ):
        assert UNCHANGED not in news


def test_gates_that_failed_are_listed() -> None:
    gates = compared(slower(), "step_time=+5%", "gpu_idle=90%", "tokens_per_s=1000").gates
    page = Page(render_markdown(slower(), gates=gates))
    failed = [line for line in page.text.splitlines() if line.startswith("Failed")]
    assert [line.partition(":")[0] for line in failed] == ["Failed", "Failed, not checked"]
    assert failed[0].endswith("(--fail-on step_time=+5%)")
    assert "gpu_idle" not in page.text


def test_strings_of_a_baseline_are_text() -> None:
    attack = "<b>@main</b> [x](https://attacker.example)\n# "
    comparison = replace(compared(slower()), verdict=attack)
    gate = GateOutcome(attack, "fail", "failed", attack)
    page = Page(render_markdown(slower(), comparison=comparison, gates=[gate]))
    assert "<b>@main</b> [x](https://attacker.example)" in page.bold[0]
    assert not {"a", "b", "h1"} & set(page.tags)
    assert page.comments == ["traceopt:traceopt"]


def test_a_healthy_run_needs_no_table() -> None:
    page = Page(render_markdown(sample.healthy()))
    assert page.bold == ["No fix above 3% found."]
    assert page.folded == ["Where the time goes"]


def test_an_unusable_trace_has_no_savings() -> None:
    page = Page(render_markdown(sample.unusable()))
    assert "These numbers are not reliable:" in page.text
    assert "412 launches have no kernel" in page.text
    assert "saves" not in page.text
    assert "Saves per step" not in page.text


def with_long_patches(length: int) -> Result:
    rich = sample.rich()
    patch = "\n".join(["--- a/train.py", "+++ b/train.py", *["+x"] * (length // 3)])
    return replace(rich, findings=[replace(one, fix=Fix("Change it.", None, patch)) for one in rich.findings])


def test_what_does_not_fit_is_left_out_with_a_remark() -> None:
    cut = "Cut to fit into a comment; the report has the rest."
    whole = render_markdown(with_long_patches(9_000))
    assert 45_000 < len(whole) <= LIMIT
    assert cut not in whole
    comment = render_markdown(with_long_patches(25_000))
    assert 45_000 < len(comment) <= LIMIT
    page = Page(comment)
    assert cut in page.text
    assert page.tags.count("h4") == 2
    assert page.folded == ["Why, and how to change it", "Where the time goes", "More findings", "Warnings"]
    assert len(render_markdown(with_long_patches(70_000))) <= LIMIT


def test_a_comment_is_never_too_long() -> None:
    """However long strings are: they are capped, and so are the blocks that cannot be left out."""
    hostile = sample.hostile()
    long = replace(
        hostile.findings[0],
        title="`|" * 9_000,
        code="|`" * 9_000,
        locations=[Location("`|" * 9_000, 1, "f")],
        ranks=[1],
    )
    comment = render_markdown(replace(hostile, verdict="`@|" * 9_000, findings=[long] * 40), label="x" * 9_000)
    assert len(comment) <= LIMIT
    Page(comment)


def test_labels_distinguish_comments_and_cannot_break_the_tag() -> None:
    assert tag("resnet, 8 GPUs") == "<!-- traceopt:resnet-8-GPUs -->"
    for label in ("--><b>x</b>", "a\nb", "", "ä" * 300):
        assert re.fullmatch(r"<!-- traceopt:[A-Za-z0-9_.-]{0,80} -->", tag(label))
        assert Page(render_markdown(sample.rich(), label=label)).tags[0] == "h3"
