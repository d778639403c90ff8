# What scripts/learn.sh makes and measures.
FAMILIES=count-lines,count-words,count-matching,count-different-lines,largest-number,sum-numbers,value-of-key,nth-line
HARNESSES=mini-swe-agent,pi
SFT_TASKS=80
RL_TASKS=480
DEV_TASKS=16
TEST_TASKS=50
SFT_OPTIONS="--epochs 0.75 --lr 2e-4 --batch 4 --schedule constant_with_warmup --save-every 10"
RUNS="multi single"
SMOKE_SETTINGS="training.max_steps=3 training.num_generations=4 training.per_device_train_batch_size=8 training.max_inflight_tasks=8
    training.max_completion_length=60 training.save_strategy=no budgets.max_calls=2 reward=experiments.smollm2.rewards:brevity"
