# All commands; `make help` lists them. Inside .venv the same commands are `workbench <command>`, except those for
# development of the workbench itself: test, check, drill, bench, wheel, lock.
# PYTHON is `python3` if its version fits, else the latest that does. To choose another one: make PYTHON=…
# Without any, and without a choice, uv finds or downloads one.
FITS := import sys; v = sys.version_info[:2]; \
	sys.exit(0 if (3, 10) <= v <= (3, 13) else f"Python {v[0]}.{v[1]} found, 3.10 to 3.13 needed: make PYTHON=… names one, or install uv, which brings one")
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; \
	do $$p -c '$(FITS)' 2>/dev/null && echo $$p && exit; done; command -v uv >/dev/null && echo uv || echo python3)
UV_VENV := uv venv --quiet --seed --python '>=3.10,<3.14'
BIN := .venv/bin
STAMP := .venv/.installed
# like STAMP, for the packages that only tests and development need
DEV_STAMP := .venv/.installed-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on --no-compile
# --world, --param …: make run ARGS="10_outbox --world cluster"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install dev demo up status run runs lab doctor test check drill bench wheel down clean lock

help: ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## install Python packages and jars; existing files are kept
	@$(BIN)/workbench install

$(STAMP): requirements.lock pyproject.toml
	@$(if $(filter uv,$(PYTHON)),,$(PYTHON) -c '$(FITS)')
	@echo "installing Python packages into .venv with $(PYTHON), $$($(PYTHON) --version) (about two minutes the first time) …"
	@test -x $(BIN)/python || $(if $(filter uv,$(PYTHON)),$(UV_VENV),$(PYTHON) -m venv) .venv
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-build-isolation --no-deps -e .
	@touch $(STAMP)

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	@echo "installing the packages of tests and development …"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $(DEV_STAMP)

dev: $(DEV_STAMP) ## also install the packages of tests and development

demo: $(STAMP) ## install, start the stack, run the outbox walkthrough, write its report
	@$(BIN)/workbench demo $(ARGS)

up: $(STAMP) ## start the stack
	@$(BIN)/workbench up $(ARGS)

status: $(STAMP) ## show the services with state, port and memory
	@$(BIN)/workbench status $(ARGS)

run: $(STAMP) ## run notebooks headless: make run ARGS="10_outbox --world local"
	@$(BIN)/workbench run $(ARGS)

runs: $(STAMP) ## show the last runs: make runs ARGS=diff shows what changed in the last one
	@$(BIN)/workbench runs $(ARGS)

lab: $(STAMP) ## open JupyterLab at the first notebook
	@$(BIN)/workbench lab

doctor: $(STAMP) ## check this machine; every problem has a remedy
	@$(BIN)/workbench doctor

test: $(DEV_STAMP) ## run the tests of each package and of the first notebooks (all others: make check)
	@$(BIN)/workbench install --world s3
	@$(BIN)/python tests/run_tests.py test $(ARGS)

check: $(DEV_STAMP) ## run all other tests and notebooks (the longest ones: make drill)
	@$(BIN)/workbench install --world s3
	@$(BIN)/python tests/run_tests.py check $(ARGS)

drill: $(DEV_STAMP) ## run the longest tests: break every check once, use a cluster and the original dump, run notebooks alone and twice, kill a landing
	@$(BIN)/workbench install --world s3
	@$(BIN)/python tests/run_tests.py drill $(ARGS)

bench: $(STAMP) ## measure speed, as ratios of alternating runs
	@WORKBENCH_JAVA_OPTIONS=-XX:TieredStopAtLevel=4 $(BIN)/python tests/bench/bench.py $(ARGS)

# setuptools would take deleted modules from an old `build` folder. The fixed date makes the wheel reproducible.
wheel: $(STAMP) ## build the library as dist/*.whl, to install it elsewhere (deploy/README.md)
	@rm -rf build dist
	@SOURCE_DATE_EPOCH=1735689600 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

down: $(STAMP) ## stop every service
	@$(BIN)/workbench down $(ARGS)

clean: $(STAMP) ## remove service data, lake and runs (not the downloads)
	@$(BIN)/workbench clean $(ARGS)

lock: $(STAMP) ## resolve params/jars.ivy.xml into params/jars.lock (for maintainers)
	@$(BIN)/python .ci/lock_jars.py
