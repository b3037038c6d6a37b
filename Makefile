# Both commands make their own virtual environment; nothing but Python >= 3.11 and a package index is needed.
PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.13 3,$(shell command -v python$(version) 2>/dev/null)))
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check format bench clean

demo: $(VENV)/.demo ## install, then build a pool with known truth, curate it offline, pretrain and fine-tune a tiny model, check all
	$(BIN)/populace demo

test: $(VENV)/.dev ## install, then run all tests in two processes
	$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

check: $(VENV)/.dev ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## the benchmarks; each prints our figure, the limit's, and the ratio
	for file in eval/benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no python3 found: install Python 3.11 or newer, or give PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11: give PYTHON=/path/to/python3.11"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.demo

clean: ## remove the environment and the demo's outputs
	rm -rf $(VENV) demo
