# Everything a developer runs. Each target sets up .venv when it is missing or pyproject.toml has changed.
#
#   make demo    record the bundled slow training script and analyze its trace
#   make test    all tests
#   make lint    ruff and mypy, changes nothing
#   make bench   time and memory beside HolisticTraceAnalysis; writes docs/performance.md
#   make clean   remove what the other targets made
#
# PYTHON=python3.12 picks the interpreter of a new .venv; TESTS="tests/test_cli.py -k help" picks tests.

PYTHON ?= python3
TESTS ?=
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PACKAGES := analyzer rules reports capture

.PHONY: demo test lint bench clean types

demo: $(STAMP)
	rm -rf demo-logs
	$(BIN)/python fixtures/demo.py demo-logs
	$(BIN)/python -m traceopt analyze demo-logs --html traceopt-report.html
	@echo "Open $(CURDIR)/traceopt-report.html in a browser."

test: $(STAMP)
	$(BIN)/python -m pytest $(TESTS)

lint: $(STAMP) types
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/versus_hta.py --write docs/performance.md

clean:
	rm -rf .venv build demo-logs traceopt-report.html *.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "traceopt needs Python 3.10 or newer: make PYTHON=...")'
	test -x $(BIN)/python || { $(PYTHON) -m venv --clear .venv && $(PIP) install --upgrade pip; }
	$(PIP) install --editable '.[dev]'
	@touch $@

# mypy wants one package tree: a folder of links that mirrors the import mapping of pyproject.toml.
types:
	@mkdir -p build/types/traceopt
	@find -L build/types/traceopt -maxdepth 1 -type l -exec rm -f {} +
	@ln -sfn $(CURDIR)/traceopt/*.py $(CURDIR)/traceopt/py.typed $(PACKAGES:%=$(CURDIR)/%) build/types/traceopt/
