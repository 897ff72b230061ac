"""What a fix changes, as values: the example, the patch, the trial and the argument of a framework are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import indent
from typing import Annotated

from msgspec import Struct

from traceopt.result.field_notes import note

Arguments = Annotated[dict[str, str], note("keyword arguments, as Python source")]


class SetArguments(Struct, frozen=True, tag="set_arguments"):
    """Sets keyword arguments of a call."""

    callee: Annotated[str, note("what is called")]
    arguments: Arguments

    @property
    def settings(self) -> dict[str, str]:
        return {f"{self.callee}.{name}": value for name, value in self.arguments.items()}

    @property
    def code(self) -> str:
        return f"{self.callee}({', '.join(['...', *_listed(self.arguments)])})"


class Compile(Struct, frozen=True, tag="compile"):
    """Compiles a model or function with torch.compile."""

    target: Annotated[str, note("what is compiled")] = "model"
    arguments: Arguments = {}

    @property
    def settings(self) -> dict[str, str]:
        return {"torch.compile": self.target} | {f"torch.compile.{k}": value for k, value in self.arguments.items()}

    @property
    def code(self) -> str:
        return f"{self.target} = torch.compile({', '.join([self.target, *_listed(self.arguments)])})"


class Wrap(Struct, frozen=True, tag="wrap"):
    """Runs statements inside a context manager."""

    callee: Annotated[str, note("what makes the context manager")]
    body: Annotated[str, note("the statements inside, as Python source")]
    arguments: Arguments = {}

    @property
    def settings(self) -> dict[str, str]:
        return {self.callee: ""} | {f"{self.callee}.{name}": value for name, value in self.arguments.items()}

    @property
    def code(self) -> str:
        return f"with {self.callee}({', '.join(_listed(self.arguments))}):\n{indent(self.body, '    ')}"


class SetVariable(Struct, frozen=True, tag="set_variable"):
    """Sets or removes a variable of the environment."""

    name: Annotated[str, note("name of the variable")]
    value: Annotated[str | None, note("its value; null: the variable is removed")]

    @property
    def settings(self) -> dict[str, str]:
        return {self.name: self.value or ""}

    @property
    def code(self) -> str:
        return f"unset {self.name}" if self.value is None else f"export {self.name}={self.value}"


class SetAttribute(Struct, frozen=True, tag="set_attribute"):
    """Sets a switch that holds for the whole process, such as torch.backends.cudnn.benchmark."""

    attribute: Annotated[str, note("full name of the attribute")]
    value: Annotated[str, note("its value, as Python source")]

    @property
    def settings(self) -> dict[str, str]:
        return {self.attribute: self.value}

    @property
    def code(self) -> str:
        return f"{self.attribute} = {self.value}"


class Call(Struct, frozen=True, tag="call"):
    """Calls a function once, before the loop."""

    callee: Annotated[str, note("what is called")]
    arguments: Annotated[str, note("its arguments, as Python source")] = ""

    @property
    def settings(self) -> dict[str, str]:
        return {self.callee: self.arguments}

    @property
    def code(self) -> str:
        return f"{self.callee}({self.arguments})"


class CallEvery(Struct, frozen=True, tag="call_every"):
    """Makes a call of each step only once in some steps."""

    callee: Annotated[str, note("what is called")]
    steps: Annotated[int, note("steps from one call to the next", "steps")]
    arguments: Annotated[str, note("its arguments, as Python source")] = "..."

    @property
    def settings(self) -> dict[str, str]:
        return {f"{self.callee}.every": str(self.steps)}

    @property
    def code(self) -> str:
        return f"if step % {self.steps} == 0:\n    {self.callee}({self.arguments})"


class RemoveCall(Struct, frozen=True, tag="remove_call"):
    """Removes a call."""

    callee: Annotated[str, note("what is no longer called")]
    of: Annotated[int, note("1: each call is removed; 2: every second one")] = 1

    @property
    def settings(self) -> dict[str, str]:
        return {f"{self.callee}.removed": "" if self.of == 1 else f"every {self.of}"}

    @property
    def code(self) -> str:
        return f"# without {self.callee}()"


class Replace(Struct, frozen=True, tag="replace"):
    """Replaces an expression by a call."""

    callee: Annotated[str, note("what is called")]
    arguments: Annotated[str, note("its arguments, as Python source")]
    expression: Annotated[str, note("what the call replaces, as Python source")]

    @property
    def settings(self) -> dict[str, str]:
        return {self.callee: self.arguments}

    @property
    def code(self) -> str:
        return f"{self.callee}({self.arguments})  # instead of {self.expression}"


Edit = SetArguments | Compile | Wrap | SetVariable | SetAttribute | Call | CallEvery | RemoveCall | Replace


def settings_of(edits: Iterable[Edit]) -> dict[str, str]:
    """What edits set, by full name: {"DataLoader.num_workers": "4", "torch.compile": "model"}."""
    return {name: value for edit in edits for name, value in edit.settings.items()}


def example_of(edits: Iterable[Edit]) -> str:
    """Edits as code, for people."""
    return "\n".join(edit.code for edit in edits)


def _listed(arguments: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in arguments.items()]
