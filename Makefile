# `make quickstart` and `make test` do all the set-up; nothing else needs installing by hand.
.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-slow bench lint toolchain

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check
STAMP := $(VENV)/.installed

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv with everything pinned in constraints.txt

# The text-game engine is compiled: as root on Debian what is missing is installed, elsewhere named.
toolchain:
	@missing=""; for tool in cc c++ cmake make; do \
	  command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing the C toolchain (missing:$$missing)"; \
	    apt-get update -qq && apt-get install -y -qq build-essential cmake >/dev/null; \
	  else \
	    echo "please install:$$missing (Debian, Ubuntu: build-essential cmake)"; exit 1; \
	  fi; \
	fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }

$(STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory toolchain
	@echo "[1/3] virtual environment and PyTorch"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -q -c constraints.txt torch==2.13.0
	@echo "[2/3] the text-game engine (compiled, about three minutes) and everything else"
	@$(PIP) install -q -c constraints.txt -e '.[alfworld,dev]'
	@echo "[3/3] leaving debug symbols out of the planner's library (34 MB -> 1 MB a game)"
	@command -v strip >/dev/null && strip $(VENV)/lib/python3*/site-packages/fast_downward/*.so || true
	@touch $@

quickstart: setup ## run the closed loop on two CPU cores, in under ten minutes
	$(VENV)/bin/rlanything train recipes/quickstart.yaml

lint: setup ## ruff and pyright
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/basedpyright

test: lint ## every check that CI runs
	$(VENV)/bin/pytest -m "not slow"

test-slow: setup ## the checks that take minutes
	$(VENV)/bin/pytest -m slow

bench: setup ## rewrite the figures in benchmarks/
	$(VENV)/bin/python benchmarks/alfworld_speed.py
