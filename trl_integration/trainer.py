"""TRL's `AsyncGRPOTrainer`, told which harness a row came from: importance ratios per harness, and of single rows.

The ratio of the trainer's probability of a token to the engine's is 1 before the first step, to the precision both
compute in. A harness whose ratio is not has its tokens or log probabilities captured wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trl.experimental.async_grpo import AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout

from harbor_env.whole_file import write_whole
from trl_integration.worker import HARNESS

NO_ROW = -1


class HarborGRPOTrainer(AsyncGRPOTrainer):  # type: ignore[misc]
    """`harnesses` are those of the rotation, in its order; everything else is `AsyncGRPOTrainer`'s.

    Logs `harness/NAME/ratio`; `ratio/row_max` and `ratio/row_min`, the mean ratio of the rows farthest from 1; and
    `ratio/token_log_max`, how far apart the two log probabilities of any one token are. A mean over many tokens tends
    to 1 whatever the trainer's probabilities are; the last does not.
    """

    def __init__(self, *args: Any, harnesses: Sequence[str], **kwargs: Any) -> None:
        self._harnesses = tuple(harnesses)
        super().__init__(*args, **kwargs)

    def get_train_dataloader(self) -> Any:
        collator = async_grpo_trainer.DataCollatorForRollout
        # The trainer names its collator's class and takes none from outside.
        async_grpo_trainer.DataCollatorForRollout = HarnessCollator
        try:
            return super().get_train_dataloader()
        finally:
            async_grpo_trainer.DataCollatorForRollout = collator

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        seen: list[torch.Tensor] = []
        hook = model.register_forward_hook(lambda _model, _args, output: seen.append(output.log_probs.detach()))
        try:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
        finally:
            hook.remove()
        self._log_ratios(seen[-1], inputs)
        return loss

    def _log_ratios(self, log_probs: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> None:
        """`log_probs` are detached."""
        per_harness, ends = ratios(log_probs, inputs, len(self._harnesses))
        per_harness = self.accelerator.reduce(per_harness, reduction="sum")
        metrics = self._metrics["train"]
        for name, (total, count) in zip(self._harnesses, per_harness.tolist(), strict=True):
            if count:
                metrics[f"harness/{name}/ratio"].append((total, count))
        # Every process takes part, also one that got no trained token.
        for name, value in extremes(self.accelerator.gather(ends)).items():
            metrics[name].append(value)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.accelerator.is_main_process:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            go_on_after(self._trained_groups, folder / "rollout_state.json")


def ratios(
    log_probs: torch.Tensor, inputs: Mapping[str, torch.Tensor], harnesses: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one process's batch: (`harnesses`, 2) the sum and number of token ratios, and (1, 3) for `extremes`.

    `log_probs` are the trainer's at every packed position; `inputs` is a batch of `HarnessCollator`. Rows none of whose
    tokens are trained have no mean.
    """
    selected = inputs["token_index"] >= 0
    apart = log_probs.flatten()[inputs["token_index"][selected]].float() - inputs["old_log_probs"][selected].float()
    ratio = apart.exp()
    rows, harness = inputs["segment_id"][selected], inputs[HARNESS].flatten()
    sums = torch.zeros(len(harness), 2, device=ratio.device)
    sums.index_add_(0, rows, torch.stack([ratio, torch.ones_like(ratio)], dim=1))
    # Rows without a trained token, and those that only pad the batch, say nothing.
    sums, harness = sums[sums[:, 1] > 0], harness[sums[:, 1] > 0]
    per_harness = torch.zeros(harnesses, 2, device=ratio.device).index_add_(0, harness, sums)
    per_row = sums[:, 0] / sums[:, 1]
    if not len(per_row):
        return per_harness, torch.full((1, 3), -torch.inf, device=ratio.device)
    return per_harness, torch.stack([per_row.max(), -per_row.min(), apart.abs().max()])[None]


def extremes(ends: torch.Tensor) -> dict[str, float]:
    """Metrics from (processes, 3): greatest and negated least mean ratio of a row, greatest distance of a token's log
    probabilities; -inf from a process without a trained token. Nothing where none has one.
    """
    row_max, row_min_negated, token_log_max = ends.amax(dim=0).tolist()
    if token_log_max < 0:
        return {}
    return {"ratio/row_max": row_max, "ratio/row_min": -row_min_negated, "ratio/token_log_max": token_log_max}


def go_on_after(trained: Iterable[int], state_file: Path) -> None:
    """Let a checkpoint resume behind the last group that was trained.

    TRL resumes from the first that was not; but groups without contrast never are, so that is no place to go on from.
    """
    state = json.loads(state_file.read_text())
    state["prompt_index"] = max([state["prompt_index"] - 1, *trained]) + 1
    write_whole(state_file, [json.dumps(state).encode()])


class HarnessCollator(DataCollatorForRollout):  # type: ignore[misc]
    """Takes the harness's number out of each row's metrics and puts it beside the batch, one per row.

    KeyError: a row carries none.
    """

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        (rows,) = examples
        numbers = [[int(sample["metrics"].pop(HARNESS)) for sample in row.samples] for row in rows]
        batch: dict[str, Any] = super().torch_call(examples)
        width = max(map(len, numbers))
        batch[HARNESS] = torch.tensor([row + [NO_ROW] * (width - len(row)) for row in numbers])
        return batch
