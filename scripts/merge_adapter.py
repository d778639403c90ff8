"""Writes a model folder with an adapter's weights merged in, for an engine to serve at full speed.

    .cache/engine/bin/python scripts/merge_adapter.py runs/first/checkpoint-100 --out MODEL [--base MODEL]

The base is the one the adapter was trained on, unless `--base` names a folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", default="")
    args = parser.parse_args()
    if not (args.adapter / "adapter_config.json").is_file():
        sys.exit(f"merge_adapter.py: {args.adapter} holds no adapter: there is no adapter_config.json")
    base = args.base or PeftConfig.from_pretrained(args.adapter).base_model_name_or_path
    if args.out.resolve() in (Path(base).resolve(), args.adapter.resolve()):
        sys.exit(f"merge_adapter.py: {args.out} is what is merged: give another folder")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    PeftModel.from_pretrained(model, args.adapter).merge_and_unload().save_pretrained(args.out)
    AutoTokenizer.from_pretrained(base).save_pretrained(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
