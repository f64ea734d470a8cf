# Everything that a person types. `make help` lists it. The same verbs are `workbench <verb>` inside .venv,
# but for those of who works on the workbench itself: test, drill, bench, lock.
# `python3` where it fits, else the newest that does; another one: make PYTHON=…
FITS := import sys; v = sys.version_info[:2]; \
	sys.exit(0 if (3, 10) <= v <= (3, 13) else f"Python {v[0]}.{v[1]} found, 3.10 to 3.13 needed: make PYTHON=… names one")
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; \
	do $$p -c '$(FITS)' 2>/dev/null && echo $$p && exit; done; echo python3)
BIN := .venv/bin
STAMP := .venv/.installed
# --world, --param …: make run ARGS="10_outbox --world cluster"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo up status run lab doctor test drill bench wheel down clean lock

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Python packages, then jars; nothing is fetched twice
	@$(BIN)/workbench install

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c '$(FITS)'
	@echo "installing Python packages into .venv with $(PYTHON), $$($(PYTHON) --version) (about two minutes the first time) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $(STAMP)

demo: $(STAMP) ## install, start the stack, run the outbox walkthrough, write the report
	@$(BIN)/workbench demo $(ARGS)

up: $(STAMP) ## start the stack
	@$(BIN)/workbench up $(ARGS)

status: $(STAMP) ## what runs, on which port, with how much memory
	@$(BIN)/workbench status $(ARGS)

run: $(STAMP) ## run notebooks headless: make run ARGS="10_outbox --world local"
	@$(BIN)/workbench run $(ARGS)

lab: $(STAMP) ## JupyterLab at the first notebook
	@$(BIN)/workbench lab

doctor: $(STAMP) ## check this machine, every problem with its fix
	@$(BIN)/workbench doctor

test: $(STAMP) ## the tests: unit, stack, notebooks (the longest ones: make drill)
	@$(BIN)/workbench install --world s3
	@$(BIN)/python tests/run_tests.py $(ARGS)

drill: $(STAMP) ## the longest tests: every check broken once, on a cluster, on the original dump, notebooks alone and twice, Spark killed while it lands
	@$(BIN)/workbench install --world s3
	@$(BIN)/python tests/run_tests.py -m drill $(ARGS)

bench: $(STAMP) ## speed, as ratios measured side by side
	@$(BIN)/python tests/bench/bench.py $(ARGS)

# `build` is setuptools' own, and would bring modules again that are gone; the date: the same files are the same wheel
wheel: $(STAMP) ## the library as one file, dist/*.whl, for Pythons elsewhere (deploy/README.md)
	@rm -rf build dist
	@SOURCE_DATE_EPOCH=1735689600 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

down: $(STAMP) ## stop every service
	@$(BIN)/workbench down $(ARGS)

clean: $(STAMP) ## remove service data, lake and runs (not the downloads)
	@$(BIN)/workbench clean $(ARGS)

lock: $(STAMP) ## resolve params/jars.ivy.xml into params/jars.lock (for maintainers)
	@$(BIN)/python .ci/lock_jars.py
