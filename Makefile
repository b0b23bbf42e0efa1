# Every target sets up first, once; `make help` lists them.
#   VENV=path    the virtual environment, for sharing one between checkouts (default .venv)
#   PYTHON=path  the Python that makes it (default: the first python3 of version 3.11 or newer)
#   ARGS=...     further arguments for the command that a target runs
VENV ?= .venv
PYTHON ?=
ARGS ?=

export PATH := $(abspath $(VENV))/bin:$(PATH)
# Before what is installed in an environment shared with another checkout; Spark's Python workers inherit it.
export PYTHONPATH := $(CURDIR)
STAMP := $(VENV)/.set-up

.PHONY: help setup run test check bench clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment with all that run, test and bench need (once)

$(STAMP): pyproject.toml constraints.txt tools/set_up.sh tools/check_prerequisites.sh
	@tools/set_up.sh $(VENV) $(PYTHON)
	@touch $@

run: $(STAMP) ## Train a GCN on the built-in digits graph through Spark and PyTorch workers
	lotan train --graph digits --model gcn --layers 2 --engine rows --epochs 30 --eval-every 5 --report report.json $(ARGS)

test: $(STAMP) ## Run every test
	python -m pytest $(ARGS)

check: $(STAMP) ## Check format, lint, types and the direction of imports
	ruff format --check .
	ruff check .
	mypy
	lint-imports

bench: $(STAMP) ## Measure seconds per epoch against PyG; writes benchmarks/results/epoch.md
	python benchmarks/epoch.py $(ARGS)

clean: ## Remove what was built or cached, the virtual environment .venv included
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse report.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
