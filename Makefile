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
NOTEBOOKS := $(VENV)/.set-up-notebooks
# The jar belongs to the checkout, wherever the environment is. Folders count too: one is newer once a file in it is gone.
JAR := lotan/jars/lotan-$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' lotan/version.py).jar
# The classes of Spark as Java reads them fastest, for the tests, which start it some thirty times.
CLASSES := build/spark-classes.jsa
JVM := jvm/pom.xml $(shell find jvm/src/main)

.PHONY: help setup jar run test quick nightly check docs bench notebooks clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) $(JAR) ## Make the virtual environment and the jar that run, test and bench need (once)

$(STAMP): pyproject.toml constraints.txt tools/set_up.sh tools/check_prerequisites.sh
	@tools/set_up.sh $(VENV) $(PYTHON)
	@touch $@

jar: $(JAR) ## Build the Scala operators in jvm/ into a jar (whenever they changed)

$(JAR): $(JVM) tools/build_jar.sh
	@tools/build_jar.sh $@

run: setup ## Train a GCN on the built-in digits graph through Spark and PyTorch workers
	lotan train --graph digits --model gcn --layers 2 --engine blocks --epochs 30 --eval-every 5 --report report.json $(ARGS)

# Three processes of tests, one more than the two cores of the smallest machine, because many tests wait for others.
# A thread of torch's that waits busily for another would keep them from running.
test quick nightly: export OMP_WAIT_POLICY ?= passive
# Python compiles a module once, not once in each of the processes that tests start.
test quick nightly: export PYTHONDONTWRITEBYTECODE :=
PYTEST := python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 20
test: setup $(CLASSES) ## Run the suite: pytest, and the tests of jvm/ beside it; ARGS go to pytest
	@tools/beside_scala.sh $(PYTEST) $(ARGS)

$(CLASSES): $(STAMP) tools/share_classes.py
	@python tools/share_classes.py $@

quick: setup ## Run the tests that need neither Spark nor other processes, without the longest families, in minutes
	$(PYTEST) -m "not (spark or slow or chaos or processes or thorough or nightly)" $(ARGS)

nightly: test ## Run the suite, then plant faults that it must find, and search for more with 20,000 random models
	python -m pytest --numprocesses 2 -m nightly --durations 20 $(ARGS)
	python -m tests.exactness.offline --cases 20000

check: setup ## Check format, lint, prose, types and the direction of imports
	ruff format --check .
	ruff check .
	python tools/check_prose.py
	mypy
	lint-imports
	@tools/maven.sh spotless:check test-compile

docs: $(STAMP) ## Build the documentation into build/site; a dead link or a missing reference is an error
	python tools/build_docs.py $(ARGS)

bench: setup ## Measure seconds per epoch against PyG; writes benchmarks/results/epoch.md
	python benchmarks/epoch.py $(ARGS)

notebooks: setup $(NOTEBOOKS) ## Run the notebooks, writing their outputs into the committed files; ARGS=--check writes nothing
	python notebooks/run.py $(ARGS)

$(NOTEBOOKS): $(STAMP)
	env -u PYTHONPATH python -m pip install --quiet --editable '.[notebooks]' --constraint constraints.txt \
		--config-settings editable_mode=compat
	@touch $@

clean: ## Remove what was built or cached, the virtual environment .venv included
	rm -rf .venv build dist jvm/target lotan/jars *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse report.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
