"""From an action and a task to what a worker is told to run."""

from __future__ import annotations

from dataclasses import replace

from harbor_env.models import HarborAction
from harbor_env.rollout import GatewayAddress, RolloutSpec
from harbor_env.server.remains import ROLLOUTS
from harbor_env.server.settings import ServerConfig
from harbor_env.server.worker import Run
from harbor_env.tasks import Task

NOWHERE = GatewayAddress("")


def make_order(
    config: ServerConfig, action: HarborAction, task: Task, name: str, gateway: GatewayAddress = NOWHERE
) -> Run:
    """`name` is the rollout's id and its file name, so never one a client chose."""
    engine = action.engine
    if engine is not None:
        gateway = replace(gateway, model=engine.model or gateway.model, window=0, level="", tito="")
    session = {"history": action.history, "template_kwargs": action.template_kwargs}
    spec = RolloutSpec(
        name=name,
        task=task.path,
        harness=action.harness,
        gateway=gateway,
        out=(config.data / ROLLOUTS).absolute(),
        sandbox=action.sandbox,
        sampling=action.sampling.model_dump(exclude_none=True),
        budget=action.budgets.model_dump(exclude_none=True),
        purpose=action.purpose,
        session={**session, "engine": engine.model_dump()} if engine else session,
        agent_timeout=action.agent_timeout,
        agent_kwargs=action.agent_kwargs,
        reward_key=action.reward_key,
        warm=config.warm or action.warm,
    )
    return Run(spec, bake=action.sandbox == "local", keep=config.keep_logs)
