"""Writes docs/gallery/: a static report for each kind of bottleneck, a picture of its first screen, and a list of them.
Also writes docs/pictures/, which the tutorial shows.

Run it with `make gallery`. The traces come from fixtures/: simulated by its generator, or recorded and committed there.
The same inputs give the same pages, byte for byte. The pictures depend on the browser and its fonts.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from traceopt.result.document import Result
from traceopt.result.encoding.packing import embedded_result

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "gallery"
SIMULATED = "build/traces"
CHROMIUM = "/usr/bin/chromium"  # Debian's
WIDTH, HEIGHT = 1280, 860
TUTORIAL = ROOT / "docs" / "pictures"  # what the tutorial shows of a page: the picture's name, the page, the element
DETAILS = (("loader-bound-fix", "loader-bound", "#DL001"),)
COLORS = 160  # per picture; a report has few, and each byte stays in the repository forever


@dataclass(frozen=True)
class Page:
    """One report. `trace` is a recording in fixtures/, or the output of `fixtures/generate.py` for `simulated`."""

    name: str
    title: str
    about: str
    trace: str
    simulated: str = ""
    options: str = ""

    @property
    def commands(self) -> list[str]:
        """The commands that make the report, from the root of the repository."""
        generate = f"python fixtures/generate.py {self.simulated} --out {SIMULATED}"
        analyze = f"traceopt analyze {self.trace} --static{self.options} --html docs/gallery/{self.name}.html"
        return [generate, analyze] if self.simulated else [analyze]


PAGES = (
    Page(
        "several-causes",
        "Several causes at once",
        "Five planted faults. The report says which fixes overlap, and which to make first.",
        "fixtures/traces/five_faults.json.gz",  # as in the README and in the tutorial
    ),
    Page(
        "loader-bound",
        "Loader-bound",
        "Recorded on a CPU with `traceopt run`. Batches are built in the training process. The fix is a patch.",
        "fixtures/traces/cpu/slow_loader/plain",
        options=" --source fixtures/workloads",
    ),
    Page(
        "launch-bound",
        "Launch-bound",
        "The kernels are so small that the host cannot launch them as fast as the GPU runs them.",
        f"{SIMULATED}/launch_bound.json.gz",
        "launch_bound",
    ),
    Page(
        "communication-bound",
        "Communication-bound, four ranks",
        "Collectives wait for a straggler. The report names the rank and the cause.",
        f"{SIMULATED}/straggler",
        "straggler --set world_size=4",
    ),
    Page(
        "host-syncs",
        "Host syncs",
        "A `loss.item()` call after the forward pass drains the GPU queue, and the host has to refill it.",
        f"{SIMULATED}/item_stall.json.gz",
        "item_stall",
    ),
    Page(
        "no-tensor-cores",
        "Matmuls without Tensor Cores",
        "FP32 matmuls on a GPU with Tensor Cores. The GPU is always busy, but with the wrong kernels.",
        f"{SIMULATED}/fp32_matmul.json.gz",
        "fp32_matmul",
    ),
    Page(
        "misaligned-matmuls",
        "Misaligned matmuls",
        "With a vocabulary of 50257 columns, three matmuls run on slow kernels. Padding is cheap.",
        f"{SIMULATED}/misaligned_vocab.json.gz",
        "misaligned_vocab",
    ),
    Page(
        "memory",
        "Device memory nearly full",
        "Allocations fail and are retried in every step.",
        f"{SIMULATED}/memory_pressure.json.gz",
        "memory_pressure",
    ),
    Page(
        "healthy",
        "A healthy job",
        "No fix saves more than 3 % of the step, and the report says so.",
        f"{SIMULATED}/healthy.json.gz",
        "healthy",
    ),
)


def make(page: Page) -> None:
    for command in page.commands:
        program, *arguments = shlex.split(command)
        start = [sys.executable, "-m", "traceopt"] if program == "traceopt" else [sys.executable]
        subprocess.run([*start, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def result_of(page: Page) -> Result:
    """The result document that the report contains."""
    return Result.from_json(embedded_result((FOLDER / f"{page.name}.html").read_text(encoding="utf-8")))


def index() -> str:
    """docs/gallery/README.md, from the reports in the folder."""
    lines = [
        "# Gallery",
        "",
        "One report for each kind of bottleneck, made by `make gallery`. The traces are",
        "[simulated](../../fixtures/README.md), unless the text says that a run was recorded. The reports are static",
        "and take 0.1 MB each: download one and open it in a browser. Without `--static`, a report also holds every",
        "span of its timeline, which then zooms.",
    ]
    for page in PAGES:
        lines += [
            "",
            f"## {page.title}",
            "",
            f"{page.about} [The report]({page.name}.html) says:",
            "",
            f"> {result_of(page).verdict}",
            "",
            f"[![The first screen of the report]({page.name}.png)]({page.name}.html)",
            "",
            *(f"    {command}" for command in page.commands),
        ]
    return "\n".join(lines) + "\n"


def take_pictures() -> None:
    """Takes a picture of the first screen of every page, and of each detail, in the light theme."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        screen = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        for page in PAGES:
            screen.goto((FOLDER / f"{page.name}.html").as_uri())
            save(screen.screenshot(), FOLDER / f"{page.name}.png")
        for name, page_name, element in DETAILS:
            screen.set_viewport_size({"width": WIDTH, "height": 8 * HEIGHT})  # nothing scrolls under the header
            screen.goto((FOLDER / f"{page_name}.html").as_uri())
            save(screen.locator(element).screenshot(), TUTORIAL / f"{name}.png")
        browser.close()


def save(picture: bytes, target: Path) -> None:
    """Writes a screenshot with few colors."""
    from PIL import Image

    with Image.open(BytesIO(picture)) as opened:
        opened.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    TUTORIAL.mkdir(exist_ok=True)
    wanted = {f"{page.name}{ending}" for page in PAGES for ending in (".html", ".png")} | {"README.md"}
    for stale in {path.name for path in FOLDER.iterdir()} - wanted:
        (FOLDER / stale).unlink()
    for page in PAGES:
        make(page)
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
    take_pictures()


if __name__ == "__main__":
    main()
