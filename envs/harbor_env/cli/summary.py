"""What a finished rollout and a finished batch look like as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harbor_env.outcome import RolloutResult, one_line
from harbor_env.tally import Standing, by_harness, count, groups, interval, standing

LEGEND = {
    "atif=match": "the harness's own record of its tool calls (ATIF) agrees with what was captured",
    "atif=differ": "the harness records other calls than were captured; `atif` in results.jsonl says which",
    "atif=none": "the harness keeps no record of its own to compare with",
    "budget": "the model was stopped by --max-calls, --max-output-tokens or --max-seconds",
    "timeout": "the harness ran out of time, and its work was graded as it stood",
    "agent_error": "the harness ended with an error, and its work was graded as it stood",
    "forged_reward": "the harness wrote a reward itself; it was removed, and only the verifier's own counts",
    "planted_tests": "the harness left files where it is graded; they were removed before grading",
    "unscorable": "no reward, which is not a reward of 0; kinds: docs/rollouts.md",
}
"""The words of the lines above that a newcomer cannot know."""


def result_line(result: RolloutResult) -> str:
    """One finished rollout on one line."""
    seconds = f"{result.seconds.get('total', 0):.0f}s"
    tries = f"tries={result.tries}  " if result.tries > 1 else ""
    if result.reason is not None:
        return f"   FAIL  {failure(result)}  {_counts(result)}{tries}{seconds}"
    flags = "".join(f"  {flag}" for flag in result.flags)
    level = "" if result.level in ("tokens", "") else f"  level={result.level}"
    reward = f"reward={result.reward:.2f}"
    return f"   ok    {reward}  {_counts(result)}{tries}atif={result.atif.status}{level}{flags}  {seconds}"


def failure(result: RolloutResult) -> str:
    """The kind of failure and its sentence on one line, "" for a rollout that scored."""
    return f"{result.reason.kind}: {one_line(result.reason.sentence)}" if result.reason else ""


def _counts(result: RolloutResult) -> str:
    if not result.counts:
        return ""
    counts = result.counts
    return "".join(
        f"{label}={counts.get(key, 0)}  "
        for label, key in (("turns", "turns"), ("roots", "roots"), ("rows", "rows"), ("tokens", "sampled_tokens"))
    )


def summary(results: Sequence[RolloutResult]) -> list[str]:
    """A line per harness, one for all where there are several, groups of attempts, and what the words mean."""
    found = by_harness(results)
    width = max(12, *(len(name) for name in found)) + 2 if found else 14
    head = f"{'harness':<{width}}{'n':>5}{'scored':>8}{'passed':>8}{'95 %':>10}{'reward':>8}{'turns':>7}{'rows':>6}"
    lines = ["", f"{head}{'tokens':>10}  unscorable"]
    lines += [_row(name, standing(group), width) for name, group in found.items()]
    if len(found) > 1:
        lines.append(_row("all", standing(results), width))
    several, mixed, solved = groups(results)
    if several:
        lines.append(
            f"{count(several, 'group')} of attempts at one task: {mixed} with differing rewards, {solved} with a pass"
        )
    return [*lines, *legend(results)]


def _row(name: str, now: Standing, width: int) -> str:
    low, high = interval(now.passed, now.scored)
    passed, between = (f"{now.rate:.0%}", f"{low:.0%}-{high:.0%}") if now.rate is not None else ("-", "-")
    mean = "-" if now.mean is None else f"{now.mean:.2f}"
    numbers = f"{now.n:>5}{now.scored:>8}{passed:>8}{between:>10}{mean:>8}{now.turns:>7}{now.rows:>6}{now.tokens:>10}"
    return f"{name:<{width}}{numbers}  {kinds(now) or '-'}"


def kinds(now: Standing) -> str:
    """What could not be scored, by kind, the most frequent first."""
    return ", ".join(f"{kind} {number}" for kind, number in now.unscorable.most_common())


def legend(results: Sequence[RolloutResult]) -> list[str]:
    """A line for each word in these results that needs one."""
    seen = {f"atif={result.atif.status}" for result in results if result.ok}
    seen |= {flag for result in results for flag in result.flags}
    seen |= {"unscorable"} if not all(result.ok for result in results) else set()
    return [f"  {word}: {meaning}" for word, meaning in LEGEND.items() if word in seen]
