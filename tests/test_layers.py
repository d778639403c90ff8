"""Who may import whom: pure modules touch neither the outside world nor anything that does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "envs" / "harbor_env"
ROOT = "harbor_env"

READ_FROM_DISK = {
    "gateway.rendering.source": "finds a tokenizer's files in a folder, a GGUF file or the hub's cache",
    "gateway.rendering.gguf": "reads the tokenizer inside a GGUF file",
    "gateway.rendering.load": "turns a path into a renderer, reading a chat template from a file",
    "gateway.export.parquet": "writes the one format that is a file on disk",
}
"""Beside pure modules, but not pure, and why. No pure module may import them."""

PURE_MODULES = ("types", "tree", "meaning", "limits", "native_names", "options", "session", "roles", "paths")
PURE_PACKAGES = ("dialects", "rendering", "export")

PURE_ABOVE = (
    "atif",
    "cli.summary",
    "forgery",
    "outcome",
    "packing",
    "reward",
    "sandboxes.capacity",
    "sandboxes.words",
    "server.outages",
    "tally",
)
"""Pure modules above the gateway; none of its own may import them."""

PURE_TRAINER = ("compare", "groups", "metrics", "rewards", "rotation")
"""Pure modules of trl_integration. They read the records of rollouts, which are safe between threads."""

CONTRACTS = {"errors", "gateway", "gateway.engines", "harnesses", "lookup"}
"""What pure modules may read beside each other: errors, `module:Name`, engines' protocol, facts about harnesses."""

LIBRARIES = {
    "jinja2",
    "numpy",
    "openenv",  # the shape of a trace
    "orjson",
    "pydantic",  # the renderers library's settings raise its errors
    "renderers",
    "safetensors",
    "tiktoken",
    "tokenizers",
    "zstandard",
}
"""Third-party packages a pure module may import: those that compute."""

PURE_STANDARD = {
    "__future__",
    "array",
    "ast",
    "base64",
    "binascii",
    "collections",
    "collections.abc",
    "dataclasses",
    "datetime",  # dates are parsed and printed; the clock is an argument
    "functools",
    "hashlib",
    "importlib",  # `module:Name` lookups
    "inspect",  # of what such a lookup found
    "json",
    "math",
    "re",
    "statistics",
    "typing",
    "unicodedata",
}
"""What a pure module may import of the standard library; asyncio, os, time, uuid, random and pathlib are not here."""

CLOCKS = {"now", "today", "utcnow"}


def module_path(name: str) -> Path:
    folder = PACKAGE.joinpath(*name.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def pure_modules() -> list[str]:
    found = [f"gateway.{name}" for name in PURE_MODULES]
    for package in PURE_PACKAGES:
        for path in sorted((PACKAGE / "gateway" / package).rglob("*.py")):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in found if name not in READ_FROM_DISK]


def imports(name: str) -> Iterator[str]:
    return imported_by(module_path(name))


def imported_by(path: Path) -> Iterator[str]:
    """Every module a module imports, also inside functions, but not for type checking alone."""
    tree = ast.parse(path.read_text())
    typed_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typed_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from _imported(node)


def _imported(node: ast.ImportFrom) -> Iterator[str]:
    module = node.module or ""
    if module.partition(".")[0] != ROOT:
        yield module
        return
    for alias in node.names:
        inner = f"{module}.{alias.name}"
        yield inner if module_path(inner.removeprefix(f"{ROOT}.")).is_file() else module


def not_allowed(module: str, pure: frozenset[str]) -> bool:
    if module.partition(".")[0] == ROOT:
        inner = module.removeprefix(f"{ROOT}.")
        return inner not in pure and inner not in CONTRACTS
    return module not in PURE_STANDARD and module.partition(".")[0] not in LIBRARIES


def test_every_pure_module_is_there() -> None:
    assert [name for name in (*pure_modules(), *READ_FROM_DISK) if not module_path(name).is_file()] == []


@pytest.mark.parametrize("name", pure_modules())
def test_a_pure_module_imports_only_what_is_pure(name: str) -> None:
    pure = frozenset(pure_modules())
    assert [module for module in imports(name) if not_allowed(module, pure)] == []


@pytest.mark.parametrize("name", PURE_ABOVE)
def test_a_pure_module_above_the_gateway_imports_only_what_is_pure(name: str) -> None:
    pure = frozenset((*pure_modules(), *PURE_ABOVE))
    assert [module for module in imports(name) if not_allowed(module, pure)] == []


@pytest.mark.parametrize("name", PURE_TRAINER)
def test_a_pure_module_of_the_trainer_s_imports_only_what_is_pure(name: str) -> None:
    allowed = {f"trl_integration.{other}" for other in (*PURE_TRAINER, "records")}
    found = imported_by((PACKAGE.parent.parent / "trl_integration" / name).with_suffix(".py"))
    assert [module for module in found if module not in allowed and not_allowed(module, frozenset(PURE_ABOVE))] == []


@pytest.mark.parametrize("name", [*pure_modules(), *PURE_ABOVE, *sorted(CONTRACTS)])
def test_a_pure_module_opens_no_file_and_reads_no_clock(name: str) -> None:
    called = [node.func for node in ast.walk(ast.parse(module_path(name).read_text())) if isinstance(node, ast.Call)]
    assert [func.id for func in called if isinstance(func, ast.Name) and func.id in ("open", "print", "input")] == []
    assert [func.attr for func in called if isinstance(func, ast.Attribute) and func.attr in CLOCKS] == []


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_a_contract_imports_nothing_that_does_io(name: str) -> None:
    pure = frozenset(pure_modules())
    allowed = {"urllib.parse", "harbor_env.harnesses.wiring"}  # wiring brings Harbor, where an adapter is asked for
    assert [module for module in imports(name) if module not in allowed and not_allowed(module, pure)] == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "gateway").rglob("*.py")), ids=lambda path: path.stem)
def test_the_gateway_knows_nothing_of_rollouts_sandboxes_servers_and_commands(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    above = (
        "batch",
        "cli",
        "client",
        "models",
        "resource_sessions",
        "rollout",
        "sandboxes",
        "server",
        "tasks",
        "trial",
    )
    found = [module.removeprefix(f"{ROOT}.").partition(".")[0] for module in imports(name) if module.startswith(ROOT)]
    assert [module for module in found if module in above] == []


@pytest.mark.parametrize(
    ("imported", "kept_out"),
    [
        ("harbor_env", ("harbor", "torch", "gradio", "xllamacpp", "transformers", "litellm", "starlette", "openenv")),
        ("harbor_env.gateway.app", ("harbor", "torch", "gradio", "xllamacpp", "litellm")),
        ("harbor_env.client", ("harbor", "torch", "gradio", "xllamacpp", "litellm")),
        ("harbor_env.resource_sessions", ("harbor", "torch", "gradio", "xllamacpp", "litellm")),
        ("harbor_env.cli", ("harbor", "torch", "gradio", "xllamacpp", "litellm", "starlette")),
        ("trl_integration", ("harbor", "gradio", "xllamacpp")),
    ],
)
def test_importing_brings_no_heavy_neighbour(imported: str, kept_out: tuple[str, ...]) -> None:
    program = f"import sys, {imported}; print(sorted({set(kept_out)!r} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr
