"""The arguments of a training framework that make a fix, where the framework owns the switch: bf16=True in
TrainingArguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.constructions import FrameworkSettings
from traceopt.analyzer.vocabulary.training_frameworks import TrainingFramework
from traceopt.result.edits import SetArguments
from traceopt.result.finding import Finding, Fix
from traceopt.rules.fixes.advice.constructed import optimizer_classes, stepping_optimizers

# What configures each framework, unless the script was recorded with a class derived from it.
_CLASSES: Mapping[TrainingFramework, str] = {
    "Hugging Face Trainer": "TrainingArguments",
    "Lightning": "Trainer",
    "Accelerate": "Accelerator",
}

Arguments = dict[str, str]
_AUTOCAST: Mapping[str, Mapping[str, Arguments]] = {
    "torch.autocast": {"": {}},  # the framework knows the forward pass and the device
    "torch.autocast.device_type": {'"cuda"': {}},
}

# For a setting of an edit: the framework's argument for the same value, or its arguments for each value.
_ARGUMENTS: Mapping[TrainingFramework, Mapping[str, str | Mapping[str, Arguments]]] = {
    "Hugging Face Trainer": {
        **_AUTOCAST,
        "DataLoader.batch_size": "per_device_train_batch_size",
        "DataLoader.num_workers": "dataloader_num_workers",
        "DataLoader.persistent_workers": "dataloader_persistent_workers",
        "DataLoader.pin_memory": "dataloader_pin_memory",
        "DataLoader.prefetch_factor": "dataloader_prefetch_factor",
        "DistributedDataParallel.broadcast_buffers": "ddp_broadcast_buffers",
        "DistributedDataParallel.find_unused_parameters": "ddp_find_unused_parameters",
        "images.to.non_blocking": {"True": {"accelerator_config": '{"non_blocking": True}'}},
        "model.gradient_checkpointing_disable": {"": {"gradient_checkpointing": "False"}},
        "torch.autocast.dtype": {"torch.bfloat16": {"bf16": "True"}, "torch.float16": {"fp16": "True"}},
        "torch.backends.cudnn.allow_tf32": "tf32",
        "torch.compile": {"model": {"torch_compile": "True"}},
        "torch.compile.mode": "torch_compile_mode",
        "torch.optim.AdamW.fused": {"True": {"optim": '"adamw_torch_fused"'}},
        "torch.set_float32_matmul_precision": {'"high"': {"tf32": "True"}},
    },
    "Lightning": {
        **_AUTOCAST,
        "torch.autocast.dtype": {
            "torch.bfloat16": {"precision": '"bf16-mixed"'},
            "torch.float16": {"precision": '"16-mixed"'},
        },
        "torch.backends.cudnn.benchmark": "benchmark",
    },
    "Accelerate": {
        **_AUTOCAST,
        "torch.autocast.dtype": {
            "torch.bfloat16": {"mixed_precision": '"bf16"'},
            "torch.float16": {"mixed_precision": '"fp16"'},
        },
    },
}


def in_framework(finding: Finding, facts: Facts) -> Finding:
    """The finding with the arguments of the framework that runs the training, at the line of its settings; the same
    finding if the framework has no such arguments, or the script makes the call itself.
    """
    framework, fix = facts.training_framework, finding.fix
    if framework is None or not facts.trains:
        return finding
    arguments = _arguments(framework, fix)
    if not arguments or _is_the_scripts(facts, fix):
        return finding
    settings = _settings(facts, framework)
    name = settings.class_name if settings is not None else _CLASSES[framework]
    text = fix.text + f" With {_called(framework)}, set it in {name}."
    places = [settings.built.site] if settings is not None else []
    return replace(
        finding,
        fix=Fix(text, edits=fix.edits, in_framework=SetArguments(name, arguments)),
        locations=list(dict.fromkeys([*places, *finding.locations])),
    )


def _arguments(framework: TrainingFramework, fix: Fix) -> Arguments:
    """Empty unless the framework has arguments for all that the edits set."""
    arguments: Arguments = {}
    for name, value in fix.settings.items():
        own = _ARGUMENTS[framework].get(name, {})
        known = {own: value} if isinstance(own, str) else own.get(value)
        if known is None:
            return {}
        arguments |= known
    return arguments


def _is_the_scripts(facts: Facts, fix: Fix) -> bool:
    """Whether the script constructs the loader or an optimizer itself, or the framework has no such optimizer."""
    callees = {edit.callee for edit in fix.edits if isinstance(edit, SetArguments)}
    loader = facts.captured.training_loader
    if "DataLoader" in callees and loader is not None and loader.built is not None:
        return loader.built.library != "transformers"
    if "torch.optim.AdamW" not in callees:
        return False
    makers = [optimizer.built.library for optimizer in stepping_optimizers(facts) if optimizer.built is not None]
    return optimizer_classes(facts) != ["AdamW"] or any(maker != "transformers" for maker in makers)


def _settings(facts: Facts, framework: TrainingFramework) -> FrameworkSettings | None:
    """The settings that the script constructs, if they are the only ones; else it is unclear which are in use."""
    found = [settings for settings in facts.captured.frameworks if settings.framework == framework]
    places = {settings.built.site for settings in found}
    return found[0] if len(places) == 1 else None


def _called(framework: TrainingFramework) -> str:
    return "the Hugging Face Trainer" if framework == "Hugging Face Trainer" else framework
