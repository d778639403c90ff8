"""From a plan and a folder to a Space on the hub.

Invariant: settings and secrets are there before the files are, so that no Space ever starts without its admin key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from harbor_env.errors import UsageError
from harbor_env.space.folder import write_folder
from harbor_env.space.plan import ADMIN_KEY, Space


class Hub(Protocol):
    """Where Spaces live. Every method raises UsageError where the hub refuses or cannot be reached."""

    def owner(self) -> str:
        """The account that is logged in."""

    def secrets(self, repo: str) -> frozenset[str]:
        """Names of a Space's secrets; none where there is no such Space."""

    def create(self, repo: str, private: bool, hardware: str) -> None:
        """Make the Space, or leave the one that is there; `hardware` "" keeps what it has."""

    def configure(self, repo: str, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None: ...

    def upload(self, repo: str, folder: Path) -> None:
        """Make the Space's files exactly those of `folder`."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """`minted` is a new admin key, "" where it was given or the Space had one."""

    space: Space
    minted: str = ""


def push(hub: Hub, space: Space, folder: Path, hardware: str = "") -> Pushed:
    """Write `folder` and make it a Space. UsageError, TaskError: nothing was uploaded."""
    if "/" not in space.repo:
        space = replace(space, repo=f"{hub.owner()}/{space.repo}")
    minted = ""
    if ADMIN_KEY not in space.secrets and ADMIN_KEY not in hub.secrets(space.repo):
        minted = secrets.token_urlsafe(32)
        space = replace(space, secrets={**space.secrets, ADMIN_KEY: minted})
    write_folder(space, folder)
    hub.create(space.repo, space.private, hardware)
    hub.configure(space.repo, space.variables, space.secrets)
    hub.upload(space.repo, folder)
    return Pushed(space, minted)


class HuggingFace:
    """The real hub, with the token of `hf auth login` or HF_TOKEN. UsageError: there is none."""

    def __init__(self) -> None:
        from huggingface_hub import HfApi, get_token

        token = get_token()
        if not token:
            raise UsageError(
                "There is no Hugging Face token: run `hf auth login` or set HF_TOKEN to one that may write;"
                " --dry-run DIR writes the folder without."
            )
        self._api: Any = HfApi(token=token, library_name="openenv-harbor")

    def owner(self) -> str:
        with _told("asked who is logged in"):
            return str(self._api.whoami()["name"])

    def secrets(self, repo: str) -> frozenset[str]:
        with _told(f"asked for the Space {repo}"):
            if not self._api.repo_exists(repo, repo_type="space"):
                return frozenset()
            return frozenset(self._api.get_space_secrets(repo))

    def create(self, repo: str, private: bool, hardware: str) -> None:
        with _told(f"asked to make the Space {repo}"):
            self._api.create_repo(repo, repo_type="space", space_sdk="docker", private=private, exist_ok=True)
            if hardware:
                self._api.request_space_hardware(repo, hardware)

    def configure(self, repo: str, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        with _told(f"given the settings of {repo}"):
            for name, value in variables.items():
                self._api.add_space_variable(repo, name, value)
            for name, value in secrets.items():
                self._api.add_space_secret(repo, name, value)

    def upload(self, repo: str, folder: Path) -> None:
        with _told(f"given the files of {repo}"):
            self._api.upload_folder(
                repo_id=repo,
                repo_type="space",
                folder_path=folder,
                delete_patterns="*",
                commit_message="Serve this environment with openenv-harbor",
            )


@contextmanager
def _told(asked: str) -> Iterator[None]:
    """What the hub refuses, in one sentence."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        yield
    except HfHubHTTPError as error:
        reason = error.server_message or str(error).splitlines()[0]
        raise UsageError(f"The hub refused when {asked}: {reason}") from error
    except HFValidationError as error:
        raise UsageError(f"The hub refused when {asked}: {error}") from error
    except (httpx.HTTPError, OfflineModeIsEnabled, OSError) as error:
        raise UsageError(f"The hub could not be reached when {asked}: {error}") from error
