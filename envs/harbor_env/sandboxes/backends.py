"""Facts about Harbor's backends: what each cannot do without, where to get it, and how fast it lets sandboxes be made.

One line per backend. Reads nothing but PATH, installed packages, variables and a few files; imports no Harbor.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from urllib.parse import urlsplit

from harbor_env.config import is_loopback
from harbor_env.errors import UsageError
from harbor_env.lookup import import_object
from harbor_env.sandboxes import LOCAL, backend_of
from harbor_env.sandboxes.pace import StartRate, with_limits


@dataclass(frozen=True, slots=True)
class Backend:
    """What a backend needs: Harbor's `extra`, `programs` on PATH, and one of the sets of variables in `keys`.

    `files`, absolute or below the home folder, do as well as variables; `elsewhere` says that a key may also lie where
    only the backend's own client looks. `get` says how to come by one. `here` says that its sandboxes reach this
    machine's loopback address.
    """

    extra: str = ""
    programs: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    get: str = ""
    elsewhere: bool = False
    here: bool = False
    pace: StartRate = field(default_factory=StartRate)


_CPUS = StartRate(per_second=0, starting=0)

BACKENDS: Mapping[str, Backend] = {
    "local": Backend(here=True, pace=_CPUS),
    "docker": Backend(
        programs=("docker",),
        keys=(("DOCKER_HOST",),),
        files=("/var/run/docker.sock", ".docker/run/docker.sock"),
        elsewhere=True,
        get="install Docker and start its daemon",
        pace=_CPUS,
    ),
    "podman": Backend(programs=("podman",), get="install podman and a compose frontend", pace=_CPUS),
    "kata": Backend(programs=("docker",), files=("/dev/kvm",), get="install Docker with a Kata runtime", pace=_CPUS),
    "singularity": Backend(programs=("singularity",), get="install Singularity or Apptainer", here=True, pace=_CPUS),
    "apple-container": Backend(programs=("container",), get="install Apple's container on a Mac", pace=_CPUS),
    "smol": Backend("smol", get="needs hardware virtualization on this machine", pace=_CPUS),
    "ack": Backend(programs=("kubectl",), files=(".kube/config",), get="set up kubectl for the cluster"),
    "beam": Backend("beam", elsewhere=True, keys=(("BEAM_TOKEN",),), files=(".beam/config.ini",), get="beam login"),
    "blaxel": Backend(
        "blaxel", elsewhere=True, keys=(("BL_WORKSPACE", "BL_API_KEY"),), files=(".blaxel/config.yaml",), get="bl login"
    ),
    "cua-cloud": Backend("cua", keys=(("CUA_CLIENT_ID", "CUA_CLIENT_SECRET"),), get="a Cua Cloud account"),
    "cwsandbox": Backend(
        "cwsandbox", elsewhere=True, keys=(("CWSANDBOX_API_KEY",), ("WANDB_API_KEY",)), get="CoreWeave Sandbox"
    ),
    "daytona": Backend(
        "daytona",
        keys=(("DAYTONA_API_KEY",), ("DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID")),
        get="https://app.daytona.io",
    ),
    "e2b": Backend("e2b", keys=(("E2B_API_KEY",),), get="https://e2b.dev", pace=StartRate(per_second=1, running=20)),
    "ec2": Backend(
        "ec2",
        elsewhere=True,
        programs=("ssh",),
        files=(".aws/credentials",),
        keys=(("AWS_ACCESS_KEY_ID",), ("AWS_PROFILE",)),
    ),
    "gke": Backend(
        "gke", programs=("gcloud",), files=(".kube/config",), keys=(("KUBECONFIG",),), get="gcloud container"
    ),
    "hf-sandbox": Backend(
        "hf-sandbox", elsewhere=True, keys=(("HF_TOKEN",),), files=(".cache/huggingface/token",), get="hf auth login"
    ),
    "hyperbrowser": Backend("hyperbrowser", keys=(("HYPERBROWSER_API_KEY",),), get="https://hyperbrowser.ai"),
    "islo": Backend("islo", keys=(("ISLO_API_KEY",),), get="https://islo.dev"),
    "kernel": Backend("kernel", keys=(("KERNEL_API_KEY",),), get="https://onkernel.com"),
    "langsmith": Backend(
        "langsmith",
        keys=(("LANGSMITH_API_KEY",), ("LANGCHAIN_API_KEY",), ("LANGSMITH_PROFILE",)),
        get="https://smith.langchain.com",
    ),
    "modal": Backend(
        "modal",
        keys=(("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),),
        files=(".modal.toml",),
        get="modal token new",
        pace=StartRate(per_second=5),
    ),
    "mosaic": Backend("mosaic", get="mos login"),
    "novita": Backend("novita", keys=(("NOVITA_API_KEY",),), get="https://novita.ai"),
    "opensandbox": Backend(
        "opensandbox", elsewhere=True, keys=(("OPENSANDBOX_DOMAIN",),), get="your OpenSandbox server's domain"
    ),
    "openshift": Backend(programs=("oc",), files=(".kube/config",), get="oc login"),
    "prime": Backend(
        "prime", elsewhere=True, keys=(("PRIME_API_KEY",),), files=(".prime/config.json",), get="prime login"
    ),
    "runloop": Backend("runloop", keys=(("RUNLOOP_API_KEY",),), get="https://runloop.ai"),
    "runta": Backend("runta", keys=(("RUNTA_TOKEN",), ("RUNTA_CONFIG",))),
    "sail": Backend("sail", elsewhere=True, keys=(("SAIL_API_KEY",),)),
    "sbx": Backend("sbx", elsewhere=True, keys=(("SBX_TOKEN",),), get="Docker Sandboxes"),
    "skypilot": Backend(
        "skypilot",
        elsewhere=True,
        keys=(("SKYPILOT_API_SERVER_ENDPOINT",),),
        files=(".sky/config.yaml",),
        get="sky api login",
    ),
    "tensorlake": Backend("tensorlake", keys=(("TENSORLAKE_API_KEY",),), get="https://cloud.tensorlake.ai"),
    "use-computer": Backend("use-computer", keys=(("USE_COMPUTER_API_KEY",),), get="https://use.computer"),
    "vercel": Backend(
        "vercel", elsewhere=True, keys=(("VERCEL_TOKEN",), ("VERCEL_OIDC_TOKEN",)), get="vercel link && vercel env pull"
    ),
}


def missing(name: str, variables: Mapping[str, str], home: Path) -> str:
    """What the backend `name` lacks here and how to come by it, in one clause; "" where nothing is known to be lacking.

    Quick, and no proof: only a sandbox that starts proves that a key is good.
    """
    backend = facts_of(name)
    return _told(backend, [*_programs_and_extra(backend), *_key(backend, variables, home)])


def check_ready(name: str, variables: Mapping[str, str], home: Path) -> None:
    """UsageError where the backend `name` cannot be used here, before any sandbox is asked of it.

    Asks Harbor's own check of the backend as well, which for Docker means asking its daemon.
    """
    target, backend = backend_of(name), facts_of(name)
    lacks = _programs_and_extra(backend)
    if not backend.elsewhere:
        lacks += _key(backend, variables, home)
    why = _told(backend, lacks)
    if not why and target == LOCAL:
        from harbor_env.sandboxes.preflight import obstacle  # here, for it needs a newer Python than facts do

        why = obstacle()
    elif not why:
        why = _harbors_objection(target)
    if why:
        raise UsageError(f"The sandbox {name!r} cannot be used here: {why}.")


def check_reach(name: str, gateway: str) -> None:
    """UsageError where a harness in the sandbox `name` is given a gateway that only this machine reaches."""
    if not facts_of(name).here and is_loopback(urlsplit(gateway).hostname or ""):
        raise UsageError(
            f"A {name!r} sandbox cannot reach the gateway at {gateway}: give it an address that leads here from outside"
            " (--expose, or --public-url of a server), or use --sandbox local."
        )


def pace_of(name: str, variables: Mapping[str, str]) -> StartRate:
    """How fast sandboxes of the backend `name` are made, with the limits the user set."""
    return with_limits(name, facts_of(name).pace, variables)


def facts_of(name: str) -> Backend:
    """The facts of a backend; a class of your own, `module:Class`, tells its own in an attribute `backend`.

    Raises UsageError where there is no such class.
    """
    if name == LOCAL:
        name = "local"
    if ":" not in name:
        return BACKENDS.get(name, Backend())
    try:
        told = getattr(import_object(name), "backend", None)
    except ImportError as error:
        raise UsageError(f"There is no sandbox {name!r}: {error}.") from error
    return told if isinstance(told, Backend) else Backend()


def _programs_and_extra(backend: Backend) -> list[str]:
    lacks = [f"no {program} on PATH" for program in backend.programs if shutil.which(program) is None]
    if backend.extra and not _has_extra(backend.extra):
        lacks.append(f"pip install 'harbor[{backend.extra}]'")
    return lacks


def _key(backend: Backend, variables: Mapping[str, str], home: Path) -> list[str]:
    named = [" and ".join(names) for names in backend.keys]
    if any(all(variables.get(variable) for variable in names) for names in backend.keys):
        return []
    if not (named or backend.files) or any((home / file).exists() for file in backend.files):
        return []
    ways = [f"set {', or '.join(named)}"] if named else []
    return [", or ".join([*ways, *(f"have {Path('~', file)}" for file in backend.files)])]


def _told(backend: Backend, lacks: list[str]) -> str:
    return "; ".join(lacks) + (f" ({backend.get})" if lacks and backend.get else "")


@lru_cache(maxsize=8)
def _harbors_objection(target: str) -> str:
    """What Harbor's own check of a backend says, "" where it has nothing against it."""
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.environment_type import EnvironmentType

    try:
        if ":" in target:
            EnvironmentFactory.run_preflight(None, import_path=target)
        else:
            EnvironmentFactory.run_preflight(EnvironmentType(target))
    except SystemExit as refusal:  # how Harbor's checks say no
        return str(refusal.code).strip().rstrip(".")
    except (ImportError, AttributeError, ValueError) as error:
        return " ".join(str(error).split()).rstrip(".")
    return ""


def _has_extra(extra: str) -> bool:
    """Whether everything Harbor's extra asks for is installed; which version is left to Harbor."""
    try:
        wanted = _wanted()
    except PackageNotFoundError:
        return False
    for line in wanted:
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", line) and not line.startswith("harbor["):
            try:
                distribution(re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0])
            except PackageNotFoundError:
                return False
    return True


@lru_cache(maxsize=1)
def _wanted() -> list[str]:
    return requires("harbor") or []
