# Every target uses .venv, which is made once and updated when pyproject.toml or constraints.txt change; with OFFLINE=1
# python3 as it is, and from wheelhouse/ what it lacks (docs/run-on-gpus.md).
#   make run ARGS="variant=baseline model=tiny"    make test ARGS="tests/test_config.py -k threads"
# Options for making .venv, which remembers them; another CUDA or TORCH makes it again:
#   PYTHON=python3.12   CUDA=12 for drivers before 580   TORCH=cpu or cuda; default cuda with an NVIDIA driver, else cpu
# With CUDA=12 it is cpu: CuPy would take the NVRTC of torch's CUDA 13 build, whose kernels these drivers do not load.

ARGS ?=
FITS = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3; do $$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)
-include .venv/choices
CUDA ?= 13
ifeq ($(CUDA)$(filter command environment,$(origin TORCH)),12)
TORCH := cpu
endif
ifndef TORCH
TORCH := $(shell $(PYTHON) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null && echo cuda || echo cpu)
endif
VENV = .venv/made-for-cuda$(CUDA)-torch-$(TORCH)
PY = $(if $(OFFLINE),python3,.venv/bin/python)
STAMP = $(if $(OFFLINE),wheelhouse/installed,$(VENV))
PIP = $(PY) -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt

# A key of the lab outside of ARGS would be a variable that nothing reads, and every variant would run.
GIVEN := $(sort $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
LOST := $(foreach name,$(shell for name in $(GIVEN); do case $$name in ([a-z]*) echo $$name; esac; done),$(name)=$($(name)))
$(if $(LOST),$(error give keys of the lab in ARGS: ARGS="$(strip $(LOST))"))

.PHONY: help run test coverage soak evidence lint format lock wheelhouse clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-11s %s\n' "$$name" "$$text"; done

run: $(STAMP) ## every variant: compile, validate, measure, record, report (ARGS="variant=...")
	@$(PY) -m experiments $(ARGS)

# With compiled Python files, whatever the environment says: some 500 processes would each compile the lab's modules anew.
test: $(STAMP) ## all tests that this machine can run (ARGS="-k name")
	@LAB_CACHE=$(CURDIR)/.lab-cache OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

# What is counted, and the tests that are enough for it: pyproject.toml. What is left without a GPU: docs/why-trust-it.md.
coverage: export COVERAGE_FILE = $(CURDIR)/.coverage
coverage: $(STAMP) ## lines of the CUDA path that no test executes (ARGS="-k name")
	@$(PY) -m coverage erase
	@LAB_CACHE=$(CURDIR)/.lab-cache OMP_NUM_THREADS=1 $(PY) -m coverage run \
		-m pytest -n auto --dist loadfile --no-loadscope-reorder -m covers $(ARGS)
	@$(PY) -m coverage combine -q && $(PY) -m coverage report

soak: $(STAMP) ## all mutants by hand, 600 by operator, 300 of the validator, coverage of all variants, device=ptx, then kills, validations, bad inputs (ARGS="kills=20")
	@$(PY) -m tests.strength.mutants
	@$(PY) -m tests.strength.mutants operators=true sample=600
	@$(PY) -m tests.strength.python sample=300
	@$(PY) -m tests.strength.coverage
	@$(PY) -m tests.strength.ptx
	@$(PY) -m tests.strength.mutants operators=true only='synchronization dropped'
	@$(PY) -m tests.strength.soak $(ARGS)

# The records from which tables and figures are made, what is most worth knowing first. On a GPU machine, nine minutes at
# a time, and again until nothing is left: make evidence BUDGET=540 RESULTS=experiments/results/h200.jsonl
# A bare one without a network, with a copy of wheelhouse/: make evidence OFFLINE=1 BUDGET=540 RESULTS=...
RESULTS ?= experiments/results/evidence.jsonl
BUDGET ?= null
evidence: $(STAMP) ## records for the tables: what BUDGET=seconds holds, into RESULTS=file; again: it goes on there (OFFLINE=1)
	@$(PY) -m experiments.evidence results=$(RESULTS) budget_s=$(BUDGET) $(ARGS) || [ $$? = 3 ] # 3: some of it is left

lint: $(STAMP) ## check style, the direction of imports, and types
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-logo && .venv/bin/mypy
	@git ls-files '*.cu' '*.cuh' '*.hpp' '*.cpp' | xargs -r .venv/bin/clang-format --dry-run --Werror

format: $(STAMP) ## format all sources
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .
	@git ls-files '*.cu' '*.cuh' '*.hpp' '*.cpp' | xargs -r .venv/bin/clang-format -i

lock: ## make constraints.txt from pyproject.toml, for all platforms (ARGS=--upgrade for newer versions)
	@PATH="$(CURDIR)/.venv/bin:$$PATH"; \
	command -v uv >/dev/null || { echo "error: no uv; install it (pip install uv)" >&2; exit 2; }; \
	uv pip compile -q --universal --python-version 3.11 --all-extras --no-annotate --custom-compile-command "make lock" \
		$(ARGS) pyproject.toml -o constraints.txt

# For a GPU machine without a network (docs/run-on-gpus.md): all dependencies but those that it has. Of these, cuobjdump and
# nvdisasm may also come with a CUDA toolkit; without them a run notes that it counts no registers.
PRESENT = matplotlib numpy nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm nvidia-ml-py pandas pytest pyyaml rich safetensors torch
NEEDED = wheelhouse/requirements.txt
$(NEEDED): pyproject.toml Makefile | $(STAMP)
	@mkdir -p wheelhouse
	@$(PY) -c 'import re, sys, tomllib; \
		needed = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]; \
		print(*(one for one in needed if re.match("[a-z0-9-]+", one)[0] not in sys.argv), sep="\n")' $(PRESENT) >$@

wheelhouse: $(NEEDED) ## wheels for an offline GPU machine (Python 3.12, Linux x86-64), in wheelhouse/
	@$(PY) -m pip wheel -q --no-deps -w wheelhouse -c constraints.txt antlr4-python3-runtime # published as source only
	@$(PY) -m pip download -q -d wheelhouse --find-links wheelhouse -c constraints.txt --only-binary=:all: \
		--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -r $(NEEDED)
	@ls wheelhouse

wheelhouse/installed:
	@[ -e $(NEEDED) ] || { \
		echo "error: no $(NEEDED); run make wheelhouse where there is a network, and copy the folder here" >&2; exit 2; }
	@$(PY) -m pip install -q --disable-pip-version-check --no-index --find-links wheelhouse -r $(NEEDED)
	@touch $@

clean: ## remove .venv and files of tools; records stay
	@rm -rf .venv wheelhouse build *.egg-info .pytest_cache .ruff_cache .coverage .coverage.*

# The CPU build of torch: by pip if its settings offer it, else by uv from PyTorch's index, else the build of pip's index.
$(VENV): pyproject.toml constraints.txt
	@[ "$(filter 12 13,$(CUDA))" ] && [ "$(filter cpu cuda,$(TORCH))" ] || { \
		echo "error: CUDA=$(CUDA) TORCH=$(TORCH) is not supported; CUDA is 13 or 12, TORCH is cpu or cuda" >&2; exit 2; }
	@[ $(CUDA)$(TORCH) != 12cuda ] || { \
		echo "error: CUDA=12 TORCH=cuda is not supported: torch brings the compiler of CUDA 13, whose kernels drivers before 580 do not load; leave TORCH=cuda out" >&2; exit 2; }
	@$(PYTHON) -c '$(FITS)' 2>/dev/null || { \
		echo "error: $(or $(PYTHON),python3) is not Python 3.11 to 3.13 with venv and pip; install one (Debian: apt install python3 python3-venv), or give PYTHON=/path/to/python" >&2; exit 2; }
	@[ $(CUDA)$(TORCH) != 13cpu ] || command -v g++ >/dev/null || { \
		echo "error: no g++, and without an NVIDIA driver kernels run only on a CPU; install it (Debian: apt install g++)" >&2; exit 2; }
	@[ -e $@ ] || { echo "making .venv with $(PYTHON) and torch for $(TORCH): once, a few minutes" >&2; rm -rf .venv; $(PYTHON) -m venv .venv; }
	@[ $(TORCH) = cuda ] || $(PIP) "$$(sed -n 's/^torch==.*/&+cpu/p' constraints.txt)" 2>/dev/null \
		|| { $(PIP) uv && .venv/bin/uv pip install -q --python $(PY) -c constraints.txt --torch-backend=cpu torch; } 2>/dev/null \
		|| { [ $(CUDA) = 13 ] && echo "note: no CPU build of torch from pip's settings or PyTorch's index; taking the build of pip's index" >&2; } \
		|| { echo "error: no CPU build of torch from pip's settings or PyTorch's index, and CUDA=12 needs it; give one of them" >&2; exit 2; }
	@if command -v uv >/dev/null; then uv pip install -q --python $(PY) -c constraints.txt -e '.[cuda$(CUDA),hf,serve,tune,dev]'; \
		else $(PIP) -e '.[cuda$(CUDA),hf,serve,tune,dev]'; fi
	@$(PY) -m compileall -qq -j 0 .venv/lib || true # on all cores; pip would take one. A few files are for other Pythons
	@printf 'CUDA ?= $(CUDA)\nTORCH ?= $(TORCH)\n' >.venv/choices
	@touch $@
