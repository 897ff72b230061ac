"""Gives repair tasks to an assistant, grades its answers, and says which lines each output names.

python -m benchmarks.agents.repairs list
python -m benchmarks.agents.repairs show TASK OUTPUT     # what the assistant gets: the script, and one output about it
python -m benchmarks.agents.repairs grade TASK FILE      # FILE: the repaired script
python -m benchmarks.agents.repairs grade TASK reference # the repair that nobody is shown
python -m benchmarks.agents.repairs read [TASK ...]      # without a model: writes repairs.json, 30 recordings

With a model: for each task and output, start at least three new sessions without memory and tools, all with the same
settings. The prompt is "This training is slower than it must be. Change the script so that a step takes less time and
the losses stay the same. Answer with the whole script only.", and then what `show` prints. With the output `script
only` that is the script alone; the difference from it is what an output is worth. Grade on a quiet machine: `keep` is a
repair, and `unclear` needs more time. Report model, date, commit, the repairs of each output, the tokens read and the
median gain.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.agents.outputs import OUTPUTS
from benchmarks.agents.readers import LINES, READERS
from benchmarks.agents.repairs.grading import STEPS, graded
from benchmarks.agents.repairs.tasks import SCRIPT, TASKS, Task

DATA = Path(__file__).with_name("repairs.json")
NOTHING = "script only"  # the output of an assistant that gets no measurement


def recorded(task: Task, folder: Path) -> dict[str, str]:
    """Records the script as a user would. Returns the text of each output. Raises RuntimeError if recording fails."""
    (folder / SCRIPT).write_text(task.script, encoding="utf-8")
    options = ["--preset=quick", "--stop-after", "--quiet", "--no-html", "--logdir=log"]
    command = [sys.executable, "-m", "traceopt", "run", *options, SCRIPT, str(STEPS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    traces = sorted((folder / "log").glob("*.json.gz"))
    if not traces:
        raise RuntimeError(f"{task.name}: {done.stderr.strip()}")
    # The last recording has stacks and shapes. traceopt reads all of them together, as its users do.
    return {name: make(folder / "log" if name.startswith("traceopt") else traces[-1]) for name, make in OUTPUTS.items()}


def named(task: Task, output: str, text: str) -> bool:
    """Whether the output names a line that the repair changes, among the first ones that it names for its fix."""
    lines = {Path(line).name for line in READERS[output](text).lines[:LINES]}
    return not lines.isdisjoint(task.planted)


def read(tasks: list[Task]) -> dict[str, dict[str, bool]]:
    """For each task and output, whether it names the line."""
    rows = {}
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            texts = recorded(task, Path(folder))
        rows[task.name] = {output: named(task, output, text) for output, text in texts.items()}
        print(task.name, rows[task.name], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list")
    actions.add_parser("read").add_argument("tasks", nargs="*", choices=[*TASKS, []], metavar="TASK")
    show, grade = actions.add_parser("show"), actions.add_parser("grade")
    for one in (show, grade):
        one.add_argument("task", choices=list(TASKS), metavar="TASK")
    show.add_argument("output", choices=[NOTHING, *OUTPUTS], metavar="OUTPUT")
    grade.add_argument("file")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.action == "list":
        print("\n".join([*TASKS, "", "outputs:", NOTHING, *OUTPUTS]))
    elif options.action == "read":
        known = json.loads(DATA.read_text(encoding="utf-8")) if options.tasks and DATA.is_file() else {}
        rows = known | read([TASKS[name] for name in options.tasks or TASKS])
        DATA.write_text(json.dumps({name: rows[name] for name in TASKS if name in rows}, indent=1) + "\n")
    elif options.action == "show":
        task = TASKS[options.task]
        with tempfile.TemporaryDirectory() as folder:
            texts = recorded(task, Path(folder)) if options.output != NOTHING else {}
        print(f"{SCRIPT}:\n\n{task.script}\n{texts.get(options.output, '')}")
    else:
        task = TASKS[options.task]
        text = task.repaired if options.file == "reference" else Path(options.file).read_text(encoding="utf-8")
        print(msgspec.json.encode({"task": task.name, **msgspec.to_builtins(graded(task, text))}).decode())


if __name__ == "__main__":
    main()
