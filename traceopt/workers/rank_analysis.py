"""Analyzes one rank, from its files to its packed answer. This is what every worker does; it keeps nothing between
ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from traceopt.analyzer.companions.companions import read_companions
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import no_steps, summarize
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.analyzer.unprofiled import without_profiler
from traceopt.document.decision import decided_again
from traceopt.document.rank_answer import RankAnswer, Refuted
from traceopt.document.rank_document import other_rank, rank_document
from traceopt.document.without_trace import document_without_trace
from traceopt.errors import InputError, one_line
from traceopt.rules.engine import check_rules, planned, refuted
from traceopt.rules.rule import Rule
from traceopt.workers.rank_task import RankTask, loaded

_SHOWN = (0, None)  # the rank whose decision the document shows if no rank is missing, as in a refutation


def analyze_rank(task: RankTask, count_bytes: Callable[[int], None] | None = None) -> bytes:
    """A packed RankAnswer. `count_bytes` is called with the number of bytes read since its last call."""
    if task.cache is None:
        return _analyze(task, count_bytes)
    from traceopt.workers.cache import Cache

    return Cache(task.cache).answer(task, lambda: _analyze(task, count_bytes))


def _analyze(task: RankTask, count_bytes: Callable[[int], None] | None) -> bytes:
    warnings: list[str] = []
    try:
        trace = read_recording(task.recording, warnings, count_bytes)
        companions = read_companions(task.recording.companions, warnings)
    except InputError as error:
        return RankAnswer.packed(None, None, warnings, problem=one_line(str(error)))
    facts = without_profiler(Facts(trace, task.options.devices, task.options.workload, companions))
    rules = loaded(task.options).chosen
    return answer(
        facts,
        rules,
        warnings,
        task.sharing,
        whole=task.whole,
        most_exposed_us=task.spans.most_exposed_us,
        debug=task.options.debug,
    )


def answer(
    facts: Facts,
    rules: Sequence[Rule],
    warnings: list[str],
    sharing: int = 1,
    *,
    whole: bool = True,
    most_exposed_us: float = math.inf,
    debug: bool,
) -> bytes:
    """A packed RankAnswer, from what was measured. `sharing` as in `rank_document`. Unless `whole`, ranks that are
    hardly the lowest one have only the parts that the document of the lowest one needs. `most_exposed_us` as in
    `other_rank`.
    """
    meta = facts.trace.meta
    whole = whole or meta.rank in _SHOWN or not facts.has_trace
    outcome = check_rules(rules, facts, only_found=not whole, debug=debug)
    if not facts.has_trace:
        return RankAnswer.packed(document_without_trace(facts, outcome), no_steps(meta.path), warnings)
    if not whole:
        other = other_rank(facts, planned(outcome, facts), sharing, most_exposed_us)
        return RankAnswer.packed(other, summarize(facts), warnings)
    document = rank_document(facts, planned(outcome, facts), sharing)
    others = refuted(outcome, rules) if meta.rank in _SHOWN else ()
    decisions = [Refuted(codes, decided_again(document, facts, planned(other, facts))) for codes, other in others]
    return RankAnswer.packed(document, summarize(facts), warnings, refuted=decisions)
