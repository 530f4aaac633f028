# Two commands do everything on a fresh machine with Python 3.11+: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# Two modules at a time, each with its own clusters; the longest first (tests/conftest.py). Spark runs alone: it gives its
# Python workers 10 s to start, which two cores with other JVMs do not always keep.
BESIDE := -n 2 --dist loadfile --no-loadscope-reorder --durations 25
# Simulated clusters run in virtual time, which no load changes: they take what the tests with processes leave of the cores.
BEHIND := nice -n 10
SIMULATED := build/simulation.txt

DOCS := .venv-docs

.PHONY: help install demo labs docs test test-unit test-interop test-spark simulate mutants trials check format bench lock clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

install: $(STAMP)  ## everything into .venv, from the lock file

demo: install  ## the main job on real data: cluster, topics, groups, a broker lost and found, a Spark pipeline
	@$(BIN)/python demo/run.py

labs: install  ## every lab of the tutorial: what a cluster does, and what happens when something goes wrong
	@$(BIN)/python examples/labs/run_all.py

# In an environment of its own: work on the code needs none of it.
$(DOCS)/installed: requirements-docs.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(DOCS)/installed  ## the documentation as a site with search and the API, in build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@$(DOCS)/bin/python docs/check_site.py

# The oldest PySpark that is accepted, for tests/spark alone. Without its dependencies: they are those of today's.
build/pyspark-4.2/installed: tests/spark/pyspark-4.2.txt $(STAMP)
	@rm -rf $(@D)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target $(@D) -r $<
	@touch $@

# Python programs of others for tests/strangers, which trials run, and Patroni: in environments of their own, as they want other
# versions of the clients than this project's and than each other.
STRANGERS := tests/other_languages/python
build/frameworks/installed build/systems/installed build/patroni/installed build/kaskade/installed: build/%/installed: $(STRANGERS)/%.lock
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

test: install  ## all tests; those that need Java or the Apache reference systems say so where these are missing
	@$(BIN)/pytest tests/unit tests/fuzz -q -n 2
	@mkdir -p $(dir $(SIMULATED)); $(BEHIND) $(BIN)/pytest tests/simulation -q -n 2 --durations 10 --timeout 3000 >$(SIMULATED) 2>&1 & simulating=$$!; \
	  trap "kill $$simulating 2>/dev/null; cat $(SIMULATED)" EXIT; \
	  trap "exit 130" INT; failed=0; \
	  $(BIN)/pytest tests/interop tests/fault -q $(BESIDE) || failed=1; \
	  $(BIN)/pytest tests/spark -q || failed=1; \
	  wait $$simulating || failed=1; \
	  exit $$failed

test-unit: install  ## the tests that take seconds
	@$(BIN)/pytest tests/unit tests/fuzz -q

test-interop: install  ## clients, tools and brokers that are not ours
	@$(BIN)/pytest tests/interop tests/fault -q $(BESIDE)

test-spark: install  ## the tests that run Spark
	@$(BIN)/pytest tests/spark -q

SEEDS ?= 1-100
simulate: install  ## whole clusters in virtual time, with faults, from seeds: SEEDS=1-200, or one to run it again
	@$(BIN)/python tests/simulation/run.py --seeds $(SEEDS) --jobs $(shell nproc 2>/dev/null || echo 1)

mutants: install  ## defects put into the code on purpose, each of which the simulation or a unit test must notice
	@$(BIN)/python tests/simulation/mutants.py
	@$(BIN)/python tests/simulation/ensemble_mutants.py
	@$(BIN)/python tests/simulation/transaction_mutants.py
	@$(BIN)/python tests/rule_mutants.py

trials: SEEDS = 1-10000
trials: install  ## every promise about reliability with the numbers of a full trial, hours, and one table
	@$(BIN)/python tests/trials.py --seeds $(SEEDS) $(TRIALS)

check: install  ## format, lint, types, layering
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: install  ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install  ## figures side by side with Apache Kafka, where the reference systems are at hand
	@$(BIN)/python bench/run.py
	@$(BIN)/python bench/pipelines.py

lock: $(VENV)/bin/uv  ## resolve pyproject.toml again into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --upgrade \
	  --extra dev pyproject.toml requirements-build.in -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --upgrade \
	  requirements-docs.in -o requirements-docs.lock
	@for name in frameworks systems patroni kaskade; do \
	  $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --upgrade \
	    --python-version 3.11 $(STRANGERS)/$$name.in -o $(STRANGERS)/$$name.lock; done

$(VENV)/bin/uv:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet uv

clean:  ## remove what make made
	@rm -rf $(VENV) $(DOCS) build/site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
