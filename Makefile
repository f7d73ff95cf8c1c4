# What a person types. `make help` lists it; `make check` is what CI runs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Debian's packages that tests need (`base` or `install`, see tests/packages.sh), then the environment, which needs some.
prepare = @PYTHON=$(PYTHON) tests/packages.sh $(1) && $(MAKE) --no-print-directory setup
DIST_PYTHON = $(BIN)/python
SOURCES := orchestrator jobs tests benchmarks examples

# Procgen by EnvPool without the assets of its other games: the two packages that it imports, and Qt's libraries.
PROCGEN := --no-deps envpool envpool-assets PyQt5-Qt5 dm-env optree

.PHONY: help setup demo pictures procgen format lint type test-fast coverage test test-nightly test-slurm test-sky bench bench-returns bench-slurm docs dist check
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## create .venv with everything to run and to develop; instant when nothing changed

demo: $(VENV)/.train  ## train a small sweep here, end to end, and write its report (about 4 minutes)
	$(BIN)/orchestrate sweep --grid sweeps/speed.yaml
	$(BIN)/orchestrate collect speed
	$(BIN)/orchestrate report speed

pictures: $(VENV)/.dev  ## train ten seeds (15 minutes) and draw the pictures of README and docs; with chromium
	$(BIN)/orchestrate sweep --grid sweeps/seeds.yaml
	$(BIN)/python -m tests.pictures results seeds

procgen: $(VENV)/.procgen  ## the games of Procgen, for tasks procgen/*

format: $(VENV)/.dev  ## rewrite the code in the project's format
	$(BIN)/ruff check --quiet --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

lint: $(VENV)/.dev  ## rules, format and import walls
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/lint-imports

type: $(VENV)/.dev  ## types
	$(BIN)/mypy

test-fast:  ## unit tests, before a commit: no cluster, no training (4 minutes); ARGS="-k resume -x" goes to pytest
	$(call prepare,base)
	$(BIN)/pytest --numprocesses 2 tests/unit -m "not slow" $(ARGS)

# Under a tracer OmegaConf words errors otherwise, without OC_CAUSE=0.
coverage:  ## the lines that `make test-fast` reaches, without those of processes that tests start
	@OC_CAUSE=0 $(MAKE) --no-print-directory test-fast ARGS="--cov=orchestrator --cov=jobs --cov-report=term $(ARGS)"

test:  ## all tests but the nightly ones; installs Debian's packages for them where it may
	$(call prepare,install)
	$(BIN)/pytest --numprocesses 6 $(ARGS)

test-nightly:  ## tests that repeat a promise over many cases; CI draws a tenth of them for each commit
	$(call prepare,install)
	$(BIN)/pytest --numprocesses 5 -m nightly --nightly=all $(ARGS)

test-slurm:  ## the tests that start a real Slurm cluster on this machine; as root
	$(call prepare,install)
	$(BIN)/pytest -m slurm --nightly=all $(ARGS)

test-sky:  ## the tests that start a real SkyPilot on this machine, with clouds of its own; as root
	$(call prepare,install)
	$(BIN)/pytest -m sky --nightly=all $(ARGS)

bench: $(VENV)/.dev  ## measure against the goals, and say which are met
	@status=0; $(BIN)/python -m benchmarks.run || status=1; \
	$(BIN)/python -m benchmarks.checkpoint_cost || status=1; \
	$(BIN)/python -m benchmarks.sync || status=1; \
	$(BIN)/python -m benchmarks.brigade || status=1; \
	$(BIN)/python -m benchmarks.procgen || status=1; \
	$(BIN)/python -m benchmarks.parallel || status=1; \
	$(BIN)/python -m benchmarks.top || status=1; exit $$status

bench-returns: $(VENV)/.dev  ## train a2c, impala and ppo beside published returns; half an hour of two cores
	$(BIN)/python -m benchmarks.returns $(ARGS)

bench-slurm: $(VENV)/.bench  ## the same on a real Slurm cluster that it starts here, beside other tools; as root
	$(BIN)/python -m benchmarks.slurm $(ARGS)

docs: $(VENV)/.dev  ## build docs/ into site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# From the commit, not from the working tree. Files have the commit's date, so that a commit gives the same bytes each
# time; setuptools dates what it puts into an sdist by the clock, therefore the sdist is packed again.
dist: $(if $(filter $(BIN)/%,$(DIST_PYTHON)),$(VENV)/.dev)  ## build the wheel and the sdist of the commit into dist/
	@rm -rf dist && mkdir dist
	@source=$$(mktemp -d) && trap 'rm -rf "$$source"' EXIT && date=$$(git log -1 --format=%ct) && \
	git -c tar.umask=0022 archive HEAD | tar -x -C "$$source" && \
	SOURCE_DATE_EPOCH=$$date $(DIST_PYTHON) -m build --quiet --outdir dist $(BUILD_OPTIONS) "$$source" && \
	mkdir "$$source/sdist" && tar -x -C "$$source/sdist" -f dist/*.tar.gz && cd dist && \
	tar --sort=name --mtime=@$$date --owner=0 --group=0 --numeric-owner --use-compress-program="gzip -9n" \
	  -c -f *.tar.gz -C "$$source/sdist" $$(ls "$$source/sdist")
	@ls dist

check: lint type docs test  ## what CI runs

# A stamp per set of packages, so that make knows when there is nothing to do. Without `wheel`, the pip that comes with
# Python 3.11 grumbles about packages that are published as source only, and it takes twice as long.

$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python 3.11 or newer is needed, and $(PYTHON) is not that; name another: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || PYTHON=$(PYTHON) tests/packages.sh base
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(INSTALL) pip==26.0 wheel
	@touch $@

$(VENV)/.train: pyproject.toml constraints.txt | $(VENV)/.pip
	@echo "make: installing PyTorch, BenchMARL and what they need into $(VENV) (a minute or a few, once)"
	@$(INSTALL) --editable ".[train]"
	@touch $@

$(VENV)/.procgen: $(VENV)/.train
	@echo "make: installing Procgen's games into $(VENV)"
	@$(INSTALL) $(PROCGEN)
	@touch $@

# In one go: pip takes its time to find out what goes together.
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.pip
	@echo "make: installing PyTorch, BenchMARL and the developer's tools into $(VENV) (a minute or a few, once)"
	@$(INSTALL) --editable ".[train,sky,dev]"
	@$(INSTALL) $(PROCGEN)
	@touch $(VENV)/.train $(VENV)/.procgen $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "make: installing what the program is measured against into $(VENV)"
	@$(INSTALL) --editable ".[train,sky,dev,bench]"
	@touch $@
