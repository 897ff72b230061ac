"""The terminal summary: its content and width, and that it prints no control characters."""

from __future__ import annotations

import re

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.text.terminal import render_concise, render_terminal
from traceopt.result.finding import Location

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SAMPLES = sample.ALL


def shown(result: object, *, width: int = 80, color: bool = False, unicode: bool = True) -> str:
    return render_terminal(result, width=width, color=color, unicode=unicode)  # type: ignore[arg-type]


def on_one_line(result: object) -> str:
    return shown(result).replace("\n", " ")


@pytest.mark.parametrize("build", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_fits_the_terminal(build, width: int) -> None:
    for unicode in (True, False):
        lines = shown(build(), width=width, unicode=unicode).splitlines()
        assert max(map(len, lines)) <= min(width, 110)


@pytest.mark.parametrize("build", SAMPLES)
def test_ascii_fallback_is_ascii(build) -> None:
    assert shown(build(), unicode=False).isascii()


@pytest.mark.parametrize("build", SAMPLES)
def test_color_adds_nothing_but_color(build) -> None:
    assert ANSI.sub("", shown(build(), color=True)) == shown(build())
    assert "\x1b" not in shown(build())


def test_hostile_strings_print_as_text() -> None:
    output = shown(sample.hostile(), color=True)
    rest = ANSI.sub("", output)
    assert sample.hidden_in(rest) == []
    assert not re.search(r"^\s*::", rest, re.MULTILINE)


def test_says_what_the_report_says() -> None:
    output = shown(sample.rich(), width=100)
    assert output.startswith("traceopt  logs: 4 files · 4 × NVIDIA H100 80GB HBM3 · 12 steps")
    assert "The GPU is idle for 61% of each step. The data loader is the bottleneck." in output
    assert "The top 3 fixes save about 198 ms per step (48%, likely 35–59%): 412.0 → about 214 ms." in output
    assert re.search(r"idle +187\.0 ms +45%  █+ +Waiting for data", output)
    assert re.search(r"busy +124\.0 ms +30%  █+ +Compute kernels", output)
    assert re.search(r"^ +saves +alone +step after +confidence fix$", output, re.M)
    for row in (
        r" 1 150 ms  150 ms      262 ms  high +DL001 Load data in worker processes\n +train.py:61",
        r" 2  26 ms   42 ms      236 ms  medium +TC002 Let FP32 matmuls use Tensor Cores.*\n +model/vit.py:57",
        r" 3  22 ms    9 ms      214 ms  high +HS002 Stop copying logits.*\n +train.py:98 · needs fix 1",
    ):
        assert re.search(f"^{row}$", output, re.M), row
    legend = ("Each row saves this after those above it", "may be nothing counts half", "Alone:", "Confidence:")
    places = [" ".join(output.split()).index(part) for part in (*legend, " 1 150 ms")]
    assert places == sorted(places)
    assert "Not in the plan: alternatives, and fixes that add little:" in output
    assert re.search(r"^ 4  13 ms   3\.2%  high +DL003 Pin host memory for input batches\n +train.py:64$", output, re.M)
    assert "With a patch: 4." in output
    assert "11 rules: 6 found something, 2 passed, 1 not checked, 1 not applicable, 1 failed with an error." in output
    assert "Warning: rank 2" in output


def test_a_fix_names_the_fixes_that_it_needs() -> None:
    rich = sample.rich()
    first, second, third = rich.plan
    needy = replace(rich, plan=[first, replace(second, needs=[1]), replace(third, needs=[1, 2])])
    assert "model/vit.py:57 · needs fix 1\n" in shown(needy, width=100)
    assert "train.py:98 · needs fixes 1 and 2\n" in shown(needy, width=100)
    unknown = replace(
        rich, plan=[replace(first, needs=[7]), replace(second, finding="DL001-000000")]
    )  # of a foreign document
    assert "needs" not in shown(unknown)


def test_fixes_without_a_plan_state_what_each_saves_alone() -> None:
    output = shown(replace(sample.rich(), plan=[], combined=None), width=100)
    assert re.search(r"^ +alone +share +confidence fix$", output, re.M)
    assert re.search(r"^ 1 150 ms +36%  high +DL001 Load data in worker processes\n +train.py:61$", output, re.M)
    assert "Alone:" not in output


def test_a_recording_without_steps_saves_of_the_recording() -> None:
    rich = sample.rich()
    assert rich.combined is not None
    limited = replace(rich, combined=replace(rich.combined, limit_after="launch"))
    assert "198 ms per step (48%, likely 35–59%): 412.0 → about 214 ms. The step is then launch-bound." in on_one_line(
        limited
    )
    window = replace(limited, step=replace(rich.step, source="window"))
    saved = "198 ms of the recording (48%, likely 35–59%): 412.0 → about 214 ms. The recording is then launch-bound."
    assert saved in on_one_line(window)


def test_cpu_run_does_not_mention_a_gpu() -> None:
    output = shown(sample.cpu_only())
    assert re.search(r"stall +3\.1 ms", output)
    assert re.search(r"model +2\.7 ms", output)
    assert "GPU" not in output.replace("the GPU waits", "")  # the sample finding's own text
    assert "idle" not in output


def test_healthy_run_is_called_healthy() -> None:
    output = shown(sample.healthy())
    assert "No fix above 3% found." in output
    assert "saves" not in output


def test_unreliable_numbers_are_marked_and_have_no_savings() -> None:
    output = shown(sample.unusable())
    assert "These numbers are not reliable:" in output
    assert "412 launches have no kernel" in output
    assert "Savings are not estimated" in output
    assert "Findings without an estimate:" in output
    assert "DL001" in output
    assert "\nThis trace cannot be judged.\n" in output


def test_concise_has_one_line_per_finding() -> None:
    verdict, *lines = render_concise(sample.rich()).splitlines()
    assert verdict == f"-: {sample.rich().verdict}"
    assert lines[0] == "train.py:61: DL001 saves 150 ms alone (36%), high confidence: Load data in worker processes"
    assert lines[5] == "-: TC003 saving not estimated, medium confidence: Reach more of the GPU's peak"
    assert render_concise(sample.healthy()) == f"-: {sample.healthy().verdict}\n"


def test_concise_stays_one_line_for_hostile_strings() -> None:
    output = render_concise(sample.hostile())
    assert len(output.splitlines()) == 8  # the verdict, six findings and a rule that failed
    assert sample.hidden_in(output) == []
    assert not re.search(r"^\s*(?:::|##vso|##team|%%)", output, re.MULTILINE)


def test_small_parts_share_a_line() -> None:
    rich = sample.rich()
    idle = rich.breakdown[0]
    crumbs = [replace(idle, name=f"crumb{n}", label=f"Crumb {n}", us_per_step=500.0, share=0.0012) for n in range(3)]
    output = shown(replace(rich, breakdown=[*crumbs, *rich.breakdown]))
    assert re.search(r"^ +1\.5 ms  0\.4%  █ +3 smaller parts$", output, re.M)
    assert "Crumb" not in output
    assert "Crumb 0" in shown(replace(rich, breakdown=[*crumbs[:1], *rich.breakdown]))


def test_a_verdict_ends_with_a_whole_sentence() -> None:
    long = "Other work takes 82% of the run, and the steps take the rest of it, which is 17%. " * 4
    text = shown(replace(sample.rich(), verdict=f"{long}This is the last sentence, and it has no room."))
    headline = text.split("\n\n")[1]
    assert headline.count("82%") == headline.count("17%.") == 3
    assert "This is the last" not in headline


def test_a_long_verdict_takes_four_lines() -> None:
    two = "Exposed (non-overlapped) communication takes 24% of the step. It is the true bottleneck."
    assert "24% of the step.\nIt is the true bottleneck.\n" in shown(replace(sample.rich(), verdict=two))
    lines = shown(replace(sample.rich(), verdict="word " * 80)).splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("The top 3")) - 1
    assert lines[end].endswith("…")
    assert lines[end - 4] == ""


