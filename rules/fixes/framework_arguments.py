"""Names a framework's own argument in a fix, where the framework owns the switch: bf16=True in TrainingArguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.constructions import FrameworkSettings
from traceopt.analyzer.vocabulary.training_frameworks import TrainingFramework
from traceopt.result.finding import Finding, Fix
from traceopt.rules.evidence import to_location
from traceopt.rules.fixes.advice.constructed import optimizer_classes, stepping_optimizers

# What configures each framework, unless the script was recorded with a class derived from it.
_SETTINGS: Mapping[TrainingFramework, str] = {
    "Hugging Face Trainer": "TrainingArguments",
    "Lightning": "Trainer",
    "Accelerate": "Accelerator",
}

_LOADER_ARGUMENTS = {
    "num_workers": "dataloader_num_workers",
    "persistent_workers": "dataloader_persistent_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "pin_memory": "dataloader_pin_memory",
    "batch_size": "per_device_train_batch_size",
}


def _loader(facts: Facts, fix: Fix) -> str | None:
    """The Trainer's names for the arguments of DataLoader; None if the script constructs the loader itself."""
    loader = facts.captured.training_loader
    if loader is not None and loader.built is not None and loader.built.library != "transformers":
        return None
    given = _keywords(fix.code, "DataLoader")
    names = [f"{_LOADER_ARGUMENTS[name]}={value}" for name, value in given.items() if name in _LOADER_ARGUMENTS]
    return ", ".join(names) or None


def _pinned_copies(facts: Facts, fix: Fix) -> str | None:
    arguments = _loader(facts, fix)
    return f'{arguments}, accelerator_config={{"non_blocking": True}}' if arguments is not None else None


def _fused(facts: Facts, _: Fix) -> str | None:
    """None if the script constructs an optimizer itself, or the Trainer has no fused form of it."""
    ours = any(one.built is not None and one.built.library != "transformers" for one in stepping_optimizers(facts))
    return 'optim="adamw_torch_fused"' if not ours and optimizer_classes(facts) == ["AdamW"] else None


def _if_says(*pairs: tuple[str, str]) -> Callable[[Facts, Fix], str | None]:
    """The argument for the first text that the fix's code contains."""
    return lambda _, fix: next((argument for text, argument in pairs if text in (fix.code or "")), None)


_BF16, _FP16 = "dtype=torch.bfloat16", "dtype=torch.float16"
_COMPILED = _if_says(
    ('mode="reduce-overhead"', 'torch_compile=True, torch_compile_mode="reduce-overhead"'),
    ("torch.compile(model)", "torch_compile=True"),
)

_ARGUMENTS: Mapping[TrainingFramework, Mapping[str, Callable[[Facts, Fix], str | None]]] = {
    "Hugging Face Trainer": {
        "CM007": _if_says(("broadcast_buffers=False", "ddp_broadcast_buffers=False")),
        "DL001": _loader,
        "DL003": _pinned_copies,
        "DL005": _loader,
        "DL006": _loader,
        "GM005": _loader,
        "LB002": _COMPILED,
        "LB003": _COMPILED,
        "MM001": _loader,
        "MM007": _if_says(("gradient_checkpointing_disable", "gradient_checkpointing=False")),
        "OP001": _fused,
        "TC001": _if_says((_BF16, "bf16=True"), (_FP16, "fp16=True")),
        "TC002": _if_says(('set_float32_matmul_precision("high")', "tf32=True")),
    },
    "Lightning": {
        "CV003": _if_says(("cudnn.benchmark = True", "benchmark=True")),
        "TC001": _if_says((_BF16, 'precision="bf16-mixed"'), (_FP16, 'precision="16-mixed"')),
    },
    "Accelerate": {
        "TC001": _if_says((_BF16, 'mixed_precision="bf16"'), (_FP16, 'mixed_precision="fp16"')),
    },
}


def in_framework(finding: Finding, facts: Facts) -> Finding:
    """The finding with the argument of the framework that runs the training, at the line of its settings; the same
    finding if the framework has no such argument.
    """
    framework = facts.training_framework
    find = _ARGUMENTS[framework].get(finding.code) if framework is not None else None
    arguments = find(facts, finding.fix) if find is not None and facts.trains else None
    if framework is None or arguments is None:
        return finding
    settings = _settings(facts, framework)
    name = settings.class_name if settings is not None else _SETTINGS[framework]
    text = finding.fix.text + f" With {_called(framework)}, set it in {name}."
    places = [to_location(settings.built.site)] if settings is not None else []
    return replace(
        finding,
        fix=replace(finding.fix, text=text, code=f"{name}(..., {arguments})"),
        locations=list(dict.fromkeys([*places, *finding.locations])),
    )


def _settings(facts: Facts, framework: TrainingFramework) -> FrameworkSettings | None:
    """The settings that the script constructs, if they are the only ones; else it is unclear which are in use."""
    found = [one for one in facts.captured.frameworks if one.framework == framework]
    places = {one.built.site for one in found}
    return found[0] if len(places) == 1 else None


def _called(framework: TrainingFramework) -> str:
    return "the Hugging Face Trainer" if framework == "Hugging Face Trainer" else framework


def _keywords(code: str | None, function: str) -> dict[str, str]:
    """The keyword arguments of a call in a fix's code, as text."""
    try:
        nodes = ast.walk(ast.parse(code or ""))
    except (SyntaxError, ValueError):
        return {}
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == function]
    return {one.arg: ast.unparse(one.value) for call in calls for one in call.keywords if one.arg is not None}
