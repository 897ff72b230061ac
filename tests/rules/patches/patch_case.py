"""A source and what a fix changes in it: the rule, the file, and the lines that the diff removes and adds.

In a source, `#@` at the end of a line marks the place of the finding (the mark is taken out), two marks its first and
last line; `#@name` marks the first line of the function `name`, for traces without the lines of calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

from traceopt.result.edits import Call as CallOnce
from traceopt.result.edits import CallEvery, Edit, RemoveCall, Replace, SetArguments, SetAttribute, Wrap
from traceopt.result.finding import Fix
from traceopt.rules.fixes.optimizers import FOREACH, FUSED, fused

_LAYOUT = {"memory_format": "torch.channels_last"}
# What the rules advise, where it does not depend on the trace.
USUAL: Mapping[str, list[Edit]] = {
    "AT001": [Replace("F.scaled_dot_product_attention", "q, k, v", "softmax(q @ k.mT) @ v")],
    "CM007": [SetArguments("DistributedDataParallel", {"broadcast_buffers": "False"})],
    "CV001": [SetArguments("model.to", _LAYOUT), SetArguments("images.to", _LAYOUT)],
    "CV003": [SetAttribute("torch.backends.cudnn.benchmark", "True")],
    "CV004": [SetAttribute("torch.backends.cudnn.benchmark", "False")],
    "DL003": [SetArguments("images.to", {"non_blocking": "True"}), SetArguments("DataLoader", {"pin_memory": "True"})],
    "EF020": [SetArguments("nn.Embedding", {"sparse": "True"})],
    "HS001": [CallEvery("log", 50)],
    "HS003": [RemoveCall("torch.cuda.synchronize")],
    "LG001": [CallEvery("log", 50)],
    "LG002": [CallEvery("log", 50)],
    "MM007": [RemoveCall("torch.utils.checkpoint.checkpoint"), CallOnce("model.gradient_checkpointing_disable")],
    "OP001": fused([*FUSED, *FOREACH]),
    "OP003": [SetArguments("optimizer.zero_grad", {"set_to_none": "True"})],
    "PY001": [CallEvery("gc.collect", 500, "")],
    "TC002": [CallOnce("torch.set_float32_matmul_precision", '"high"')],
}


def loader(**arguments: int | str) -> list[Edit]:
    """Arguments of the DataLoader."""
    return [SetArguments("DataLoader", {name: str(value) for name, value in arguments.items()})]


def autocast(device: str = "cuda", dtype: str = "bfloat16") -> list[Edit]:
    arguments = {"device_type": f'"{device}"', "dtype": f"torch.{dtype}"}
    return [Wrap("torch.autocast", "loss = model(inputs, labels)", arguments)]


@dataclass(frozen=True)
class Case:
    """`changes`: the lines of the diff that begin with - or +; empty where there must be no patch."""

    name: str
    code: str
    text: str
    changes: str
    fix: Fix = field(default_factory=lambda: Fix("Change it."))

    def __str__(self) -> str:
        return f"{self.code}: {self.name}"


def case(
    name: str,
    code: str,
    text: str,
    changes: str | tuple[str, str] = "",
    edits: list[Edit] | None = None,
    in_framework: SetArguments | None = None,
) -> Case:
    """`changes`: the lines of the diff, or what it replaces in one line, and by what. Without `edits`: those that the
    rule usually advises.
    """
    text = dedent(text).lstrip("\n")
    if isinstance(changes, tuple):
        old, new = changes
        [line] = [line for line in re.sub(r"  #@\w*$", "", text, flags=re.MULTILINE).splitlines() if old in line]
        changes = f"-{line}\n+{line.replace(old, new)}\n"
    fix = Fix("Change it.", edits=USUAL.get(code, []) if edits is None else edits, in_framework=in_framework)
    return Case(name, code, text, dedent(changes).lstrip("\n"), fix)


def silent(code: str, texts: dict[str, str], edits: list[Edit] | None = None) -> list[Case]:
    """Sources, by what is the matter with them, for which there must be no patch."""
    return [case(name, code, text, edits=edits) for name, text in texts.items()]
