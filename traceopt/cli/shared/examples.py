"""The examples that `--help` prints: for each command, what one does and the line to type."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "traceopt": {
        "Record some steps of a training script, and analyze them": "traceopt run train.py",
        "Analyze traces that you have": "traceopt analyze ./logs",
    },
    "run": {
        "Profile a script with its own arguments": "traceopt run train.py --epochs 3",
        "Profile a module, and end it when everything is recorded": "traceopt run --stop-after -m package.train",
        "Profile all ranks: a launcher goes after --": "traceopt run -- torchrun --nproc-per-node 8 train.py",
    },
    "record": {
        "Start a training that waits for requests": "traceopt run --record-on-request train.py",
        "Ask its process for a recording": "traceopt record 4711",
    },
    "analyze": {
        "Print a summary, and write traceopt-report.html": "traceopt analyze ./logs",
        "Print a comment for a pull request": "traceopt analyze ./logs --no-html --format markdown",
        "Fail if the GPU is idle for more than 40% of the step": "traceopt analyze ./logs --fail-on gpu_idle=40%",
    },
    "compare": {
        "Compare two recordings": "traceopt compare logs/main logs/branch",
        "Compare several runs per side, which show the noise": "traceopt compare 'logs/main-*' 'logs/branch-*'",
        "Run the script as it is in main, and as it is now": "traceopt compare --against main -- train.py --epochs 1",
    },
    "bisect": {
        "Search between a tag and a branch": "traceopt bisect v1.2 main train.py --epochs 1",
        "Search the last 20 commits": "traceopt bisect HEAD~20 HEAD -- torchrun --nproc-per-node 2 train.py",
        "Search the versions of PyTorch in these environments": (
            "traceopt bisect --package torch --python v25 --python v26 2.5.1 2.6.0 train.py"
        ),
    },
    "whatif": {
        "Replay the step with two fixes": "traceopt whatif trace.json.gz --fix DL001 --fix TC001",
        "Replay the step with matmuls of half the time": "traceopt whatif trace.json.gz --scale kernel~gemm 0.5",
    },
    "try": {
        "Try the top three fixes": "traceopt try train.py --epochs 3",
        "Try one fix, and keep it if it helps": "traceopt try --fix DL001 --apply train.py",
        "Try changes of your own": "traceopt try --patch faster.diff --env OMP_NUM_THREADS=4 train.py",
    },
    "tune": {
        "Tune for half an hour": "traceopt tune train.py --epochs 3",
        "Tune for an hour, with mixed precision if it helps": "traceopt tune --budget 60 --allow numerics train.py",
    },
    "measure": {
        "Measure what the savings of a run depend on": "traceopt measure traceopt-logs/train",
        "Analyze the run with the measured rates": "traceopt analyze traceopt-logs/train",
    },
    "accuracy": {
        "Sum up all that was tried in this folder": "traceopt accuracy",
        "Sum up another file, and write the numbers as JSON": "traceopt accuracy old/tried.jsonl --json accuracy.json",
    },
    "view": {
        "Open a trace in the browser": "traceopt view logs/trace.json.gz",
        "Print the link": "traceopt view logs/trace.json.gz --no-browser",
    },
    "cut": {
        "Write step 12 of a long trace, to share it": "traceopt cut logs/trace.json.gz --step 12 -o step12.json.gz"
    },
    "tensorboard": {"Show the traces of a folder on another port": "traceopt tensorboard traceopt-logs --port 6007"},
    "rules": {"List all rules": "traceopt rules", "List them with your own": "traceopt rules --rules-dir my_rules"},
    "rule": {
        "Print a rule, given its code": "traceopt rule DL001",
        "Print a rule, given its name": "traceopt rule dataloader-stall",
    },
    "export": {"Write the result document of a report": "traceopt export traceopt-report.html --json result.json"},
    "schema": {"Save the schema": "traceopt schema > result.schema.json"},
    "mcp": {
        "Serve the traces and reports of a project": "traceopt mcp --root ~/project",
        "Also run its scripts": "traceopt mcp --root ~/project --allow-run",
    },
    "skill": {"Save it where your assistant looks for skills": "traceopt skill > SKILL.md"},
}
