"""What torch.compile writes: names of compilations, reasons of graph breaks, failed guards, skipped CUDA graphs."""

from __future__ import annotations

import pytest

from traceopt.analyzer.vocabulary.torch_compile import (
    LINE_LENGTH,
    is_compile,
    parse_break,
    parse_guard,
    parse_reason,
    parse_skip,
    user_function,
)

BREAK_2_13 = """Graph break in user code at /home/user/train.py:9
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing it.
  Hint: Set it to True.
  Hint: Or do not call it.

  Developer debug context: call_method TensorVariable() item () {}

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html

User code traceback:
  File "/home/user/train.py", line 21, in <module>
    train()
  File "/home/user/train.py", line 9, in forward
    if x.mean().item() > 0.5:
  File "/usr/lib/site-packages/torch/nn/functional.py", line 77, in relu
    return 0

Traceback (most recent call last):
  File "/usr/lib/site-packages/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
"""
BREAK_2_6 = """Graph break in user code at /home/user/train.py:12
Reason: Unsupported: call_function print
User code traceback:
  File "/home/user/train.py", line 12, in train_step
    print(loss)
"""


def test_a_graph_break_has_a_reason_hints_and_the_users_line() -> None:
    text, site = parse_break(BREAK_2_13)
    assert text.title == "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    assert text.explanation == "Dynamo does not support tracing it."
    assert text.hints == ("Set it to True.", "Or do not call it.")
    assert text.page is not None
    assert text.page.endswith("gb0124.html")
    assert site is not None
    assert (site.file, site.line, site.function) == ("~/train.py", 9, "forward")
    text, site = parse_break(BREAK_2_6)
    assert text.title == "Unsupported: call_function print"
    assert site is not None
    assert site.line == 12


@pytest.mark.parametrize(
    ("text", "guard", "pattern", "kind"),
    [
        (
            "0/0: tensor 'x' size mismatch at index 1. expected 4, actual 5",
            "tensor 'x' size mismatch at index 1. expected 4, actual 5",
            "tensor 'x' size mismatch at index 1. expected *, actual *",
            "shape",
        ),
        ("2/1: self.scale == 1   # return x * self.scale", "self.scale == 1", "self.scale == *", "number"),
        ("3/0: self.training == True", "self.training == True", "self.training == *", "training flag"),
        (
            "0/0: ___check_obj_id(fn, 140439264606080)     ",
            "___check_obj_id(fn, 140439264606080)",
            "___check_obj_id(fn, *)",
            "object",
        ),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Half", None, None, "dtype"),
        ("0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 8", None, None, "stride"),
        ("0/0: GLOBAL_STATE changed: grad_mode ", None, None, "grad mode"),
        ("!0/1/0: BACKEND_MATCH failure: torch.compile detected another backend", None, None, "backend"),
        ("[7/0]: something new", "something new", "something new", None),
    ],
)
def test_a_guard_has_a_kind_and_a_pattern_without_values(
    text: str, guard: str | None, pattern: str | None, kind: str | None
) -> None:
    found = parse_guard(text)
    assert found.kind == kind
    assert guard is None or (found.guard, found.pattern) == (guard, pattern)


def test_the_line_of_a_guard_comes_from_its_stack_or_its_comment() -> None:
    comment = "2/2: self.scale == 2  # return x * self.scale  # user/train.py:11 in torch_dynamo_resume_in_forward_at_9"
    found = parse_guard(f"{comment} (HINT: make it a tensor.)", "/home/user/train.py")
    assert found.site is not None
    assert (found.site.file, found.site.line, found.site.function) == ("~/train.py", 11, "forward")
    assert parse_guard("2/2: self.scale == 2 (HINT: make it a tensor.)").guard == "self.scale == 2"
    assert parse_guard(comment, "/home/other/model.py").site is None
    stack = 'User stack trace:\n  File "/home/user/train.py", line 12, in forward\n    return x'
    found = parse_guard(f"{comment}\n{stack}", "train.py")
    assert found.site is not None
    assert (found.site.file, found.site.line) == ("train.py", 12), "as the trace names the file"


def test_why_a_graph_was_skipped() -> None:
    reason, site = parse_skip("skipping cudagraphs due to cpu device (arg0_1).")
    assert (reason, site) == ("cpu device (arg0_1)", None)


def test_messages_of_any_form_are_one_short_line() -> None:
    for text in ("", "\n" * 50_000, "x" * 50_000, "(HINT: " * 9_000, "#" * 50_000, "Reason: \n" * 9_000):
        parsed = (parse_reason(text).title, parse_break(text)[0].title, parse_guard(text).guard, parse_skip(text)[0])
        assert all(len(line) <= LINE_LENGTH and "\n" not in line for line in parsed)


def test_the_rest_of_a_function_is_that_function() -> None:
    assert user_function("torch_dynamo_resume_in_forward_at_9") == "forward"
    assert user_function("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_7") == "f"
    assert user_function("forward") == "forward"


def test_compiling_is_not_running_compiled_code() -> None:
    assert is_compile("_compile.compile_inner (dynamo_timed)")
    assert is_compile("compile_fx.<locals>.fw_compiler_base (dynamo_timed)")
    assert is_compile("CachingAutotuner.benchmark_all_configs (dynamo_timed)")
    assert is_compile("PyCodegen (dynamo_timed)")
    assert is_compile("CUDAGraphNode.record (dynamo_timed)")
    assert not is_compile("TorchDynamo Cache Lookup")
    assert not is_compile("Torch-Compiled Region: 0/0")
    assert not is_compile("## Call CompiledFxGraph fjsNiNjmhjizyb ##")
    assert not is_compile("aten::mm")
