"""Harbor's environment on this machine's own namespaces: no Docker, no image pull, no daemon.

Invariant: what Harbor is told that is enforced (networks, limits) is enforced, and what is not is in `notes`.
Namespaces share the kernel with the host: they keep a program that errs in its place, not one that attacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode

from harbor_env.errors import SandboxError, TaskError
from harbor_env.sandboxes import transfer
from harbor_env.sandboxes.build import Built, build
from harbor_env.sandboxes.cgroups import find_hierarchy
from harbor_env.sandboxes.fork_server import WarmStart
from harbor_env.sandboxes.layers import open_layer
from harbor_env.sandboxes.limits import Limits, enforce
from harbor_env.sandboxes.network import Forwarder, check_allowlist, parse_address
from harbor_env.sandboxes.places import places
from harbor_env.sandboxes.preflight import obstacle
from harbor_env.sandboxes.sandbox import OUTPUT_LIMIT, Bind, Command, Root, Sandbox
from harbor_env.sandboxes.warm import Warming

_said: set[str] = set()


class LocalEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A Harbor environment in namespaces of this machine.

    `gateway` is what an allowlist lets through; `layers` are folders of baked layers, lowest first; `bases` maps images
    to root folders ("*" for all), the host's own programs by default. `max_processes` and `output_limit` (bytes per
    stream of a command) always hold. `warm`, the fields of a `WarmStart`, has the layers' harness start as a fork.
    """

    def __init__(
        self,
        *args: Any,
        gateway: str | None = None,
        layers: Sequence[str | Path] = (),
        bases: Mapping[str, str] | None = None,
        cache: str | None = None,
        max_processes: int = 2048,
        output_limit: int = OUTPUT_LIMIT,
        warm: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.gateway = parse_address(gateway) if gateway else None
        self._layers = tuple(open_layer(layer).files for layer in layers)
        self._bases = dict(bases or {})
        self._cache = cache
        self._max_processes = max_processes
        self._output_limit = output_limit
        self._warming = Warming(WarmStart(**warm)) if warm else None
        self._sandbox: Sandbox | None = None
        self._forwarder = Forwarder(self.gateway) if self.gateway else None
        self._built: Built | None = None
        self._isolated = True
        self.notes: tuple[str, ...] = ()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "local"

    @classmethod
    def preflight(cls) -> None:
        why = obstacle()
        if why:
            raise SystemExit(f"The local sandbox cannot run here: {why}")

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Hard limits are promised only where cgroups keep them."""
        kept = not isinstance(find_hierarchy(), str)
        return EnvironmentResourceCapabilities(cpu_limit=kept, memory_limit=kept, fractional_cpus=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            dynamic_network_policy=True,
        )

    def validate_network_policy_support(self, network_policy: NetworkPolicy | None = None) -> None:
        super().validate_network_policy_support(network_policy)
        policy = network_policy or self._network_policy
        if policy.network_mode == NetworkMode.ALLOWLIST:
            check_allowlist(list(policy.allowed_hosts), self.gateway)

    def _validate_definition(self) -> None:
        folder = self.environment_dir
        if any((folder / name).exists() for name in ("docker-compose.yaml", "docker-compose.yml")):
            raise TaskError(f"{folder} needs Docker Compose, which the local sandbox has not; use --sandbox docker")
        if not (folder / "Dockerfile").is_file() and not self.task_env_config.docker_image:
            raise TaskError(f"{folder} has no Dockerfile and the task names no docker_image; add one of the two")

    async def start(self, force_build: bool) -> None:
        where = places(self._cache)
        await asyncio.to_thread(where.make)
        image = self.task_env_config.docker_image or ""
        built = await build(where, self.environment_dir, self._bases, image=image, fresh=force_build)
        self._built = built
        hosts = ((await self.gateway.resolve(), self.gateway.host),) if self.gateway else ()
        name = self.environment_name[:63] or "sandbox"
        warming = self._warming
        if warming is not None:
            await warming.prepare(where, built.base, self._layers)
        layers = (*self._layers, *(warming.layers if warming else ()), *built.layers)
        root = Root(built.base, layers, self._binds(), name, hosts)
        user = warming.user if warming else None
        self._sandbox = await Sandbox.start(where, root, limits=enforce(self._limits()), user=user)
        if warming is not None:
            await warming.attach(self._sandbox)
        self._say((*built.notes, *self._sandbox.notes, *self._unenforced()))
        await self._apply_network_policy(self._network_policy)
        await self._make_folders()
        await self._upload_environment_dir_after_start()

    def _limits(self) -> Limits:
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        return Limits(memory * 2**20 if memory else None, cpus or None, self._max_processes)

    def _unenforced(self) -> tuple[str, ...]:
        return ("storage_mb is not enforced",) if self._effective_storage_mb else ()

    def _binds(self) -> tuple[Bind, ...]:
        binds = []
        for mount in self._host_mounts:
            if mount["type"] != "bind":
                raise SandboxError(f"the local sandbox binds folders; it has no {mount['type']} mounts")
            binds.append(Bind(mount["source"], mount["target"], bool(mount.get("read_only"))))
        return tuple(binds)

    def _say(self, notes: Sequence[str]) -> None:
        """Keep notes as data, and log each once per process."""
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))
        for note in self.notes:
            if note not in _said:
                _said.add(note)
                self.logger.warning("local sandbox: %s", note)

    async def _make_folders(self) -> None:
        """Harbor's log folders, writable by any user, and the task's working folder."""
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        if self.task_env_config.workdir:
            await self.ensure_dirs([self.task_env_config.workdir], chmod=False)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Commands started from now on see `network_policy`; those running keep their network, less the gateway."""
        self._isolated = network_policy.network_mode != NetworkMode.PUBLIC
        if self._forwarder is None:
            return
        if network_policy.network_mode == NetworkMode.ALLOWLIST and network_policy.allowed_hosts:
            await self._forwarder.open(self.sandbox.control)
        else:
            await self._forwarder.close()

    @property
    def cold(self) -> str:
        """Why the harness was not started warm although that was wanted; known once the sandbox has ended."""
        return self._warming.cold if self._warming else ""

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError("the sandbox has not been started")
        return self._sandbox

    async def stop(self, delete: bool) -> None:
        """Ends everything inside; a sandbox is never kept, whatever `delete` says."""
        if self._forwarder is not None:
            await self._forwarder.close()
        if self._sandbox is not None:
            await self._sandbox.stop()
            if self._warming is not None:
                self._warming.finish(self._sandbox)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        built = self._built
        if built is None:
            raise SandboxError("the sandbox has not been started")
        chosen = self._resolve_user(user)
        request = Command(
            ("bash", "-c", command),
            {"PATH": built.base.path, **built.env, **(self._merge_env(env) or {})},
            cwd=cwd or self.task_env_config.workdir or built.workdir,
            user=chosen if chosen is not None else built.user or None,
            isolated=self._isolated,
        )
        try:
            done = await self.sandbox.run(
                request, timeout=timeout_sec, on_output=self._output_callback(), output_limit=self._output_limit
            )
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from error
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await transfer.upload_file(self.sandbox, Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await transfer.upload_dir(self.sandbox, Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await transfer.download_file(self.sandbox, source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        left_out = await transfer.download_dir(self.sandbox, source_dir, Path(target_dir))
        for what in left_out:
            self.logger.warning("not copied from %s: %s", source_dir, what)
