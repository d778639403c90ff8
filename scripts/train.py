"""Trains a model inside coding agents with TRL's AsyncGRPO, from one YAML file.

    scripts/train.py train.yaml [training.max_steps=3 harnesses='[pi]' ...] [--resume]

Needs an environment with TRL (scripts/trainer_env.sh makes one), an engine and an environment server that answer:

    scripts/serve_vllm.sh MODEL 8000 --enable-lora --max-lora-rank 16 --max-loras 8
    openenv-harbor serve --llm-url http://127.0.0.1:8000 --model policy --tokenizer MODEL --dataset TASKS --port 8001

With `lora` and an engine started with --enable-lora, adapters travel as folders; with `weight_folder`, whole weights as
files; else weights travel over NCCL. What is logged goes to OUTPUT/log.jsonl, every rollout to OUTPUT/rollouts.jsonl,
checkpoints to OUTPUT/checkpoint-N. What was logged there and is not gone on from is put aside, as OUTPUT/log.jsonl.N.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from harbor_env.errors import UsageError
from harbor_env.models import EngineChoice
from trl_integration.config import TrainConfig, identity, load
from trl_integration.cpu import run_without_gpu
from trl_integration.engine_state import renew
from trl_integration.line_files import append_lines
from trl_integration.output_folder import LOG, ROLLOUTS, begin, checkpoints, held, keep_settings, refuse_other_settings
from trl_integration.preparation import (
    adapter,
    chosen_reward,
    given_agents,
    made,
    policy_sampling,
    refuse_unheeded,
    refuse_unknown,
    refuse_wrong_action,
    shared_tasks,
)
from trl_integration.rotation import Shuffled, rotation
from trl_integration.sessions import RotatingSessionFactory


class LogFile(TrainerCallback):  # type: ignore[misc]
    """Appends what the trainer logs, a JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        append_lines(self._path, [{"step": state.global_step, **(logs or {})}])


def build(config: TrainConfig) -> Any:
    """The trainer, with its worker; nothing has started yet. UsageError: something is missing or means nothing."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig

    from trl_integration.trainer import HarborGRPOTrainer
    from trl_integration.weight_files import WeightFiles
    from trl_integration.worker import HarborRolloutWorker

    on_cpu = run_without_gpu()
    admin_key = os.environ.get(config.admin_key_env, "") if config.admin_key_env else ""
    reward, agents = chosen_reward(config), given_agents(config)
    refuse_unknown("training", config.training, AsyncGRPOConfig)
    refuse_unknown("lora", config.lora or {}, LoraConfig)
    refuse_wrong_action(config)
    plain = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False} if on_cpu else {}
    args = made(
        "training",
        AsyncGRPOConfig,
        output_dir=config.output_dir,
        vllm_server_base_url=config.engine_url,
        logging_steps=1,
        seed=config.seed,
        **{"report_to": [], **plain, **config.training},
    )
    refuse_unheeded(args)
    lora = adapter(LoraConfig, config.lora) if config.lora is not None else None
    tasks = asyncio.run(shared_tasks(config.servers, config.split, admin_key))
    turns = rotation(config.harnesses, tasks=tasks, seed=config.seed)
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.model)
    except (OSError, ValueError) as error:
        raise UsageError(f"model: {error}") from error
    if getattr(tokenizer, "response_template", None) is None:
        tokenizer.response_template = {}  # TRL would look one up for the replies it parses; here it parses none
    # A rollout's task follows from its group's number; the prompt is the harness's own.
    prompts = Dataset.from_dict({"prompt": [[{"role": "user", "content": "A task of the server's."}]] * tasks})
    factory = partial(
        RotatingSessionFactory,
        list(config.servers),
        rotation=turns,
        order=Shuffled(tasks, config.seed) if config.shuffle else None,
        reward=reward,
        retries=config.retries,
        engine=EngineChoice(kind=config.engine, url=config.engine_url, model=config.served_model),
        split=config.split,
        sandbox=config.sandbox,
        admin_key=admin_key,
        budgets=dict(config.budgets),
        agent_kwargs=agents,
        # A worker that waits for a server tells no heartbeat at its end, and its failure would go unheard.
        **{"patience": args.heartbeat_stale_after_s / 2, **config.action},
    )
    worker = HarborRolloutWorker(
        harness_session_factory=factory,
        stop_after=config.stop_after,
        stop_after_groups=config.stop_after_groups,
        drop_without_contrast=config.drop_without_contrast,
        records=str(Path(config.output_dir) / ROLLOUTS),
        model_name=config.served_model,
        dataset=prompts,
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        num_generations=args.num_generations,
        max_inflight_tasks=args.max_inflight_tasks if args.max_inflight_tasks > 0 else 2 * args.num_generations,
        queue_maxsize=args.queue_maxsize,
        vllm_server_url=config.engine_url,
        max_tokens=args.max_completion_length,
        **policy_sampling(args),
    )
    weights = WeightFiles(config.engine_url, Path(config.weight_folder)) if config.weight_folder else None
    trainer = HarborGRPOTrainer(
        model=config.model,
        args=args,
        train_dataset=prompts,
        processing_class=tokenizer,
        rollout_worker=worker,
        harnesses=turns.harnesses,
        weight_transfer=weights,
        callbacks=[LogFile(Path(config.output_dir) / LOG)],
        peft_config=lora,
    )
    # Whether adapters travel or merged weights, the trainer has decided by what the engine and the adapter are.
    worker.ask_for_adapters(trainer._lora_name if trainer._lora_sync else None)
    if weights is not None:
        weights.next_version = lambda: trainer.model_version + 1
    return trainer


def free_engine(trainer: Any) -> None:
    """Unload the adapters an earlier run left there: the engine loads no version twice."""
    if trainer._lora_sync and trainer.accelerator.is_main_process:
        renew(trainer.args.vllm_server_base_url.rstrip("/"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    args = parser.parse_intermixed_args()
    try:
        config = load(args.config, args.settings)
    except (ValueError, OSError) as error:
        sys.exit(f"train.py: {error}")
    output = Path(config.output_dir)
    try:
        # Of several processes the first one writes.
        with held(output) if os.environ.get("RANK", "0") == "0" else nullcontext():
            checkpoint = place(output, config, args.resume)
            trainer = build(config)
            free_engine(trainer)
            trainer.train(resume_from_checkpoint=checkpoint)
    except (UsageError, TimeoutError) as error:  # the latter is an engine that does not answer
        sys.exit(f"train.py: {error}")


def place(output: Path, config: TrainConfig, resume: bool) -> str | None:
    """The checkpoint to go on from."""
    if os.environ.get("RANK", "0") == "0":
        settings = identity(config)
        if resume:
            refuse_other_settings(output, settings)
        checkpoint = begin(output, resume=resume)
        keep_settings(output, settings)
        return checkpoint
    return str(checkpoints(output)[-1]) if resume else None


if __name__ == "__main__":
    # As Ctrl-C does it: the trainer ends its worker on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main()
