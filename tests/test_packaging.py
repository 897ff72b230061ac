"""What is installed: every package of the repository, its data, and nothing else."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from traceopt.version import __version__

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[1]
TRACE = ROOT / "fixtures" / "traces" / "slow_loader.json.gz"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_the_version_is_the_same_in_both_places(project: dict[str, Any]) -> None:
    assert project["version"] == __version__


# What a container sees, and what the wheel is built from.
SHOWN = [ROOT / line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the wheel is built from."""
    source = tmp_path_factory.mktemp("source")
    for path in SHOWN:
        if path.is_dir():
            shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source)
    return source


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel holds."""
    pytest.importorskip("setuptools", minversion="77")
    code = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def test_the_wheel_holds_the_package_and_nothing_beside_it(installed: Path) -> None:
    names = {path.name for path in installed.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"traceopt"}
    assert (installed / "traceopt" / "py.typed").is_file()
    (license_file,) = installed.glob("*.dist-info/licenses/LICENSE")
    assert license_file.read_text() == (ROOT / "LICENSE").read_text()


def modules(tree: Path) -> set[Path]:
    """The modules of a package, also those behind links, by their path in it."""
    walk = os.walk(tree / "traceopt", followlinks=True)
    return {Path(folder, name).relative_to(tree) for folder, _, names in walk for name in names if name.endswith(".py")}


def test_the_wheel_holds_every_module(installed: Path) -> None:
    files = {file.relative_to(ROOT) for folder in SHOWN for file in folder.rglob("*.py")}
    assert modules(installed) == {file if file.parts[0] == "traceopt" else "traceopt" / file for file in files}


def test_editors_and_mypy_see_every_module_of_the_wheel(installed: Path, source: Path) -> None:
    subprocess.run(["make", "--file", ROOT / "Makefile", "types"], cwd=source, check=True)
    assert modules(source / "build" / "types") == modules(installed)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["mypy_path"] == tools["pyright"]["extraPaths"][0] == "build/types"


def test_the_package_index_shows_the_readme_with_links_to_this_version(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    readme = metadata.read_text().partition("\n\n")[2]
    assert readme.startswith("# ")
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    of_the_repository = {link for link in links if f"/v{__version__}/" in link}
    assert {link.rpartition("/")[2] for link in of_the_repository} >= {"install.md", "several-causes.png"}
    assert all(("/raw/" in link) == link.endswith(".png") for link in of_the_repository)


def test_the_installed_program_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    origin = run("-c", "import traceopt.rules.catalogue as c; print(c.__file__)")
    assert Path(origin.strip()).is_relative_to(installed)
    assert "DL001" in run("-m", "traceopt", "rules")
    assert run("-m", "traceopt", "skill").startswith("---\nname: traceopt\n")
    run("-m", "traceopt", "analyze", str(TRACE))
    assert "</html>" in (tmp_path / "traceopt-report.html").read_text()


def test_the_recipe_for_conda_has_the_same_version_and_dependencies(project: dict[str, Any]) -> None:
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    assert f'version: "{project["version"]}"' in recipe
    run = recipe.partition("\n  run:\n")[2].partition("\n\n")[0]
    lines = (line.partition("#")[0].strip(" -").replace(" ", "") for line in run.splitlines())
    wanted = {line.replace("python-isal", "isal") for line in lines}
    given = {one.partition(";")[0].strip().replace(" ", "") for one in project["dependencies"]}
    assert wanted == given | {f"python{project['requires-python']}"}
