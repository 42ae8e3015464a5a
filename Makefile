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
.PHONY: help install demo test quick lint format docs tables coverage wheel clean

help:
	@echo "make demo      audit a simulated federation of real people; writes to demo-out/"
	@echo "make test      run every test"
	@echo "make coverage  run the quick tests and say how much of every file they run; fails below a floor"
	@echo "make quick     run the tests that are not marked slow, in about a minute"
	@echo "make lint      ruff, mypy --strict, import-linter, deptry and bandit"
	@echo "make format    let ruff mend what it can"
	@echo "make docs      build the documentation into build/site; a warning fails"
	@echo "make tables    run the demo, write the generated tables into README.md and docs/, photograph the report"
	@echo "make wheel     build the wheel, install it into an empty environment and run it (minutes)"
	@echo "make clean     remove what the other targets made, $(VENV) and demo-out/ included"

install: $(STAMP)

# An existing .venv is kept and brought up to date.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "overheard needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV): a minute the first time, and quiet"
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

# What the tests need beyond the demo: torch, Flower, NVIDIA FLARE, Ray, the privacy accountant, Opacus
# as the twin of private steps, what drives a browser and what builds the documentation. torch comes first
# and exactly: a loose requirement lets pip choose a newer build, and with it gigabytes of GPU packages.
$(EXTRAS): $(STAMP)
	@echo "installing what the tests need: some minutes the first time"
	$(PIP) install --quiet "$$(grep '^torch==' constraints.txt)"
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev,torch,parquet,twins,dp,flower,nvflare,ray,xgboost,experiments,docs,browser]"
	@touch $@

demo: $(STAMP)
	@mkdir -p $(dir $(OUT))
	$(BIN)/overheard demo --out $(OUT)

# One thread per worker: two workers already fill two cores.
test: export OPENBLAS_NUM_THREADS := 1
test: export OMP_NUM_THREADS := 1
test: $(EXTRAS)
	$(BIN)/python -m pytest -n 2 --dist worksteal --random-order

# For the inner loop. Whole commands, slow twins, simulations of statistics, other programs and data
# that must be fetched are marked slow.
quick: export OPENBLAS_NUM_THREADS := 1
quick: export OMP_NUM_THREADS := 1
quick: $(EXTRAS)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not timing"

# Of the quick tests alone: counting the lines of all would take minutes. They run 77% of the package.
coverage: export OPENBLAS_NUM_THREADS := 1
coverage: export OMP_NUM_THREADS := 1
coverage: $(EXTRAS)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not timing" \
		--cov=overheard --cov-report=term:skip-covered

# Without constraints: what the newest versions of everything do to a plain `pip install`.
wheel:
	PYTHON=$(PYTHON) .ci/wheel

lint: $(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src experiments

format: $(EXTRAS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(EXTRAS)
	$(BIN)/python -m mkdocs build --strict

# The pictures need Chromium.
tables: $(EXTRAS)
	$(BIN)/python -m experiments demo
	$(BIN)/python -m experiments pages

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src experiments tests -name __pycache__ -type d -prune -exec rm -rf {} +
