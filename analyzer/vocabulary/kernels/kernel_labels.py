"""Short readable forms of C++ kernel names for tables."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from traceopt.analyzer.vocabulary.kernels.kernel_names import MAX_NAME_CHARS, words

_MAX_DEPTH = 24
_SHORT_CHARS = 100
_GENERIC_NAMES = frozenset(
    ("kernel", "Kernel", "Kernel2", "kernel2", "kentry", "device_kernel", "trampoline_kernel", "globalKernel")
)
# Wrappers that say nothing by themselves: the functor inside them is the informative part.
_WRAPPERS = words(
    "gpu_kernel_impl gpu_kernel_impl_nocast BinaryFunctor AUnaryFunctor BUnaryFunctor ReduceOp "
    "func_wrapper_t type_specialized_broadcast_kernel_launcher gpu_index_kernel OpaqueType"
)
_BORING = words(
    "void bool char int long short float double unsigned signed true false std size_t int64_t int32_t "
    "uint32_t uint8_t BFloat16 Half __nv_bfloat16 __hip_bfloat16 __half bfloat16_t half_t float2 "
    "TensorListMetadata Array array OffsetCalculator TrivialOffsetCalculator LoadWithoutCast "
    "StoreWithoutCast"
)
_GENERIC_KERNEL = re.compile(r"elementwise_kernel|reduce_kernel$|multi_tensor_apply_kernel|^gpu_index|elementwise_grid")


class _Node(Struct):
    """A name with its template arguments."""

    text: str
    arguments: list[_Node]


def _demangled_head(name: str) -> str:
    """``ns::function`` from an Itanium-mangled name, without its arguments."""
    position = 3 if name.startswith("_ZN") else 2
    parts: list[str] = []
    while match := re.compile(r"[KVO]{0,2}(\d{1,4})").match(name, position):
        start = match.end()
        length = int(match[1])
        part = name[start : start + length]
        if not part or not length:
            break
        position = start + length
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
        if not name.startswith("_ZN"):
            break
    if not parts:
        return name
    if parts[-1] in _GENERIC_NAMES:  # ck_tile::kentry<..., FmhaBatchPrefillKernel<...>>: use the name of the argument
        inner = next((found for found in _length_prefixed(name, position) if found not in ("ck_tile", "cutlass")), None)
        return f"{'::'.join(parts[-2:])}<{inner}>" if inner else "::".join(parts[-2:])
    return parts[-1]


def _length_prefixed(name: str, position: int) -> list[str]:
    """The identifiers of at least eight characters that follow their length, from ``position`` on."""
    found: list[str] = []
    while len(found) < 8 and (match := re.compile(r"\d{1,3}").search(name, position)):
        start, length = match.end(), int(match[0])
        text = name[start : start + length]
        if length >= 8 and len(text) == length and re.fullmatch(r"[A-Za-z_]\w+", text):
            found.append(text)
            position = start + length
        else:
            position = start
    return found


def _without_calls(name: str) -> str:
    """``name`` without its argument list, casts, lambdas and ``(anonymous namespace)``; templates stay."""
    name = name.replace("(anonymous namespace)::", "").replace("operator()", "operator").replace("->", "")
    out: list[str] = []
    round_depth = curly_depth = angle_depth = 0
    for character in name:
        if character == "(":
            if not (round_depth or curly_depth or angle_depth) and out:
                break  # the argument list: nothing after it is needed
            round_depth += 1
        elif character == ")":
            round_depth = max(0, round_depth - 1)
        elif character == "{":
            curly_depth += 1
        elif character == "}":
            curly_depth = max(0, curly_depth - 1)
        elif not (round_depth or curly_depth):
            if character == "<":
                angle_depth += 1
            elif character == ">":
                angle_depth = max(0, angle_depth - 1)
            out.append(character)
    return "".join(out)


def _without_return_type(text: str) -> str:
    """``text`` after its last space outside template arguments."""
    depth = 0
    cut = 0
    for position, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif character == " " and not depth:
            cut = position + 1
    return text[cut:]


def _last_segment(path: str) -> str:
    """The name at the end of ``ns::Class::name``; for the path of a lambda, the function that contains it."""
    segments = [segment.strip(" &*") for segment in path.split("::")]
    segments = [s for s in segments if s and not s.startswith("operator") and s != "const"]
    if len(segments) >= 2 and segments[-1] in _GENERIC_NAMES:
        return "::".join(segments[-2:])
    return segments[-1].removesuffix(" const") if segments else ""


def _parsed(text: str) -> _Node:
    """Template structure of ``text``, parsed without recursion; levels deeper than ``_MAX_DEPTH`` are left out."""
    root = _Node("", [])
    stack = [root]
    word: list[str] = []
    skipped = 0

    def close_word() -> None:
        name = _last_segment("".join(word))
        word.clear()
        if name and not stack[-1].text:
            stack[-1].text = name

    for character in text:
        if character == "<":
            if skipped or len(stack) >= _MAX_DEPTH:
                skipped += 1
                continue
            close_word()
            child = _Node("", [])
            stack[-1].arguments.append(child)
            stack.append(child)
        elif character == ">":
            if skipped:
                skipped -= 1
                continue
            close_word()
            if len(stack) > 1:
                stack.pop()
        elif character == "," and not skipped:
            close_word()
            if len(stack) > 1:
                stack.pop()
                child = _Node("", [])
                stack[-1].arguments.append(child)
                stack.append(child)
        elif not skipped:
            word.append(character)
    close_word()
    return root


def _functor(node: _Node) -> str:
    """The functor in a generic kernel's template arguments, unwrapped, with its first type."""
    queue = list(node.arguments)
    for _ in range(64):  # a name has few arguments of interest
        if not queue:
            break
        candidate = queue.pop(0)
        if candidate.text in _WRAPPERS:
            queue = candidate.arguments + queue
            continue
        text = candidate.text
        if not text or text[0].isdigit() or text.split(" ")[-1] in _BORING or text in _BORING:
            continue
        first = next((a.text for a in candidate.arguments if a.text in _BORING), "")
        return f"{text}<{first}>" if first else text
    return ""


