"""Stands in for GitHub's `gh`: keeps comments and artifacts in $GITHUB_STATE, and records what it was asked."""

import json
import os
import shutil
import sys
from pathlib import Path

import jq

STATE = Path(os.environ["GITHUB_STATE"])


def load(name: str) -> list[dict[str, object]]:
    file = STATE / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else []


def save(name: str, entries: list[dict[str, object]]) -> None:
    (STATE / f"{name}.json").write_text(json.dumps(entries))


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def answer(document: object) -> None:
    """Through the caller's own --jq."""
    for value in jq.compile(option("--jq")).input_value(document):
        print(value)


def main() -> None:
    words = sys.argv[1:]
    save("calls", [*load("calls"), {"words": words}])
    refused = (STATE / "refused").read_text().split("\n") if (STATE / "refused").exists() else []
    if any(" ".join(words).startswith(start) for start in refused):
        sys.exit("HTTP 403: Resource not accessible by integration")
    if words[:2] == ["pr", "view"]:
        answer({"comments": load("comments")})
    elif words[:2] == ["pr", "comment"]:
        comments = load("comments")
        url = f"https://github.example/acme/model/pull/{words[2]}#issuecomment-{100 + len(comments)}"
        body = Path(option("--body-file")).read_text()
        save("comments", [*comments, {"url": url, "body": body, "viewerDidAuthor": True}])
    elif words[:2] == ["run", "download"]:
        artifact = STATE / "artifacts" / words[2] / option("--name")
        shutil.copytree(artifact, option("--dir"))
    elif words[0] == "api" and "--jq" in words:
        name = words[1].partition("name=")[2].partition("&")[0]
        answer({"artifacts": [entry for entry in load("artifacts") if entry["name"] == name]})
    elif words[0] == "api" and option("--method") == "PATCH":
        number = next(word for word in words if "/comments/" in word).rpartition("/")[2]
        field, _, file = option("--field").partition("=@")
        comments = load("comments")
        (comment,) = [entry for entry in comments if str(entry["url"]).endswith(f"-{number}")]
        comment[field] = Path(file).read_text()
        save("comments", comments)
    else:
        sys.exit(f"gh stand-in: unknown call {words}")


main()
