# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TORCH  ?= 1
ARGS   ?=
JOBS   ?= auto

.PHONY: demo test lint types imports slow soak contract bench accuracy truth browser venv dev torch notebooks docs clean

demo: $(VENV)/.run $(if $(filter 0,$(TORCH)),,$(VENV)/.torch)  ## the main job on this machine, about four minutes
	$(BIN)/phasecast demo $(if $(filter 0,$(TORCH)),--no-torch) $(ARGS)

test: $(VENV)/.dev lint  ## lint, types, import contracts, then every test that is quick
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadgroup -m "not slow and not soak" $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

slow: $(VENV)/.dev  ## simulations of minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

soak: $(VENV)/.dev  ## crash tests repeated until they would have failed
	$(BIN)/python -m pytest -m soak $(ARGS)

contract: $(VENV)/.dev  ## more than 50,000 generated requests, sensible and not, held against the API's own description
	$(BIN)/python -m pytest -m soak -s tests/service/test_contract.py $(ARGS)

bench: $(VENV)/.dev  ## ratios to references measured in the same run; ARGS="ingest recorder" picks parts
	$(BIN)/python -m benchmarks $(ARGS)

accuracy: $(VENV)/.dev  ## docs/accuracy.md, measured anew on the sets in ../shared; ARGS="llm_serving" picks sets
	$(BIN)/python -m benchmarks.accuracy $(ARGS)

truth: $(VENV)/.dev  ## the engine in worlds whose laws are known; SITUATION= FAMILY= SEED= pick, ARGS="--jobs 4"
	$(BIN)/python -m benchmarks.truth $(if $(SITUATION),--situation "$(SITUATION)") $(if $(FAMILY),--family $(FAMILY)) $(if $(SEED),--seed $(SEED)) $(ARGS)

notebooks: $(VENV)/.dev  ## every notebook from top to bottom, some minutes; ARGS=NAME.ipynb picks one
	$(BIN)/python docs/run_notebooks.py $(ARGS)

docs: $(VENV)/.docs  ## data/README.md, written from the table definitions; then the site, .site/index.html
	$(BIN)/python -m telemetry.tables > data/README.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

venv: $(VENV)/.run
dev: $(VENV)/.dev
torch: $(VENV)/.torch

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Phasecast needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/build.txt requirements/run.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.run
	$(PIP) --require-hashes -r requirements/docs.txt
	@touch $@

# torch comes without hashes: which build is right differs from machine to machine.
$(VENV)/.torch: requirements/torch.txt $(VENV)/.run
	$(PIP) -r requirements/torch.txt
	@touch $@

clean:
	rm -rf $(VENV) .demo .notebooks .site .mypy_cache .pytest_cache .ruff_cache .hypothesis
