"""What to change so that a guard of compiled code stops failing."""

from __future__ import annotations

from traceopt.analyzer.tables.compilation import Recompiled
from traceopt.analyzer.vocabulary.torch_compile import GuardText
from traceopt.result.finding import Evidence, Fix
from traceopt.result.words.quantities import counted

MOST_VALUES = 3
_LENGTH = 160

_FIXES = {
    "shape": Fix(
        "Mark the dimension that varies as dynamic, or pad it to a few sizes.",
        "torch._dynamo.mark_dynamic(tokens, 1)  # dimension 1 varies\n# or: torch.compile(model, dynamic=True)",
    ),
    "stride": Fix("Pass tensors of one memory layout to the compiled function.", "output = model(batch.contiguous())"),
    "dtype": Fix("Pass tensors of one dtype to the compiled function.", "output = model(batch.to(dtype))"),
    "grad mode": Fix(
        "Do not switch the grad mode or autocast around the same compiled function. Compile a copy for evaluation.",
        "evaluate = torch.compile(model.forward)  # called only under torch.no_grad()",
    ),
    "training flag": Fix(
        "Switch between train() and eval() rarely: each mode is compiled once, but both count towards the limit.",
        "model.eval()  # once per evaluation, not once per batch",
    ),
    "backend": Fix("Call torch.compile once, outside of the loop.", "model = torch.compile(model)  # before the loop"),
    "object": Fix(
        "Pass the same object to each call, not a new function, module or configuration.",
        "loss_function = make_loss()  # before the loop, not in each step",
    ),
    "number": Fix(
        "Pass the number that changes as a tensor, or let Dynamo treat it as dynamic.",
        "scale = torch.tensor(scale, device=x.device)\n# or: torch._dynamo.config.allow_unspec_int_on_nn_module = True",
    ),
}
_ANY = Fix(
    "Find out what changes between the calls, and keep it fixed or mark it as dynamic.",
    "TORCH_LOGS=recompiles python script.py",
)


def fix_for(guard: GuardText) -> Fix:
    """The usual change for the kind of guard that fails."""
    return _FIXES.get(guard.kind or "", _ANY)


def guard_evidence(one: Recompiled) -> Evidence:
    """A row for compilations of a function that share a guard."""
    values = "; ".join(guard.guard[:_LENGTH] for guard in one.guards[1:MOST_VALUES])
    seconds = f", {one.total_ns / 1e9:.3g} s of compilation" if one.total_ns is not None else ""
    return Evidence(
        f"Failed guard: {one.guards[0].guard[:_LENGTH]}",
        detail=f"{counted(one.count, 'recompilation')} of {one.function or 'a function'}(){seconds}"
        + (f"; also {values}" if values else ""),
        location=one.site,
    )
