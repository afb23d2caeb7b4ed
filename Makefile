# Everything runs in .venv, which the first target that needs it creates.  `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KAFKA  ?=
TEXT   ?=
ROUNDS ?=

# The native engine. CARGO_ARGS keeps cargo to the committed lock files.
NATIVE     := native/Cargo.toml
FUZZ       := native/fuzz/Cargo.toml
RUST_FILES := native/Cargo.toml native/Cargo.lock $(shell find native/src -name '*.rs')
CARGO_ARGS := --locked --quiet
# Several processes for the tests. Each has tokenizers and a Kafka server of its own, hence no more than these.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist worksteal
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := $(patsubst native/fuzz/fuzz_targets/%.rs,%,$(wildcard native/fuzz/fuzz_targets/*.rs))
# The native tests, then those of the library again with chunks and blocks so small that short texts have seams.
# $(1): environment; $(2): more arguments.
define native-tests
$(1) cargo test $(CARGO_ARGS) --manifest-path $(NATIVE) --no-default-features $(2)
$(1) cargo test $(CARGO_ARGS) --manifest-path $(NATIVE) --no-default-features $(or $(2),--lib) --features small-chunks
endef
# Sanitizers are unstable options that a stable compiler takes with RUSTC_BOOTSTRAP=1. Naming the target keeps them
# away from build scripts and procedural macros.
HOST      = $(shell rustc -vV | sed -n 's/^host: //p')
SANITIZE := RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
COVERAGE := --cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1

# With make -j, cargo plans its own jobs: it cannot use make's, and says so at length.
unexport MAKEFLAGS MFLAGS

.DEFAULT_GOAL := help
.PHONY: help demo test test-broker lint format typecheck bench bench-peers docs clean
.PHONY: gpu-check rust native native-lint native-test fuzz sanitize

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Installed once, and again when pyproject.toml or the native engine changes. Dependency groups need pip 25.1, hence
# the upgrade.
$(STAMP): pyproject.toml $(RUST_FILES) | rust
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "python3 -m venv failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' || true
	@$(BIN)/python -m pip install --help | grep -q -- --group || \
	  { echo "this pip cannot install dependency groups: pip 25.1 or newer is needed in $(VENV)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

rust:
	@command -v cargo >/dev/null || \
	  { echo "Rust $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' $(NATIVE)) or newer is needed to build the native engine, and cargo is not on the PATH: see https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || \
	  { echo "a C linker is needed to build the native engine, and cc is not on the PATH: install gcc or clang" >&2; exit 1; }

demo: $(STAMP) ## replay sample sessions, check every answer, write .demo/report.html
	@mkdir -p .demo
	$(BIN)/toksplice demo --report .demo/report.html

test: $(STAMP) ## every test; what needs Kafka, Node.js or a registry and lacks it is skipped, and says so
	$(call native-tests)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-broker: $(STAMP) ## only the tests on a real Apache Kafka (Java 17 and Maven)
	$(BIN)/python -m pytest -m broker

native: $(STAMP) ## build the native engine in place, optimised, if its sources changed
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release --skip-install

native-lint: rust ## rustfmt and clippy
	cargo fmt --check --manifest-path $(NATIVE)
	cargo fmt --check --manifest-path $(FUZZ)
	cargo clippy $(CARGO_ARGS) --manifest-path $(NATIVE) --all-targets -- -D warnings
	cargo clippy $(CARGO_ARGS) --manifest-path $(NATIVE) --all-targets --no-default-features -- -D warnings

native-test: native-lint ## the native engine alone: format, clippy, tests
	$(call native-tests)

sanitize: rust ## the native tests with AddressSanitizer, leak detection, overflow checks and checked preconditions
	$(call native-tests,$(SANITIZE),--lib --tests --target $(HOST))

fuzz: $(addprefix fuzz-,$(FUZZ_TARGETS)) ## fuzz the native engine; FUZZ_SECONDS=60 for each target

fuzz-%: rust
	@mkdir -p native/fuzz/corpus/$*
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="$(COVERAGE)" cargo run $(CARGO_ARGS) --manifest-path $(FUZZ) --release --target $(HOST) --bin $* -- \
	  -max_total_time=$(FUZZ_SECONDS) -len_control=0 -max_len=4096 -artifact_prefix=native/fuzz/ -verbosity=0 -print_final_stats=1 \
	  native/fuzz/corpus/$* $(wildcard native/fuzz/seeds/$*)

lint: $(STAMP) native-lint ## ruff, the layering of imports, rustfmt and clippy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff and rustfmt rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --manifest-path $(NATIVE)
	cargo fmt --manifest-path $(FUZZ)

typecheck: $(STAMP) ## mypy, strict
	$(BIN)/mypy

bench: $(STAMP) ## measure the pipeline; KAFKA=kafka://host:port measures that broker too
	$(BIN)/python benchmarks/pipeline.py $(if $(KAFKA),--kafka $(KAFKA))

bench-peers: $(STAMP) ## measure the library beside its peers into docs/benchmarks.md; TEXT=sessions.jsonl.gz, ROUNDS=20
	$(BIN)/toksplice bench all $(if $(TEXT),--text $(TEXT)) $(if $(ROUNDS),--rounds $(ROUNDS)) --markdown docs/benchmarks.md

gpu-check: $(STAMP) ## on a machine with a CUDA device: compare, run compute-sanitizer, measure, write docs/gpu.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[gpu]'
	$(BIN)/python -m tests.gpu_check $(if $(TEXT),--text $(TEXT))

docs: $(STAMP) ## check that the pages agree with the code
	$(BIN)/python -m pytest tests/repo

clean: ## remove .venv and everything that can be made again
	rm -rf $(VENV) .demo .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	rm -rf native/target native/fuzz/target native/fuzz/corpus toksplice/_native.*.so
