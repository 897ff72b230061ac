"""CP006: a CPU-only run gets new pages of memory from the system in every step."""

from __future__ import annotations

from traceopt.rules import (
    Edit,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    SetVariable,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
    us,
)

VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
KEEP: list[Edit] = [SetVariable("MALLOC_TRIM_THRESHOLD_", "1073741824"), SetVariable("MALLOC_MMAP_MAX_", "0")]


class PageFaults(Rule):
    """Measures the page faults per step in a run without a GPU: pages of memory that the process did not have yet.
    `traceopt run` records them in every step and, after the run, measures what one costs on this machine.

    Why it costs: malloc of the C library gives large blocks back to the system when they are freed. The next step
    allocates tensors of the same sizes. The system then has to find, clear and map every page of them again, 4 KiB at a
    time.

    How to fix: let malloc keep freed memory.

        MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_MAX_=0 python train.py

    The first variable sets how much free memory stays with the process, the second keeps malloc from mapping large
    blocks one by one. tcmalloc and jemalloc keep freed memory as well (`LD_PRELOAD=libtcmalloc_minimal.so.4`).

    When it is wrong: how much is given back depends on which blocks happen to lie at the end of the heap, so the same
    script may have thousands of page faults per step in one run and few in the next. The finding therefore has no
    saving; `traceopt try --fix CP006` measures it.
    The count includes memory that a script reads for the first time, such as a mapped data set. Only the steps before
    the recording count, because memory that the profiler frees serves the steps after it.

    Sources: glibc manual, "Malloc Tunable Parameters"; PyTorch Performance Tuning Guide, section on memory allocators
    for the CPU.
    """

    code = "CP006"
    name = "cpu-page-faults"
    title = "Let malloc keep freed memory"
    family = "CPU runs"
    effort = Effort.ONE_LINE
    risk = Risk.MEMORY
    risk_note = "The process holds more memory"
    confidence = "low"  # it varies from run to run
    requires = ("cpu_only", "settings")

    min_share: float = threshold(0.03, "smallest cost of page faults, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        environment = facts.captured.environment
        if environment.libc != "glibc":
            return "This run does not use glibc, or that was not recorded."
        if environment.preloaded_allocator is not None:
            return f"This run uses {environment.preloaded_allocator}."
        chosen = next((name for name in VARIABLES if name in environment.variables), None)
        return f"{chosen} is set." if chosen else None

    def missing(self, facts: Facts) -> str | None:
        lack = super().missing(facts)
        if lack is None and self.applies(facts) is None and not _known(facts):
            return "What a page fault costs was not measured; record with traceopt run on an idle machine."
        return lack

    def check(self, facts: Facts) -> Findings:
        ledger, cost_ns = facts.captured.ledger, _cost_ns(facts)
        if ledger is None or cost_ns < self.min_share * facts.step_ns:
            return
        faults = ledger.usual_page_faults
        yield self.finding(
            why=(
                f"The system provides {faults:,.0f} new pages of memory in {each_step(facts)}. On this machine a page "
                f"costs {ledger.page_fault_ns / 1e3:.2g} us, together {ms(cost_ns)}."
            ),
            evidence=[Evidence("Page faults", us(cost_ns), round(faults, 1))],
            fix=Fix(
                "Let malloc keep freed memory, or use tcmalloc or jemalloc. traceopt try --fix CP006 measures it.",
                edits=KEEP,
            ),
        )

    def passed(self, facts: Facts) -> str:
        return f"Page faults take {percent(_cost_ns(facts) / facts.step_ns)} of {the_step(facts)}."


def _known(facts: Facts) -> bool:
    ledger = facts.captured.ledger
    return ledger is not None and ledger.page_faults is not None and ledger.page_fault_ns > 0


def _cost_ns(facts: Facts) -> float:
    """Per step."""
    ledger = facts.captured.ledger
    return ledger.usual_page_faults * ledger.page_fault_ns if ledger is not None else 0.0
