#!/usr/bin/env bash
# Adds the documentation of one version to the local branch gh-pages, as `latest`: VERSION=v1.2.0 .github/publish_docs.sh
# Pushes nothing. It takes 1.2 as the name of the version, so that a bug fix replaces the pages that it corrects.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION#v}
python3 -m venv .venv-docs
.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check '.[docs]'
make types # the API page reads the sources as one package tree
export PATH="$PWD/.venv-docs/bin:$PATH" # mike starts mkdocs
export NO_MKDOCS_2_WARNING=1 GIT_COMMITTER_NAME=traceopt GIT_COMMITTER_EMAIL=noreply@github.com
mike deploy --update-aliases "${version%.*}" latest
mike set-default latest
