"""The folder of a Space: the installed package as it is, a Dockerfile, a README and the datasets that travel along.

Invariant: everything in it may be read by everybody. It is an OpenEnv environment itself: `openenv validate` passes.
"""

from __future__ import annotations

import json
import os
import shutil
from fnmatch import fnmatch
from pathlib import Path

import harbor_env
from harbor_env.errors import TaskError, UsageError
from harbor_env.server.catalog import Catalog
from harbor_env.space.plan import ADMIN_KEY, BESIDE, PORT, Space

PACKAGE = Path(harbor_env.__file__).parent
NEEDED = ("pyproject.toml", "uv.lock", "openenv.yaml", "server/Dockerfile")
EXTRAS_LINE = "ARG EXTRAS="
LEFT_OUT = ("__pycache__", "*.pyc", ".*_cache", ".git", ".venv", ".env", ".env.*", "*-data", "*.egg-info", BESIDE)
LEFT_OUT_OF_DATASETS = ("__pycache__", ".git", ".env", ".env.*")


def write_folder(space: Space, folder: Path, package: Path = PACKAGE) -> None:
    """Write the folder, which must be new or empty. UsageError, TaskError: it cannot be written as it has to be."""
    lacking = [name for name in NEEDED if not (package / name).is_file()]
    if lacking:
        raise UsageError(f"This installation lacks {', '.join(lacking)}: install openenv-harbor-env from its wheel.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: give a folder that is new or empty.")
    if space.datasets:
        _ = Catalog([str(source) for source in space.datasets.values()]).splits
    for source in space.datasets.values():
        _refuse_links_out(source)
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    for name, source in space.datasets.items():
        shutil.copytree(source, folder / BESIDE / name, ignore=shutil.ignore_patterns(*LEFT_OUT_OF_DATASETS))
    (folder / "Dockerfile").write_text(_dockerfile(package, space.extras))
    (folder / "README.md").write_text(readme(space))


def readme(space: Space) -> str:
    """What the Space's page says; the front matter is what the hub builds it from."""
    front = {
        "title": space.title,
        "emoji": "⚓",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "docker",
        "app_port": PORT,
        "pinned": False,
        "license": "apache-2.0",
        "tags": ["openenv", "harbor"],
    }
    header = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items())
    variables = "\n".join(f"- `{name}` = `{value}`" for name, value in space.variables.items()) or "- none"
    names = sorted({ADMIN_KEY, *space.secrets})
    secrets = "\n".join(f"- `{name}`" for name in names)
    return _PAGE.format(
        header=header, title=space.title, repo=space.repo, url=space.url, variables=variables, secrets=secrets
    )


def _dockerfile(package: Path, extras: tuple[str, ...]) -> str:
    text = (package / "server" / "Dockerfile").read_text()
    flags = " ".join(f"--extra {name}" for name in extras)
    lines = [f'{EXTRAS_LINE}"{flags}"' if line.startswith(EXTRAS_LINE) else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _refuse_links_out(dataset: Path) -> None:
    """A link that leads out of the dataset would publish what is none of it."""
    for folder, folders, files in os.walk(dataset):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink() and not path.resolve().is_relative_to(dataset.resolve()):
                raise TaskError(f"{path} links out of its dataset, to {path.resolve()}: a Space would publish that.")


def left_out(dataset: Path) -> list[str]:
    """Files of a dataset that do not travel, as paths below it."""
    found = (path for path in dataset.rglob("*") if any(fnmatch(path.name, kind) for kind in LEFT_OUT_OF_DATASETS))
    return sorted(str(path.relative_to(dataset)) for path in found)


_PAGE = """---
{header}
---

# {title}

An [OpenEnv](https://github.com/meta-pytorch/OpenEnv) environment: Harbor tasks, unmodified coding agents, and the ids
and log probabilities of every token they were served. `reset` picks a task, `step` runs one agent on it.

```sh
pip install git+https://huggingface.co/spaces/{repo}   # this Space is the package, client included
```

```python
from harbor_env.client import HarborEnv
from harbor_env.models import HarborAction

with HarborEnv("{url}", admin_key=KEY).sync() as env:
    env.reset(seed=7)
    step = env.step(HarborAction(harness="mini-swe-agent", sandbox="e2b"))
```

Everything but `/health` and what describes the environment needs the admin key. The `local` sandbox needs
namespaces, which a Space's container is not given: choose a cloud sandbox, whose key is a secret of this Space.

Its variables, to be changed in the settings of the Space:

{variables}

Its secrets, whose values only the server sees:

{secrets}
"""
