"""GM006: linear algebra on many small matrices keeps a GPU waiting."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.work.linear_algebra import LinearAlgebra
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Priced,
    Risk,
    Rule,
    SiteCost,
    by_site,
    each_step,
    ms,
    per_step,
    percent,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import held_ns, without_calls_of

LOW = 0.5  # of the time of the calls
AS_MANY = 4  # calls take as long as the batched one is expected to
REPEATS = 0.9  # of the calls of a loop: so many follow each other with nothing in between that computes


class SmallLinearAlgebra(Rule):
    """Measures solvers and decompositions (inv, cholesky, solve, eigh, svd, qr) of matrices with at most 512 columns:
    for how long they keep the GPU busy or waiting. It reports lines that call them one matrix at a time, and calls with
    a batch in which the library runs one matrix after the other.

    Why it costs: a small matrix leaves most of a GPU idle, and each call launches several kernels and may wait for the
    GPU, to check whether it worked. cuBLAS and cuSOLVER have kernels for a whole batch of small matrices, but not for
    every operation: most eigenvalue and singular value decompositions run matrix by matrix even in a batch.

    How to fix: stack the matrices and make one call.

        inverses = torch.linalg.inv(torch.stack(matrices))   # instead of: [torch.linalg.inv(m) for m in matrices]

    inv_ex, cholesky_ex and solve_ex do not wait for the GPU, nor raise an error for a singular matrix. For a
    decomposition of many matrices try the CPU, where a small one takes microseconds, and compare:

        values, vectors = (part.to(device) for part in torch.linalg.eigh(matrices.cpu()))

    When it is wrong: a loop in which a call needs the result of the last one cannot be batched. So loops have a saving
    only if nothing else is computed between their calls, and matrices of different sizes need padding. Expected is that
    the batched call takes as long as four single ones. Whether a CPU is faster depends on the CPU and on the number of
    matrices, so that has no saving.

    Sources: PyTorch documentation, "torch.linalg" (inv_ex, cholesky_ex); PyTorch issues 22573 and 183806 (batched eigh
    on a GPU).
    """

    code = "GM006"
    name = "small-linear-algebra"
    title = "Batch the linear algebra of small matrices"
    family = "matrix shapes"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("gpu", "launches", "ops", "shapes")

    min_share: float = threshold(0.05, "smallest time of such calls of a line, as a share of the step, to report")
    min_calls: int = threshold(8, "fewest calls of a line per step, or matrices of a call, to count")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.linear_algebra) else "No linear algebra on small matrices."

    def check(self, facts: Facts) -> Findings:
        found = facts.linear_algebra
        single = found.matrices == 1
        in_turn = (found.matrices >= self.min_calls) & (found.launches >= found.matrices)
        yield from self._loops(facts, found.take(single & found.batched))
        yield from self._decompositions(facts, found.take((single | in_turn) & ~found.batched))

    def _loops(self, facts: Facts, found: LinearAlgebra) -> Findings:
        for site, line in self._lines(facts, found):
            calls = len(line) / facts.steps.count
            alone = line.repeats.mean() >= REPEATS * (1 - 1 / calls)
            yield self._finding(
                facts,
                site,
                f"Small matrices are solved one by one, {calls:,.0f} times {per_step(facts)}.",
                BATCH,
                priced=bool(alone),
            )

    def _decompositions(self, facts: Facts, found: LinearAlgebra) -> Findings:
        for site, line in self._lines(facts, found):
            matrices = line.matrices.sum() / facts.steps.count
            why = f"{matrices:,.0f} small matrices {per_step(facts)} are decomposed one after the other."
            yield self._finding(facts, site, why, TRY_THE_CPU, title="Try small decompositions on the CPU")

    def _lines(self, facts: Facts, found: LinearAlgebra) -> list[tuple[SiteCost, LinearAlgebra]]:
        """The calls of each line that makes enough of them, and whose calls take long enough."""
        count = facts.steps.count
        sites = by_site(facts, found.rows, held_ns(facts, found.rows)) if len(found) else []
        long = [site for site in sites if site.cost_ns >= self.min_share * facts.step_ns * count]
        lines = [(site, found.only(site.rows)) for site in long]
        return [(site, line) for site, line in lines if line.matrices.sum() >= self.min_calls * count]

    def _finding(
        self, facts: Facts, site: SiteCost, what: str, fix: Fix, *, priced: bool = False, title: str | None = None
    ) -> Priced:
        time_ns, calls = site.cost_ns / facts.steps.count, len(site.rows) / facts.steps.count
        basis = f"Assumes that one batched call takes as long as {AS_MANY} of these; the low end is half of their time."
        shares = LOW, max(LOW, 1 - AS_MANY / calls), 1.0
        return self.finding(
            title=title,
            why=f"{what} They keep the GPU busy or waiting for {ms(time_ns)} of {each_step(facts)}.",
            saving=without_calls_of(facts, site.rows.astype(np.int64), shares, basis) if priced else None,
            evidence=site_evidence(facts, [site]),
            fix=fix,
        )

    def passed(self, facts: Facts) -> str:
        rows = facts.linear_algebra.rows
        share = percent(float(held_ns(facts, rows).sum()) / facts.steps.count / facts.step_ns)
        return f"Linear algebra on small matrices takes {share} of {the_step(facts)}."


BATCH = Fix(
    "If the calls do not need each other's results, stack the matrices and make one call.",
    "inverses = torch.linalg.inv(torch.stack(matrices))  # instead of: [torch.linalg.inv(m) for m in matrices]",
)
TRY_THE_CPU = Fix(
    "Move the matrices to the CPU in one copy, decompose them there, and compare the step time.",
    "values, vectors = (part.to(device) for part in torch.linalg.eigh(matrices.cpu()))",
)
