"""Harbor's verifier, guarded: what an agent left where it grades is cleared and told, and only its own reward counts.

Works in every sandbox, by commands inside it. Invariant: a reward that was there before the verifier ran, or that was
changed after it ended, is never a score. A process of the agent's that is quicker than the verifier's end can still
cheat one that runs as the same user: a task that matters keeps the two apart (Harbor's separate verifier).
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.task.config import TaskOS
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import Verifier

from harbor_env.forgery import Planted, read_planted, read_seal, rewritten

VERIFIER = "harbor_env.grading:GuardedVerifier"
_SCRIPT = (Path(__file__).parent / "clear_grading.sh").read_text(encoding="utf-8")
_TESTS_BEFORE, _RUNNING_BEFORE, _PLANTED = "tests-before.txt", "running-before.txt", "planted.jsonl"
_LISTED = f"{_SCRIPT}\necho $(ls /proc | grep -E '^[0-9]+$'); list_tests; true"


class RewardRewrittenError(Exception):
    """A reward file is not what the verifier wrote, so nobody knows what it wrote."""


async def note_tests(environment: BaseEnvironment, trial: Path) -> None:
    """Before the agent runs: note what the image has in the tests' folder, and what runs, beside the trial's logs."""
    if environment.os == TaskOS.WINDOWS:
        return
    done = await environment.exec(_LISTED, user="root")
    running, _, tests = (done.stdout or "").partition("\n")
    (trial / _TESTS_BEFORE).write_text(tests, encoding="utf-8")
    if not (trial / _RUNNING_BEFORE).exists():  # of several steps, the first
        (trial / _RUNNING_BEFORE).write_text(running, encoding="utf-8")


def planted(trial: Path) -> Planted:
    """What the verifier found of the agent's, after the trial; of all steps where there are several."""
    path = trial / _PLANTED
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return Planted.joined(Planted(**json.loads(line)) for line in lines)


class GuardedVerifier(Verifier):  # type: ignore[misc]
    """Harbor's own verifier between a clearing and a comparison."""

    environment: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        step = next((step for step in self.task.config.steps or () if step.name == self.step_name), None)
        definition = resolve_verifier_environment_definition(self.task.config, self.task.paths, step)
        self._apart = definition is not None
        self._skip_tests_upload = definition is not None and definition.bundled_tests  # Harbor does not hand it on

    async def verify(self) -> VerifierResult:
        if self.environment.os == TaskOS.WINDOWS:
            return await super().verify()
        if not self._apart:  # else no agent was where it grades
            await self._clear()
        sealed = _Sealed(self.environment, self._reward_paths())
        self.environment = sealed
        try:
            result = await super().verify()
        finally:
            self.environment = sealed.environment
        self._compare(sealed.seal)
        return result

    def _reward_paths(self) -> dict[str, Path]:
        inside = EnvironmentPaths.for_os(self.environment.os)
        return {
            str(inside.reward_json_path): self.trial_paths.reward_json_path,
            str(inside.reward_text_path): self.trial_paths.reward_text_path,
        }

    async def _clear(self) -> None:
        """Empty the verifier's folder and the tests' folder of what was not there before the agent; write down what."""
        before, running = (_noted(self.trial_paths.trial_dir / name) for name in (_TESTS_BEFORE, _RUNNING_BEFORE))
        numbers = " ".join(word for word in " ".join(running).split() if word.isdigit())
        way = "keep" if before else "clear"
        done = await self.environment.exec(f"set -- '{numbers}'\n{_SCRIPT}\nclear_grading {way}", user="root")
        if done.return_code != 0:
            raise RuntimeError(f"The verifier's folders could not be cleared: {done.stderr or done.stdout}")
        found, gone = read_planted(done.stdout or "", before)
        if gone:
            await self.environment.exec(f"rm -rf -- {shlex.join(gone)}", user="root")
        self._tell(found)

    def _tell(self, found: Planted) -> None:
        if found:
            with (self.trial_paths.trial_dir / _PLANTED).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"rewards": found.rewards, "files": found.files}) + "\n")

    def _compare(self, seal: Mapping[str, str] | None) -> None:
        if seal is None:
            return
        now = {
            inside: here.read_text(encoding="utf-8", errors="replace") if here.is_file() else ""
            for inside, here in self._reward_paths().items()
        }
        wrong = rewritten(seal, now)
        if wrong:
            self._tell(Planted((wrong,)))
            raise RewardRewrittenError(wrong)


def _noted(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


class _Sealed:
    """An environment that tells, in the command that runs the tests, what the reward was before and right after."""

    def __init__(self, environment: BaseEnvironment, rewards: Mapping[str, Path]) -> None:
        self.environment = environment
        self.seal: dict[str, str] | None = None
        self._rewards = tuple(rewards)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    async def exec(self, command: str, **options: Any) -> ExecResult:
        if not command.endswith("2>&1"):  # not the tests, whose output Harbor sends to a file
            return await self.environment.exec(command=command, **options)
        mark = secrets.token_hex(16)
        shown = "".join(f"; echo {mark}{path}; cat {path} 2>/dev/null" for path in self._rewards)
        there = "; ".join(f"[ -e {path} ] && echo {mark}early:{path}" for path in self._rewards)
        done = await self.environment.exec(
            command=f"{there}; {command}; code=$?{shown}; echo; echo {mark}; exit $code", **options
        )
        self.seal = read_seal(done.stdout or "", mark)
        return done
