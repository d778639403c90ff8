"""The flags of `rollout` as one value: checked before anything starts, then turned into rollouts and settings."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from harbor_env.agent_kwargs import AgentKwargs, kwargs_of, read_agent_kwargs
from harbor_env.batch import Job, Rotation
from harbor_env.batch_folder import Settings
from harbor_env.config import check_url
from harbor_env.errors import UsageError
from harbor_env.exposing import find_exposer
from harbor_env.harnesses import find
from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.sandboxes.backends import check_ready
from harbor_env.serving_gateway import EngineFlags
from harbor_env.tasks import Task


@dataclass(frozen=True)
class Order:
    """The flags of one command. Zeros among limits mean none; times are in seconds."""

    engine: EngineFlags
    harnesses: tuple[str, ...]
    out: Path
    rotate: Rotation = "task"
    dataset: str = "bundled"
    split: str = ""
    tasks: tuple[str, ...] = ()
    first: int = 0
    count: int = 1
    attempts: int = 1
    sandbox: str = "local"
    warm: bool = False
    agent_kwargs: Path | None = None
    expose: str = ""
    concurrency: int = 1
    retries: int = 0
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_calls: int = 0
    max_output_tokens: int = 0
    max_reply_tokens: int = 0
    max_seconds: float = 0
    agent_timeout: float = 0
    timeout: float = 0
    wait_for_engine: float = 0
    reward_key: str = ""
    purpose: str = "train"
    resume: bool = True
    resume_anyway: bool = False
    as_json: bool = False
    again: str = ""

    def check(self) -> None:
        """UsageError for what cannot be run, as far as it can be told without starting anything."""
        if self.purpose not in ("train", "eval"):
            raise UsageError(f"--purpose is train or eval, not {self.purpose!r}.")
        if self.rotate not in get_args(Rotation):
            raise UsageError(f"--rotate is one of {', '.join(get_args(Rotation))}; not {self.rotate!r}.")
        if self.temperature is not None and not math.isfinite(self.temperature):
            raise UsageError(f"--temperature is a number, 1 for the model's own distribution; not {self.temperature}.")
        if not self.harnesses:
            raise UsageError("--harness names at least one harness, for example mini-swe-agent.")
        for name in (*self.harnesses, *self.agents):
            find(name)
        if self.warm and self.sandbox != "local":
            raise UsageError(f"--warm is for the local sandbox; leave it out for {self.sandbox}.")
        if self.expose:
            find_exposer(self.expose)
        check_ready(self.sandbox, os.environ, Path.home())
        for flag, url in (("--llm-url", self.engine.llm_url), ("--gateway", self.engine.gateway)):
            if url:
                check_url(flag, url)

    @cached_property
    def agents(self) -> AgentKwargs:
        """What harnesses' adapters are given; a file may name more of them than run. UsageError: it cannot be read."""
        return read_agent_kwargs(self.agent_kwargs) if self.agent_kwargs else {}

    @property
    def sampling(self) -> dict[str, Any]:
        """What is pinned in every session, but for the seed, which is the attempt's. In training, temperature is 1
        where none is given; in evaluation what is not given is the harness's own.
        """
        temperature = 1.0 if self.temperature is None and self.purpose == "train" else self.temperature
        values = {"temperature": temperature, "top_p": self.top_p, "max_tokens": self.max_reply_tokens or None}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def budget(self) -> dict[str, float]:
        limits = {
            "max_calls": self.max_calls,
            "max_output_tokens": self.max_output_tokens,
            "max_seconds": self.max_seconds,
        }
        return {name: limit for name, limit in limits.items() if limit}

    def spec(
        self,
        job: Job,
        task: Task,
        address: GatewayAddress,
        out: Path,
        layers: Mapping[str, tuple[Path, ...]],
    ) -> RolloutSpec:
        """One rollout. Its seed is --seed plus the number of the attempt, the same for every task and every try."""
        purpose: Literal["train", "eval"] = "eval" if self.purpose == "eval" else "train"
        seed = {} if self.seed is None else {"seed": self.seed + job.attempt}
        return RolloutSpec(
            name=job.name,
            task=job.task,
            harness=job.harness,
            gateway=address,
            out=out,
            sandbox=self.sandbox,
            warm=self.warm,
            agent_kwargs=kwargs_of(job.harness, self.agents),
            layers=layers[job.harness],
            sampling={**self.sampling, **seed},
            budget=self.budget,
            purpose=purpose,
            agent_timeout=self.agent_timeout or None,
            timeout=self.timeout or task.time_limit(self.agent_timeout),
            reward_key=self.reward_key,
        )

    def settings(self, revision: str, address: GatewayAddress | None = None) -> Settings:
        """What makes results comparable, by flag. What only the engine knows is None before there is an address."""
        engine = self.engine
        kind = "" if engine.gateway else engine.engine or ("vllm" if engine.llm_url else "llamacpp")
        folder = Path(self.dataset).expanduser()
        return {
            "engine": kind or None,
            "model": address.model if address else None,
            "level": (address.level or None) if address else None,
            "tokenizer": engine.tokenizer,
            "renderer": engine.renderer,
            "dataset": str(folder.resolve()) if folder.is_dir() else self.dataset,
            "revision": revision or None,
            "split": self.split,
            "harness": list(self.harnesses),
            "rotate": self.rotate,
            "agent_kwargs": json.dumps(self.agents, sort_keys=True) if self.agents else "",
            "sandbox": self.sandbox,
            "temperature": self.sampling.get("temperature", ""),
            "top_p": self.sampling.get("top_p", ""),
            "seed": "" if self.seed is None else self.seed,
            "max_calls": self.max_calls,
            "max_output_tokens": self.max_output_tokens,
            "max_reply_tokens": self.max_reply_tokens,
            "max_seconds": self.max_seconds,
            "agent_timeout": self.agent_timeout,
            "reward_key": self.reward_key,
            "purpose": self.purpose,
        }
