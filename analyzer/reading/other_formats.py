"""What a file is that is not a PyTorch trace, told by its first bytes or its name, and what to do with it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from pathlib import PurePath

import msgspec
from msgspec import Struct

_RECORD = "Record one with traceopt run or torch.profiler."
_START_BYTES = 1 << 20  # of a text are searched; the syntax of a larger one is not checked


class Format(Struct, frozen=True):
    """A file format that users mistake for a trace. `pattern` matches the start of its text, `suffixes` its name.
    `{conversion}` in the advice stands for the command that converts the file.
    """

    what: str
    advice: str = _RECORD
    pattern: str = ""
    suffixes: tuple[str, ...] = ()

    def matches(self, name: str, start: bytes) -> bool:
        if self.pattern:
            return re.match(self.pattern.encode(), start, re.DOTALL) is not None
        return name.endswith(self.suffixes)


_PICKLE = r"\x80[\x02-\x05]"
_CHECKPOINT = "a PyTorch checkpoint (torch.save)"

# The first that matches counts.
_FORMATS = (
    Format(
        "a database exported by Nsight Systems",
        "Only traceopt analyze reads one, from a file on this machine.",
        pattern=r"SQLite format 3\x00.*(CUPTI_ACTIVITY_KIND|TARGET_INFO_)",
    ),
    Format("a database of rocprof", pattern=r"SQLite format 3\x00.*rocpd_"),
    Format("a SQLite database", pattern=r"SQLite format 3\x00"),
    Format(_CHECKPOINT, pattern=_PICKLE + r"(\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19|.{0,64}ctorch)"),
    Format(
        "a Python pickle",
        "Of pickles, traceopt analyze reads memory snapshots (torch.cuda.memory._dump_snapshot) and dumps of the NCCL "
        "flight recorder. This one is neither.",
        pattern=_PICKLE + r"[\x00-\xff]",
    ),
    Format(
        "an execution trace (Chakra)",
        f"It has operators and their inputs, but no times. {_RECORD}",
        pattern=r"\s*\{\s*\"schema\".{0,4096}\"nodes\"",
    ),
    Format("a memory timeline (export_memory_timeline)", pattern=r"\s*\[\s*\[-?[0-9]+, [0-9]+, \d+, \d+\]"),
    Format("a speedscope profile", pattern=r"\s*\{.{0,4096}https://www\.speedscope\.app"),
    Format(
        "a CPU profile of Chrome DevTools", pattern=r"\s*\{\s*\"nodes\"\s*:\s*\[\s*\{\s*\"id\".{0,512}\"callFrame\""
    ),
    Format("output of rocprofv3", pattern=r"\s*\{\s*\"rocprofiler-sdk-tool\""),
    Format("output of rocprof", pattern=r"\"(Kind|Domain)\",\"|\"Index\",\"KernelName\""),
    Format(
        "a report of traceopt",
        "traceopt export extracts its result document, which traceopt compare and --baseline read.",
        pattern=r"\s*<!doctype html.{0,65536}traceopt",
    ),
    Format(
        "a result document of traceopt",
        "Pass it to traceopt compare, or to traceopt analyze as --baseline.",
        pattern=r"\s*\{\s*\"tool\"\s*:\s*\{\s*\"name\"\s*:\s*\"traceopt\"",
    ),
    Format("an HTML page", pattern=r"(?i)\s*<(!doctype html|html)"),
    Format("a printed table (key_averages().table())", pattern=r"[- ]{20,}\n\s+Name  "),
    Format(
        "an Nsight Systems report",
        "Convert it ({conversion}) and pass the .sqlite file.",
        suffixes=(".nsys-rep", ".qdrep"),
    ),
    Format("an Nsight Compute report of single kernels", suffixes=(".ncu-rep", ".ncu-repz")),
    Format("a damaged Perfetto trace", suffixes=(".pftrace", ".perfetto-trace")),
    Format(
        "a TensorBoard event file",
        "The traces are the *.pt.trace.json files beside it; pass the folder.",
        pattern=r".{12}.{0,32}brain\.Event:",
    ),
    Format("a pprof profile", suffixes=(".pprof", ".pb")),
    Format(_CHECKPOINT, suffixes=(".pt", ".pth", ".ckpt", ".safetensors")),
)


def told_apart(name: str, start: bytes) -> str:
    """What a file without a list of trace events is, and what to do, as the end of a sentence that begins with its
    name. `start` is its uncompressed text, or as much as was read of it.
    """
    bare, searched = name.lower().removesuffix(".gz"), start[:_START_BYTES]
    found = next((one for one in _FORMATS if one.matches(bare, searched)), None)
    if found is not None:
        advice = found.advice.replace("{conversion}", conversion(name))
        return f"is {found.what}, not a PyTorch profiler trace. {advice}"
    return (
        f"is not a PyTorch profiler trace: {_flaw(start)}. Pass a file written by torch.profiler's export_chrome_trace."
    )


def conversion(report: str) -> str:
    """The command that exports a report of Nsight Systems to a database beside it, in its folder."""
    name = PurePath(report).name
    database = f"{name.rpartition('.')[0]}.sqlite"
    return f"nsys export --type sqlite --output {shlex.quote(database)} {shlex.quote(name)}"


def of_archive(names: Collection[str]) -> str | None:
    """The same for a zip archive with these members; None if it is an ordinary one."""
    checkpoint = any(name.rpartition("/")[2] == "data.pkl" for name in names)
    return f"is {_CHECKPOINT}, not a PyTorch profiler trace. {_RECORD}" if checkpoint else None


def _flaw(text: bytes) -> str:
    if not text.strip():
        return "it is empty"
    if text.lstrip()[:1] not in (b"{", b"["):
        return "it is not JSON"
    if len(text) < _START_BYTES:
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"it is not valid JSON ({error})"
    return "it has no traceEvents list"
