PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILER := $(VENV)/.compiler
WORKERS ?= 2
TESTS ?= tests
PART ?= 1/1
SMOKE ?= 1/1
MARKED ?= long
# Programs of these tests are tiny and run once, so they compile unoptimised and on one thread.
UNOPTIMISED = XLA_FLAGS="$(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
ADDITIONS = $(addprefix docs/,test_pages.py test_commands.py test_language.py) models_nnx/test_presets.py \
	$(addprefix parity/,test_architecture.py run/test_run.py cli channels/test_registry.py \
	channels/test_structure_channels.py compare/backends report gate mutants/test_mutants.py matrix \
	cases/test_settings.py prove/test_rules.py prove/test_rewrites.py)
SPLIT = --splitting-algorithm least_duration --group $(firstword $(subst /, ,$(PART))) --splits $(lastword $(subst /, ,$(PART)))

# Verdicts are kept by the environment too, which must be the same for `make parity` and `make matrix PART=2/12`.
unexport PART SMOKE MARKED MAKEFLAGS MFLAGS MAKEOVERRIDES
# Each process would compile our sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup compiler parity matrix gate prove test long pipeline-grid exact-grid quick additions page docs pictures plots mutants lint format clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make: Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(STAMP)

compiler: $(COMPILER)  ## the TPU compiler as well (Linux, x86-64): backends aot:TOPOLOGY and their tests

$(COMPILER): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[tpu]"
	touch $(COMPILER)

parity: setup  ## the core of the matrix, with a report in parity-report/parity.json; verdicts are reused as long as nothing changed
	mkdir -p parity-report
	$(BIN)/parity run core --cached --json parity-report/parity.json

matrix: setup  ## every case, but those that `make parity` has just decided; PART=2/12 for one part of them
	mkdir -p parity-report
	$(BIN)/parity run --shard $(PART) --cached --json parity-report/matrix.json

gate: setup  ## the flips, as far as the records go that `make parity` and `make matrix` have just written
	$(BIN)/parity gate --part --from parity-report/parity.json
	$(BIN)/parity gate --part --from parity-report/matrix.json

prove: setup  ## every twin but the covering matrix shown to be the same program, and the small subset run
	$(BIN)/parity prove "[!c]*" --shard $(PART)
	$(BIN)/parity run smoke --paranoid --shard $(SMOKE)

pipeline-grid: setup  ## every pipeline schedule, gather and mode against the layers in sequence
	PYTHONPATH=.:tests $(BIN)/parity run --pair campaigns.matrix.pipeline_grid:PAIR "pipeline-grid-*"

exact-grid: setup  ## the same, proved in exact arithmetic instead of measured
	PYTHONPATH=.:tests $(BIN)/parity prove --pair campaigns.matrix.pipeline_grid:PAIR "pipeline-grid-*" --exact

test: setup  ## the test suite without the longest tests
	$(UNOPTIMISED) $(BIN)/python -m pytest -n $(WORKERS) -m "not long" $(TESTS)

long: setup  ## what the suite leaves out: campaigns, sweeps, whole runs; PART=2/12 for one part of them
	$(BIN)/python -m pytest -n $(WORKERS) -m "$(MARKED)" $(SPLIT) $(TESTS)

quick: setup  ## the fast inner loop
	$(UNOPTIMISED) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not long"

additions: setup  ## what a new channel, rule, command, backend or family can break: minutes
	$(BIN)/python tests/docs/generate.py
	$(BIN)/python -m pytest -n $(WORKERS) -m "not long" $(addprefix tests/,$(ADDITIONS))

page: setup  ## the HTML page opened in headless Chromium or Chrome, which must be on the path
	$(BIN)/python -m pip install --quiet --editable ".[browser]"
	$(BIN)/python tests/parity/report/browser.py

mutants: setup  ## planted bugs, each against every channel: docs/planted-bugs.md; PART=2/12 for one part of them
	mkdir -p parity-report
	$(BIN)/python tests/campaigns edits build/benign --count 60
	$(BIN)/parity mutants tests/mutants build/benign --shard $(PART) --workers $(WORKERS) --json parity-report/mutants.json

docs: setup  ## the generated tables of the pages, and the pages as a site, in build/site; links that lead nowhere fail
	$(BIN)/python tests/docs/generate.py
	$(BIN)/mkdocs build --strict

pictures: setup  ## the pictures of the first page, made again; Chromium or Chrome must be on the path
	$(BIN)/python tests/docs/pictures.py

plots: setup  ## the plots of docs/benchmark.md, measured again: half an hour
	$(BIN)/python tests/docs/plots.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) parity-report build *.egg-info
