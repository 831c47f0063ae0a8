# Handrail's house: everything a person types. `make help` lists it.
# On a fresh machine: Linux, Python 3.11 or 3.12 with venv, make. Nothing else, nothing from apt.

BIN := .venv/bin
ROOMS := streams runtime device export eval benchmarks
RECORDINGS := ../shared/data/aria
CORRIDOR := $(RECORDINGS)/gen2/corridor_profile8.vrs
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-export demo test lint lock clean

help:   ## this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 20

setup:  ## .venv with what a replay needs (quick when up to date, goes on after an interruption)
	@bash .ci/setup.sh base

setup-dev: ## the same with the tools of the tests
	@bash .ci/setup.sh dev

setup-export: ## the same with torch, for training and export (`make setup-export test` tests these too)
	@bash .ci/setup.sh export

demo: setup  ## set up, walk through the simulated world (and the corridor recording if it is there), name the report
	@$(BIN)/handrail replay world:7 --out out/demo
	@if [ -f $(CORRIDOR) ]; then $(BIN)/handrail replay vrs:$(CORRIDOR) --out out/demo-corridor; fi
	@echo
	@echo "Open the report:  out/demo/report.html"
	@if [ -f $(CORRIDOR) ]; then echo "                  out/demo-corridor/report.html"; fi

test: setup-dev lint  ## set up, linters, types, all tests
	@$(BIN)/pytest -n auto --dist loadfile $(PYTEST_ARGS)

lint: setup-dev  ## ruff and mypy (strict) over all rooms
	@$(BIN)/ruff check .
	@$(BIN)/mypy $(ROOMS:%=-p handrail.%)

# What is in a lock file stays as it is unless pyproject.toml asks otherwise: delete the lock first to upgrade.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
       --no-emit-index-url --no-build --custom-compile-command "make lock"
lock: setup-dev  ## solve requirements/*.lock anew from pyproject.toml
	echo 'setuptools>=77' | $(LOCK) pyproject.toml - --extra speech --extra cpu --extra text --extra bench \
	  -o requirements/base.lock
	$(LOCK) pyproject.toml --extra speech --extra cpu --extra text --extra bench --extra pyttsx3 --extra dev -c requirements/base.lock \
	  -o requirements/dev.lock
	$(LOCK) pyproject.toml --extra cpu --extra text --extra export --no-emit-package torch -c requirements/dev.lock \
	  -o requirements/export.lock
	$(LOCK) --no-deps requirements/aria.in -o requirements/aria.lock

clean:  ## remove what was made: outputs, caches, builds; not .venv
	@rm -rf out build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(ROOMS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
