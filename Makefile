# Everything a contributor runs. `make` alone lists the targets.

PYTHON ?= python3
TORCH := torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/setup.stamp

# --no-input: a question on a machine without a terminal would hang the build.
PIP := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check
INSTALL := $(PIP) install --constraint constraints.txt

# The planner's build calls plain `python`, which a machine may lack outside a virtual environment.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup toolchain quickstart lint test test-slow bench constraints

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with everything installed; does nothing when nothing changed

$(STAMP): pyproject.toml constraints.txt | toolchain
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
		{ echo "[1/4] Creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@$(INSTALL) --upgrade pip
	@echo "[2/4] Installing $(TORCH) (the largest download)"
	@$(INSTALL) $(TORCH)
	@echo "[3/4] Compiling AlfWorld's planner and its parser (about three minutes the first time)"
	@$(INSTALL) --build-constraint constraints.txt fast-downward-textworld jericho
	@echo "[4/4] Installing rlanything and its other dependencies"
	@$(INSTALL) --build-constraint constraints.txt --editable '.[alfworld,dev]'
	@touch $@
	@echo "Ready: $(BIN)/rlanything"

# What pip cannot bring. Only the checks that fail name a package, so a complete machine is left alone.
# The planner's build looks for gcc and g++ by name (or for CC and CXX), the parser's for cc and ar.
toolchain:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or newer is needed; name yours: make setup PYTHON=python3.12" >&2; exit 1; }
	@missing=""; \
	command -v "$${CC:-gcc}" >/dev/null && command -v cc >/dev/null || missing="$$missing gcc"; \
	command -v "$${CXX:-g++}" >/dev/null || missing="$$missing g++"; \
	test -x /usr/bin/ar || missing="$$missing binutils"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "[0/4] Installing system packages:$$missing"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing libc6-dev >/dev/null; \
	else \
		echo "Install these system packages, then run make setup again:$$missing" >&2; exit 1; \
	fi

quickstart: setup ## Watch the whole loop learn on this machine, from nano models
	$(BIN)/rlanything train recipes/quickstart.yaml

lint: setup ## Style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

test: lint ## Everything CI runs: lint and the quick tests
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup ## The tests that need minutes
	$(BIN)/python -m pytest -m slow

bench: setup ## Measure AlfWorld's engine and pool on this machine
	$(BIN)/python benchmarks/alfworld_speed.py

constraints: ## Rewrite constraints.txt from what .venv holds now
	@{ sed '/^[^#]/,$$d' constraints.txt; \
		$(BIN)/python -m pip freeze --all --exclude-editable | sed 's/+cpu$$//'; } > constraints.new
	@mv constraints.new constraints.txt
	@echo "constraints.txt now pins $$(grep -c == constraints.txt) packages"
