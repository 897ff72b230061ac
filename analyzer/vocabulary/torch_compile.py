"""What torch.compile writes: names of its annotations and operators in a trace, and sentences in its logs that say why
it broke a graph, why it recompiled and why it skipped CUDA graphs.

Sentences were seen in logs of torch 2.6 to 2.13. They are untrusted text: what has another form is kept as one
shortened line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from traceopt.analyzer.vocabulary.python_frames import is_library, parse_frame
from traceopt.result.finding import Location

_COMPILE_MARKS = (
    "TorchDynamo Cache Lookup",  # a lookup, not a compilation: see is_compile
    "_compile.compile_inner",
    "compile_inner",
    "entire_frame_compile",
    "backend_compile",
    "inductor_compile",
    "compile_fx",
    "compile_file",
    "GraphLowering.",
    "Scheduler.codegen",
    "async_compile",
    "AsyncCompile",
    "CachingAutotuner.benchmark",
    "create_aot_dispatcher_function",
    "aot_dispatch",
    "triton_compile",
    "TritonCompile",
)
_DYNAMO_TIMED = " (dynamo_timed)"
"""End of the names of torch.compile's own phases: ``PyCodegen (dynamo_timed)``, ``CUDAGraphNode.record (...)``."""


def is_compile(name: str) -> bool:
    """A compilation by TorchDynamo, AOTAutograd, Inductor or Triton; not the execution of compiled code."""
    if name.startswith(("TorchDynamo Cache Lookup", "Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledF")):
        return False
    return (
        name.startswith("TorchDynamo")
        or name.endswith(_DYNAMO_TIMED)
        or any(mark in name[:200] for mark in _COMPILE_MARKS)
    )


# Seen in 2022-23: fallback_function, fused__autocast_to__15680171862954066917, TensorExprGroup, CudaFusionGroup.
_JIT_COMPILED = re.compile(
    r"^(?:fallback_function$|fused_\w{0,200}_\d{6,}$|(?:prim::)?(?:TensorExpr|CudaFusion)\w*Group)"
)


def is_jit_compiled(name: str) -> bool:
    """Code that a TorchScript fuser has compiled, at its first call."""
    return _JIT_COMPILED.match(name) is not None


def is_compiled_code(name: str) -> bool:
    """An annotation or operator around the execution of code that torch.compile made."""
    return name.startswith(("Torch-Compiled Region", "## Call CompiledFxGraph")) or name in (
        "CompiledFunction",
        "CompiledFunctionBackward",
    )


_COMPILED_REGION = re.compile(r"^Torch-Compiled Region: (?P<frame>\d+)/(?P<compiled>\d+)")


def is_compiled_lookup(name: str) -> bool:
    """Dynamo's check of the guards, before each call of compiled code."""
    return name == "TorchDynamo Cache Lookup"


def is_compiled_entry(name: str) -> bool:
    """What runs between the check of the guards and the compiled code itself."""
    return name in ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")


def compiled_region(name: str) -> tuple[str, int] | None:
    """Frame and compilation number of a region: ("3", 1) for ``Torch-Compiled Region: 3/1``; None for other names."""
    match = _COMPILED_REGION.match(name)
    return (match["frame"], int(match["compiled"])) if match else None


MOST_TEXT = 20_000  # characters read of one message
LINE_LENGTH = 300
MOST_HINTS = 5

