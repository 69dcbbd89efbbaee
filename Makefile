# `make test` and `make demo` set up everything they need in .venv; a second call reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
KERNEL := $(shell find src -name kernel.c)
SETUP := pyproject.toml constraints.txt hatch_build.py $(KERNEL)

.PHONY: test demo check docs format bench clean

# Files of tests side by side, one thread each: faster than one process with many threads.
test: $(VENV)/.test-ready check  ## lint, types, tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.test-ready  ## the site, in site/; warnings are errors (the tests build it too)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

demo: $(VENV)/.demo-ready  ## the audit of the embedded model on the embedded corpus; its page is demo-output/report.html
	$(BIN)/poolscope audit --output demo-output

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test-ready  ## ratios to named baselines; takes some minutes
	$(BIN)/python benchmarks/socm.py
	$(BIN)/python benchmarks/encode.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/tokens.py
	$(BIN)/python benchmarks/length.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/tempscale.py

clean:
	rm -rf $(VENV) $(VENV)-* demo-output site dist $(KERNEL:kernel.c=_kernel.*)

# torch first and by its exact version: any other way of asking may fetch a GPU build.
$(VENV)/.demo-ready: $(SETUP)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[defaults,report]'
	touch $@

$(VENV)/.test-ready: $(VENV)/.demo-ready
	$(INSTALL) --editable '.[all,test]'
	touch $@
