"""`openenv-harbor rollout`: coding agents on tasks, to rewards and traces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from harbor_env.cli.engine_options import Engine, LlmApiKey, LlmUrl, Model, Renderer, Tokenizer, Window


def rollout(
    llm_url: LlmUrl = "",
    engine: Engine = "",
    model: Model = "",
    llm_api_key: LlmApiKey = "",
    tokenizer: Tokenizer = "",
    renderer: Renderer = "",
    window: Window = 0,
    gateway: Annotated[str, Option(help="URL of a running gateway, instead of starting one.")] = "",
    admin_key: Annotated[str, Option(help="That gateway's admin key.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
    dataset: Annotated[
        str, Option(help="bundled, a folder of Harbor tasks, one task's folder, or a git repository.")
    ] = "bundled",
    split: Annotated[str, Option(help="Split of the dataset: bundled has train (the default) and heldout.")] = "",
    task: Annotated[list[str] | None, Option(help="Task by name; repeat for more.")] = None,
    task_index: Annotated[int, Option(help="First task, counted from 0.", min=0)] = 0,
    n_tasks: Annotated[int, Option("-n", "--n-tasks", help="Tasks from there on.", min=1)] = 1,
    attempts: Annotated[int, Option(help="Rollouts of each task: the group one compares.", min=1)] = 1,
    harness: Annotated[str, Option(help="NAME or module:Name; several by commas share the tasks.")] = "mini-swe-agent",
    rotate: Annotated[
        str, Option(help="Harnesses change by task or by attempt, or every harness gets every task.")
    ] = "task",
    sandbox: Annotated[str, Option(help="local, or any backend of Harbor's: docker, e2b, daytona, modal.")] = "local",
    agent_kwargs: Annotated[
        Path | None, Option(help="YAML file: per harness, what its Harbor adapter is given; see docs.")
    ] = None,
    warm: Annotated[bool, Option("--warm", help="Fork Python harnesses in the local sandbox; see docs.")] = False,
    expose: Annotated[
        str, Option(help="How a sandbox elsewhere reaches the gateway: cloudflared, gradio or module:Name.")
    ] = "",
    concurrency: Annotated[int, Option(help="Rollouts at a time.", min=1)] = 1,
    retries: Annotated[int, Option(help="Further tries after a failure of sandbox, engine or capture.", min=0)] = 1,
    temperature: Annotated[
        float | None, Option(help="Sampling temperature of every turn. Default: 1 to train.", min=0)
    ] = None,
    top_p: Annotated[float | None, Option(help="Nucleus of the distribution.", min=0.001, max=1)] = None,
    seed: Annotated[int | None, Option(help="Seed of sampling; attempts of a task get consecutive ones.")] = None,
    max_calls: Annotated[int, Option(help="Model calls per rollout; 0: no limit.", min=0)] = 0,
    max_output_tokens: Annotated[int, Option(help="Sampled tokens per rollout; 0: no limit.", min=0)] = 0,
    max_reply_tokens: Annotated[int, Option(help="Sampled tokens per reply; 0: as the harness asks.", min=0)] = 0,
    max_seconds: Annotated[float, Option(help="Seconds from first to last call; 0: no limit.", min=0)] = 0,
    agent_timeout: Annotated[float, Option(help="Seconds for the harness; 0: as the task says.", min=0)] = 0,
    timeout: Annotated[float, Option(help="Seconds for all of a rollout; 0: the task's limits and 30 min.", min=0)] = 0,
    wait_for_engine: Annotated[float, Option(help="Seconds to wait for an engine that is not up yet.", min=0)] = 0,
    reward_key: Annotated[str, Option(help="Which number to take where the verifier writes several.")] = "",
    purpose: Annotated[
        str, Option(help="train pins the sampling distribution; eval lets the harness choose.")
    ] = "train",
    out: Annotated[Path | None, Option(help="Folder for results and traces. Default: rollouts/DATE-TIME.")] = None,
    resume: Annotated[bool, Option(help="Skip what an earlier run settled in --out.")] = True,
    resume_anyway: Annotated[bool, Option("--resume-anyway", help="Even where --out holds other settings.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON line per rollout, nothing else, on stdout.")] = False,
) -> None:
    """Run coding agents on tasks; each rollout leaves a reward and a trace, or the reason why there is none.

    The embedded engine, two bundled tasks; needs no GPU, key or Docker:

    $ openenv-harbor rollout -n 2

    Two harnesses on a vLLM server, four rollouts at a time:

    $ openenv-harbor rollout --llm-url http://127.0.0.1:8000 --model Qwen/Qwen3-8B --harness mini-swe-agent,claude-code
      -n 4 --attempts 2 --concurrency 4 --out my-rollouts

    A policy written in Python, for tests:

    $ openenv-harbor rollout --engine scripted:my_policies:solve --tokenizer Qwen/Qwen3-8B

    Run it again with the same --out to go on where it was interrupted. Ctrl-C ends what runs and keeps the rest.

    Exit status: 0 the batch ended (failed rollouts are data), 2 a flag or file is wrong, 3 no rollout could be
    scored, 130 interrupted.
    """
    import sys

    from harbor_env.cli.again import again
    from harbor_env.cli.interrupting import INTERRUPTED
    from harbor_env.cli.order import Order
    from harbor_env.cli.run import default_out, run
    from harbor_env.keys import forget_keys
    from harbor_env.serving_gateway import EngineFlags

    out = default_out(out)
    keys = {"OPENENV_LLM_API_KEY": llm_api_key, "OPENENV_HARBOR_ADMIN_KEY": admin_key}
    order = Order(
        engine=EngineFlags(llm_url, engine, model, llm_api_key, tokenizer, renderer, window, gateway, admin_key),
        dataset=dataset,
        split=split,
        tasks=tuple(task or ()),
        first=task_index,
        count=n_tasks,
        attempts=attempts,
        harnesses=tuple(name.strip() for name in harness.split(",") if name.strip()),
        rotate=rotate,  # type: ignore[arg-type]  # checked with the rest
        sandbox=sandbox,
        warm=warm,
        agent_kwargs=agent_kwargs,
        expose=expose,
        concurrency=concurrency,
        retries=retries,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        max_calls=max_calls,
        max_output_tokens=max_output_tokens,
        max_reply_tokens=max_reply_tokens,
        max_seconds=max_seconds,
        agent_timeout=agent_timeout,
        timeout=timeout,
        wait_for_engine=wait_for_engine,
        reward_key=reward_key,
        purpose=purpose,
        out=out,
        resume=resume,
        resume_anyway=resume_anyway,
        as_json=as_json,
        again=again(sys.argv, out, [name for name, key in keys.items() if key]),
    )
    forget_keys()  # this very process runs harnesses and verifiers
    try:
        status = asyncio.run(run(order))
    except asyncio.CancelledError:
        status = INTERRUPTED
    raise Exit(status)