_HINT = re.compile(r"^[ \t]*Hint: (.+)$", re.M)
_EXPLANATION = re.compile(r"^[ \t]*Explanation: (.+)$", re.M)
_CONTEXT = re.compile(r"^[ \t]*Developer debug context:.*", re.M | re.S)
_PAGE = re.compile(r"https://\S+/gb/gb\d+\.html")
_BREAK_AT = re.compile(r"^Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.M)
_REASON = re.compile(r"^(?:Graph Break )?Reason: (?P<text>.*?)(?=^\S[^\n]*traceback:|^Stack variable|\Z)", re.M | re.S)
_PREAMBLE = re.compile(r"\AEncountered graph break when attempting to trace [^\n]*\n+")
_TRACEBACK = re.compile(r"^User code traceback:\n(?P<frames>.*?)(?=^\S|\Z)", re.M | re.S)
_STACK = re.compile(r"^User stack trace:\n(?P<frames>.*)\Z", re.M | re.S)
_FRAME = re.compile(r'^[ \t]*File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>[^\n]+)$', re.M)

_COMPILE_ID = re.compile(r"^\[?!?[\d/]+\]?: ")
_GUARD_PLACE = re.compile(r"#\s*(?P<file>[^#\n]+?):(?P<line>\d{1,9}) in (?P<function>\w[^\s(]*)")
_VALUES = re.compile(r"(?<![\w.\[])(?<!index )-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)|\b(?:True|False|None)\b")
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")

# What fails, by the text of the guard; the first that matches. In torch/_dynamo/guards.py and csrc/dynamo/guards.cpp.
_GUARD_KINDS = (
    ("shape", re.compile(r"size mismatch at index|\.size\(\)\[|rank mismatch|\bsize\b.*==|\bs\d+\b")),
    ("stride", re.compile(r"stride mismatch|\.stride\(\)")),
    ("dtype", re.compile(r"dtype mismatch|dispatch key set mismatch")),
    ("grad mode", re.compile(r"GLOBAL_STATE changed|grad_mode|requires_grad mismatch|___is_grad_enabled")),
    ("training flag", re.compile(r"\.training\b|\['training'\]")),
    ("backend", re.compile(r"BACKEND_MATCH|check_current_backend")),
    ("object", re.compile(r"___check_obj_id|___check_type_id|ID_MATCH|\bis\b (?!None)|expected type")),
    ("number", re.compile(r"(?:==|!=|<=?|>=?) *-?\d")),
)


class BreakText(Struct, frozen=True):
    """Why Dynamo cannot trace code: a short reason, and where torch gives them its explanation, hints and page."""

    title: str
    explanation: str | None = None
    hints: tuple[str, ...] = ()
    page: str | None = None


class GuardText(Struct, frozen=True):
    """The guard that failed. `pattern` is the guard without its values, `kind` what it checks (one of "shape",
    "stride", "dtype", "grad mode", "training flag", "backend", "object", "number") or None, `site` the line that made
    it.
    """

    guard: str
    pattern: str
    kind: str | None
    site: Location | None = None


def parse_reason(text: str) -> BreakText:
    """The reason of a graph break, as Dynamo counts it."""
    text = _PREAMBLE.sub("", text[:MOST_TEXT].strip())
    body = _CONTEXT.sub("", text)
    title = one_line(body.partition("\n")[0]) or "unknown reason"
    explanation = _EXPLANATION.search(body)
    page = _PAGE.search(text)
    return BreakText(
        title,
        one_line(explanation[1]) if explanation is not None else None,
        tuple(one_line(hint) for hint in _HINT.findall(body)[:MOST_HINTS]),
        page[0] if page is not None else None,
    )


def parse_break(text: str) -> tuple[BreakText, Location | None]:
    """A message about a graph break (the artifact `dynamo_graph_break_reason`): its reason and its line."""
    text = text[:MOST_TEXT]
    reason, place, traceback = _REASON.search(text), _BREAK_AT.search(text), _TRACEBACK.search(text)
    site = user_site(stack_frames(traceback["frames"])) if traceback is not None else None
    if site is None and place is not None:
        site = parse_frame(f"{place['file']}({place['line'][:9]}): ?")
    return parse_reason(reason["text"] if reason is not None else text), site


def parse_guard(text: str, file: str | None = None) -> GuardText:
    """Why a frame was compiled again; `file` is the file of its function, of which the text may name only the end."""
    text = _COMPILE_ID.sub("", text[:MOST_TEXT].strip())
    stack = _STACK.search(text)
    text = text[: stack.start()] if stack is not None else text
    text = text.partition("(HINT: ")[0]
    place = _GUARD_PLACE.search(text)
    guard = one_line(text.partition("  #")[0])
    frames = stack_frames(stack["frames"]) if stack is not None else []
    if not frames and place is not None and file is not None and _same_end(file, place["file"]):
        frames = [(file, int(place["line"]), place["function"])]
    known = [(file if file is not None and _same_end(file, frame[0]) else frame[0], *frame[1:]) for frame in frames]
    site = user_site(known)
    kind = next((kind for kind, pattern in _GUARD_KINDS if pattern.search(guard)), None)
    return GuardText(guard, _VALUES.sub("*", guard), kind, site)


def parse_skip(text: str) -> tuple[str, Location | None]:
    """Why CUDA graphs were skipped, and the line that torch found."""
    text = text[:MOST_TEXT].strip()
    reason = re.sub(r"^skipping cudagraphs? due to ", "", one_line(text.partition("Found from")[0]), flags=re.I)
    return reason.rstrip(". ") or "unknown reason", user_site(stack_frames(text))


def user_site(frames: Sequence[tuple[str, int, str]]) -> Location | None:
    """The innermost line of the user's code in a stack (outermost first); without one, the innermost line."""
    names = [f"{file}({line}): {user_function(function)}" for file, line, function in frames]
    user = [name for name in names if not is_library(name)]
    return parse_frame((user or names)[-1]) if names else None


def user_function(name: str) -> str:
    """The function that the user wrote, for the rest of it that Dynamo compiles after graph breaks."""
    while (resumed := _RESUMED.match(name)) is not None:
        name = resumed["function"]
    return name


def is_resumed(name: str) -> bool:
    """Whether Dynamo made this function of the rest of another one, after a graph break."""
    return _RESUMED.match(name) is not None


def one_line(text: str) -> str:
    """At most `LINE_LENGTH` characters, with single spaces."""
    text = " ".join(text[: 4 * LINE_LENGTH].split())
    return text if len(text) <= LINE_LENGTH else text[: LINE_LENGTH - 3] + "..."


def _same_end(a: str, b: str) -> bool:
    """Whether one path may be the end of the other."""
    return a.endswith(b) or b.endswith(a)


def stack_frames(text: str) -> list[tuple[str, int, str]]:
    """File, line and function of each frame of a printed stack, outermost first."""
    found: list[Any] = [(frame["file"], int(frame["line"]), frame["function"]) for frame in _FRAME.finditer(text)]
    return found
