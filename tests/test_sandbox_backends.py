"""Backends of Harbor's: what one lacks is said before anything starts, and a full one is asked again, never scored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from harbor_env.errors import UsageError
from harbor_env.gateway.types import Message, ToolCall
from harbor_env.rollout import GatewayAddress, RolloutSpec, run_rollout
from harbor_env.sandboxes import SANDBOXES
from harbor_env.sandboxes.backends import BACKENDS, check_reach, check_ready, missing, pace_of
from harbor_env.sandboxes.capacity import lacks_capacity
from tests.fake_backend import Crowded
from tests.sandbox_world import CACHE, needs_sandbox
from tests.serving import Served, serving
from tests.tiny_harness import write_answer, write_task

WRITES = Message("assistant", "Writing.", tool_calls=(ToolCall("", "bash", write_answer()),))
CROWDED = "tests.fake_backend:Crowded"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "data") as running:
        running.engine.answers[:] = [WRITES, Message("assistant", "Done.")]
        yield running


@pytest.fixture
def spec(served: Served, tmp_path: Path) -> RolloutSpec:
    task = write_task(tmp_path / "write-42")
    gateway = GatewayAddress(served.url, model="m", level="tokens")
    kwargs = {"cache": CACHE, "lets_through": served.url}
    return RolloutSpec("r1", task, "tests.tiny_harness:TINY", gateway, tmp_path / "out", CROWDED, sandbox_kwargs=kwargs)


def test_every_backend_has_its_facts() -> None:
    assert set(BACKENDS) == set(SANDBOXES)


def test_harbor_has_the_extra_each_backend_names() -> None:
    from importlib.metadata import metadata

    known = set(metadata("harbor").get_all("Provides-Extra") or ())
    known.add("smol")
    assert {backend.extra for backend in BACKENDS.values() if backend.extra} <= known


def test_what_a_backend_lacks_is_named_with_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        missing("docker", {"DOCKER_HOST": "x"}, tmp_path) == "no docker on PATH (install Docker and start its daemon)"
    )
    assert "set E2B_API_KEY (https://e2b.dev)" in missing("e2b", {}, tmp_path)
    assert "set" not in missing("e2b", {"E2B_API_KEY": "k"}, tmp_path)
    both = "set DAYTONA_API_KEY, or DAYTONA_JWT_TOKEN and DAYTONA_ORGANIZATION_ID"
    assert both in missing("daytona", {"DAYTONA_JWT_TOKEN": "half"}, tmp_path)
    assert "set" not in missing("daytona", {"DAYTONA_JWT_TOKEN": "t", "DAYTONA_ORGANIZATION_ID": "o"}, tmp_path)


def test_a_login_file_does_as_well_as_a_key(tmp_path: Path) -> None:
    assert "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET" in missing("modal", {}, tmp_path)
    (tmp_path / ".modal.toml").write_text("")
    assert "MODAL" not in missing("modal", {}, tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("e2b", r"'e2b' cannot be used here: .*E2B_API_KEY.*https://e2b\.dev"),
        ("tests.fake_backend:Locked", "Locked requires LOCKED_API_KEY to be set"),
        ("no_such_module:Class", "no_such_module"),
        ("tests.fake_backend:Nothing", "Nothing"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_ready(name, {}, tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8200", "http://localhost:1", "http://[::1]:8200"])
def test_a_sandbox_elsewhere_is_not_given_a_gateway_that_only_this_machine_reaches(url: str) -> None:
    for name in ("e2b", "docker", "tests.fake_backend:Locked"):
        with pytest.raises(UsageError, match=r"cannot reach the gateway at .*--public-url"):
            check_reach(name, url)
        check_reach(name, "https://gateway.example")
    check_reach("local", url)
    check_reach(CROWDED, url)


def test_limits_are_the_backend_s_own_unless_the_user_says_otherwise() -> None:
    assert pace_of("modal", {}).per_second == 5
    assert pace_of("e2b", {}).slots == 20
    assert pace_of("local", {}).slots >= 2
    assert pace_of(CROWDED, {}) == Crowded.backend.pace
    told = {"OPENENV_HARBOR_SANDBOX_LIMITS": "modal=2.5/s, e2b=100,local=7,daytona=1/s:3"}
    assert pace_of("modal", told).per_second == 2.5
    assert (pace_of("e2b", told).slots, pace_of("e2b", told).per_second) == (100, 1)
    assert pace_of("local", told).slots == 7
    assert (pace_of("daytona", told).slots, pace_of("daytona", told).per_second) == (3, 1)
    with pytest.raises(UsageError, match="expected NAME=PER_SECOND/s"):
        pace_of("modal", {"OPENENV_HARBOR_SANDBOX_LIMITS": "modal=fast"})


@needs_sandbox
async def test_a_backend_without_room_is_asked_again_and_the_rollout_scores(spec: RolloutSpec) -> None:
    Crowded.refusals, Crowded.asked = 2, 0
    result = await run_rollout(spec)
    assert (result.ok, result.reward, Crowded.asked, result.counts["turns"]) == (True, 1.0, 3, 2), result


@needs_sandbox
async def test_a_backend_that_stays_full_is_a_failure_that_may_be_retried_and_never_a_score(spec: RolloutSpec) -> None:
    Crowded.refusals, Crowded.asked = 99, 0
    result = await run_rollout(spec)
    Crowded.refusals = 0
    assert (result.ok, result.reward, Crowded.asked) == (False, None, 3)
    assert result.reason is not None
    assert (result.reason.kind, result.reason.retryable) == ("sandbox", True)
    assert "has no room for a sandbox just now: 429: Rate limit exceeded" in result.reason.sentence
    assert "(asked 3 times)" in result.reason.sentence


@needs_sandbox
async def test_a_sandbox_that_cannot_be_made_is_not_asked_for_again(
    spec: RolloutSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crowded, "error", RuntimeError("image does not exist"))
    Crowded.refusals, Crowded.asked = 99, 0
    result = await run_rollout(spec)
    Crowded.refusals = 0
    assert Crowded.asked == 1
    assert result.reason is not None
    assert (result.reason.kind, result.reason.retryable) == ("sandbox", False)


async def test_a_rollout_elsewhere_with_a_gateway_here_says_what_to_do(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, sandbox="tests.fake_backend:Remote"))
    assert result.reason is not None
    assert (result.reason.kind, "--public-url" in result.reason.sentence) == ("sandbox", True)


async def test_a_rollout_whose_backend_lacks_its_key_says_so(spec: RolloutSpec) -> None:
    result = await run_rollout(replace(spec, sandbox="tests.fake_backend:Locked"))
    assert result.reason is not None
    assert (result.reason.kind, "LOCKED_API_KEY" in result.reason.sentence) == ("sandbox", True)


async def test_a_verifier_whose_secrets_are_not_set_is_said_before_a_sandbox_is_made(
    spec: RolloutSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    toml = spec.task / "task.toml"
    toml.write_text(toml.read_text() + '[verifier.env]\nJUDGE_KEY = "${JUDGE_KEY}"\n')
    Crowded.asked = 0
    result = await run_rollout(spec)
    assert result.reason is not None
    assert (result.reason.kind, Crowded.asked) == ("task", 0)
    assert "Set JUDGE_KEY first" in result.reason.sentence


@pytest.mark.parametrize(
    ("error_type", "error"),
    [
        ("RateLimitException", "429: Rate limit exceeded, please try again later."),
        ("SandboxException", "400: Maximum number of concurrent E2B sandboxes reached (20): quota"),
        ("DaytonaError", "Failed to create sandbox: Total disk limit exceeded. Maximum allowed: 30GiB."),
        ("DaytonaRateLimitError", "slow down"),
        ("RetryError", "RetryError[<Future at 0x7f state=finished raised DaytonaRateLimitError>]"),
        ("GRPCError", "(<Status.RESOURCE_EXHAUSTED: 8>, 'Sandbox creation throttled', None)"),
        ("ResourceExhaustedError", "too many sandboxes"),
        ("APIStatusError", "Error code: 429 - {'message': 'Too Many Requests'}"),
        ("ApiException", "(403) Reason: Forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=64"),
        ("ClientError", "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation"),
        ("RuntimeError", "0/12 nodes are available: 12 Insufficient cpu."),
        ("RuntimeError", "toomanyrequests: You have reached your pull rate limit."),
    ],
)
def test_the_words_of_the_backends_for_no_room_are_known(error_type: str, error: str) -> None:
    assert lacks_capacity(error_type, error)


@pytest.mark.parametrize(
    ("error_type", "error"),
    [
        ("SandboxError", "line 2: RUN failed with exit code 7"),
        ("AuthenticationException", "401: Invalid API key"),
        ("EnvironmentStartTimeoutError", "Environment start timed out after 600 seconds"),
        ("SandboxBuildFailedError", "unknown instruction: FORM"),
        ("CapacityMismatchError", "x"),
        ("RuntimeError", "task 1429 is broken"),
    ],
)
def test_other_failures_are_not_taken_for_want_of_room(error_type: str, error: str) -> None:
    assert not lacks_capacity(error_type, error)