@lru_cache(maxsize=32_768)
def _short_name(name: str) -> str:
    if name.startswith("_Z"):
        short = _demangled_head(name)
    elif "<" not in name and "(" not in name:
        short = _last_segment(name) if "::" in name else name
    elif name.startswith(("Memcpy", "Memset")):
        short = name
    else:
        node = _parsed(_without_return_type(_without_calls(name.removeprefix("void "))))
        short = node.text
        if short.startswith(("cutlass", "Kernel")) or short in ("device_kernel", "flash::device_kernel"):
            inner = next((a.text for a in node.arguments if a.text), "")
            short = inner if inner.startswith("cutlass") else f"{short}<{inner}>" if inner else short
        elif _GENERIC_KERNEL.search(short):
            functor = _functor(node)
            lead = next((a.text for a in node.arguments[:1] if a.text.isdigit()), "")
            inner = ", ".join(part for part in (lead, functor) if part)
            short = f"{short}<{inner}>" if inner else short
        else:
            types = [a.text for a in node.arguments[:2] if a.text in _BORING and not a.text.isdigit()]
            short = f"{short}<{types[0]}>" if types and types[0] not in ("true", "false") else short
    short = " ".join((short or name).split()) or name
    return short if len(short) <= _SHORT_CHARS else short[: _SHORT_CHARS - 1] + "…"


def short_name(name: str) -> str:
    """A readable form of ``name`` of at most 100 characters, for tables.

    Drops the return type, namespaces, argument list and most template arguments of a C++ name, but keeps the functor of
    a generic kernel: ``vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>``. Never raises. Cached.
    """
    return _short_name(name[:MAX_NAME_CHARS])
