"""`openenv-harbor info`: what there is to run with, here or on a server."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option


def info(
    url: Annotated[str, Option(help="Ask this environment server instead of looking here.")] = "",
    admin_key: Annotated[str, Option(help="That server's admin key.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
    llm_url: Annotated[str, Option(help="Grade this engine.")] = "",
    engine: Annotated[str, Option(help="Its kind: vllm, sglang, llamacpp, hosted.")] = "vllm",
    model: Annotated[str, Option(help="The model's name at the engine.")] = "",
    llm_api_key: Annotated[str, Option(help="Key for the engine.", envvar="OPENENV_LLM_API_KEY")] = "",
    dataset: Annotated[list[str] | None, Option(help="Datasets to look into; repeat for more.")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the engine's grade, the datasets, the harnesses, and the sandboxes with what each lacks.

    $ openenv-harbor info --llm-url http://127.0.0.1:8000 --dataset bundled --dataset ./my-tasks

    $ openenv-harbor info --url http://127.0.0.1:8000
    """
    import orjson

    document = _asked(url, admin_key) if url else _seen(llm_url, engine, model, llm_api_key, dataset or ["bundled"])
    print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() if as_json else _text(document))


def _seen(llm_url: str, engine: str, model: str, api_key: str, datasets: list[str]) -> dict[str, Any]:
    import asyncio
    import os
    from pathlib import Path

    from harbor_env import survey

    grade = asyncio.run(survey.engine_grade(engine, llm_url, model, api_key)) if llm_url else None
    return {
        "engine": grade or {"ready": False, "reason": "no --llm-url; rollouts without one use the embedded engine"},
        **survey.datasets(datasets, os.environ),
        "harnesses": survey.harnesses(),
        "sandboxes": survey.sandboxes(os.environ, Path.home()),
    }


def _asked(url: str, admin_key: str) -> dict[str, Any]:
    import urllib.error
    import urllib.request

    import orjson

    from harbor_env.errors import UsageError

    request = urllib.request.Request(f"{url.rstrip('/')}/info")
    if admin_key:
        request.add_header("Authorization", f"Bearer {admin_key}")
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            document: dict[str, Any] = orjson.loads(response.read())
    except (urllib.error.URLError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{url} cannot be asked: {error}.") from error
    return document


def _text(document: dict[str, Any]) -> str:
    engine = document["engine"]
    graded = f"{engine.get('level')}  {engine.get('model')}  window {engine.get('window')}" if engine["ready"] else ""
    lines = [f"engine     {graded or engine.get('reason', 'not reached')}", "splits"]
    lines += [f"  {name:<20} {count} tasks" for name, count in document["splits"].items()]
    lines += [f"  {spec} cannot be used: {problem}" for spec, problem in document.get("problems", {}).items()]
    lines += [f"  set {name}: {count} tasks are graded with it" for name, count in document.get("secrets", {}).items()]
    lines.append("harnesses")
    for name, facts in document["harnesses"].items():
        baked = "baked" if facts["baked"] else "not baked"
        lines.append(f"  {name:<20} {facts['version']:<12} {', '.join(facts['dialects'])}; {baked}")
    lines.append("sandboxes")
    lines += [f"  {name:<20} {lacks or 'ready'}" for name, lacks in document["sandboxes"].items()]
    if "envs" in document:
        lines.append(f"episodes   {document['running']} running, {document['envs']} at most")
    return "\n".join(lines)
