PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
SOURCES := traceopt analyzer rules reports fixtures tests benchmarks docs

.PHONY: demo test lint bench clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python fixtures/demo.py demo-logs
	$(BIN)/traceopt analyze demo-logs --html traceopt-report.html

test: $(STAMP)
	$(BIN)/python -m pytest

# mypy wants one package tree: a folder of links that mirrors the import mapping of pyproject.toml.
build/types: $(wildcard traceopt/*)
	rm -rf $@ && mkdir -p $@/traceopt
	ln -s $(CURDIR)/traceopt/* $@/traceopt/
	ln -s $(CURDIR)/analyzer $(CURDIR)/rules $(CURDIR)/reports $@/traceopt/

lint: $(STAMP) build/types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/versus_hta.py

clean:
	rm -rf .venv build demo-logs traceopt-report.html
