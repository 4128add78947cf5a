# What a person types. Each target makes the environment it needs first; nothing else has to be installed.
VENV ?= .venv
TRAIN_VENV ?= .venv-train
BIN := $(VENV)/bin
# The tests start a thousand processes, and each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
SAMPLES ?= samples/open
MINUTES ?= 60
HOURS ?= 0.5
PROCESSES ?= 1
# The tests of a file share what they start: servers, workers, models.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Lines that run in the tests' own processes; what the servers and workers that they start run is not counted.
COVERED := --cov=api --cov=spool --cov=worker --cov=kernels --cov=migrations --cov-report=

.PHONY: help run up down test test-all test-long faults simulate soak check test-train train lock vulnerabilities dist clean env env-dev

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort | expand -t 14

run: env  ## start everything, transcribe samples/ over HTTP, print words and bill, stop everything
	@$(BIN)/spool demo $(SAMPLES)

up: env  ## start everything, leave it running, say where
	@$(BIN)/spool up --detach

down: env  ## stop what `make up` started
	@$(BIN)/spool down

test: check  ## format, lint, types, and the quick tests, which need no server and no other process (three minutes)
	@$(BIN)/python -m pytest -q -n logical $(BY_FILE) -m "not integration and not slow and not long" $(if $(COVERAGE),$(COVERED))

# More processes than cores: tests with servers wait for others' processes half of their time.
test-all: check  ## all of `make test`, slow tests, and those with servers and processes (on free ports; 20 minutes)
	@$(BIN)/python -m pytest -q -n 4 $(BY_FILE) -m "$(or $(ONLY),not long)" $(if $(COVERAGE),$(COVERED))

test-long: env-dev  ## the tests that are left out of `make test-all`, but for the faults: sanitizers, more widths and freezes
	@$(BIN)/python -m pytest -q -n 4 $(BY_FILE) -m long --ignore tests/faults

faults: env-dev  ## every fault there is: kills, cuts, freezes; minutes, and a line each in docs/faults.md
	@mkdir -p var && rm -f var/faults.jsonl
	@SPOOL_FAULTS_LOG=$(CURDIR)/var/faults.jsonl \
		$(BIN)/python -m pytest -q -s --show-capture=no -m "long or not long" tests/faults
	@$(BIN)/python -m tests.faults.table var/faults.jsonl docs/faults.md

simulate: env-dev  ## the whole queue in one process under virtual time: [SEED=a new one] [HOURS=40] [JOBS=20] [FAULTS=20] [WORKERS=4] [DATABASE=postgresql] [MUTATION=name] [MUTATIONS=all [KEEP=1]] [OLDER=commit] [SHRINK=1]
	@$(BIN)/python -m tests.simulation$(if $(SHRINK),.shrinking) $(if $(SEED),--seed $(SEED)) $(if $(filter command line,$(origin HOURS)),--hours $(HOURS)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(KEEP),--keep) $(if $(MUTATIONS),--mutation $(MUTATIONS),$(if $(MUTATION),--mutation $(MUTATION))) $(if $(SHOW),--show) \
		$(if $(DATABASE),--database $(DATABASE)) $(if $(OLDER),--older $(OLDER))

soak: env-dev  ## a storm of faults over a real stack, [SEED=a new one] [HOURS=0.5]
	@$(BIN)/python -m ops.soak.run --hours $(HOURS) $(if $(SEED),--seed $(SEED))

check: env-dev  ## format, lint and types alone
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

test-train:  ## tests of the training code, in its own environment (PyTorch)
	@ops/environment.sh $(TRAIN_VENV) train
	@$(TRAIN_VENV)/bin/python -m pytest -q --confcutdir=tests/train tests/train

train:  ## train the demo model further: SPEECH=folder [MINUTES=60] [PROCESSES=1]; needs espeak-ng (models/demo/README.md)
	@ops/environment.sh $(TRAIN_VENV) train
	@test -n "$(SPEECH)" || { echo "say where the speech is: make train SPEECH=folder"; exit 1; }
	@$(TRAIN_VENV)/bin/python -m ops.train --speech $(SPEECH) --init models/demo/model.safetensors \
		--minutes $(MINUTES) --processes $(PROCESSES) --out models/demo

lock:  ## write the versions in use to constraints.txt, and the hashes of all their files to ops/locks
	@ops/environment.sh --unlocked $(VENV) api,worker,embedded,dev
	@$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude setuptools --exclude uv > constraints.txt
	@ops/locks/write.sh $(BIN)/python

vulnerabilities: env-dev  ## ask PyPI what is known against the locked versions (pip-audit)
	@ops/locks/audit.sh $(BIN)/python

env:
	@ops/environment.sh $(VENV) api,worker,embedded

env-dev: env
	@ops/environment.sh $(VENV) api,worker,embedded,dev

dist: env-dev  ## the wheel and the source distribution, in dist/
	@rm -rf dist && build/uv/bin/uv build --quiet --python $(BIN)/python --no-build-isolation --out-dir dist && ls -l dist

clean:  ## remove environments and everything that runs left behind
	rm -rf $(VENV) $(TRAIN_VENV) var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
