"""The result document of files that are recorded beside a trace, where there is no trace."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.document.companions.sections import companion_headline, companion_sections
from traceopt.result.document import Quality, Result
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.sections.run import Recorded, Run, Tool
from traceopt.result.sections.step import Communication, DataLoader, Efficiency, Gpu, Memory, Step, Sync, TensorCores
from traceopt.rules.engine import RulesOutcome
from traceopt.rules.fingerprint import with_ids
from traceopt.version import __version__


def document_without_trace(facts: Facts, outcome: RulesOutcome) -> Result:
    """Nothing is known of the step: every measure of it is None."""
    path = facts.trace.meta.path
    return Result(
        tool=Tool("traceopt", __version__),
        verdict=companion_headline(facts),
        run=Run(
            paths=[path],
            world_size=None,
            ranks=[],
            shown_rank=None,
            device=None,
            torch_version=None,
            recorded=Recorded(gpu=False, shapes=False, stacks=False, memory=False),
            files=[],
        ),
        quality=Quality("good", outcome.notes),
        step=Step("none", 0, 0, None, [], None, None, None, []),
        breakdown=[],
        gpu=Gpu(None, None, None, None, None, []),
        sync=Sync(None, None, None),
        dataloader=DataLoader(None, None),
        communication=Communication(None, None, None, []),
        copies=[],
        tensor_cores=TensorCores(None, None, None),
        efficiency=Efficiency(None, None, None, None, None, None),
        memory=Memory(None, None, None, [], []),
        kernels=[],
        ops=[],
        gemms=[],
        ranks=[RankRow(None, path, None, None, None, None, "good")],
        timeline=None,
        findings=with_ids(outcome.findings),
        combined=None,
        checks=outcome.checks,
        **companion_sections(facts),
    )