def test_titles_and_places_stay_in_their_column() -> None:
    finding = sample.rich().findings[0]
    place = Location("research/models/vision/pipeline/adapters/train_loop.py", 61, None)
    long = replace(finding, title="Use one word after another " * 12, locations=[place])
    lines = shown(replace(sample.rich(), findings=[long])).splitlines()
    start = next(number for number, line in enumerate(lines) if "DL001" in line)
    column = lines[start].index("Use")
    assert all(line[:column].isspace() and line[column] != " " for line in lines[start + 1 : start + 4])
    assert lines[start + 3].endswith("…")
    assert lines[start + 4].endswith("/pipeline/adapters/train_loop.py:61")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_name_of_a_file_is_never_cut(width: int) -> None:
    """ "…_profiler_api.py:42" may be one of several files."""
    rich = sample.rich()
    place = Location("examples/resnet50_with_a_long_profiler_api.py", 42, None)
    long = replace(rich, findings=[replace(finding, locations=[place]) for finding in rich.findings])
    lines = shown(long, width=width).splitlines()
    assert sum(line.endswith("resnet50_with_a_long_profiler_api.py:42") for line in lines) == len(rich.findings)
    assert "…_" not in "".join(lines)


@pytest.mark.parametrize("scale", [1e-4, 0.01, 1, 10, 24, 240, 1e4])
@pytest.mark.parametrize("marks", ["profiler_step", "window"])
def test_the_columns_are_the_same_whatever_the_numbers_are(scale: float, marks: str) -> None:
    """A step of 412 ms in all lengths, in a terminal of 80 columns."""
    rich = sample.rich()
    assert rich.combined is not None
    times = ("saving_us", "alone_us", "low_us", "high_us", "step_us_after")
    rows = [replace(row, **{name: getattr(row, name) * scale for name in times}) for row in rich.plan]
    combined = replace(
        rich.combined, saving_us=rich.combined.saving_us * scale, step_us_after=rich.combined.step_us_after * scale
    )
    source = "window" if marks == "window" else "profiler_step"
    output = shown(replace(rich, plan=rows, combined=combined, step=replace(rich.step, source=source)))
    after = "time" if marks == "window" else "step"
    assert re.search(rf"^ +saves +alone +{after} after +conf\. +fix$", output, re.M)
    assert re.search(r"^ 1 .* high +DL001 Load .*\n +train.py:61$", output, re.M)
    assert re.search(r"^ +alone +share +conf\. +fix$", output, re.M)


