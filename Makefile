# `make test` and `make demo` set up everything they need in .venv; a second call reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SETUP := pyproject.toml constraints.txt hatch_build.py src/poolscope/bures/kernel.c

.PHONY: test demo check format bench clean

test: $(VENV)/.test-ready check  ## lint, types, tests
	$(BIN)/python -m pytest

check: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(VENV)/.demo-ready  ## SOCM of the embedded model on the embedded corpus
	$(BIN)/poolscope socm builtin:minilm builtin:docstrings --limit 500

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test-ready  ## ratios to named baselines; takes some minutes
	$(BIN)/python benchmarks/socm.py
	$(BIN)/python benchmarks/encode.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/tokens.py

clean:
	rm -rf $(VENV) demo-output src/poolscope/bures/_kernel.*

# torch first and by its exact version: any other way of asking may fetch a GPU build.
$(VENV)/.demo-ready: $(SETUP)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[defaults]'
	touch $@

$(VENV)/.test-ready: $(VENV)/.demo-ready
	$(INSTALL) --editable '.[all,test]'
	touch $@
