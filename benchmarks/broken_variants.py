#!/usr/bin/env python3
"""Runs the whole command on damaged variants of traces, and checks how each run ends and its time and memory.

python benchmarks/broken_variants.py [PATH ...] [--count 2000] [--seed 0] [--keep FOLDER]

Each run must end with exit code 2 and one line, or with exit code 0. Then the idle time of its headline is that of the
whole file, or a caveat and a note say why it may not be (not checked where only digits or bits differ). It must stay
within 10 s of CPU time and the memory limit in docs/limits.md. If a variant fails, the script saves it in FOLDER and
ends with exit code 1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from itertools import islice
from pathlib import Path

import msgspec
import orjson

import traceopt.api
import traceopt.reports.html.page
import traceopt.reports.text.terminal  # imported once, so that no variant pays for it
from traceopt.cli import cli
from traceopt.result.document import Result

if __name__ == "__main__":  # run as a script: fixtures/ is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures import damage as damages
from fixtures.real_traces import TRACES, require

CPU_LIMIT_S = 10
WALL_LIMIT_S = 120  # on a busy machine, ten seconds of CPU time take long
ADDRESS_LIMIT_BYTES = 6 << 30  # a hard limit above the documented one: beyond it there is a MemoryError
BASE_BYTES = 100 << 20  # docs/limits.md: an idle process, plus this, plus three times the text
TEXT_FACTOR = 3
MB = 1e6
_PIECE_BYTES = 1 << 12

Damage = Callable[[bytes, random.Random], bytes]


def of_the_text(damage: damages.Damage) -> Damage:
    @wraps(damage)
    def of_bytes(text: bytes, choice: random.Random) -> bytes:
        return damage(damages.Whole(text), choice)

    return of_bytes


UNSEEN = ("other_digits", "flipped_bits", "other_bytes", "repeated")  # may leave valid numbers that are other ones


def flipped_bits(data: bytes, choice: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(choice.choice((1, 1, 4, 16, 64, 1000))):
        out[choice.randrange(len(out))] ^= 1 << choice.randrange(8)
    return bytes(out)


def other_bytes(data: bytes, choice: random.Random) -> bytes:
    """Replaces bytes with characters that have a meaning in JSON."""
    out = bytearray(data)
    for _ in range(choice.choice((1, 4, 16, 64))):
        out[choice.randrange(len(out))] = choice.choice(b'{}[]:,"\\0-9eE.nN\n\0\xff')
    return bytes(out)


def other_digits(data: bytes, choice: random.Random) -> bytes:
    """Replaces digits: the text stays valid JSON with other numbers."""
    out = bytearray(data)
    for _ in range(choice.choice((1, 16, 256, 4096))):
        at = choice.randrange(len(out))
        if chr(out[at]).isdigit():
            out[at] = choice.choice(b"123456789")
    return bytes(out)


def cut_off(data: bytes, choice: random.Random) -> bytes:
    return data[: choice.randrange(1, len(data))]


def missing_range(data: bytes, choice: random.Random) -> bytes:
    """Removes a range, or fills it with zeros as after a file system crash."""
    start = choice.randrange(len(data))
    end = min(len(data), start + choice.choice((1, 100, 4096, 1 << 16, 1 << 20)))
    return data[:start] + choice.choice((b"", b"\0" * (end - start))) + data[end:]


def repeated(data: bytes, choice: random.Random) -> bytes:
    """Inserts a copy of one range somewhere else."""
    start, at = choice.randrange(len(data)), choice.randrange(len(data))
    return data[:at] + data[start : start + choice.choice((10, 4096, 1 << 18))] + data[at:]


OF_TEXT: tuple[Damage, ...] = (flipped_bits, other_bytes, other_digits, cut_off, missing_range, repeated)
OF_TRACE: tuple[Damage, ...] = tuple(of_the_text(damage) for damage in (*damages.LOSSES, *damages.CLOCKS))
OF_GZIP: tuple[Damage, ...] = (flipped_bits, cut_off, missing_range)


@dataclass(frozen=True)
class Outcome:
    """How one run ended. `failure` says what is wrong with that, or is empty."""

    ended: str
    failure: str = ""
    cpu_s: float = 0.0
    grown_bytes: int = 0
    text_bytes: int = 0


@dataclass(frozen=True)
class Variant:
    """One damaged file. The same number and seed give the same bytes."""

    number: int
    seed: int
    packed: bool
    damage: Damage

    @property
    def kind(self) -> str:
        return f"{self.damage.__name__}, {'gzip' if self.packed else 'text'}"

    def bytes_of(self, text: bytes, packed: bytes) -> bytes:
        return self.damage(packed if self.packed else text, random.Random(f"{self.seed} {self.number}"))  # noqa: S311


def variants(count: int, seed: int) -> Iterator[Variant]:
    kinds = [(False, damage) for damage in (*OF_TEXT, *OF_TRACE)] + [(True, damage) for damage in OF_GZIP]
    for number in range(count):
        packed, damage = kinds[number % len(kinds)]
        yield Variant(number, seed, packed, damage)


def unpacked(data: bytes) -> tuple[bytes, bool]:
    """The uncompressed text, and whether it is complete."""
    if data[:2] != b"\x1f\x8b":
        return data, True
    inflater, text = zlib.decompressobj(31), bytearray()
    try:
        for at in range(0, len(data), _PIECE_BYTES):
            text += inflater.decompress(data[at : at + _PIECE_BYTES])
    except zlib.error:
        return bytes(text), False
    return bytes(text), inflater.eof and not inflater.unused_data


def is_whole(data: bytes) -> bool:
    """Whether the file has no visible damage. Then there may be no losses to report."""
    text, complete = unpacked(data)
    if not complete:
        return False
    try:
        msgspec.json.Decoder(msgspec.Raw).decode(text)
        text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def run_command(folder: Path, data: bytes, right: Result | None) -> Outcome:
    """Runs `traceopt analyze` on the bytes, with the report, the result document and the terminal text. `right`: the
    result of the whole file, if the headline must be its.
    """
    trace, document = folder / "trace.json", folder / "result.json"
    trace.write_bytes(data)
    whole = is_whole(data)
    text_bytes = len(unpacked(data)[0])
    del data
    with open(folder / "stdout", "w+b") as out, open(folder / "stderr", "w+b") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        idle_bytes = resident_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        start = time.process_time()
        try:
            cli.main(["analyze", str(trace), "--html", str(folder / "r.html"), "--json", str(document)])
        except SystemExit as error:
            code = error.code
        except BaseException:
            code = traceback.format_exc()
        cpu_s = time.process_time() - start
        grown = resident_bytes("VmHWM") - idle_bytes
        sys.stdout.flush()
        sys.stderr.flush()
        out.seek(0)
        err.seek(0)
        ended, failure = judged(code, out.read(), err.read(), document, whole)
        if right is not None and not failure and ended.startswith("read"):
            failure = damages.misleading(right, Result.from_json(document.read_bytes()))
    if not failure and grown > BASE_BYTES + TEXT_FACTOR * text_bytes:
        failure = f"{grown / MB:.0f} MB for {text_bytes / MB:.1f} MB of text"
    return Outcome(ended, failure, cpu_s, grown, text_bytes)


def judged(code: object, out: bytes, err: bytes, document: Path, whole: bool) -> tuple[str, str]:
    """How the run ended, and what is wrong with that."""
    if code == 2:
        clear = err.startswith(b"traceopt: error: ") and err.count(b"\n") == 1 and not out
        return "refused", "" if clear else f"exit 2 with {err[:500]!r}"
    if code not in (0, None):
        return "crashed", f"exit {code}: {err[:500]!r}"
    if err or b"Traceback" in out:
        return "read", f"exit 0 with {err[:500]!r} on stderr"
    result = orjson.loads(document.read_bytes())
    if broken := [f"{check['code']}: {check['reason']}" for check in result["checks"] if check["status"] == "error"]:
        return "read", f"a rule failed: {broken[:3]}"
    (file,) = result["run"]["files"]
    damage_reported = any(note["code"] == "TQ003" for note in result["quality"]["notes"])
    if file["lost_events"] or file["repaired_events"] or damage_reported:
        return "read, losses reported", ""
    return "read, no losses", "" if whole else "the file is damaged and nothing says so"


def resident_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def forked(path: Path, variants: Iterable[Variant]) -> Iterator[tuple[Variant, Outcome]]:
    """Runs the variants of one trace in a child process. If a variant kills it, a new child runs the rest."""
    todo = list(variants)
    while todo:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            work(path, todo, writer)
        os.close(writer)
        done = 0
        with os.fdopen(reader) as lines:
            while select.select([lines], [], [], WALL_LIMIT_S)[0] and (line := lines.readline()):
                yield todo[done], Outcome(**json.loads(line))
                done += 1
        if done < len(todo):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if done < len(todo):
            ending = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status >> 8}"
            over_time = ending == "SIGPROF"
            failure = f"over {CPU_LIMIT_S} s of CPU time" if over_time else f"the process ended with {ending}"
            yield todo[done], Outcome("killed", failure)
            done += 1
        todo = todo[done:]


def work(path: Path, todo: Sequence[Variant], writer: int) -> None:
    """The child process: writes one JSON line for each variant."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT_BYTES, ADDRESS_LIMIT_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        packed = path.read_bytes()
        text = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
        packed = gzip.compress(text, 1, mtime=0)
        right = traceopt.api.analyze(str(path))
        cores = os.sched_getaffinity(0)
        for variant in todo:
            os.sched_setaffinity(0, cores if variant.number % 2 else {min(cores)})  # one core: one process reads
            signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)  # SIGPROF ends the process
            of_headline = None if variant.damage.__name__ in UNSEEN else right
            outcome = run_command(Path(folder), variant.bytes_of(text, packed), of_headline)
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(writer, json.dumps(asdict(outcome)).encode() + b"\n")
    os._exit(0)


