"""The HTML report as text: its content, escaping and size, and that the document can be read back."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.page_parts import page_of, visible

from traceopt.analyzer.vocabulary.causes.table import CAUSES
from traceopt.reports.html.page import FOLDED_ROWS, TIMELINE_SCRIPTS, render_html, without_spans
from traceopt.reports.html.page_scripts import plotly
from traceopt.reports.html.table_rows import breakable
from traceopt.reports.words.fixes.fix_cards import combined_fixes
from traceopt.reports.words.fixes.headline import Tile, tiles
from traceopt.reports.words.table_captions import bound_words
from traceopt.result.document import Result
from traceopt.result.encoding import packing
from traceopt.result.encoding.packing import embedded_result
from traceopt.result.encoding.serialization import to_json
from traceopt.result.finding import Evidence, Fix, Location
from traceopt.result.sections.work_rows import MemoryPart
from traceopt.result.words.message import ms, step_time

SAMPLES = sample.ALL


@pytest.mark.parametrize("build", SAMPLES)
def test_the_document_comes_back_out(build) -> None:
    result = build()
    assert embedded_result(render_html(result)) == to_json(result)
    assert embedded_result(render_html(result, static=True)) == to_json(without_spans(result))
    assert Result.from_json(embedded_result(render_html(result))) == result


def test_a_foreign_or_damaged_page_is_refused() -> None:
    with pytest.raises(ValueError, match="not a traceopt report"):
        embedded_result("<html></html>")
    page = render_html(sample.rich(), static=True)
    with pytest.raises(ValueError, match="damaged"):
        embedded_result(page.replace('"document": "', '"document": "!!!!!'))


def test_rendering_is_reproducible() -> None:
    assert render_html(sample.rich()) == render_html(sample.rich())


@given(st.binary(max_size=200))
def test_packing_is_reversible(data: bytes) -> None:
    packed = packing.pack(data)
    assert packing.unpack(packed) == data
    assert not set(packed) & set("<>&\"'\\")


def test_sizes_stay_within_the_budget() -> None:
    assert len(render_html(sample.stress()).encode()) <= 2_200_000
    assert len(render_html(sample.stress(), static=True).encode()) <= 490_000
    assert len(render_html(sample.rich(), static=True).encode()) <= 145_000


@pytest.mark.parametrize(
    ("us", "calls", "columns"),
    [(1e3, 2.0, ["ms per step", "Calls per step"]), (1e3, None, ["ms per step"]), (None, None, [])],
)
def test_evidence_has_a_column_only_for_what_is_known(
    us: float | None, calls: float | None, columns: list[str]
) -> None:
    result = sample.rich()
    rows = [Evidence("rank 3 is missing", us, calls)]
    page = page_of(replace(result, findings=[replace(result.findings[0], evidence=rows, shares_cause_with=[])]))
    row = page.index("rank 3 is missing", page.index('id="fixes"'))
    table = page[page.rindex("<table", 0, row) : row]
    assert [name for name in ("ms per step", "Calls per step") if name in table] == columns
    assert table.count('<th scope="col" class=num>') == len(columns)


def test_times_of_a_sentence_lead_to_their_evidence() -> None:
    result = sample.rich()
    assert result.step.typical_us is not None
    step = f"{result.step.typical_us / 1e3:.1f} ms"
    each = step_time(1e3 * result.step.typical_us)
    rows = [Evidence("first", 7_100.0, 1), Evidence("no time", None, 1), Evidence("third", 1_230.0, 1)]
    why = f"It waits {ms(8.33e6)} of each {each} step, {ms(1.23e6)} of it here, {ms(999e6)} <b>elsewhere</b>."
    page = page_of(
        replace(result, findings=[replace(result.findings[0], why=why, evidence=rows, shares_cause_with=[])])
    )
    sentence = page[page.index("It waits ") : page.index("elsewhere")]
    links = re.findall(r'<a class="trail" href="#([^"]+)">([^<]+)</a>', sentence)
    linked = {time.replace("\u00a0", " "): target for target, time in links}
    assert set(linked) == {"8.3 ms", step, "1.2 ms"}
    assert "999.0 ms &lt;b&gt;" in sentence.replace("\u00a0", " ")
    for target in linked.values():
        assert page.count(f'id="{target}"') == 1
    assert f'<tr id="{linked["1.2 ms"]}"><td>third' in re.sub(r"</?code>", "", page)
    assert f'<h3 id="{linked["8.3 ms"]}">Evidence' in page
    assert linked[step] == "time"


def test_a_time_that_only_looks_like_that_of_a_row_is_no_link() -> None:
    result = sample.rich()
    rows = [Evidence("most", 59_594.0, 1), Evidence("the rest", 2.7, 1), Evidence("once", 5.0), Evidence("again", 5.0)]
    why = f"It blocks {ms(59_594_000)}, not {ms(59_593_000)} (reads the same), and {ms(5_000)}, as two rows do."
    page = page_of(
        replace(result, findings=[replace(result.findings[0], why=why, evidence=rows, shares_cause_with=[])])
    )
    sentence = page[page.index("It blocks ") : page.index("</p>", page.index("It blocks "))]
    (link,) = re.findall(r'<a class="trail" href="#([^"]+)">', sentence)
    assert f'<tr id="{link}"><td>most' in re.sub(r"</?code>", "", page)


def test_long_tables_say_what_they_leave_out() -> None:
    page = page_of(sample.stress())
    assert "The 200 longest of 500 kernels." in page
    assert "The 100 longest of 500 shapes." in page
    assert "The 100 longest of 500 operators." in page
    assert "15 of 200 rows. <u>Show all 200</u>" in page
    assert f":nth-child(n+{FOLDED_ROWS + 1})" in page  # the same number in style/tables.css
    assert "The chart shows the first 256 of 300 ranks." in page
    assert "The first 64 of 300 ranks." in page
    assert "The first 16 of 64 files." in page


def test_only_listed_scripts_may_run() -> None:
    page = render_html(sample.rich())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = policy[1].replace("&#39;", "'")
    assert allowed.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in allowed
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 3 + len(TIMELINE_SCRIPTS) + (plotly() is not None)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed


def test_the_page_names_no_other_host() -> None:
    page = re.sub(r"<script.*?</script>", "", render_html(sample.rich()), flags=re.DOTALL)
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", page)


def test_hostile_strings_are_escaped() -> None:
    page = render_html(sample.hostile(), static=True)
    assert "<img" not in page
    assert "href='https://attacker" not in page
    assert "window.pwned=2</script>" not in page
    assert "{{ 6*7 }}{% endraw %}${6*7}#{6*7}" in page  # no template ran
    assert page.count("<script") == 4
    assert page.count("</style>") == 1
    assert sample.hidden_in(page) == []


def test_a_patch_takes_the_place_of_the_example() -> None:
    rich = sample.rich()
    for patch, kept, gone in (("--- a/x\n+++ b/x\n-old\n", "-old", "example()"), (None, "example()", "Copy patch")):
        findings = [replace(rich.findings[0], fix=Fix("Do it.", "example()", patch))]
        text = visible(page_of(replace(rich, findings=findings)))
        assert kept in text
        assert gone not in text


def test_rich_report_tells_everything() -> None:
    page = page_of(sample.rich())
    text = visible(page)
    for phrase in [
        "The GPU is idle for 61% of each step. The data loader is the bottleneck.",
        "198 ms per step (48%, likely 35–59%)", "405.0–421.0 ms (p10–p90), mean of 11 of 12 steps",
        "NVIDIA H100 80GB HBM3",
        "GPU idle, 251.0 ms (61%)", "GPU busy, 161.0 ms (39%)", "57.0 ms",
        "The plan: 3 fixes in this order", "Together they save 198 ms.",
        "After the top 3 ≈ 214 ms", "After the top 3 (estimate) ≈ 214 ms 48% less",
        "saves 150 ms alone 150 ms step after 262 ms", "saves 22 ms alone 9 ms step after 214 ms", "Needs fix 1",
        "≈ 13 ms alone, 3.2% of the step", "Not in the plan: alternatives, and fixes that add little",
        "112–187 ms", "Copy patch", "traceopt rule DL001",
        "Also noted, without an estimate",
        "GPU idle 187.0 ms: waiting for data", "Same cause as CM004", "25,216",
        "vectorized_elementwise_kernel",
        "26.1 GiB reserved", "Not checked (1)", "Failed with an error (1)", "11 rules: 6 found something",
        "They were replayed on the step&#39;s dependency graph. The replay error is 1.2%:",
        "traceopt analyze logs/rank0.pt.trace.json.gz",
    ]:  # fmt: skip
        assert phrase in text, phrase
    order = [
        page.index(f'id="{anchor}"')
        for anchor in [
            "time",
            "fixes",
            "timeline",
            "ranks",
            "memory",
            "gemms",
            "kernels",
            "ops",
            "checks",
            "how",
        ]
    ]
    assert order == sorted(order)
    assert page.count('<details class="fix') == 6
    assert re.search(r'<details class="fix planned" id="DL001" open data-first>', page)


def test_cpu_report_claims_nothing_about_a_gpu() -> None:
    text = visible(page_of(sample.cpu_only()))
    assert "GPU idle" not in text
    assert "GPU busy" not in text
    assert "Model work 58 %" in text
    assert "Outside the model, 3.5 ms (42%)" in text
    assert "Patterned parts: no model work on the main thread." in text
    assert "Not applicable: this step ran on the CPU." not in text
    assert "Matmuls: not recorded: set record_shapes=True" in text
    assert "Memory: not recorded: set profile_memory=True" in text
    assert "3.1 ms: waiting for data" in text


def test_settings_of_the_run_are_shown() -> None:
    text = visible(page_of(sample.rich()))
    assert "32 CPU cores" in text
    assert "CPU cores: 32, TF32 for matmuls: off" in text
    assert "CPU cores:" not in visible(page_of(sample.cpu_only()))


def test_long_names_in_titles_break_after_underscores() -> None:
    first = replace(sample.rich().findings[0], title="Use fused attention (scaled_dot_product_attention) <b>")
    page = page_of(replace(sample.rich(), findings=[first]))
    assert page.count("(scaled_<wbr>dot_<wbr>product_<wbr>attention) &lt;b&gt;") == 3


def test_ranks_without_a_trace_are_told_first() -> None:
    rich = sample.rich()
    one = replace(rich, run=replace(rich.run, world_size=1_024, ranks=[0], shown_rank=0))
    assert "1,023 of 1,024 ranks are missing" in visible(page_of(one))
    two = replace(rich, run=replace(rich.run, world_size=2, ranks=[0], shown_rank=0))
    assert "1 of 2 ranks is missing" in visible(page_of(two))
    every = replace(rich, run=replace(rich.run, world_size=1, ranks=[0], shown_rank=0))
    assert "missing" not in visible(page_of(every))


def test_no_fix_comes_before_another_recording() -> None:
    assert "Start with" in visible(page_of(sample.rich()))
    quality = replace(sample.rich().quality, record_again=True)
    assert "Start with" not in visible(page_of(replace(sample.rich(), quality=quality)))


def test_missing_numbers_are_words() -> None:
    text = visible(page_of(sample.empty()))
    assert "Recorded window not recorded" in text
    assert "Peak memory" not in text
    assert "Memory: not recorded: set profile_memory=True" in text
    assert "not estimated" in text
    assert "No step could be measured." in text
    assert "None" not in text
    assert "nan" not in text.split()


def test_without_memory_the_last_tile_is_something_known() -> None:
    rich = sample.rich()
    unknown = replace(rich, memory=replace(rich.memory, peak_allocated_bytes=None, peak_reserved_bytes=None))
    rate = replace(rich.efficiency, mfu=0.28, peak_tflops=15.7, peak_dtype="fp32")
    known = tiles(replace(unknown, throughput=None, efficiency=rate))
    assert known[-1] == Tile("MFU", "28", "%", "of the fp32 peak of 15.7 TFLOP/s")
    for nothing in (replace(rate, mfu=None), replace(rate, mfu=0.0004)):
        last = tiles(replace(unknown, throughput=None, efficiency=nothing))[-1]
        assert last.label.startswith("After")
    assert not any(tile.value == "not recorded" for tile in known)


def test_the_range_stands_beside_the_number_of_the_headline() -> None:
    rich = sample.rich()
    assert rich.combined is not None
    text = visible(page_of(replace(rich, combined=replace(rich.combined, low_us=140_000, high_us=250_000))))
    assert "save about 198 ms per step (48%, likely 34–61%) : 412.0" in text
    unknown = replace(rich.combined, low_us=None, high_us=None)
    assert "save about 198 ms per step (48%) : 412.0" in visible(page_of(replace(rich, combined=unknown)))


def test_a_range_beyond_its_part_says_why() -> None:
    rich = sample.rich()
    first, *rest = rich.findings
    assert first.saving is not None
    off = replace(first, saving=replace(first.saving, error_share=0.24))
    row, part = rich.plan[0], rich.breakdown[0]
    why = "Beyond the measured time: earlier predictions were off by up to 24%."

    def text(high_us: float) -> str:
        plan = [replace(row, high_us=high_us), *rich.plan[1:]]
        return visible(page_of(replace(rich, findings=[off, *rest], plan=plan)))

    assert row.finding == first.id
    assert why in text(1.1 * part.us_per_step)
    assert why not in text(0.9 * part.us_per_step)


def test_ranks_say_how_long_the_others_wait_for_them() -> None:
    rich = sample.rich()
    assert "Waited for ms" not in visible(page_of(rich)), "the ranks were not compared"
    late = replace(rich.ranks[0], waited_for_us=12_300.0)
    text = visible(page_of(replace(rich, ranks=[late, *rich.ranks[1:]])))
    assert "Waited for ms" in text
    assert "how long the others wait for this rank, or for the ranks that are late with it, in the median step." in text


def test_a_kernel_says_what_its_rate_means() -> None:
    rich = sample.rich()
    kernels = [
        replace(rich.kernels[2], bound="memory"),
        replace(rich.kernels[1], bound="compute"),
        replace(rich.kernels[2], bound="neither", peak_share=0.3, gb_per_s=1_005.0),
        replace(rich.kernels[2], limit=None, peak_share=None),
    ]
    bounds = ["memory-bound", "compute-bound", "far below memory", ""]
    assert [bound_words(kernel) for kernel in kernels] == bounds
    text = visible(page_of(replace(rich, kernels=kernels)))
    assert text.count("Memory-bound: only moving fewer bytes helps") == 1
    assert "2,810 memory-bound" in text
    assert "Far below compute:" not in text, "only what the table has is explained"


def test_names_in_tables_break_between_their_parts() -> None:
    """Not in the middle of a word, as in "nvolution_back"."""
    rich = sample.rich()
    kernel = replace(
        rich.kernels[0], op="aten::cudnn_convolution", location=Location("torchvision/models/resnet.py", 128)
    )
    page = page_of(replace(rich, kernels=[kernel]))
    assert "<code>aten::<wbr>cudnn_<wbr>convolution</code>" in page
    assert "torchvision/<wbr>models/<wbr>resnet.py<i>:128</i>" in page


def test_evidence_that_is_a_part_of_another_row_is_indented() -> None:
    rich = sample.rich()
    rows = [Evidence("Peak allocated", detail="23.4 GiB"), Evidence("At the peak: x", detail="2 GiB", inside=True)]
    found = replace(rich.findings[0], evidence=rows)
    page = page_of(replace(rich, findings=[found, *rich.findings[1:]]))
    assert page.count('<td><span class="inside">') == 1


def test_gray_is_only_for_time_that_the_program_does_not_explain() -> None:
    grays = {cause.key for cause in CAUSES if cause.look.color in ("cpu", "other", "unrecorded")}
    assert grays == {"unrecorded", "untraced"}


def test_gpu_that_was_not_recorded() -> None:
    rich = sample.rich()
    run = replace(rich.run, recorded=replace(rich.run.recorded, gpu=False))
    text = visible(page_of(replace(rich, run=run, gpu=sample.cpu_only().gpu, kernels=[])))
    assert "GPU busy not recorded" in text
    assert "GPU idle" not in text.replace("GPU busy and idle", "")
    assert "GPU kernels: not recorded: pass activities=" in text
    assert 'id="kernels"' not in page_of(replace(rich, run=run, gpu=sample.cpu_only().gpu, kernels=[]))


def test_quality_notes_come_before_the_numbers() -> None:
    page = page_of(sample.unusable())
    assert page.index('role="note"') < page.index('class="lead"') < page.index('class="tiles"')
    page = page_of(sample.limited())
    assert page.index('class="lead"') < page.index('role="note"') < page.index('class="tiles"')


def test_notes_of_a_limited_trace_show_a_sentence_each() -> None:
    good = replace(sample.limited().quality, verdict="good")
    assert "<h2>Keep in mind</h2>" in page_of(replace(sample.rich(), quality=good))
    assert 'role="note"' not in page_of(sample.rich())
    page = page_of(sample.limited())
    assert "<summary>Stacks were recorded: host-bound shares are too large.</summary>" in page


def test_unusable_trace_has_no_estimates() -> None:
    text = visible(page_of(sample.unusable()))
    assert "These numbers are not reliable" in text
    assert "412 launches have no kernel" in text
    assert "Savings are not estimated" in text
    assert "3 findings, savings not estimated" in text
    assert "this trace is not reliable enough for estimates" in text
    assert "≈" not in text
    assert "High impact" not in text
    assert "<h1><span>This trace cannot be judged.</span></h1>" in page_of(sample.unusable())
    assert text.count("412 launches have no kernel") == 1
    assert "Step time not reliable in the trace: 412.0 ms" in text


@pytest.mark.parametrize("build", SAMPLES)
def test_the_navigation_has_the_words_of_the_headings(build) -> None:
    page = render_html(build())
    headings = dict(re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', page))
    links = re.findall(r'<a(?: class="js" hidden)? href="#([\w-]+)">([^<]+)</a>', page[: page.index("<main")])
    assert {"steps", "flame"} & headings.keys() <= {anchor for anchor, _ in links}
    named = {anchor: name for anchor, name in links if anchor != "fixes"}  # whose heading counts them
    assert [name for anchor, name in named.items() if name.lower() not in headings[anchor].lower()] == []


def test_savings_that_are_not_estimated_are_said_once() -> None:
    """The heading says so, and nothing below it."""
    rich = sample.rich()
    noted = [replace(finding, saving=None) for finding in rich.findings]
    text = visible(page_of(replace(rich, findings=noted, plan=[], combined=None)))
    assert "6 findings, savings not estimated" in text
    assert "savings are not estimated" not in text.lower().split("6 findings")[1][:400]


def test_the_typical_step_is_named_below_the_strip() -> None:
    """A label inside the chart would lie on the columns."""
    section = page_of(sample.rich()).split('id="steps"')[1].split("</section>")[0]
    assert 'aria-hidden="true"></em>' in section
    assert "Typical step 412.0 ms" in section


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("Python without launches", "Python without launches"),
        ("CPU operators", "CPU operators"),
        ("Waiting for data", "waiting for data"),
    ],
)
def test_causes_inside_sentences_keep_their_names(label: str, shown: str) -> None:
    """ "GPU idle: python without launches", "cPU operators"."""
    rich = sample.rich()
    assert rich.timeline is not None
    stalls = [replace(stall, label=label) for stall in rich.timeline.stalls]
    page = page_of(replace(rich, timeline=replace(rich.timeline, stalls=stalls)))
    assert f"GPU idle: {shown}" in visible(page)
    assert re.search(rf"GPU idle [\d.]+\sms: {shown}", visible(page))


def test_unusable_trace_without_findings_is_not_called_healthy() -> None:
    text = visible(page_of(sample.empty()))
    assert "Fixes: not assessed" in text
    assert "No fix found" not in text
    assert "Nothing was found" not in text
    assert "record the trace again" not in text  # another recording does not help on a device that is not supported


def test_checks_without_a_finding_ask_for_no_change() -> None:
    result = sample.healthy()
    checks = page_of(result).split('id="checks"')[1]
    assert [check.title for check in result.checks if check.title in checks] == []
    passed = [check for check in result.checks if check.status == "passed"]
    shown = visible(page_of(result))
    assert all(f"{check.code} {check.name} {check.reason}" in shown for check in passed)


def test_nothing_found_is_not_repeated() -> None:
    assert page_of(sample.healthy()).count("No fix above 3% found.") == 1


def test_dimensions_that_are_not_aligned_are_marked() -> None:
    base = sample.rich().gemms[3]
    multiples = {"fp16": 8, "bf16": 8, "tf32": 4, "fp32": 4, "int8": 16, "fp8": 16}
    wrong = {"fp16": 12, "bf16": 12, "tf32": 10, "fp32": 10, "int8": 24, "fp8": 24}
    for dtype, size in wrong.items():
        gemm = replace(base, dtype=dtype, m=7, n=size, k=64)
        page = page_of(replace(sample.rich(), gemms=[gemm]))
        assert page.count('class="flag"') == 1, dtype
        assert f'<span class="flag">not ×{multiples[dtype]}</span> {size}' in page
        assert 'class="flag"' not in page_of(replace(sample.rich(), gemms=[replace(gemm, aligned=True)]))
        assert 'class="flag"' not in page_of(replace(sample.rich(), gemms=[replace(gemm, aligned=None)]))


def test_lines_that_were_not_recorded() -> None:
    rich = sample.rich()
    run = replace(rich.run, recorded=replace(rich.run.recorded, stacks=False))
    finding = replace(rich.findings[0], locations=[], evidence=[replace(rich.findings[0].evidence[0], location=None)])
    kernels = [replace(kernel, location=None) for kernel in rich.kernels]
    text = visible(page_of(replace(rich, run=run, findings=[finding], kernels=kernels)))
    assert "Unknown line: record with with_stack=True." in text
    assert "Launched from" not in text
    assert "Source line" not in text
    assert "Line not known" not in visible(page_of(replace(rich, findings=[finding])))
    assert "the first line of each Python function" in visible(page_of(rich))


def test_a_finding_of_one_rank_names_it() -> None:
    assert "Rank 2 only" in visible(page_of(sample.rich()))
    assert page_of(sample.rich()).count(" only</span>") == 1


def test_the_headline_names_the_fixes_of_the_plan() -> None:
    rich = sample.rich()
    first, second, third = rich.findings[:3]
    again = replace(first, locations=[Location("train.py", 99, None)], id="DL001-000000")
    for findings, planned, phrase in [
        ([first, second, third, again], [0, 1, 2], "the top 3 fixes"),
        ([first, second, third, again], [0, 1, 3], "fixes 1, 2 and 4"),
        ([first, again, third], [0, 1], "the top 2 fixes"),
        ([first], [0], "the top fix"),
        ([second, first], [1], "fix 2"),
        ([second], [], "the fixes"),  # of an earlier version, which wrote no plan
    ]:
        plan = [replace(row, finding=findings[place].id) for row, place in zip(rich.plan, planned, strict=False)]
        assert combined_fixes(replace(rich, findings=findings, plan=plan)) == phrase


def test_steps_that_are_left_out_are_mentioned() -> None:
    rich = sample.rich()
    assert "Mean of 11 steps, rank 0 of 4 (1 unusual step left out)." in page_of(rich)
    every = replace(rich.step, typical_steps=list(range(12)))
    assert "unusual step left out" not in page_of(replace(rich, step=every))


def test_a_plan_without_its_total_is_shown() -> None:
    """Of a foreign document."""
    assert "Each assumes" not in visible(page_of(replace(sample.rich(), combined=None)))


def test_healthy_trace_is_called_healthy() -> None:
    text = visible(page_of(sample.healthy()))
    assert "No fix above 3% found." in text
    assert "No fix found" in text, "not 'Nothing to fix': rules that could not check may have found something"
    healthy = sample.healthy()
    [first, *rest] = healthy.checks
    unchecked = visible(page_of(replace(healthy, checks=[replace(first, status="not_checked"), *rest])))
    assert f"No rule found anything to change. 1 of {len(healthy.checks)} could not check this recording." in unchecked
    assert "Quality" not in text


def test_findings_of_one_rule_get_their_own_anchor() -> None:
    rich = sample.rich()
    page = page_of(replace(rich, findings=[rich.findings[0], rich.findings[0]]))
    assert 'id="DL001"' in page
    assert 'id="DL001-2"' in page


def test_locations_without_a_line() -> None:
    rich = sample.rich()
    finding = replace(rich.findings[0], locations=[Location("train.py", None, None)])
    assert "train.py" in visible(page_of(replace(rich, findings=[finding])))


def test_reports_are_cheap_to_import() -> None:
    heavy = "{'jinja2', 'pandas', 'numpy'}"
    code = f"import sys, traceopt.reports.text.terminal; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    code = "import sys, traceopt.reports.html.page as h; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_first_fix_is_at_the_top() -> None:
    page = page_of(sample.rich())
    start = page[page.index('class="start"') : page.index('class="tiles"')]
    assert 'Start with: <a href="#DL001">Load data in worker processes</a>, <code>train.py:61</code>' in start
    assert "saves about 150 ms" in start
    assert 'class="start"' not in page_of(sample.unusable())
    assert 'class="start"' not in page_of(sample.healthy())


def test_a_sampled_file_promises_nothing() -> None:
    """It has no combined saving, and the largest single saving has low confidence."""
    rich = sample.rich()
    findings = [replace(finding, confidence="low") for finding in rich.findings]
    text = visible(page_of(replace(rich, findings=findings, combined=None, plan=[])))
    assert "The largest single fix may save about 150 ms per step (36%, likely 27–45%) , with low confidence." in text


def test_the_file_is_named_by_its_hash() -> None:
    assert '<code title="' + "5d1c" * 16 + '">5d1c5d1c5d1c</code>' in page_of(sample.rich())
    assert "CUDA 12.8" in visible(page_of(sample.rich()))


def test_the_rows_of_a_table_of_memory_have_one_unit() -> None:
    rich = sample.rich()
    parts = [MemoryPart("Activations", 20 * 2**30), MemoryPart("Gradients", 42 * 2**20), MemoryPart("Other", 2**10)]
    text = visible(page_of(replace(rich, memory=replace(rich.memory, composition=parts))))
    section = text[text.index("Memory at the peak") :]
    assert [size for size in ("20.0 GiB", "0.041 GiB", "&lt;0.01 GiB") if size in section] == [
        "20.0 GiB", "0.041 GiB", "&lt;0.01 GiB",
    ]  # fmt: skip


def test_a_finding_of_all_ranks_does_not_list_them() -> None:
    rich = sample.rich()
    first, *rest = rich.findings
    everywhere = replace(rich, findings=[replace(first, ranks=rich.run.ranks), *rest])
    assert "Seen on all ranks." in visible(page_of(everywhere))
    assert "Seen on rank 1." in visible(page_of(replace(rich, findings=[replace(first, ranks=[1]), *rest])))


def test_copies_are_open_if_they_take_most_of_the_step() -> None:
    """The headline says that they are the bottleneck: which ones?"""
    rich = sample.rich()
    closed = '<details class="closed"><summary><h2 id="copies">'
    assert closed in page_of(rich)
    copies = replace(rich.breakdown[-1], name="copies", label="Exposed copies", busy=True, us_per_step=900_000.0)
    page = page_of(replace(rich, breakdown=[*rich.breakdown, copies]))
    assert closed not in page
    assert closed.replace(">", " open>", 1) in page


def test_a_path_in_a_title_breaks_at_a_slash_and_not_in_its_line_number() -> None:
    assert str(breakable("layers/quant/unquant.py:136 at 3 GB/s")) == "layers/<wbr>quant/<wbr>unquant.py:136 at 3 GB/s"
