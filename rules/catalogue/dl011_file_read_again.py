"""DL011: the data set opens the same file again for each item."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.run_log.loaders import OpenedFiles
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    SiteCost,
    area_of,
    counted,
    each_step,
    host_bounds,
    lines_inside,
    ms,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows

LOW, EXPECTED = 0.5, 0.95  # of the time at the line: an item still takes its part of what was read


class FileReadAgain(Rule):
    """Measures the lines of a data set without workers that open the same file several times for a batch. `traceopt
    run` sees which files are opened in a few batches.

    Why it costs: reading and decoding the whole file takes the same time for each item, although an item needs a part
    of it.

    How to fix: read the file once, in `__init__` of the data set, and keep what the items need. A large array can be
    mapped: only the rows that are used are read.

        self.noise = np.load(path)                    # in __init__, not in __getitem__
        self.table = np.load(path, mmap_mode="r")     # or mapped, if it is larger than the memory

    Keep a container of many samples open instead of opening it for each. With workers, open it in the worker, at the
    first item.

    When it is wrong: the file changes during the training. If it is too large for the memory and cannot be mapped,
    store its items one by one.

    Sources: NumPy documentation, "numpy.load"; PyTorch documentation, "torch.utils.data".
    """

    code = "DL011"
    name = "file-read-again"
    title = "Read the file once, not for each item"
    family = "input pipeline"
    risk = Risk.MEMORY
    risk_note = "Its contents stay in memory"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.03, "smallest time at these lines, as a share of the step, to report")
    min_opens: float = threshold(4.0, "fewest times that a batch opens a file, on average, to count")

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of(DATA_LOADING)):
            return "No DataLoader in this trace."
        return None if self._lines(facts) else "No data set was seen to open the same file for each item."

    def check(self, facts: Facts) -> Findings:
        found = self._lines(facts)
        sites = _sites(facts, found)
        time_ns = _time_ns(facts, sites)
        if not sites or time_ns < self.min_share * facts.step_ns:
            return
        opens, files = (sum(counts) for counts in zip(*((one.opens, one.files) for one in found), strict=True))
        batches = max(one.batches for one in found)
        yield self.finding(
            why=(
                f"For a batch, the data set opens {counted(round(files / batches) or 1, 'file')} "
                f"{opens / batches:,.0f} times. The lines that do so take {ms(time_ns)} of {each_step(facts)}."
            ),
            saving=_price(facts, sites),
            evidence=site_evidence(facts, sites, inside=True),
            locations=[site.location for site in sites if site.location is not None],
            fix=Fix(
                "Read the file once, in __init__ of the data set, and keep what the items need. Map an array that is "
                "larger than the memory.",
                "self.data = np.load(path)  # in __init__; or np.load(path, mmap_mode='r')",
            ),
            shares_cause_with=["DL001"],
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_time_ns(facts, _sites(facts, self._lines(facts))) / facts.step_ns)
        return f"Lines that open the same file again take {share} of {the_step(facts)}."

    def _lines(self, facts: Facts) -> list[OpenedFiles]:
        return [one for one in facts.captured.opened_files if one.opens >= self.min_opens * one.files]


def _sites(facts: Facts, lines: list[OpenedFiles]) -> list[SiteCost]:
    wanted = {(one.file, one.line) for one in lines}
    sites = lines_inside(facts, loader_rows(facts))
    return [one for one in sites if one.location is not None and (one.location.file, one.location.line) in wanted]


def _time_ns(facts: Facts, sites: list[SiteCost]) -> float:
    return sum(facts.steps.host_mean_ns(area_of(facts, site.rows)) for site in sites)


def _price(facts: Facts, sites: list[SiteCost]) -> Price:
    area = area_of(facts, np.concatenate([site.rows for site in sites]))
    _, most, _ = host_bounds(facts, area, 1.0)
    return priced_host(
        facts,
        area,
        most,
        (LOW, EXPECTED, 1.0),
        f"Assumes {percent(LOW)}, {percent(EXPECTED)} or 100% of the time at these lines goes away.",
    )
