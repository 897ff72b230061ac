"""A Dask cluster of real worker processes: the same bytes, and no rank lost with a worker or with the cluster."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_job import RANKS, VICTIM
from support.command_line import one_error, run
from support.waiting import until

from traceopt.api import analyze
from traceopt.errors import ConfigError
from traceopt.result.document import Result
from traceopt.workers import dask_cluster

# Not imported here: each worker of `pytest -n` imports this file, and one of them runs it.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed"),
]


class Cluster:
    """A scheduler and its workers on loopback: processes of their own, which no state of the tests can hold up."""

    def __init__(self, **settings: str) -> None:
        """`settings`: Dask's, by the names of its environment variables."""
        self._settings = settings
        self.workers: list[subprocess.Popen[str]] = []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        assert self.scheduler.stderr is not None
        line = next(line for line in self.scheduler.stderr if "Scheduler at:" in line)
        self.address = line.split()[-1]
        self._drain(self.scheduler)

    def start_workers(self, *options: str, count: int = 2) -> None:
        common = ("--nthreads", "1", "--death-timeout", "60")
        self.workers = [self._start("worker", self.address, *common, *options) for _ in range(count)]
        for worker in self.workers:
            self._drain(worker)
        from distributed import Client

        with Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=300)

    def _start(self, kind: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
        environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "false", **self._settings}
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


def test_a_worker_that_dies_costs_no_rank(job: Path, address: str, accident: Path, whole: Result) -> None:
    (accident / "mode").write_text("die once")
    assert analyze(str(job), rules_dir=accident, scheduler=address).to_json() == whole.to_json()
    assert (accident / "died").exists()


def test_another_program_on_the_workers(job: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "program", lambda _: "another")
    with pytest.raises(ConfigError, match="has different traceopt code or rules"):
        analyze(str(job), scheduler=address)


def test_a_rank_that_kills_its_workers_is_left_out(job: Path, accident: Path) -> None:
    cluster = Cluster(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    try:
        cluster.start_workers()
        (accident / "mode").write_text("die")
        result = analyze(str(job), rules_dir=accident, scheduler=cluster.address)
    finally:
        cluster.end()
    assert result.run.ranks == [rank for rank in range(RANKS) if rank != VICTIM]
    killed, missing = result.warnings
    assert "host_5.1700000000000.pt.trace.json.gz: left out: its worker process was killed" in killed
    assert missing.startswith(f"Rank {VICTIM} of {RANKS} is missing")


def test_interrupted(job: Path, accident: Path) -> None:
    cluster = Cluster()
    try:
        cluster.start_workers("--no-nanny", count=1)
        (accident / "mode").write_text("hang")
        command = [sys.executable, "-m", "traceopt", "analyze", str(job), "--no-html", "--rules-dir", str(accident)]
        process = subprocess.Popen([*command, "--scheduler", cluster.address], stderr=subprocess.PIPE, text=True)
        until(lambda: any(accident.glob("pid*")))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        cluster.end()
    assert (process.returncode, told.strip()) == (130, "traceopt: interrupted")


class TestAClusterThatEnds:
    @pytest.fixture
    def cluster(self, request: pytest.FixtureRequest) -> Iterator[Cluster]:
        """A scheduler and workers without nannies: two if one of them goes on."""
        cluster = Cluster()
        cluster.start_workers("--no-nanny", count=2 if "hangs" in request.node.name else 1)
        yield cluster
        cluster.end()

    def test_with_a_rank_that_killed_all_workers(
        self, cluster: Cluster, job: Path, accident: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """This machine reads it in a process of its own, which dies as well."""
        monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 1.0)
        (accident / "mode").write_text("die")
        result = analyze(str(job), rules_dir=accident, scheduler=cluster.address, jobs=None)
        assert result.run.ranks == [rank for rank in range(RANKS) if rank != VICTIM]
        killed, missing, note = sorted(result.warnings, key=lambda text: text.startswith("The Dask cluster"))
        assert "host_5.1700000000000.pt.trace.json.gz: left out: its worker process was killed" in killed
        assert missing.startswith(f"Rank {VICTIM} of {RANKS} is missing")
        assert note.startswith("The Dask cluster disappeared; this machine read ")

    def test_with_a_worker_that_hangs(
        self, cluster: Cluster, job: Path, accident: Path, whole: Result, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dask_cluster, "QUIET_TIMES", 0.1)
        (accident / "mode").write_text("hang once")

        def lose_patience() -> None:
            until((accident / "hung").exists)  # else this machine takes over before, and hangs itself
            monkeypatch.setattr(dask_cluster, "QUIET_S", 0.1)

        threading.Thread(target=lose_patience).start()
        result = analyze(str(job), rules_dir=accident, scheduler=cluster.address)
        (note,) = result.warnings
        assert re.fullmatch(r"The Dask cluster gave no answer for \d+ s; this machine read \d of 6 ranks\.", note)
        assert [row.rank for row in result.ranks] == [row.rank for row in whole.ranks]
        assert result.findings == whole.findings

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
        whole: Result,
        who: str,
        sent: signal.Signals,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 1.0 if who == "workers" else 60.0)
        monkeypatch.setattr(dask_cluster, "CONNECT_S", 2.0)
        (accident / "mode").write_text("be slow")

        over = threading.Event()

        def kill() -> None:
            until(lambda: (accident / f"pid{VICTIM}").exists() or over.is_set())
            for process in [cluster.scheduler] if who == "scheduler" else cluster.workers:
                process.send_signal(sent)

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
    with pytest.raises(ConfigError, match="no Dask scheduler at nonsense: "):
        analyze(str(job), scheduler="nonsense")
    outcome = run("analyze", str(job), "--no-html", "--scheduler", "tcp://127.0.0.1:9")
    assert one_error(outcome).startswith("traceopt: error: no Dask scheduler at tcp://127.0.0.1:9: ")


def test_a_port_that_never_answers(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "tcp://127.0.0.1:{1}".format(*silent.getsockname())
        with pytest.raises(ConfigError, match=f"no Dask scheduler at {address}: "):
            analyze(str(job), scheduler=address)


def test_without_workers_and_then_without_the_scheduler(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look: Callable[[object], bool] = dask_cluster._has_a_worker
    empty = Cluster()

    def after_sending(number: signal.Signals) -> Callable[[object], bool]:
        def send_and_look(client: object) -> bool:
            empty.scheduler.send_signal(number)
            return look(client)

        return send_and_look

    try:
        monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 0.2)
        with pytest.raises(ConfigError, match="has no worker"):
            analyze(str(job), scheduler=empty.address)
        monkeypatch.setattr(dask_cluster, "CONNECT_S", 2.0)
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            monkeypatch.setattr(dask_cluster, "_has_a_worker", after_sending(sent))
            with pytest.raises(ConfigError, match="does not answer"):
                analyze(str(job), scheduler=empty.address)
            empty.scheduler.send_signal(signal.SIGCONT)
    finally:
        empty.end()


def test_without_dask(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'traceopt-profiler\[distributed\]'"):
        analyze(str(job), scheduler="tcp://127.0.0.1:8786")
