# What scripts/learn.sh makes and measures. Choices are made on the dev tasks; of a run of reinforcement learning the last
# checkpoint is the one that is tested, whatever the others do on dev.
FAMILIES=count-lines,count-words,count-matching,count-different-lines,largest-number,sum-numbers,value-of-key,nth-line
HARNESSES=mini-swe-agent,pi
# Of the train split: SFT shows no phrasing of the other.
SFT_TASKS=80
# Of each split, the phrasings that SFT showed and others, less those worded like one of another set.
RL_TASKS=240
DEV_TASKS=16
TEST_TASKS=54
SFT_OPTIONS=(--epochs 0.75 --lr 2e-4 --batch 4 --schedule constant_with_warmup --save-every 10)
LIMITS=(--temperature 1 --max-reply-tokens 120 --max-calls 3 --max-output-tokens 300 --agent-timeout 90)
# Runs of reinforcement learning, each with its harnesses.
RUNS="multi single"
declare -A TRAINED_IN=([multi]=$HARNESSES [single]=mini-swe-agent) STEPS=([multi]=60 [single]=40)
# What the single-harness run is compared with: the other run after as many steps.
BESIDE_SINGLE=multi-40
SMOKE_SETTINGS=(training.max_steps=3 training.num_generations=4 training.per_device_train_batch_size=8
    training.max_inflight_tasks=8 training.max_completion_length=60 'training.save_strategy="no"' budgets.max_calls=2
    reward=experiments.smollm2.rewards:brevity)

# Debian's libtcmalloc-minimal4, where it is there, takes most of vLLM's system time away.
MALLOC=$(ls /usr/lib/*/libtcmalloc_minimal.so.4 2>/dev/null || true)
ENGINE_ENV=(WINDOW=4096 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=2 LD_PRELOAD="$MALLOC")
TRAINER_ENV=(OMP_NUM_THREADS=2 LD_PRELOAD="$MALLOC")
