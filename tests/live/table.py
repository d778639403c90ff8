"""The page about live runs, made from their facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Runs = Mapping[str, Mapping[str, Any]]

INTRODUCTION = """# Live runs

Real coding agents, unmodified, in the versions `openenv-harbor harnesses` lists, each on the bundled task
`l3-eight-step-trail` (read eight notes one after the other, write their sum) through Harbor in the local sandbox. In
place of a model a Python policy answers, with real tokens: Qwen3's tokenizer, one token in ten split as no encoder
would split it, JSON arguments oddly spaced. So every token is known before the harness sees its text, and what comes
out for a trainer can be held against what the engine sampled.

Each cell says **training rows / model turns**. One row is the ideal: the whole rollout is one sequence in which every
sampled token is trained once. A harness that changes its own history makes another row, for what it sends then does not
begin with what the model saw.

* `*` is explained below: the harness rewrote its history, or threw a reply away.
* `†`: the harness ended the run there, and the task was not solved. What was sampled until then is trained as well.
* `-` was not run, or cannot be: aider and terminus-2 offer no tools, so nothing is called in parallel, by a wrong name
  or six times.
* `dropped connection` breaks the line three times in one rollout: behind a reply of which nothing arrived, while the
  harness waits, and in the middle of a reply. A call given up leaves no turn; a reply that did not arrive whole is
  kept, marked `discarded` and not trained. aider is done after two calls.
* `forced compaction` gives a window so small that the harness sums its history up on the way, and goes on from that.
  The summary is not trained; what follows it is another row. mini-swe-agent never shortens a history, openhands-sdk
  runs without a condenser, aider sums up nothing in a run of one message.
* `subagent` hands the trail to one or two subagents, beside the main conversation where the harness can do that. Each
  is a row of its own. mini-swe-agent, pi, terminus-2, aider and openhands-sdk, as they are run here, have none.

Checked in each cell, against a log that the engine writes and not against the trace: every reply the engine sampled is
a turn and stands in exactly one row, behind the very prompt the engine was given, with mask 1 and the engine's own log
probabilities; no other token has mask 1; the findings are those expected and no others. Replies that a harness throws
away and asks for again are kept and marked, not trained; summaries and titles are not judged by the reward and not
trained either.

"""

REPRODUCE = """
## Run it again

Everything (needs the layers that `openenv-harbor bake` makes, and makes them itself where they are missing):

    make live

One harness, one of its dialects, one cell:

    .venv/bin/pytest -m live tests/live/test_live_cases.py -k 'opencode'
    .venv/bin/pytest -m live tests/live/test_live_cases.py -k '[opencode.gemini--'
    .venv/bin/pytest -m live tests/live/test_live_cases.py -k '[opencode.gemini--length-cut]'

All chosen cells run one after the other on one gateway, so that each costs what its harness takes. With
`OPENENV_HARBOR_LIVE=DIR` the rollouts are kept in DIR: an interrupted suite goes on from there, and what DIR has is
checked again without being run again.

The same cell by hand, to look at its trace, rows and logs; `tests/live/upsets.py` has a class for each case:

    .venv/bin/openenv-harbor rollout --harness opencode@gemini --task l3-eight-step-trail --out DIR \\
        --engine 'scripted:tests.live.upsets:Cut?noncanonical=0.1&odd_json=0.5&seed=11' \\
        --tokenizer "$(.venv/bin/python -c 'from tests.tokenizers import qwen3_dir; print(qwen3_dir())')"
"""

SHORT = {
    "thinking, text and a call": "thinking + text + call",
    "two parallel calls": "parallel calls",
    "engine 500, then 429": "500, then 429",
    "the same call six times": "same call × 6",
}


def page(proved: Mapping[str, Runs]) -> str:
    cases = list(dict.fromkeys(case for runs in _longest_first(proved) for case in runs))
    parts = [INTRODUCTION, _matrix(proved, cases), _shares(proved), _reasons(proved), REPRODUCE, _details(proved)]
    return "".join(parts)


def _longest_first(proved: Mapping[str, Runs]) -> Sequence[Runs]:
    return sorted(proved.values(), key=len, reverse=True)


def _matrix(proved: Mapping[str, Runs], cases: Sequence[str]) -> str:
    lines = [("harness", *(SHORT.get(case, case) for case in cases))]
    lines += [(name, *(_cell(runs.get(case)) for case in cases)) for name, runs in proved.items()]
    return _table(lines)


def _cell(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "-"
    return f"{run['rows']} / {run['turns']} {'' if run['reward'] == 1 else '†'}{'*' if run['note'] else ''}".strip()


def _shares(proved: Mapping[str, Runs]) -> str:
    """Per harness, over the runs whose engine kept a log: what it sampled, and the share of it that is trained."""
    lines: list[Sequence[object]] = [("harness", "version", "runs", "rows", "tokens sampled", "trained")]
    for name, runs in proved.items():
        counted = [run for run in runs.values() if run.get("sampled")]
        sampled = sum(run["sampled"] for run in counted)
        trained = sum(run["sampled"] * run["trained"] for run in counted)
        if sampled:
            versions = ", ".join(dict.fromkeys(run["version"] for run in counted))
            rows = sum(run["rows"] for run in counted)
            lines.append((name, versions, len(counted), rows, sampled, f"{trained / sampled:.1%}"))
    told = "What the engine sampled for conversations that are trained, by its own log, over all cases counted so."
    return f"\n## Tokens\n\n{told}\n\n" + _table(lines)


def _reasons(proved: Mapping[str, Runs]) -> str:
    """Why some cells are not one row with everything trained, a line per reason."""
    lines: list[Sequence[object]] = [("harness", "case", "rows", "trained", "why")]
    for name, runs in proved.items():
        noted = [(case, run) for case, run in runs.items() if run["note"]]
        lines += [(name, case, run["rows"], f"{run['trained']:.1%}", run["note"]) for case, run in noted]
    return "\n## Where a harness differs\n\n" + _table(lines) if len(lines) > 1 else ""


def _details(proved: Mapping[str, Runs]) -> str:
    lines: list[Sequence[object]] = [("harness", "case", "reward", "turns", "rows", "trained", "findings")]
    for name, runs in proved.items():
        for case, run in runs.items():
            findings = ", ".join(f"{code} {count}" for code, count in run["findings"].items())
            reward = "none" if run["reward"] is None else f"{run['reward']:g}"
            lines.append((name, case, reward, run["turns"], run["rows"], f"{run['trained']:.1%}", findings))
    told = "A finding is what the gateway has to say of a session; `docs/findings.md` explains the codes."
    return f"\n## Every run\n\n{told}\n\n" + _table(lines)


def _table(lines: Iterable[Sequence[object]]) -> str:
    head, *body = [" | ".join(map(str, line)) for line in lines]
    rule = "|".join("---" for _ in head.split(" | "))
    return f"| {head} |\n|{rule}|\n" + "".join(f"| {line} |\n" for line in body)
