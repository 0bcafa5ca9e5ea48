# The one door. Each target works alone on a fresh machine: it sets up what it needs first.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
SEEDS ?= 2000
START ?= 1
KILLS ?= 20
BENCH ?= keyed-window
DEMO_ON ?= spark
# Tests that need no process of their own run beside each other. Of those with real processes and servers, which wait most
# of their time, two files at once, and then those of Ray.
BESIDE := tests/unit tests/properties tests/simulation tests/foreign tests/docs seep operators demo benchmarks pyspark_seep
DEMO_EDGES ?= memory
COMPILE := PATH="$(BIN):$$PATH" uv pip compile pyproject.toml --python-version 3.11 --no-header --no-annotate --no-emit-index-url --quiet

.PHONY: help setup java prometheus kafka servers lint format type arch test sim mutants chaos docs bench demo requirements clean

help:
	@echo "make demo          a chain of supermarkets, scaled and killed while it sells (DEMO_ON=spark|local, DEMO_EDGES=memory|kafka)"
	@echo "make test          lint, types, architecture, all quick tests"
	@echo "make sim           the simulator: SEEDS=$(SEEDS) START=$(START)"
	@echo "make mutants       breaks each rule of the protocol and sees the simulator find it"
	@echo "make chaos         kill -9 and SIGSTOP on real processes: KILLS=$(KILLS)"
	@echo "make bench         BENCH=$(BENCH)"
	@echo "make setup         .venv with all that seep needs; make java, prometheus, kafka or servers: what tests need beside it"
	@echo "make format        puts the code into shape; make lint, type or arch: one check alone"
	@echo "make docs          these pages as HTML in docs/_build/html"
	@echo "make requirements  writes the pins; make clean: removes what was made"

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml tools/setup
	PYTHON="$(PYTHON)" tools/setup packages
	@touch $@

# Java is needed by Spark only: without it the Spark tests are skipped (a failure when CI=true).
java:
	@tools/setup java

# The same with Prometheus and the tests that scale by it.
prometheus:
	@tools/setup prometheus

# And with a Kafka broker.
kafka: setup
	@tools/setup kafka

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: setup
	$(BIN)/mypy seep operators pyspark_seep demo benchmarks

arch: setup
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/architecture

# What tests need beside Python: without it they are skipped (a failure when CI=true).
servers: setup
	@for server in java prometheus hosts kafka redis; do tools/setup $$server || [ "$(CI)" != true ] || exit 1; done

test: setup
	$(MAKE) --jobs 2 --output-sync servers lint type arch
	$(BIN)/pytest -q -m "not slow" -n auto --maxprocesses 8 $(BESIDE)
	$(BIN)/pytest -q -m "not slow" -k "not ray" -n 2 --dist loadfile tests/scenarios tests/conformance
	$(BIN)/pytest -q -m "not slow" -k ray tests/scenarios tests/conformance

sim: setup
	$(BIN)/python -m seep.sim --seeds $(SEEDS) --start $(START)

mutants: setup
	$(BIN)/python -m seep.sim.mutants

chaos: setup
	$(BIN)/seep bench recovery --on local --kills $(KILLS)
	$(BIN)/seep bench zombie --on local

docs: setup
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: setup
	$(BIN)/seep bench $(BENCH)

demo: setup
	@[ "$(DEMO_ON)" != spark ] || tools/setup java
	@[ "$(DEMO_EDGES)" != kafka ] || tools/setup kafka
	DEMO_ON="$(DEMO_ON)" DEMO_EDGES="$(DEMO_EDGES)" $(BIN)/python -m demo

# The pins. core: what `pip install seep` brings; dev: what `make setup` installs (with the demo's sales); all: with every
# extra.
requirements: setup
	$(COMPILE) --all-extras -o requirements/all.txt
	$(COMPILE) -c requirements/all.txt -o requirements/core.txt
	$(COMPILE) -c requirements/all.txt --extra spark --extra ray --extra kafka --extra avro --extra redis --extra dev --extra demo -o requirements/dev.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis docs/_build build dist
