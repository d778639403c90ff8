"""Multi-harness reinforcement learning with TRL's `AsyncGRPOTrainer`.

`rotation` chooses the harness of a group, `rewards` what a rollout earned, `groups` what that is worth beside its
siblings, `metrics` what a trainer logs; none of them imports TRL. `sessions` connects an environment server, `worker`
is what the trainer takes as `rollout_worker`, `trainer` tells it which harness a row came from, `config` is a run as a
file, `output_folder` where it writes, `compare` reads evaluations, `engine_state` brings an engine into the
state a job expects, and `cpu` and `onednn` let it all run without a GPU.
"""
