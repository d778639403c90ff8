"""Drives TRL's own session loop, unmodified, where torch is: `python trl_driver.py URL[,URL...] TOKENIZER HARNESS`.

Prints one JSON object: per rollout its reward and rows, as the loop made them from sessions of `HarborSessionFactory`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import AutoTokenizer
from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker

from harbor_env.resource_sessions import HarborSessionFactory


def _row(sequence: Any) -> dict[str, Any]:
    fields = {name: getattr(sequence, name) for name in type(sequence).__dataclass_fields__}
    return {name: list(map(float, value)) for name, value in fields.items() if isinstance(value, list | np.ndarray)}


async def main(urls: str, tokenizer: str, harness: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    processing = AutoTokenizer.from_pretrained(tokenizer)
    processing.response_template = {}  # the loop would look one up for the replies it parses; here it parses none
    loop = HarnessRolloutWorker._loop_cls(
        harness_session_factory=partial(HarborSessionFactory, urls.split(","), split="train", harness=harness),
        model_name="policy",
        dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "any"}]]}),
        reward_funcs=[],
        processing_class=processing,
        eos_token_ids=[0],
        rollout_buffer=spawn.Queue(),
        model_version_value=spawn.Value("i", 0),
        heartbeat_value=spawn.Value("d", 0.0),
        failed_event=spawn.Event(),
        exception_info_queue=spawn.Queue(),
        metrics_queue=spawn.Queue(),
        temperature=0.7,
    )
    loop._stop_event = threading.Event()  # what its run() would set
    told = []
    for group in (0, 1):
        completion, ids, sequences, calls, _, reward = await loop._generate_one(
            [{"role": "user", "content": "any"}], {}, None, group_id=group
        )
        rows = [_row(sequence) for sequence in sequences]
        told.append({"reward": reward, "calls": calls, "sampled": len(ids), "rows": rows, "messages": len(completion)})
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
