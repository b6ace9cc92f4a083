# Plain `make` prints the targets. Everything runs in .venv, which is made on first use and kept.
# PYTHON=python3.12 says which Python; else .ci/python looks for one that fits, and brings one where none does.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/pins.txt

# What `make prep` prepares; each can be given on the command line.
TASK ?= so_quality
SOURCE ?= sample:
TOKENIZER ?= sample:
OUT ?= data/sample
RUNNER ?= local
ARGS ?=
SECONDS ?= 60
FIRST ?=

.DEFAULT_GOAL := help
.PHONY: help prep train test test-slow fuzz lint format docs pictures bench golden reference clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The rules below make and fill one folder, so never two at once.
.NOTPARALLEL:

# Stamps say nothing about an environment whose Python is gone.
ifeq ($(shell test -x $(BIN)/python && echo there),)
$(shell rm -f $(VENV)/base $(VENV)/train $(VENV)/dev)
endif

# What an installation is made of; the encoder in C is built by it.
INSTALLED := setup.py .ci/pins.txt $(wildcard t5prep/version.py t5prep/native/*)

# A stamp per set of packages: pip runs again only when what it reads has changed. A larger set holds the smaller ones.
$(VENV)/base: $(INSTALLED)
	@.ci/python $(VENV) prepare '$(PYTHON)'
	@echo "installing t5prep into $(VENV) (once: 500 MB, about a minute) ..." >&2
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/train: $(INSTALLED)
	@.ci/python $(VENV) train '$(PYTHON)'
	@echo "installing t5prep with TensorFlow into $(VENV) (once: 2 GB, some minutes) ..." >&2
	$(PIP) -e '.[report,train]'
	@touch $(VENV)/base $@

$(VENV)/dev: $(INSTALLED)
	@.ci/python $(VENV) train '$(PYTHON)'
	@echo "installing t5prep, TensorFlow and the tools of development into $(VENV) (once: 2 GB, some minutes) ..." >&2
	$(PIP) -e '.[train,dev]'
	@touch $(VENV)/base $(VENV)/train $@

prep: $(VENV)/base  ## prepare a corpus (the built-in sample): TASK= SOURCE= TOKENIZER= OUT= RUNNER= ARGS=
	@$(BIN)/t5prep prepare $(TASK) --source '$(SOURCE)' --tokenizer '$(TOKENIZER)' --out '$(OUT)' --runner $(RUNNER) $(ARGS)
	@$(if $(filter dataflow,$(RUNNER)),,$(BIN)/t5prep report '$(OUT)')

train: $(VENV)/train prep  ## train the tiny recipe on the built-in sample, on this machine's CPU
	@$(BIN)/t5prep train --recipe tiny --data $(OUT) --out runs/sample
	@$(BIN)/t5prep eval --model runs/sample --data $(OUT)

# What Python has compiled is kept, also where the environment says otherwise: else pytest compiles all tests again in each
# of its processes, and hundreds of commands that the tests start compile t5prep.
test test-slow fuzz golden: export PYTHONDONTWRITEBYTECODE :=

# A process for each core; a file's tests stay together, because they share what is made once. The longest files come first
# (tests/conftest.py), so that both cores work until the end.
test: $(VENV)/dev  ## run the tests that are not slow
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(VENV)/dev  ## run all tests
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder -m '' $(ARGS)

fuzz: $(VENV)/dev  ## draw inputs that no test has drawn, for so long: SECONDS= FIRST=
	$(BIN)/python tests/fuzz.py $(SECONDS) $(FIRST)

lint: $(VENV)/dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(VENV)/dev  ## write every task's golden examples anew, to be read before they are committed
	T5PREP_GOLDEN=1 $(BIN)/python -m pytest -q tests/tasks/test_tasks.py

docs: $(VENV)/dev  ## build the site of README and docs/ in build/site, and check its links
	$(BIN)/python tests/site_pages.py build/docs
	$(BIN)/zensical build --strict

pictures: $(VENV)/dev  ## draw docs/pictures with Chromium
	$(BIN)/python tests/pictures.py docs/pictures

reference: $(VENV)/base  ## write docs/reference.md from the commands, and docs/errors.md from the codes of errors
	$(BIN)/python tests/reference.py > docs/reference.md
	$(BIN)/python tests/error_pages.py > docs/errors.md

bench: $(VENV)/dev  ## print what README and docs/speed.md say of speed, measured here, as one table (ten minutes): ARGS=
	$(BIN)/python -m tests.benchmarks.bench $(ARGS)

clean:  ## remove the environment and build files; datasets, runs and the cache stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
