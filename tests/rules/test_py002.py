"""PY002 cpu-contention: use no more threads than cores."""

from __future__ import annotations

import pytest
from support.findings import document_of
from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason


class TestPlanted(PlantedFault):
    code = "PY002"


class TestContention:
    """PY002."""

    def test_more_threads_than_cores(self) -> None:
        found = finding(generated("cpu_contention"), "PY002")
        assert "24 threads (20 for operators and 4 workers) on 8 cores" in found.why
        assert found.fix.code == "export OMP_NUM_THREADS=4"

    def test_workers_and_operators_that_share_the_cores_have_the_same_work_to_do(self) -> None:
        found = finding(generated("cpu_contention", threads=6), "PY002")
        assert "10 threads (6 for operators and 4 workers) on 8 cores" in found.why
        assert found.saving is None
        assert "traceopt try --env OMP_NUM_THREADS=4" in found.fix.text

    def test_other_programs_are_no_fault_of_the_job(self) -> None:
        found = finding(generated("cpu_contention", threads=2), "PY002")
        assert found.title == "Find out what else runs on these cores"
        assert found.saving is None
        assert found.fix.code is None, "more threads would not help"

    def test_the_share_of_the_run_is_in_the_document(self) -> None:
        run = document_of(generated("cpu_contention")).whole_run
        assert run is not None
        assert run.core_wait_share == pytest.approx(0.3, rel=0.01)
        run = document_of(generated("cpu_contention", change={"ledger.core_wait": None})).whole_run
        assert run is not None
        assert run.core_wait_share is None

    def test_numa_nodes_are_named_where_there_are_several(self) -> None:
        change = {"environment.numa_nodes": {"all": 2, "used": 2}}
        assert "2 NUMA nodes" in finding(generated("cpu_contention", change=change), "PY002").fix.text

    def test_a_system_that_does_not_count(self) -> None:
        facts = generated("cpu_contention", change={"ledger.core_wait": None})
        assert "does not record" in reason(facts, "PY002", "not_applicable")