def shares(count: int, paths: Sequence[Path]) -> list[int]:
    """How many variants each trace gets: an equal share, and one more for the first traces."""
    each, rest = divmod(count, len(paths))
    return [each + (place < rest) for place in range(len(paths))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="traces, or folders with traces [../shared/traces]")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for variants that fail")
    options = parser.parse_args()
    if not options.paths:
        require()
    paths = []
    for path in options.paths or [TRACES]:
        paths += sorted(path.rglob("*.gz"), key=lambda file: file.stat().st_size) if path.is_dir() else [path]
    paths = [path.resolve() for path in paths]
    all_variants = iter(variants(options.count, options.seed))
    ends: Counter[tuple[str, str]] = Counter()
    worst = Outcome("")
    failures = 0
    for path, count in zip(paths, shares(options.count, paths), strict=True):
        for variant, outcome in forked(path, islice(all_variants, count)):
            ends[variant.kind, "failed" if outcome.failure else outcome.ended] += 1
            worst = replace(
                worst, cpu_s=max(worst.cpu_s, outcome.cpu_s), grown_bytes=max(worst.grown_bytes, outcome.grown_bytes)
            )
            if outcome.failure:
                failures += 1
                print(f"{path.name}, variant {variant.number}, {variant.kind}: {outcome.failure}")
                if options.keep is not None:
                    keep(path, variant, options.keep)
        print(f"{sum(ends.values())} of {options.count}: {path.name}", file=sys.stderr)
    print(table(ends))
    print(f"\nAt most {worst.cpu_s:.1f} s of CPU time and {worst.grown_bytes / MB:.0f} MB above the idle process.")
    sys.exit(1 if failures else 0)


def keep(path: Path, variant: Variant, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = gzip.decompress(path.read_bytes())
    (folder / f"{variant.number}.json").write_bytes(variant.bytes_of(text, gzip.compress(text, 1, mtime=0)))


def table(ends: Counter[tuple[str, str]]) -> str:
    columns = ["read, no losses", "read, losses reported", "refused", "failed"]
    rows = ["| damage | " + " | ".join(columns) + " |", "| --- " + "| ---: " * len(columns) + "|"]
    kinds = dict.fromkeys(kind for kind, _ in ends)
    rows += [f"| {kind} | " + " | ".join(str(ends[kind, column]) for column in columns) + " |" for kind in kinds]
    total = [sum(count for (_, end), count in ends.items() if end == column) for column in columns]
    return "\n".join([*rows, "| all | " + " | ".join(map(str, total)) + " |"])


if __name__ == "__main__":
    main()
