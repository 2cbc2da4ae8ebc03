# One command each. Needs Python 3.11 or newer and no compiler; everything else goes into .venv.

PYTHON ?= python3
FILE ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
# On Linux, PyPI's torch carries CUDA; builds without it are called +cpu. See docs/decisions/0004.
TORCH ?= torch==$(TORCH_VERSION)$(if $(filter Linux,$(shell uname -s)),+cpu)

.PHONY: help venv serve test test-cuda fuzz check format bench bench-step bench-memory bench-fairness bench-fairness-server bench-overload bench-overload-server bench-door bench-ledger docs build constraints clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 24

venv: $(READY) ## set everything up in .venv, from pinned versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)' -c constraints.txt 2>/dev/null \
	  || $(BIN)/pip install --disable-pip-version-check '$(TORCH)' -c constraints.txt \
	    --extra-index-url $(TORCH_CPU_INDEX) \
	  || { echo 'No $(TORCH) to be had. To take the build with CUDA: make venv TORCH=torch' >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	$(BIN)/python -c 'from plancha_engine import executor; executor.compile_kernels()'
	touch $@

serve: $(READY) ## start the server with the default model; FILE=… for another deployment
	$(BIN)/plancha serve $(FILE) $(ARGS)

test: $(READY) ## run the tests, three at a time since most of them wait; ARGS=… for pytest
	$(BIN)/pytest --numprocesses=3 --dist=worksteal $(ARGS)

test-cuda: $(READY) ## the CUDA kernels, all of them, without a GPU; fetches 200 MB once
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[cuda]' -c constraints.txt
	$(BIN)/pytest tests/engine/cuda -m 'emulation or nvrtc' $(ARGS)

fuzz: $(READY) ## two minutes of bad input: every door and every parser
	$(BIN)/pytest tests/fuzz -m fuzz --hypothesis-profile=fuzz $(ARGS)

check: $(READY) ## lint, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## measure our server beside transformers, on the mixed job
	$(BIN)/python benchmarks/mixed_job.py $(ARGS)

bench-step: $(READY) ## Python per step without a model
	$(BIN)/python benchmarks/plan_time.py $(ARGS)

bench-memory: $(READY) ## waste of KV memory and the price of preemption, in virtual time
	$(BIN)/python benchmarks/memory.py $(ARGS)

bench-fairness: $(READY) ## a light tenant beside one that floods the server, in virtual time
	$(BIN)/python benchmarks/fairness.py $(ARGS)

bench-fairness-server: $(READY) ## the same on a real server, over HTTP, for some minutes
	$(BIN)/python benchmarks/fairness_server.py $(ARGS)

bench-overload: $(READY) ## three times what a worker can do, in virtual time
	$(BIN)/python benchmarks/overload.py $(ARGS)

bench-overload-server: $(READY) ## the same on a real server, over HTTP, for ten minutes
	$(BIN)/python benchmarks/overload_server.py $(ARGS)

bench-door: $(READY) ## streaming front ends beside ours; fetches the ones compared
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]' -c constraints.txt
	$(BIN)/python benchmarks/door.py $(ARGS)

bench-ledger: $(READY) ## what a commit of the usage ledger costs; ARGS="--postgres DSN" for both stores
	$(BIN)/python benchmarks/ledger_time.py $(ARGS)

docs: $(READY) ## write docs/configuration.md anew, from the settings' definitions
	$(BIN)/python -m plancha_app.settings.page > docs/configuration.md

build: $(READY) ## a wheel in dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

constraints: $(READY) ## pin what .venv holds now
	$(BIN)/pip freeze --exclude-editable | sed -n 's/^\([^ +]*==[^ +]*\).*/\1/p' > constraints.txt
	touch $(READY)

clean: ## forget .venv and what was built
	rm -rf $(VENV) build dist
