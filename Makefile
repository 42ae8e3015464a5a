# Everything a newcomer needs: make demo, make test. Only Python 3.11+ must be there already.
PYTHON ?= python3
# Nothing is ever overwritten, so each demo gets a directory of its own.
OUT := demo-out/$(shell date +%Y-%m-%d-%H%M%S)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := $(VENV)/.installed-extras
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: numbers processors
.PHONY: bandit audit-deps wheel
.PHONY: help install demo test quick bench chaos lint format docs tables screenshots clean

help:
	@echo "make demo    audit a simulated federation of real people; writes to demo-out/"
	@echo "make test    run every test"
	@echo "make quick   run the quickest tests of every part, in about a minute"
	@echo "make bench   time everything against its opponents; writes benchmarks/results.json (an hour)"
	@echo "make bench-check    fails if a ratio is 30% below that of benchmarks/results.json"
	@echo "make bench-privacy  the long statistical test of the privacy claims (minutes)"
	@echo "make chaos   kill it a few hundred times; writes reliability/chaos.json (minutes)"
	@echo "make bandit  look through the source for what is known to be unsafe"
	@echo "make audit-deps  ask for known faults of the pinned versions (needs the network)"
	@echo "make numbers intervals, p-values and posteriors against simulations (minutes)"
	@echo "make processors  every attack with the arithmetic of other processors (two minutes)"
	@echo "make wheel   build the wheel, install it into an empty environment and run it (minutes)"
	@echo "make lint    ruff and mypy --strict"
	@echo "make format  let ruff mend what it can"
	@echo "make docs    build the documentation into build/site; a warning fails"
	@echo "make tables  run the demo and write the generated tables into README.md and docs/"
	@echo "make screenshots  photograph the demo's report anew (needs Chromium)"
	@echo "make clean   remove what the other targets made, $(VENV) and demo-out/ included"

install: $(STAMP)

# torch comes first and exactly: a loose requirement lets pip choose a newer build, and with
# it several gigabytes of GPU packages. An existing .venv is kept and brought up to date.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "overheard needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV): a few minutes the first time, and quiet"
	$(PIP) install --quiet "$$(grep '^torch==' constraints.txt)"
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

# Flower, NVIDIA FLARE and Ray, so that the tests of what records them run, the privacy accountant,
# Opacus as the twin of private steps, what drives a browser and what builds the documentation; the
# demo needs none.
$(EXTRAS): $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev,twins,dp,flower,nvflare,ray,xgboost,docs,browser]"
	@touch $@

demo: $(STAMP)
	@mkdir -p $(dir $(OUT))
	$(BIN)/overheard demo --out $(OUT)

# One thread per worker: two workers already fill two cores.
test: export OPENBLAS_NUM_THREADS := 1
test: export OMP_NUM_THREADS := 1
test: $(EXTRAS)
	$(BIN)/python -m pytest -n 2 --dist worksteal --random-order

# For the inner loop: of every part of the package the files whose tests take the least processor
# time for what they hold; tests/test_quick.py says when a part has none. Whole commands, slow twins,
# simulations of statistics, other programs and data that must be fetched are left to make test.
QUICK_DECODING := $(filter-out %/test_mixed_model.py %/test_group_posterior.py %/test_surrogate.py, \
	$(wildcard tests/decoding/test_*.py))
QUICK := $(QUICK_DECODING) $(addprefix tests/, \
	test_layers.py test_errors.py test_files.py test_origin.py test_quick.py test_size.py \
	cli/test_options.py \
	attacks/test_equations.py attacks/attribute/test_searches.py \
	attacks/membership/test_bad_pools.py attacks/label/test_labels.py benchmarks/test_frame.py \
	data/test_dataset.py data/test_file.py data/test_source.py data/test_leaf_synthetic.py \
	docs/test_citations.py \
	$(addprefix evaluation/test_,baselines.py bounds.py evidence.py hits.py intervals.py resume.py \
	metrics.py paired.py promised.py replay.py scoring.py) \
	federation/test_config.py federation/test_plan.py foreign guard/test_limits.py \
	guard/test_updates.py identify/test_search.py programs questions report/test_charts.py report/test_verdict.py \
	report/test_words.py papers/test_harness.py sweep/test_grid.py \
	$(addprefix transcript/test_,store.py messages.py ledger.py observe.py sums.py share.py))
quick: export OPENBLAS_NUM_THREADS := 1
quick: export OMP_NUM_THREADS := 1
quick: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q $(QUICK)

numbers processors: export OPENBLAS_NUM_THREADS := 1
numbers processors: export OMP_NUM_THREADS := 1
numbers: $(STAMP)
	$(BIN)/python -m reliability.simulations

processors: $(STAMP)
	$(BIN)/python -m reliability.processors

# Ratios of one run, never absolute times: each measurement is a process with one thread.
bench: $(EXTRAS)
	$(BIN)/overheard bench --out benchmarks/results.json

bench-check: $(EXTRAS)
	$(BIN)/overheard bench --check benchmarks/results.json
	$(BIN)/python -m pytest -m timing tests/benchmarks tests/browser

# Fails if an attack does better than its epsilon allows, or if a broken defence goes unnoticed.
bench-privacy: export OPENBLAS_NUM_THREADS := 1
bench-privacy: export OMP_NUM_THREADS := 1
bench-privacy: $(EXTRAS)
	$(BIN)/python -m benchmarks.differential_privacy

# Fails if anything finished was lost, or anything is called what it is not.
chaos: $(STAMP)
	$(BIN)/python -m reliability.chaos

bandit: $(STAMP)
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src papers \
		$(addprefix benchmarks/,runner entries privacy)

audit-deps: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt pip-audit
	$(BIN)/pip-audit --no-deps --disable-pip --strict --requirement constraints.txt

# Without constraints: what the newest versions of everything do to a plain `pip install`.
wheel:
	PYTHON=$(PYTHON) .ci/wheel

lint: $(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(EXTRAS)
	$(BIN)/python -m mkdocs build --strict

tables: $(STAMP)
	$(BIN)/python docs/tools/tables.py

# After make tables, which takes the demo's audits anew.
screenshots: $(EXTRAS)
	$(BIN)/python docs/tools/screenshots.py

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src papers benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
