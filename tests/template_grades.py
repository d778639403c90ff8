"""The grade of every chat template TRL ships: `python -m tests.template_grades` writes the table in docs/rendering.md.

All templates share one carrier tokenizer that has every family's special tokens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.families import choose
from harbor_env.gateway.rendering.family_renderer import FamilyRenderer
from harbor_env.gateway.rendering.source import Source
from harbor_env.gateway.rendering.tokens import Tokens
from tests.rendering_models import TOOLS, assistant, bash, carrier, special_of, tool, user
from tests.tokenizers import trl_templates

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "rendering.md"
HEAD = "| template | renderer | grade | tools | calls as | system messages |\n|---|---|---|---|---|---|\n"


def names() -> list[str]:
    return sorted(path.stem for path in trl_templates().glob("*.jinja"))


def renderer_of(name: str) -> FamilyRenderer:
    template = (trl_templates() / f"{name}.jinja").read_text()
    source = Source({}, template, special_of(name), ("<eos>",), name)
    renderer = choose(_tokens(), source, template, None, {})
    assert isinstance(renderer, FamilyRenderer)
    return renderer


@cache
def _tokens() -> Tokens:
    return carrier("\n".join((trl_templates() / f"{name}.jinja").read_text() for name in names()), "carrier")


def row(name: str) -> str:
    renderer = renderer_of(name)
    shape = renderer.shape
    grade = renderer.tito if renderer.tito == "exact" else f"{renderer.tito}: {renderer.proof}"
    tools = "own" if shape.tools else "carried"
    return f"| {name} | {renderer.name} | {grade} | {tools} | {renderer.grammar} | {shape.system} |"


def carries_tools(renderer: FamilyRenderer) -> bool:
    """Whether a tool reaches the prompt, a call comes back from sampled ids, and its result reaches the next prompt."""
    prompt = renderer.render([user("hi")], TOOLS)
    sampled = renderer.compose(assistant("", bash('{"command": "ls"}')), TOOLS)
    read = renderer.parse(sampled, prompt, TOOLS).message.tool_calls
    if "Run a command." not in renderer.decode(prompt) or [call.name for call in read] != ["bash"]:
        return False
    delta = renderer.bridge(prompt, sampled, [tool("the-result", "functions.bash:0")], TOOLS)
    try:
        told = delta.ids if delta else renderer.render([user("hi"), tool("the-result", "c1")], TOOLS)
    except RenderingError:
        return False
    return "the-result" in renderer.decode(told)


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(text[: text.index("| template |")] + HEAD + "\n".join(map(row, names())) + "\n")
