# Everything runs from .venv, which `make setup` makes from uv.lock; a second run finds it up to date.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.cache/home
endif
# The machine's own certificates, where it has any: a company's proxy is in no list that uv brings along.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= true
endif
export LITELLM_LOCAL_MODEL_COST_MAP ?= True

BIN := .venv/bin
STAMP := .venv/.synced
TRAINER := .cache/trainer

TASKS ?= bundled
HARNESS ?= mini-swe-agent
SANDBOX ?= local
N ?= 4
CONCURRENCY ?= 1
MAX_CALLS ?= 6
MAX_TOKENS ?= 800
OUT ?=
ARGS ?=
JOBS ?= 2

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
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
		--concurrency $(CONCURRENCY) --max-calls $(MAX_CALLS) --max-output-tokens $(MAX_TOKENS) $(if $(OUT),--out $(OUT)) $(ARGS)

.PHONY: test
test: lint  ## lint, types and every test that is not live
	$(BIN)/pytest -n $(JOBS) -m "not live"
	scripts/trainer_test_env.sh $(TRAINER)
	$(TRAINER)/bin/python -m pytest tests/trainer

.PHONY: lint
lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/make_tasks.py scripts/task_families

.PHONY: fmt
fmt: $(STAMP)  ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: live
live: $(STAMP)  ## real harnesses, engines and Harbor trials (slow; some need node)
	$(BIN)/pytest -m live

ENGINE := .cache/engine
MODEL := .cache/models/smollm2
QWEN3 = $$($(BIN)/python -c 'from tests.tokenizers import qwen3_dir; print(qwen3_dir())')
CHECKED := .cache/check-logprobs

$(MODEL)/config.json: $(STAMP) scripts/engine_env.sh scripts/make_smollm2.py
	scripts/engine_env.sh $(ENGINE)
	$(ENGINE)/bin/python scripts/make_smollm2.py $(MODEL) \
		--gguf $$($(BIN)/python -c 'from harbor_env.embedded import embedded_model; print(embedded_model(print))')
	@touch $@

.PHONY: engine
engine: $(MODEL)/config.json  ## vLLM for the CPU and SmolLM2 in float32, below .cache (needs Python 3.11, 4 GB)

.PHONY: check-logprobs
check-logprobs: engine  ## rollouts on vLLM, their log probabilities recomputed by transformers
	rm -rf $(CHECKED)
	scripts/with_engine.sh sh -c '$(BIN)/openenv-harbor rollout --llm-url $$LLM_URL --model policy \
		--tokenizer $(MODEL) -n 2 --max-calls 2 --max-output-tokens 300 --out $(CHECKED)'
	$(ENGINE)/bin/python scripts/check_logprobs.py $(CHECKED)/rows.jsonl --model $(MODEL)

.PHONY: trainer
trainer: engine  ## the engine's environment with TRL in it, to train on a CPU
	scripts/trainer_env.sh $(ENGINE)

.PHONY: learn
learn: trainer  ## a small model learns two harnesses on a CPU: teacher, SFT, RL, evaluation (hours; goes on if stopped)
	scripts/learn.sh

.PHONY: learn-smoke
learn-smoke: trainer  ## three RL steps in two harnesses, real vLLM and trainer (minutes)
	scripts/learn.sh smoke

.PHONY: slurm-try
slurm-try: $(STAMP)  ## the Slurm scripts under a real one-node Slurm (needs root, slurm-wlm, munge, npm; minutes)
	slurm/try.sh

.PHONY: check-kill
check-kill: $(STAMP)  ## kill -9 the gateway at 50 moments and look for lost turns (fetches a tokenizer: needs npm)
	$(BIN)/python scripts/kill_gateway.py --tokenizer $(QWEN3)

.PHONY: check-kill-rollouts
check-kill-rollouts: $(STAMP)  ## kill -9 every part of a serving system 100 times: each rollout must end, nothing be left
	$(BIN)/python scripts/kill_rollouts.py --tokenizer $(QWEN3)

.PHONY: bench-server
bench-server: $(STAMP)  ## 64 rollouts at once through one environment server (needs npm)
	$(BIN)/python scripts/bench_server.py --tokenizer $(QWEN3)

.PHONY: bench
bench: $(STAMP)  ## the gateway beside OpenEnv's capture proxy and a bare pass-through (minutes; needs npm)
	$(BIN)/python scripts/bench_gateway.py --tokenizer $(QWEN3)

.PHONY: bench-rows
bench-rows: $(STAMP)  ## what a trainer gets of finished rollouts, here and of OpenEnv's capture proxy: ROLLOUTS=DIR
	$(BIN)/python scripts/compare_rows.py $(or $(ROLLOUTS),.cache/learn/test/sft)

.PHONY: tasks
tasks: $(STAMP)  ## write the bundled tasks again
	$(BIN)/python scripts/make_tasks.py

.PHONY: clean
clean:  ## remove .venv, caches and what was fetched; rollouts stay
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
