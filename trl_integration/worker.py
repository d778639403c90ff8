"""The rollout worker for `AsyncGRPOTrainer(rollout_worker=...)`: TRL's own, with a harness per group and its figures.

    worker = HarborRolloutWorker(
        harness_session_factory=partial(RotatingSessionFactory, "http://127.0.0.1:8001", split="train",
                                        rotation=RoundRobin(("mini-swe-agent", "pi"), tasks=240)),
        model_name=..., dataset=..., processing_class=..., eos_token_ids=[...])

TRL builds the rows, the baseline and the queue. This adds: rollouts nobody could score leave their group and no row of
theirs is trained; a group with fewer than two scored rollouts is not queued; a run in which nothing scores any more, or
nothing trains, stops with the reason; every rollout is written down. What is given to the worker is pickled for its
process.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out of the worker's process

# isort: split
import asyncio
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, RolloutSample
from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker, _HarnessRolloutLoop

from harbor_env.errors import UsageError
from trl_integration.groups import NO_ROW, SAME, TOO_FEW, Dropped, has_contrast
from trl_integration.line_files import append_lines
from trl_integration.metrics import disagreeing, group_metrics, harness_metrics
from trl_integration.parent import end_with_parent
from trl_integration.records import Record
from trl_integration.sessions import RotatingSessionFactory

HARNESS = "harness_index"
"""Where a row carries the number of its harness to the trainer; it is no metric and is taken out there."""


class NothingScores(RuntimeError):
    """So many rollouts in a row could not be scored that something is broken."""


class NothingTrains(RuntimeError):
    """So many groups in a row had nothing to train that the run would wait for ever."""


class _HarborLoop(_HarnessRolloutLoop):  # type: ignore[misc]
    """`stop_after` unscorable rollouts in a row end the run, and so do `stop_after_groups` of which nothing is trained.

    `drop_without_contrast` queues no group whose rollouts all earned the same: it would be forwarded for a gradient of
    zero. `records` is a file of JSON lines, one per rollout.
    """

    def __init__(
        self,
        *,
        stop_after: int = 32,
        stop_after_groups: int = 64,
        drop_without_contrast: bool = False,
        records: str = "",
        **kwargs: Any,
    ) -> None:
        self._first_group = int(kwargs.get("dataset_start_index", 0))
        # TRL gives the limit of a reply to turns it samples itself; in a harness the session pins it.
        if (limit := kwargs.get("max_tokens")) is not None:
            kwargs["harness_session_factory"] = partial(_capped, kwargs["harness_session_factory"], limit)
        super().__init__(**kwargs)
        self._sessions = cast(RotatingSessionFactory, self._factory)
        self._sessions.policy = self._policy
        self._stop_after = stop_after
        self._unscorable_in_a_row = 0
        self._stop_after_groups = stop_after_groups
        self._dropped = Dropped()
        self._drop_without_contrast = drop_without_contrast
        self._records = Path(records) if records else None

    def _policy(self) -> tuple[int, str]:
        """The version now, and the name it is served under where the engine serves versions as adapters."""
        return self.model_version, self._request_model if self.lora_name and self.model_version else ""

    def _repeat_iterator(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Groups go on counting over a resume: task and harness follow from the group's number."""
        for group, row in super()._repeat_iterator():
            yield self._first_group + group, row

    def run(self) -> None:
        end_with_parent()
        try:
            super().run()
        finally:
            # A process waits at its end until what it queued is read; a trainer that has stopped reads no more.
            self.rollout_buffer.cancel_join_thread()
            self._metrics_queue.cancel_join_thread()
            self._write(self._sessions.ledger.take_all())

    async def _run_loops(self, stop_event: asyncio.Event) -> None:
        try:
            await super()._run_loops(stop_event)
        finally:
            # Where one of the loops fails, the other one is left; by now it has been told to end.
            left = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*left, return_exceptions=True)

    async def _generate_one(self, *args: Any, **kwargs: Any) -> Any:
        rollout = await super()._generate_one(*args, **kwargs)
        if self._stop_event.is_set():  # the rollouts that ran are closed then, and none of them scores
            return rollout
        *_, reward = rollout
        self._unscorable_in_a_row = self._unscorable_in_a_row + 1 if reward is None else 0
        if self._unscorable_in_a_row >= self._stop_after:
            count, causes = self._unscorable_in_a_row, self._sessions.ledger.latest_causes()
            raise NothingScores(f"{count} rollouts in a row could not be scored. {causes or 'The log above says why.'}")
        return rollout

    async def _score_group(self, group: RolloutGroup) -> list[RolloutSample]:
        records = self._sessions.ledger.take(group.group_id)
        self._write(records)
        wrong = {"groups/reward_wrong_total": float(disagreeing(group.rollout_rewards, records))}
        self._push_metrics({**harness_metrics(records, self.model_version), **group_metrics(records), **wrong})
        # A rollout without a reward is in no baseline, and its session gave no turns, so it has no rows.
        why = self._unfit(group.rollout_rewards)
        samples = [] if why else list(await super()._score_group(group))
        for sample in samples:
            sample.metrics[HARNESS] = float(self._sessions.harness_number(group.group_id))
        self._count(why or ("" if samples else NO_ROW))
        return samples

    def _unfit(self, rewards: Sequence[float | None]) -> str:
        """Why a group with these rewards is not trained, empty where it is."""
        if sum(reward is not None for reward in rewards) < 2:
            return TOO_FEW
        return SAME if self._drop_without_contrast and not has_contrast(rewards) else ""

    def _count(self, why: str) -> None:
        """Count a group; `why` it is dropped. NothingTrains: too many in a row were."""
        if self._stop_event.is_set():  # what the end cut short says nothing
            return
        if said := self._dropped.add(why, time.monotonic()):
            print(said, file=sys.stderr, flush=True)
        if self._dropped.in_a_row >= self._stop_after_groups:
            reasons = self._dropped.reasons()
            causes = self._sessions.ledger.latest_causes() if TOO_FEW in reasons else ""
            raise NothingTrains(
                f"{self._dropped.in_a_row} groups in a row had nothing to train: {reasons}. "
                f"{causes or 'Give tasks at which the policy sometimes succeeds, or raise stop_after_groups.'}"
            )

    def _write(self, records: list[Record]) -> None:
        if self._records is not None and records:
            append_lines(self._records, map(dataclasses.asdict, records))


def _capped(factory: Callable[..., Any], limit: int, *, sampling: Mapping[str, Any]) -> Any:
    return factory(sampling={**sampling, "max_tokens": limit})


class HarborRolloutWorker(HarnessRolloutWorker):  # type: ignore[misc]
    """TRL's `HarnessRolloutWorker` over `RotatingSessionFactory`; its further options are those of `_HarborLoop`.

    `max_tokens` caps every reply of a harness's model; without it a reply ends where the harness or the engine ends it.
    UsageError: the factory is given a sampling of its own, which training would replace.
    """

    _loop_cls = _HarborLoop

    def __init__(self, *, harness_session_factory: Callable[..., Any], **kwargs: Any) -> None:
        if "sampling" in getattr(harness_session_factory, "keywords", {}):
            raise UsageError(
                "action.sampling has no effect on training, which pins its own: set training.temperature and "
                "training.max_completion_length, and leave it out."
            )
        super().__init__(harness_session_factory=harness_session_factory, **kwargs)

    def ask_for_adapters(self, name: str | None) -> None:
        """Ask for version N of the policy as NAME-vN, with None for the engine's own weights; before it is started."""
        self._loop_kwargs["lora_name"] = name
