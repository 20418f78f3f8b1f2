# Every target that needs Python makes and uses its own environment in .venv, which follows
# pyproject.toml. Name another interpreter with: make PYTHON=python3.12 …

PYTHON ?= python3
PYTEST_ARGS ?=
#: Tables that "make bench" writes; all if empty.
TABLES ?=
#: Runs of "make test-seeds".
SEEDS ?= 5
#: Test processes; each builds and runs one simulation at a time.
JOBS ?= 2

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Verilator's makefiles split paths at spaces.
ifneq ($(words $(CURDIR)),1)
$(error the path of this checkout has a space, which Verilator's makefiles cannot handle: move it elsewhere)
endif

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-seeds bench verilog lint clean prerequisites

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

run: $(STAMP) ## the demo: handwritten digits classified in FP8 on eight emulated cards
	$(BIN)/supernode demo

test: $(STAMP) ## the tests, without those marked slow
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-slow: $(STAMP) ## the tests marked slow
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-seeds: $(STAMP) ## the tests of the hardware with SEEDS new seeds, one after the other
	for run in $$(seq $(SEEDS)); do $(BIN)/python -m pytest -n $(JOBS) --dist loadfile \
	  --seed random $(PYTEST_ARGS) tests/hdl tests/system || exit; done

bench: $(STAMP) ## the tables in docs/; BOOKSIM=PATH runs a BookSim 2 binary beside them
	$(if $(BOOKSIM),BOOKSIM='$(BOOKSIM)') $(BIN)/python -m bench $(TABLES)

verilog: $(STAMP) ## the tiles as Verilog, with manifests, in build/verilog
	mkdir -p build/verilog
	$(BIN)/supernode verilog network -o build/verilog/network.v
	$(BIN)/supernode verilog compute -o build/verilog/compute.v
	$(BIN)/supernode verilog card -o build/verilog/card.v

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## remove builds and caches, but not .venv
	find sim_build -mindepth 1 ! -name .gitignore -delete
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find hdl drivers emu tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml | prerequisites
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo,dev]'
	@touch $@

prerequisites:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.11 or later: install one (Debian: apt-get install python3 python3-venv) and name it: make PYTHON=python3.11 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@for tool in g++ make perl; do command -v $$tool >/dev/null || { \
	  echo "$$tool is missing: install it (Debian: apt-get install $$tool)" >&2; exit 1; }; done
