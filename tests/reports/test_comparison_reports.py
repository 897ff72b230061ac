"""Comparisons in the terminal, Markdown and HTML say the same, fit, and keep strings of a trace as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample
from browser_pages import OpenPage
from cmarkgfm import github_flavored_markdown_to_html
from cmarkgfm.cmark import Options
from msgspec import Struct
from msgspec.structs import asdict, replace
from support.figures import markup_in

from fixtures.hostile import HOSTILE
from traceopt.analysis import ComparedRuns
from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.reports.figures import compared as compared_figures
from traceopt.reports.html.comparison_page import render_comparison_html
from traceopt.reports.text.comparison_markdown import LIMIT, render_comparison_markdown
from traceopt.reports.text.comparison_terminal import render_against_baseline, render_comparison, render_gates
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.words.comparing import comparison_words
from traceopt.result.comparison import AllSteps, Comparison, SettingChange
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Kernel
from traceopt.run_comparison import runs_of

ANSI = re.compile(r"\x1b\[[0-9;]*m")
GATES = ("high", "finding=new-high", "gpu_idle=40%", "step_time=+5%", "peak_memory=+10%", "tokens_per_s=1000")
OVERFLOW_PX = "document.documentElement.scrollWidth - innerWidth"
HIDDEN_CHANGES = """[...document.querySelectorAll('.scroll .changes th:nth-child(4)')].filter(
    head => head.getBoundingClientRect().right > head.closest('.scroll').getBoundingClientRect().right
).map(head => head.closest('.scroll').getAttribute('aria-label'))"""
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"


def slower(waits_us: float = 60_000) -> Result:
    """The rich run with a longer wait for data, another kernel, more memory and a finding less. `waits_us` of the
    60 ms are in the wait, the rest is compute.
    """
    result = sample.rich()
    longer = {"data_loading": waits_us, "compute": 60_000 - waits_us}
    parts = [replace(p, us_per_step=p.us_per_step + longer.get(p.name, 0)) for p in result.breakdown]
    us = [step + 60_000 for step in result.step.per_step_us]
    kernels = [
        *result.kernels[:2],
        Kernel("void new_kernel<float>(int)", "gemm", 3, 5_000, 1_667, 0.01, None, None, None),
    ]
    return replace(
        result,
        step=replace(
            result.step,
            typical_us=472_000,
            median_us=473_500,
            p10_us=465_000,
            p90_us=481_000,
            per_step_us=us,
            series=sample.step_series(us),
        ),
        breakdown=parts,
        kernels=kernels,
        memory=replace(result.memory, peak_allocated_bytes=28 << 30),
        findings=result.findings[:-2],
    )


def compared(base: list[Result], head: list[Result], gates: tuple[str, ...] = GATES) -> Comparison:
    return compare_runs(runs_of(base), runs_of(head), [Gate.parse(text, "fail") for text in gates])


def worse() -> Comparison:
    return compared([sample.rich()], [slower()])


def several_runs() -> Comparison:
    return compared([sample.rich(), sample.rich()], [slower(), slower(), sample.rich()])


def nothing_in_common() -> Comparison:
    return compared([sample.empty()], [sample.rich()])


def other_ranks() -> Comparison:
    head = slower()
    return compared([sample.rich()], [replace(head, run=replace(head.run, world_size=2))])


def on_cpu() -> Comparison:
    return compared([sample.cpu_only()], [sample.cpu_only()])


# Strings that come from the program, not from the trace.
_FIXED = {"status", "unit", "level", "base_impact", "head_impact"}


def _poisoned(value: Any, counter: Any, field: str = "", parent: str = "") -> Any:
    if isinstance(value, str):
        ours = field in _FIXED or (parent, field) == ("StepChange", "verdict")
        return value if ours else HOSTILE[next(counter) % len(HOSTILE)]
    if isinstance(value, list):
        return [_poisoned(item, counter, field, parent) for item in value]
    if isinstance(value, Struct):
        name = type(value).__name__
        return replace(value, **{field: _poisoned(part, counter, field, name) for field, part in asdict(value).items()})
    return value


def hostile() -> Comparison:
    poisoned: Comparison = _poisoned(several_runs(), iter(range(10**9)))
    return replace(poisoned, notes=[*HOSTILE])


ALL = [worse, several_runs, nothing_in_common, other_ranks, on_cpu, hostile]
Build = Callable[[], Comparison]
each = pytest.mark.parametrize("build", ALL, ids=lambda build: build.__name__)


def shown(comparison: Comparison, *, width: int = 100, color: bool = False, unicode: bool = True) -> str:
    return render_comparison(comparison, width=width, color=color, unicode=unicode)


# The terminal.


@each
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_fits_the_terminal(build: Build, width: int) -> None:
    """Except for the lines of gates, which logs need in full."""
    for unicode in (True, False):
        text = shown(replace(build(), gates=[]), width=width, unicode=unicode)
        assert max(map(len, text.splitlines())) <= min(width, 110)
        assert unicode or text.isascii()


@each
def test_color_adds_nothing_but_color(build: Build) -> None:
    assert ANSI.sub("", shown(build(), color=True)) == shown(build())
    assert "\x1b" not in shown(build())


def test_the_terminal_says_what_changed() -> None:
    text = shown(worse())
    assert "The step takes 15% more time: 412.0 ms → 472.0 ms. Most of it: waiting for data grew by 60.0 ms." in text
    assert "+15% (99% interval" in text
    assert re.search(r"Waiting for data +187\.0 ms +247\.0 ms +\+60\.0 ms", text)
    assert re.search(r"new +new_kernel<float> +– +5\.0 ms +\+5\.0 ms", text)
    assert "Findings: 2 no longer seen, 4 in both." in text
    assert re.search(r"gone  CM004 .*\n {8}\w+ impact, BASE estimated ≈ .* ms", text), (
        "a low impact is no low confidence"
    )
    lines = text.splitlines()
    assert lines[-5].startswith("ok    no new findings of high impact (--fail-on finding=new-high)")
    assert lines[-3].startswith("FAIL  step_time is 15% worse than the baseline: 412.0 ms → 472.0 ms")
    assert lines[-1].startswith("NOT CHECKED  tokens_per_s was not measured: pass --tokens-per-step")


def test_long_names_have_a_line_each() -> None:
    """Both are read in full, with their steps."""
    names = ["worker0.1623143089861.pt.trace.json.gz", "worker0.1623212756351.pt.trace.json.gz"]
    before, after = sample.rich(), slower()
    base = replace(before, run=replace(before.run, paths=names[:1]))
    head = replace(after, run=replace(after.run, paths=names[1:]))
    lines = shown(compared([base], [head]), width=80).splitlines()
    assert lines[0].startswith(f"traceopt  BASE {names[0]}, 12 steps")
    assert lines[1].startswith(f"          HEAD {names[1]}, 12 steps")


@pytest.mark.parametrize(
    ("waits_us", "said"),
    [
        (90_000, "Waiting for data alone grew by 90.0 ms."),
        (60_000, "Most of it: waiting for data grew by 60.0 ms."),
        (-30_000, "Compute kernels alone grew by 90.0 ms."),
    ],
)
def test_the_verdict_says_how_much_of_the_change_a_part_is(waits_us: float, said: str) -> None:
    """The step takes 60 ms more."""
    assert compared([sample.rich()], [slower(waits_us)]).verdict.endswith(said)


def test_patterns_and_unchanged_shares_are_told() -> None:
    assert "Patterned parts: the GPU is idle." in render_comparison_html(worse())
    page = render_comparison_html(on_cpu())
    assert "Patterned parts: no model work on the main thread." in page
    assert "+0.0 points" not in page


def test_noise_is_explained() -> None:
    text = shown(compared([sample.rich()], [sample.rich()], ()))
    assert "Within noise: 412.0 ms → 412.0 ms per step." in text
    assert "could not be detected." in text


def test_several_runs_show_their_noise() -> None:
    text = shown(several_runs())
    assert "2 base and 3 head runs, run-to-run noise" in text
    assert "within noise" in text


def test_sides_that_cannot_be_compared_say_why() -> None:
    assert "Step times cannot be compared. A trace of BASE cannot be judged." in shown(nothing_in_common())


def test_change_and_gates_are_below_an_analysis() -> None:
    comparison = worse()
    text = render_against_baseline(comparison, width=100, color=False, unicode=True)
    assert text.startswith("Against rank0.pt.trace.json.gz: The step takes 15% more time")
    assert "  gone  CM004" in text
    gates = render_gates(comparison.gates, width=100, color=False, unicode=True)
    assert gates.count("\n") == len(GATES)
    assert render_gates([], width=100, color=False, unicode=True) == ""


@pytest.mark.parametrize("build", ALL)
def test_plotly_draws_the_sides_and_names_stay_text(build: Build) -> None:
    figures = ComparedRuns.of(build()).figures
    for figure in (figures.parts, figures.kernels, figures.steps):
        assert figure.data or figure.layout.annotations[0].text
        assert markup_in(figure) == []


def test_figures_show_what_changed() -> None:
    comparison = worse()
    assert {tuple(part["y"]) for part in compared_figures.draw_parts(comparison)["data"]} == {("BASE", "HEAD")}
    (kernels,) = compared_figures.draw_kernels(comparison)["data"]
    assert kernels["x"] == pytest.approx([row.change_us / 1e3 for row in comparison.kernels], rel=1e-4)
    assert [len(run["x"]) for run in compared_figures.draw_steps(comparison)["data"]] == [12, 12]


def test_hostile_strings_print_as_text() -> None:
    for text in (
        shown(hostile(), color=True),
        render_against_baseline(hostile(), width=100, color=False, unicode=True),
        render_gates(hostile().gates, width=100, color=False, unicode=True),
    ):
        rest = ANSI.sub("", text)
        assert not set(rest) - {"\n"} & {chr(code) for code in range(32)}
        assert not {"\u202e", "\u200b"} & set(rest)
        assert not re.search(r"^\s*::", rest, re.MULTILINE)


# All formats.


def with_unusual_steps() -> Comparison:
    unestimated = replace(worse().findings[0], status="new", code="EF002", title="Find out why some steps are slow")
    return replace(worse(), all_steps=AllSteps(40, 6, 0, 2, 412_000.0, 520_000.0, 0.262136), unestimated=[unestimated])


@pytest.mark.parametrize(
    "render",
    [
        shown,
        lambda comparison: render_against_baseline(comparison, width=100, color=False, unicode=True),
        lambda comparison: render_markdown(slower(), comparison=comparison),
        render_comparison_markdown,
        render_comparison_html,
    ],
)
def test_unusual_steps_and_findings_without_an_estimate_are_told(render: Callable[[Comparison], str]) -> None:
    text = re.sub(r"\s+", " ", render(with_unusual_steps()))
    said = "2 of 6 steps of HEAD are unusual and left out of the typical step. Mean of all steps: 412.0 ms → 520.0 ms"
    assert said in text
    assert text.index(said) < text.index("Findings:")
    assert "Findings: 1 new, 1 no longer seen, 4 in both" in text, "those without an estimate count too"
    assert "EF002" in text
    assert "Find out why some steps are slow" in text


@pytest.mark.parametrize("render", [shown, render_comparison_markdown, render_comparison_html])
def test_a_finding_that_moved_says_where_it_was(render: Callable[[Comparison], str]) -> None:
    [first, *rest] = worse().findings
    moved = replace(first, status="new", reason="BASE has it at common.py:23.")
    text = re.sub(r"[\s\\]+", " ", render(replace(worse(), findings=[moved, *rest])))
    assert "BASE has it at common.py:23." in text


@pytest.mark.parametrize("render", [shown, render_comparison_markdown, render_comparison_html])
def test_means_of_all_steps_are_told_once(render: Callable[[Comparison], str]) -> None:
    comparison = with_unusual_steps()
    assert comparison.all_steps is not None
    decisive = replace(comparison, all_steps=replace(comparison.all_steps, decisive=True))
    text = re.sub(r"\s+", " ", render(decisive))
    assert "2 of 6 steps of HEAD are unusual and left out of the typical step." in text
    assert text.count("Mean of all steps") == 1
    assert re.search(r"[Tt]ypical step:?(</b>)? [+−]\d", text), "the interval belongs to the typical step"


@pytest.mark.parametrize("render", [shown, render_comparison_markdown])
def test_the_change_of_all_steps_is_in_the_verdict_or_below(render: Callable[[Comparison], str]) -> None:
    comparison = with_unusual_steps()
    assert comparison.all_steps is not None
    decisive = replace(comparison, all_steps=replace(comparison.all_steps, decisive=True), verdict="It changed by 26%.")
    assert render(decisive).count("26%") == 1


def test_the_heading_of_the_page_is_one_sentence() -> None:
    page = render_comparison_html(worse())
    heading = page.split("<h1>")[1].split("</h1>")[0]
    assert heading.replace("\N{NO-BREAK SPACE}", " ") == "The step takes 15% more time: 412.0 ms → 472.0 ms."
    assert "412.0\N{NO-BREAK SPACE}ms\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}472.0" in heading, "both times in one line"
    assert "<b>Most of it: waiting for data grew by" in page


def test_the_tile_of_a_side_says_how_many_steps_it_leaves_out() -> None:
    page = render_comparison_html(with_unusual_steps())
    assert '<div class="note num">12 steps, 2 left out</div>' in page
    assert '<div class="note num">12 steps</div>' in page
    assert "1 no longer seen, 4 in both</div>" in page


def test_unusual_steps_of_both_sides_are_told() -> None:
    both = replace(worse(), all_steps=AllSteps(40, 6, 1, 2, 412_000.0, 520_000.0, 0.262136))
    assert "1 of 40 steps of BASE and 2 of 6 steps of HEAD are unusual" in comparison_words.unusual_steps(both)
    one = replace(worse(), all_steps=AllSteps(40, 6, 1, 0, 412_000.0, 520_000.0, 0.262136))
    assert "1 of 40 steps of BASE is unusual" in comparison_words.unusual_steps(one)


@pytest.mark.parametrize(
    ("alone_us", "plan_us", "says"),
    [
        ((900.0, 1_800.0), (47_000.0, 48_000.0), "0.90 → 1.8 ms alone, 47 → 48 ms in the plan"),
        ((2_100.0, 3_100.0), (None, 2_000.0), "2.1 → 3.1 ms alone, ≈ 2.0 ms in the plan of HEAD"),
        ((2_100.0, 3_100.0), (2_000.0, None), "2.1 → 3.1 ms alone, ≈ 2.0 ms in the plan of BASE"),
        ((1_800.0, None), (48_000.0, None), "≈ 1.8 ms alone, ≈ 48 ms in the plan"),
        ((None, 58_000.0), (None, 58_400.0), "≈ 58 ms"),
        ((None, 15_000.0), (None, None), "≈ 15 ms alone"),
        ((None, None), (None, None), "not estimated"),
    ],
)
def test_a_saving_says_which_number_it_is(
    alone_us: tuple[float | None, float | None], plan_us: tuple[float | None, float | None], says: str
) -> None:
    finding = replace(
        worse().findings[0],
        status="kept",
        base_impact=None if alone_us[0] is None else "high",
        head_impact=None if alone_us[1] is None else "high",
        base_saving_us=alone_us[0],
        head_saving_us=alone_us[1],
        base_plan_us=plan_us[0],
        head_plan_us=plan_us[1],
    )
    assert comparison_words.saving(finding).replace("\N{NO-BREAK SPACE}", " ") == says


# Markdown.


@each
def test_markdown_is_a_comment(build: Build) -> None:
    markdown = render_comparison_markdown(build())
    assert markdown.startswith("<!-- traceopt:traceopt-compare -->\n\n### traceopt: ")
    assert len(markdown) < LIMIT
    page = github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE)
    assert page.count("<details>") == page.count("</details>")
    assert not re.search(r"<(?:script|img|svg|a |iframe|style)", page)


def test_markdown_says_what_changed() -> None:
    markdown = render_comparison_markdown(worse())
    heading = "\n### traceopt: The step takes 15% more time: 412.0 ms → 472.0 ms.\n\nMost of it: waiting for data grew"
    assert heading in markdown.replace("\N{NO-BREAK SPACE}", " ")
    assert "step +15% (99% interval" in markdown
    assert "traceopt 0\\." not in markdown
    assert "| **failed** | `--fail-on step_time=+5%` |" in markdown
    assert "| **not checked** | `--fail-on tokens_per_s=1000` |" in markdown
    assert "| Waiting for data | 187.0\N{NO-BREAK SPACE}ms | 247.0\N{NO-BREAK SPACE}ms | +60.0 ms |" in markdown


def test_a_long_markdown_is_cut() -> None:
    long = replace(worse(), settings=[SettingChange("x" * 300, "on", "off")] * 1000)
    assert len(render_comparison_markdown(long)) < LIMIT
    assert "Cut to fit into a comment." in render_comparison_markdown(long)


# HTML.


def test_html_says_what_changed() -> None:
    page = render_comparison_html(worse())
    assert "The step takes 15% more time" in page
    assert "new_kernel&lt;float&gt;" in page
    assert "<b>Not checked:</b> tokens_per_s was not measured" in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert page == render_comparison_html(worse())


@each
@pytest.mark.parametrize("width", [1280, 390])
def test_html_in_a_browser(open_page: OpenPage, tmp_path: Path, build: Build, width: int) -> None:
    """Quiet, no wider than the screen, and strings of a trace stay text."""
    file = tmp_path / "comparison.html"
    file.write_text(render_comparison_html(build()), encoding="utf-8")
    page = open_page(file, width=width)
    page.evaluate(OPEN_ALL)
    assert page.evaluate(OVERFLOW_PX) <= 0
    assert build is hostile or page.evaluate(HIDDEN_CHANGES) == []
    findings = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth + 1).length"
    assert page.locator(".scroll:has(.found)").evaluate_all(findings) == 0, "impact, saving and line are seen"
    assert page.evaluate("window.pwned || 0") == 0
    assert page.evaluate("document.querySelectorAll('img, iframe, [onerror], [onload]').length") == 0
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    foreign = "[...document.querySelectorAll('a')].filter(a => (a.getAttribute('href') || '')[0] !== '#').length"
    assert page.evaluate(foreign) == 0


def test_html_is_complete_without_javascript(open_page: OpenPage, tmp_path: Path) -> None:
    file = tmp_path / "comparison.html"
    file.write_text(render_comparison_html(worse()), encoding="utf-8")
    words = open_page(file, java_script_enabled=False).inner_text("main")
    for phrase in (
        "takes 15% more time",
        "Waiting for data",
        "new_kernel<float>",
        "No longer seen (2)",
        "--fail-on high",
    ):
        assert phrase in words


@pytest.mark.parametrize("render", [shown, render_comparison_markdown])
def test_parts_within_noise_share_a_line(render: Callable[[Comparison], str]) -> None:
    comparison = with_unusual_steps()
    first, second, *rest = comparison.breakdown
    mixed = [replace(first, beyond_noise=True), *(replace(part, beyond_noise=False) for part in (second, *rest))]
    text = re.sub(r"\s+", " ", render(replace(comparison, breakdown=mixed)))
    assert f"Within noise: {second.label}" in text
    same = [replace(part, beyond_noise=False) for part in mixed]
    assert "Within noise: " + second.label not in render(replace(comparison, breakdown=same)), "then all have a row"


def test_metrics_that_look_the_same_are_left_out() -> None:
    comparison = with_unusual_steps()
    metric = next(one for one in comparison.metrics if one.unit == "share" and one.base is not None)
    same = replace(comparison, metrics=[replace(metric, label="Host sync", base=0.0004, head=0.0006)])
    assert comparison_words.metrics_line(same) == ""
    other = replace(comparison, metrics=[replace(metric, label="Host sync", base=0.0004, head=0.02)])
    assert comparison_words.metrics_line(other) == "Host sync <0.1% → 2.0%"
