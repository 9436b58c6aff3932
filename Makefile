# Everything is installed into .venv; nothing outside of this folder is touched.
PYTHON ?= python3
# Test processes at once. Each has servers of its own.
JOBS ?= 2
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
export PYTHONNOUSERSITE := 1

.PHONY: up test check bench faults clean

up: .venv/installed ## run the whole product on this machine; ARGS="--workers 2"
	@exec $(BIN)/turnmill up $(ARGS)

test: .venv/installed-dev ## all tests
	$(BIN)/pytest -n $(JOBS) $(ARGS)

check: .venv/installed-dev ## format, lint, types, unit tests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -q -n $(JOBS) tests/unit

bench: .venv/installed-dev ## measurements, as ratios within one run
	$(BIN)/python -m tests.bench

faults: .venv/installed-dev ## the fault tests, ROUNDS times over
	for round in $$(seq $(or $(ROUNDS),3)); do $(BIN)/pytest -q -n $(JOBS) tests/faults || exit 1; done

clean: ## forget what was installed and cached
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A stamp is written last, so that an interrupted installation is done again.
.venv/installed: pyproject.toml constraints.txt | .venv/made
	@echo "Installing into .venv"
	@$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/made
	@echo "Installing into .venv, with what the tests need"
	@$(PIP) -e ".[dev]"
	@touch $@ .venv/installed

.venv/made:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python 3.11 or newer, or name it with PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: Python 3.11 or newer is needed; name one with PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: sudo apt install python3-venv)"; exit 2; }
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@touch $@
