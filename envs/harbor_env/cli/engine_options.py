"""The options by which a command names its engine, said once for every command that has them."""

from __future__ import annotations

from typing import Annotated

from typer import Option

LlmUrl = Annotated[str, Option(help="Base URL of the engine. Without it and --engine the embedded one.")]
Engine = Annotated[str, Option(help="KIND[:ARG]: vllm, sglang, llamacpp[:FILE.gguf], scripted:MODULE:POLICY.")]
Model = Annotated[str, Option(help="The model's name at the engine.")]
LlmApiKey = Annotated[str, Option(help="Key for the engine.", envvar="OPENENV_LLM_API_KEY")]
Tokenizer = Annotated[str, Option(help="Folder, .gguf file or hub id. Default: the model's name.")]
Renderer = Annotated[str, Option(help="Renderer by name or module:Name. Default: by model or template.")]
Window = Annotated[int, Option(help="Context length in tokens, where the engine does not say it.")]
ChatTemplate = Annotated[str, Option(help="File of a chat template in place of the model's own.")]
TemplateKwargs = Annotated[str, Option(help="Template variables of every session, as a JSON object.")]
