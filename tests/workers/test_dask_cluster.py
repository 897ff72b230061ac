"""A Dask cluster of real worker processes: the same bytes, and no rank lost with a worker or with the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from small_job import RANKS, VICTIM

from traceopt.api import analyze
from traceopt.errors import ConfigError
from traceopt.workers import dask_cluster

pytest.importorskip("distributed")

pytestmark = pytest.mark.cluster


class Cluster:
    """A scheduler and its workers on loopback: processes of their own, which no state of the tests can hold up."""

    def __init__(self) -> None:
        self.workers: list[subprocess.Popen[str]] = []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        assert self.scheduler.stderr is not None
        line = next(line for line in self.scheduler.stderr if "Scheduler at:" in line)
        self.address = line.split()[-1]
        self._drain(self.scheduler)

    def start_workers(self, *options: str) -> None:
        self.workers = [
            self._start("worker", self.address, "--nthreads", "1", "--death-timeout", "5", *options) for _ in range(2)
        ]
        for worker in self.workers:
            self._drain(worker)

    def _start(self, kind: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
        environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "false"}
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)

    def _drain(self, process: subprocess.Popen[str]) -> None:
        threading.Thread(target=process.stderr.read, daemon=True).start()  # type: ignore[union-attr]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a nanny's worker as well
            process.wait()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of two workers, which nannies restart."""
    cluster = Cluster()
    cluster.start_workers()
    yield cluster.address
    cluster.end()


def test_the_same_bytes(job: Path, address: str, tmp_path: Path) -> None:
    expected = analyze(str(job)).to_json()
    assert analyze(str(job), scheduler=address).to_json() == expected
    for _ in range(2):
        assert analyze(str(job), scheduler=address, cache=tmp_path).to_json() == expected
    assert len(list(tmp_path.iterdir())) == RANKS


def test_a_worker_that_dies_costs_no_rank(job: Path, address: str, accident: Path) -> None:
    whole = analyze(str(job), rules_dir=accident)
    (accident / "mode").write_text("die once")
    assert analyze(str(job), rules_dir=accident, scheduler=address).to_json() == whole.to_json()
    assert (accident / "died").exists()


def test_another_program_on_the_workers(job: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "program", lambda _: "another")
    with pytest.raises(ConfigError, match="has different traceopt code or rules"):
        analyze(str(job), scheduler=address)


class TestAClusterThatEnds:
    @pytest.fixture
    def cluster(self) -> Iterator[Cluster]:
        """A scheduler and two workers without nannies."""
        cluster = Cluster()
        cluster.start_workers("--no-nanny")
        yield cluster
        cluster.end()

    @pytest.mark.parametrize(
        ("who", "sent"),
        [("scheduler", signal.SIGKILL), ("workers", signal.SIGKILL), ("scheduler", signal.SIGSTOP)],
        ids=["scheduler", "workers", "silent scheduler"],  # its connections stay open, as if its machine lost power
    )
    def test_in_the_middle_costs_no_rank(
        self,
        cluster: Cluster,
        job: Path,
        accident: Path,
        who: str,
        sent: signal.Signals,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 1.0 if who == "workers" else 60.0)
        monkeypatch.setattr(dask_cluster, "CONNECT_S", 2.0)
        whole = analyze(str(job), rules_dir=accident)
        (accident / "mode").write_text("be slow")

        over = threading.Event()

        def kill() -> None:
            while not (accident / f"pid{VICTIM}").exists() and not over.wait(0.01):
                pass
            for process in [cluster.scheduler] if who == "scheduler" else cluster.workers:
                process.send_signal(sent)

        for pid in accident.glob("pid*"):
            pid.unlink()
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            result = analyze(str(job), rules_dir=accident, scheduler=cluster.address)
        finally:
            over.set()
            killer.join()
        (note,) = result.warnings
        assert note.startswith("The Dask cluster disappeared; this machine read ")
        assert [row.rank for row in result.ranks] == [row.rank for row in whole.ranks]
        assert result.findings == whole.findings


def test_a_client_that_cannot_be_closed_costs_no_rank(job: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask raises RuntimeError if the scheduler goes while the client looks for it."""
    from distributed import Client

    close = Client.close

    def fail(client: Client, timeout: float) -> None:
        close(client, timeout)
        raise RuntimeError("Cannot change state of expiring Timeout")

    monkeypatch.setattr(Client, "close", fail)
    assert len(analyze(str(job), scheduler=address).ranks) == RANKS


def test_no_scheduler_there(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    with pytest.raises(ConfigError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9: "):
        analyze(str(job), scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ConfigError, match="no Dask scheduler at nonsense: "):
        analyze(str(job), scheduler="nonsense")


def test_no_workers_there(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 0.2)
    empty = Cluster()
    try:
        with pytest.raises(ConfigError, match="has no worker"):
            analyze(str(job), scheduler=empty.address)
    finally:
        empty.end()


def test_without_dask(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'traceopt-profiler\[distributed\]'"):
        analyze(str(job), scheduler="tcp://127.0.0.1:8786")
