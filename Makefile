# Everything runs from .venv, which `make setup` makes from uv.lock; a second run finds it up to date.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.cache/home
endif
export LITELLM_LOCAL_MODEL_COST_MAP ?= True

BIN := .venv/bin
STAMP := .venv/.synced

TASKS ?= bundled
HARNESS ?= mini-swe-agent
SANDBOX ?= local
N ?= 4
CONCURRENCY ?= 1
MAX_CALLS ?= 6
OUT ?=
ARGS ?=
JOBS ?= 2

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  make rollout HARNESS=mini-swe-agent,claude-code N=8 TASKS=bundled OUT=DIR ARGS="--llm-url URL --model NAME"'

$(STAMP): uv.lock pyproject.toml envs/harbor_env/pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@

.PHONY: setup
setup: $(STAMP)  ## make .venv (needs Python 3.12 or later; fetches uv if it is missing)

.PHONY: rollout
rollout: $(STAMP)  ## run bundled tasks with a real coding agent, no GPU, Docker or key
	$(BIN)/openenv-harbor rollout --dataset $(TASKS) -n $(N) --harness $(HARNESS) --sandbox $(SANDBOX) \
		--concurrency $(CONCURRENCY) --max-calls $(MAX_CALLS) $(if $(OUT),--out $(OUT)) $(ARGS)

.PHONY: test
test: lint  ## lint, types and every test that is not live
	$(BIN)/pytest -n $(JOBS) -m "not live"

.PHONY: lint
lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: fmt
fmt: $(STAMP)  ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: live
live: $(STAMP)  ## real harnesses, engines and Harbor trials (slow; some need node)
	$(BIN)/pytest -m live

.PHONY: tasks
tasks: $(STAMP)  ## write the bundled tasks again
	$(BIN)/python scripts/make_tasks.py

.PHONY: clean
clean:  ## remove .venv, caches and what was fetched; rollouts stay
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
