"""The crowd: trainings in the manner of well-known projects, and what is known about each before it is recorded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
PLANTED = "# planted"  # ends each line that a report on the planted fault may name
ALL = os.environ.get("TRACEOPT_CROWD") == "all"  # in `make crowd`


@dataclass(frozen=True)
class Training:
    """A script and its arguments; `command` goes before them, if the script is not started by itself.

    `rule` is the step rule. `faults` are the codes of rules one of which must report what is planted, with high impact.
    `uncounted`: true steps that are over before the rule is known; negative if too many were counted by then.
    `agent_calls`: most calls that the agent makes in a step while nothing is recorded, on average. A call takes a fifth
    of a microsecond (docs/running.md has their time). Each further update or batch of a step needs more calls.
    """

    name: str
    words: tuple[str, ...]
    rule: str
    faults: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    code: int = 0
    processes: int = 1
    uncounted: int = 0
    agent_calls: int = 190
    needs: str | None = None  # a package
    quick: bool = False  # part of `make test`

    @property
    def script(self) -> Path:
        return SCRIPTS / self.words[0]

    @property
    def lacks(self) -> str | None:
        """Why it cannot run, if it cannot."""
        missing = self.needs is not None and find_spec(self.needs) is None
        return f"{self.needs} is not installed" if missing else None

    @cached_property
    def planted_lines(self) -> set[int]:
        lines = self.script.read_text(encoding="utf-8").splitlines()
        return {number for number, line in enumerate(lines, 1) if line.endswith(PLANTED)}


TORCHRUN = ("python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")

TRAININGS = (
    Training("pretraining", ("research.py", "pretraining"), "update", ("LG003",), quick=True),
    Training("language model", ("research.py", "language_model"), "backward", uncounted=16),
    Training("epochs", ("research.py", "epochs"), "loader", ("DL001",), agent_calls=500),
    Training("hand-made batches", ("research.py", "hand_made_batches"), "update"),
    Training("folds", ("research.py", "folds"), "update"),
    Training("classification", ("research.py", "classification"), "loader", ("LG001", "LB006"), agent_calls=260),
    Training("contrastive", ("research.py", "contrastive"), "loader", ("DL002",)),
    Training("style transfer", ("research.py", "style_transfer"), "update"),
    Training("semi-supervised", ("research.py", "semi_supervised"), "loader", ("DL001",)),
    Training("meta-learning", ("research.py", "meta_learning"), "update", uncounted=1, agent_calls=3000),
    Training("GAN", ("adversarial.py", "pictures"), "loader", ("DL001",), agent_calls=300, quick=True),
    Training("GAN, critic first", ("adversarial.py", "critic_first"), "update", uncounted=1, agent_calls=520),
    Training("GAN, unpaired", ("adversarial.py", "unpaired"), "loader", ("DL001",), agent_calls=340),
    Training("PPO", ("reinforcement.py", "rollouts"), "update"),
    Training("DQN", ("reinforcement.py", "replay_buffer"), "update", ("LB006",)),
    Training("SAC", ("reinforcement.py", "soft_actor_critic"), "update", agent_calls=520),
    Training(
        "composed configuration", ("entry_points.py", "configured", "optimization.lr=0.01"), "loader", ("DL001",),
    ),
    Training("typed options", ("entry_points.py", "typed", "--optimization.lr", "0.01"), "loader", code=3),
    Training("click", ("entry_points.py", "commands", "--fail"), "loader", ("DL001",), code=1),
    Training("Lightning", ("frameworks.py", "lightning"), "loader", ("DL001",), agent_calls=300, needs="lightning"),
    Training(
        "Hugging Face", ("frameworks.py", "huggingface"), "loader", ("DL001",), agent_calls=280, needs="transformers",
    ),
    Training("Accelerate", ("frameworks.py", "accelerate"), "loader", ("LG003",), agent_calls=300, needs="accelerate"),
    Training("torchrun", ("ranks.py", "launched"), "loader", ("CM004",), TORCHRUN, processes=2),
    Training("spawned ranks", ("ranks.py", "spawned"), "loader", ("CM004",), processes=2),
    Training("Hogwild", ("ranks.py", "hogwild"), "loader", processes=2),
    Training("compiled, AOT", ("compiled.py", "aot_eager"), "loader", ("LG003",)),
    Training(
        "compiled, Inductor", ("compiled.py", "inductor"), "loader", ("LG003",),
    ),
    Training("restarted workers", ("loaders.py", "restarted"), "loader", ("DL006",), agent_calls=180),
    Training("persistent worker", ("loaders.py", "persistent"), "loader", ("DL001",)),
    Training(
        "spawned worker", ("loaders.py", "spawned"), "loader", ("DL001",),
    ),
    Training(
        "another library's loader", ("loaders.py", "imitation"), "loader", ("DL001",),
    ),
    Training("graphs", ("graphs.py", "minibatches"), "loader", ("DL001",)),
    Training("one graph", ("graphs.py", "whole_graph"), "update"),
    Training("generation", ("generation.py",), "inference", ("DL001",), uncounted=7),
)  # fmt: skip
