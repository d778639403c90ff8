"""Recorded rollouts asked again through OpenEnv's capture proxy, whose engine samples the very tokens recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.recorded import Requests, Rollout
from bench.replay_engine import ReplayEngine
from bench.rows import Row, Step, Taken, chained

Json = dict[str, Any]
ADMIN = {"authorization": "Bearer admin"}
SESSION = {"sampling": {"temperature": 1.0}}
"""TRL's harness worker pins its policy's sampling in every session it opens."""


@dataclass(frozen=True)
class Peer:
    """The capture proxy at `url`, in front of `engine`."""

    url: str
    engine: ReplayEngine
    http: aiohttp.ClientSession

    async def replayed(self, rollout: Rollout, asked: Requests) -> tuple[Taken, Taken]:
        """The rollout as its `/rollout` rows train it, and as TRL makes rows of its training trace.

        A turn the proxy does not answer is refused, and the rest go on.
        """
        opened = await self._json("POST", "/sessions", SESSION)
        key = opened["session_id"]
        try:
            known = [turn["id"] for turn in rollout.asked() if await self._answered(key, turn, *asked[turn["id"]])]
            document = await self._json("GET", f"/sessions/{key}/rollout")
            traced = await self._json("GET", f"/sessions/{key}/trace_entries", refused={"entries": []})
        finally:
            await self._json("DELETE", f"/sessions/{key}")
        refused = len(rollout.sampled) - len(known)
        names = named(document, known, rollout.sampled)
        fatal = any("[FATAL" in finding for finding in document["validation"])
        entries = [] if fatal else traced["entries"]
        taken = Taken(rollout.sampled, rows(document, names), refused)
        return taken, Taken(rollout.sampled, chained(steps(entries, names)), refused)

    async def _answered(self, key: str, turn: Json, path: str, body: Json) -> bool:
        self.engine.turn = turn
        headers = {"authorization": f"Bearer {key}"}
        async with self.http.post(self.url + path, json=body, headers=headers) as response:
            await response.read()
            return response.status == 200 and self.engine.turn is None

    async def _json(self, method: str, path: str, body: Json | None = None, refused: Json | None = None) -> Json:
        async with self.http.request(method, self.url + path, json=body, headers=ADMIN) as response:
            if refused is not None and response.status == 409:
                return refused
            response.raise_for_status()
            found: Json = await response.json()
            return found


def named(document: Json, known: list[str], sampled: Mapping[str, int]) -> dict[str, str]:
    """The recorded turn behind each node of the proxy's graph, which are in the order they were asked in.

    RuntimeError: the proxy's calls are not those that were sent.
    """
    nodes = sorted(document["turns"], key=lambda node: int(node["index"]))
    if [node["n_sampled"] for node in nodes] != [sampled[turn] for turn in known]:
        raise RuntimeError(f"the proxy recorded {len(nodes)} calls of {len(known)}, or other tokens")
    return {node["node_id"]: turn for node, turn in zip(nodes, known, strict=True)}


def rows(document: Json, names: Mapping[str, str]) -> list[Row]:
    """The rows the proxy marks as trainable, with the turns whose tokens have mask 1 in them."""
    starts = {node["node_id"]: node["n_prompt"] for node in document["turns"]}
    return [
        Row(row["input_ids"], [names[node] for node in row["node_ids"] if any(row["loss_mask"][starts[node] :][:1])])
        for row in document["sequences"]
        if row["trainable"]
    ]


def steps(entries: list[Json], names: Mapping[str, str]) -> list[Step]:
    """The turns of the proxy's training trace."""
    return [
        Step(
            names[entry["metadata"]["node_id"]],
            entry["prompt_token_ids"],
            entry["completion_token_ids"],
            any(entry["loss_mask"]),
        )
        for entry in entries
    ]
