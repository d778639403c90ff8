"""What the gateway counts, in Prometheus text."""

from __future__ import annotations

from collections import Counter


class Metrics:
    """Counts of this process since it started. Names and units follow Prometheus custom."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.in_flight = 0
        self.prompt_tokens = 0
        self.sampled_tokens = 0
        self.call_seconds = 0.0

    @property
    def served(self) -> int:
        """Calls that have ended."""
        return sum(self.calls.values())

    def text(self, *, sessions: int) -> str:
        lines = ["# HELP harbor_gateway_calls_total Model calls by dialect and outcome."]
        lines.append("# TYPE harbor_gateway_calls_total counter")
        for (dialect, outcome), count in sorted(self.calls.items()):
            lines.append(f'harbor_gateway_calls_total{{dialect="{dialect}",outcome="{outcome}"}} {count}')
        lines += _metric("calls_in_flight", "gauge", "Model calls being served.", self.in_flight)
        lines += _metric("sessions_in_memory", "gauge", "Sessions this process keeps in memory.", sessions)
        lines += _metric("prompt_tokens_total", "counter", "Prompt tokens of served calls.", self.prompt_tokens)
        lines += _metric("sampled_tokens_total", "counter", "Tokens sampled in served calls.", self.sampled_tokens)
        lines += _metric("call_seconds_total", "counter", "Seconds spent serving calls.", round(self.call_seconds, 6))
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, meaning: str, value: float) -> list[str]:
    full = f"harbor_gateway_{name}"
    return [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {value}"]
