"""A fake trainer without a model: one rollout on each of the run's servers, as TRL's worker has them, then it saves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harbor_env.resource_sessions import HarborSessionFactory
from trl_integration.config import load


def main(words: list[str]) -> None:
    config = load(Path(words[0]), [word for word in words[1:] if "=" in word])
    factory = HarborSessionFactory(
        list(config.servers),
        split=config.split,
        harness=next(iter(config.harnesses)),
        admin_key=os.environ[config.admin_key_env],
    )
    sessions = [factory.create("any", seed=group) for group in range(len(config.servers))]
    for session in sessions:
        session.wait_for_completion()
        print("reward", session.verify([]).env_reward, "turns", len(session.fetch_training_trace().turns), flush=True)
        session.close()
    checkpoint = Path(config.output_dir) / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")


if __name__ == "__main__":
    main(sys.argv[1:])
