"""EF006: the run takes long to reach its first step."""

from __future__ import annotations

from traceopt.analyzer.run_log.sampled_start_up import StartUpPart
from traceopt.analyzer.vocabulary.phases.start_up_parts import START_UP_LABELS
from traceopt.result.sections.companions import StartUpPartName
from traceopt.rules import Effort, Evidence, Facts, Findings, Fix, Rule, percent, required, seconds, threshold

_ADVICE: dict[StartUpPartName, str] = {
    "imports": "Import only the modules that you use, inside the function that needs them, and keep the Python "
    "environment on a local disk.",
    "downloads": "Download weights and data before the run. Set HF_HUB_OFFLINE=1, so that the cache is used unchecked.",
    "data": "Tokenize once and save the result (datasets: save_to_disk, or map() with its cache). Read files with "
    "memory mapping.",
    "model": "Create the model on its device (with torch.device(...)), or on the meta device if a checkpoint fills it.",
    "checkpoint": "Load with safetensors, or torch.load(mmap=True), straight to the device, and read the file from a "
    "local disk.",
    "device": "Keep the driver loaded (nvidia-persistenced), and show the process only its own GPUs.",
    "process_group": "The ranks may wait for each other here: look at what the slowest rank does before. Start all "
    "ranks at once.",
    "compilation": "Keep the compiler's cache between runs (TORCHINDUCTOR_CACHE_DIR on a disk that lasts), and compile "
    "repeated blocks, not the whole model.",
    "first_batch": "Start fewer loader workers, keep their data set small to copy, and shuffle indices instead of "
    "filling a buffer.",
    "first_step": "The first step also loads kernels and tunes them: see whether cudnn.benchmark or autotuning pays.",
    "other": "Profile these lines alone, for example with cProfile.",
}
ALMOST_ALL = 0.9  # of a part: a line with less is named with its own time


class StartUpTime(Rule):
    """Measures the time from the creation of the process to the end of its first step, as `traceopt run` sampled it:
    imports, downloads, data set and tokenization, model construction, checkpoint loading, compilation, first batch.

    Why it costs: no step is trained meanwhile, on any GPU of the job. Each restart pays it again: after a failure, for
    each trial of a search, and for each change while you develop.

    How to fix: begin with the longest part. Imports: import less, and later. Data: tokenize once and save the result.
    Checkpoints: safetensors, straight to the device. Compilation: keep the cache between runs.

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/scratch/inductor"      # before torch is imported
        data = datasets.load_from_disk("tokenized")                      # instead of tokenizing in each run
        state = torch.load("model.pt", mmap=True, map_location="cuda")

    When it is wrong: a short trial of a long training starts as slowly as the training itself, so the share is far
    smaller there. A run that was stopped early gets no share. The first run on a machine fills caches of files and
    compilers that later runs find full. Only the main thread is sampled, at most 20 times a second.

    Sources: PyTorch documentation, "torch.load" and "Compile Time Caching in torch.compile"; Hugging Face, "Datasets:
    cache management".
    """

    code = "EF006"
    name = "start-up-time"
    title = "Shorten the start-up of the run"
    family = "efficiency"
    effort = Effort.DEPENDS
    confidence = "medium"
    requires = ("ledger", "start_up")

    min_s: float = threshold(30.0, "shortest start-up to report, in seconds")
    min_share: float = threshold(0.1, "smallest share of a whole run to report")
    min_part: float = threshold(0.2, "smallest share of the start-up for a part to be named")

    def check(self, facts: Facts) -> Findings:
        known, share = required(facts.captured.start_up), _share(facts)
        whole = not facts.captured.cut_short
        if known.total_ns < self.min_s * 1e9 or (whole and share < self.min_share):
            return
        named = [part for part in known.parts if part.name in _ADVICE]
        large = [part for part in named if part.total_ns >= self.min_part * known.total_ns]
        cut_short = "" if whole else " The run was stopped early, so its share of a whole run is not known."
        yield self.finding(
            why=f"Start-up takes {seconds(known.total_ns)}{_of_run(facts)}{_list(large)}.{cut_short}",
            confidence="medium" if whole else "low",
            evidence=[
                Evidence(
                    START_UP_LABELS[part.name],
                    detail=seconds(part.total_ns),
                    location=part.lines[0].location if part.lines else None,
                )
                for part in named
            ]
            or [Evidence("Start-up", detail=seconds(known.total_ns))],
            locations=[part.lines[0].location for part in large if part.lines][:1],
            fix=Fix(
                " ".join(_ADVICE[part.name] for part in large) or "Find out what the script does before its steps."
            ),
        )

    def passed(self, facts: Facts) -> str:
        known = required(facts.captured.start_up)
        return f"Start-up takes {seconds(known.total_ns)}{_of_run(facts)}."


def _share(facts: Facts) -> float:
    """Of the recorded run."""
    return required(facts.captured.start_up).total_ns / required(facts.captured.ledger).whole_run.total_ns


def _of_run(facts: Facts) -> str:
    """Nothing about a run that was cut short."""
    return "" if facts.captured.cut_short else f", {percent(_share(facts))} of the run"


def _list(parts: list[StartUpPart]) -> str:
    """ ": compilation 34 s (train.py:43), imports 9.1 s (transformers, train.py:21, 5.2 s)"."""
    return ": " + ", ".join(map(_part, parts)) if parts else ""


def _part(part: StartUpPart) -> str:
    label = START_UP_LABELS[part.name]
    text = f"{label[0].lower()}{label[1:]} {seconds(part.total_ns)}"
    if not part.lines:
        return text
    first = part.lines[0]
    most = f", {seconds(first.total_ns)}" if first.total_ns < ALMOST_ALL * part.total_ns else ""
    return f"{text} ({f'{first.what}, ' if first.what else ''}{first.location}{most})"
