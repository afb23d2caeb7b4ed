# Everything runs in .venv, which the first target that needs it creates.  `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KAFKA  ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-broker lint format typecheck bench docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Installed once, and again when pyproject.toml changes. Dependency groups need pip 25.1, hence the upgrade.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "python3 -m venv failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' || true
	@$(BIN)/python -m pip install --help | grep -q -- --group || \
	  { echo "this pip cannot install dependency groups: pip 25.1 or newer is needed in $(VENV)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(STAMP) ## replay sample sessions, check every answer, write .demo/report.html
	@mkdir -p .demo
	$(BIN)/toksplice demo --report .demo/report.html

test: $(STAMP) ## every test; what needs Kafka, Node.js or a registry and lacks it is skipped, and says so
	$(BIN)/python -m pytest

test-broker: $(STAMP) ## only the tests on a real Apache Kafka (Java 17 and Maven)
	$(BIN)/python -m pytest -m broker

lint: $(STAMP) ## ruff and the layering of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(STAMP) ## mypy, strict
	$(BIN)/mypy

bench: $(STAMP) ## measure the pipeline; KAFKA=kafka://host:port measures that broker too
	$(BIN)/python benchmarks/pipeline.py $(if $(KAFKA),--kafka $(KAFKA))

docs: $(STAMP) ## check that the pages agree with the code
	$(BIN)/python -m pytest tests/repo

clean: ## remove .venv and everything that can be made again
	rm -rf $(VENV) .demo .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
