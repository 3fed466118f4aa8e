# Everything happens in .venv, which is made once and again when pyproject.toml or constraints.txt change.
#   make run ARGS="variant=baseline model=tiny"    make test ARGS="tests/test_config.py -k threads"
#   PYTHON=python3.12 and CUDA=12 (for drivers before 580) count when .venv is made.

ARGS ?=
CUDA ?= 13
FITS = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3; do $$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)
PY = .venv/bin/python
STAMP = .venv/made-for-cuda$(CUDA)
WHEELS = hydra-core omegaconf antlr4-python3-runtime nvtx

.PHONY: help run test soak evidence bench lint format wheelhouse clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-11s %s\n' "$$name" "$$text"; done

run: $(STAMP) ## every variant: compile, validate, measure, record, report (ARGS="variant=...")
	@$(PY) -m experiments $(ARGS)

test: $(STAMP) ## all tests that this machine can run (ARGS="-k name")
	@LAB_CACHE=$(CURDIR)/.lab-cache OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

soak: $(STAMP) ## kills, false alarms and malformed inputs by the hundred; keeps the figures (ARGS="kills=20 inputs=100")
	@$(PY) -m experiments.soak $(ARGS)

# What the tables and figures are made from. On a GPU machine: make evidence RESULTS=experiments/results/h200.jsonl
RESULTS ?= experiments/results/host.jsonl
EXPERIMENTS ?= counts predict ablation factorial positions ratios sync_cost roofline sass rivals quality energy
evidence: $(STAMP) ## every variant and every experiment, recorded in RESULTS, then the report
	@for name in all megaqwen persistent; do $(PY) -m experiments variant=$$name results=$(RESULTS) $(ARGS) || exit; done
	@for name in $(EXPERIMENTS); do $(PY) -m experiments experiment=$$name results=$(RESULTS) $(ARGS) || exit; done
	@$(PY) -m experiments.report

bench: $(STAMP) ## how long the lab itself takes on this machine, beside what it promises
	@$(PY) -m experiments.bench

lint: $(STAMP) ## check style
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@git ls-files '*.cu' '*.cuh' '*.hpp' '*.cpp' | xargs -r .venv/bin/clang-format --dry-run --Werror

format: $(STAMP) ## put everything in style
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .
	@git ls-files '*.cu' '*.cuh' '*.hpp' '*.cpp' | xargs -r .venv/bin/clang-format -i

# For a GPU machine without a network that has torch and CuPy: copy the repository with wheelhouse/, then there
# pip install --no-index --find-links wheelhouse hydra-core nvtx && python -m experiments
wheelhouse: $(STAMP) ## wheels for an offline GPU machine (Python 3.12, Linux x86-64), in wheelhouse/
	@mkdir -p wheelhouse
	@$(PY) -m pip wheel -q --no-deps -w wheelhouse -c constraints.txt antlr4-python3-runtime # published as source only
	@$(PY) -m pip download -q -d wheelhouse --find-links wheelhouse -c constraints.txt --only-binary=:all: \
		--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $(WHEELS)
	@ls wheelhouse

clean: ## remove .venv and what tools left; records stay
	@rm -rf .venv wheelhouse build *.egg-info .pytest_cache .ruff_cache

$(STAMP): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "error: no Python 3.11 to 3.13 with venv and pip; install one (Debian: apt install python3 python3-venv), or give PYTHON=/path/to/python" >&2; exit 2; }
	@command -v g++ >/dev/null || echo "note: no g++, so device=host will not work; install it (Debian: apt install g++)" >&2
	@echo "making .venv with $(PYTHON): once, a minute or two" >&2
	@for other in .venv/made-for-cuda*; do [ ! -e "$$other" ] || [ "$$other" = $@ ] || rm -rf .venv; done
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[cuda$(CUDA),hf,dev]'
	@touch $@
