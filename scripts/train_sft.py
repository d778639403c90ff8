"""Supervised fine-tuning on exact ids, with TRL's SFTTrainer: the start of a policy that harnesses can use.

    .cache/engine/bin/python scripts/train_sft.py sft.jsonl --model MODEL --out FOLDER [--epochs 2] [--lr 3e-5]

Examples are those of scripts/collect_sft.py: the loss falls on what the assistant said. All weights are trained,
without a GPU in float32 and with oneDNN's linear layers. The loss of every step goes to OUT/log.jsonl; `--save-every N`
leaves models along the way in OUT/checkpoint-STEP.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from trl_integration import onednn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--batch", type=int, default=8, help="examples per optimizer step")
    parser.add_argument("--max-length", type=int, default=2048, help="longer examples are left out, not cut")
    parser.add_argument("--schedule", default="cosine", help="of the learning rate, after 5 steps of warm-up")
    parser.add_argument("--save-every", type=int, default=0, help="steps between models kept; 0: only the last")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    examples = [json.loads(line) for line in args.examples.read_text().splitlines()]
    kept = [{key: one[key] for key in ("input_ids", "completion_mask")} for one in examples]
    kept = [one for one in kept if len(one["input_ids"]) <= args.max_length]
    print(f"{len(kept)} examples, {len(examples) - len(kept)} too long")
    gpu = torch.cuda.is_available()
    if not gpu:
        onednn.use_in_torch()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16 if gpu else torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    config = SFTConfig(
        output_dir=str(args.out),
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type=args.schedule,
        warmup_steps=5,
        per_device_train_batch_size=args.batch if gpu else 1,
        gradient_accumulation_steps=1 if gpu else args.batch,
        gradient_checkpointing=gpu,
        completion_only_loss=True,
        max_length=None,
        logging_steps=1,
        save_strategy="steps" if args.save_every else "no",
        save_steps=args.save_every or 500,
        save_only_model=True,
        report_to=[],
        seed=args.seed,
        use_cpu=not gpu,
        bf16=gpu,
    )
    trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(kept), processing_class=tokenizer)
    trainer.train()
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    (args.out / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in trainer.state.log_history))


if __name__ == "__main__":
    main()