def test_what_was_recorded_is_never_cut_off() -> None:
    rich = sample.rich()
    long = replace(rich, run=replace(rich.run, paths=["logs/benchmark_result_2869224_1695835535_trace.json.gz"]))
    output = shown(replace(long, step=replace(rich.step, source="window")))
    assert output.splitlines()[:2] == [
        "traceopt  benchmark_result_2869224_1695835535_trace.json.gz",
        "          4 × NVIDIA H100 80GB HBM3 · no usable step marks · rank 0 of 4",
    ]


def test_on_a_narrow_terminal_a_title_has_its_own_lines() -> None:
    lines = shown(sample.rich(), width=60).splitlines()
    start = lines.index(" 3  22 ms    9 ms      214 ms  high")
    assert lines[start + 1 : start + 3] == [
        "   HS002 Stop copying logits to the CPU every step",
        "         train.py:98 · needs fix 1",
    ]


def test_a_finding_above_the_plan_keeps_the_numbers_of_the_plan_right() -> None:
    """Findings of all ranks may stand above the plan: "needs" means the number of the fix, not its row."""
    rich = sample.rich()
    above = replace(rich.findings[4], saving=sample.saving(0, 200, 250, ""))
    output = shown(replace(rich, findings=[above, *rich.findings[:4], *rich.findings[5:]]), width=110)
    assert "train.py:98 · needs fix 2" in output
    assert "Fix 1, from comparing the ranks, saves about 200 ms per step (49%). On rank 0, fixes 2, 3 and 4" in output
    headings = [
        "From comparing the ranks:",
        " 1 200 ms",
        "The plan for rank 0:",
        " 2 150 ms",
        " 4  22 ms",
        "Not in the",
    ]
    places = [output.index(f"\n{heading}") for heading in headings]
    assert places == sorted(places)


def test_parts_without_a_share_are_left_out() -> None:
    rich = sample.rich()
    parts = [replace(part, share=0.0) for part in rich.breakdown]
    assert "Waiting for data" not in shown(replace(rich, breakdown=parts))


@pytest.mark.parametrize("unicode", [True, False])
def test_a_number_and_its_unit_stay_on_one_line(unicode: bool) -> None:
    for build in SAMPLES:
        for width in range(60, 111, 5):
            output = shown(build(), width=width, unicode=unicode)
            assert not re.search(r"\d\n *(?:ms|s|µs|us|MiB|GiB)\b", output), (build.__name__, width)
