"""Reads a Dockerfile into steps: nothing is run, and of the context only the text is looked at.

Invariant: an instruction is either carried out, or named in a note because it has no meaning here, or refused.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

from harbor_env.errors import TaskError
from harbor_env.sandboxes.words import expand, heredoc_names, split_words, without_heredocs

_WITHOUT_MEANING = "CMD ENTRYPOINT EXPOSE HEALTHCHECK LABEL MAINTAINER STOPSIGNAL VOLUME".split()  # noqa: SIM905
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?(?:\s+|$)")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_ELSEWHERE = "use another sandbox, such as --sandbox docker"


@dataclass(frozen=True, slots=True)
class Run:
    """A command, with what ARG, ENV, WORKDIR and USER came before it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: str
    line: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the context, or one file's text, to a path inside. `unpack` is ADD's way with local archives."""

    sources: tuple[str, ...]
    target: str
    owner: str = ""
    mode: str = ""
    unpack: bool = False
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MakeDir:
    """A WORKDIR, which has to exist."""

    path: str
    user: str


Step = Run | Copy | MakeDir


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Dockerfile, read. `env`, `workdir` and `user` hold for commands run in the finished sandbox."""

    image: str
    steps: tuple[Step, ...]
    env: Mapping[str, str]
    workdir: str
    user: str
    notes: tuple[str, ...]


def read_dockerfile(text: str, name: str = "Dockerfile") -> Recipe:
    """Raises TaskError, in one sentence, for what cannot be built without Docker."""
    text, documents = _lift_heredocs(text)
    reader = _Reader(name, documents)
    for entry in _instructions(text):
        reader.take(entry["instruction"].upper(), entry["value"], entry["startline"] + 1)
    if not reader.image:
        raise TaskError(f"{name} has no FROM")
    return Recipe(
        reader.image, tuple(reader.steps), reader.env, reader.workdir, reader.user, tuple(dict.fromkeys(reader.notes))
    )


def _instructions(text: str) -> list[dict[str, Any]]:
    from dockerfile_parse import DockerfileParser

    return [
        entry
        for entry in DockerfileParser(fileobj=BytesIO(text.encode())).structure
        if entry["instruction"] != "COMMENT"
    ]


def _lift_heredocs(text: str) -> tuple[str, dict[str, list[str]]]:
    """Take here-documents out of the text, leaving empty lines, so that line numbers stay. Keyed by opening line."""
    kept: list[str] = []
    documents: dict[str, list[str]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        kept.append(line)
        if not re.match(r"\s*(RUN|COPY|ADD)\s", line, re.IGNORECASE):
            continue
        for terminator, tabs, _ in heredoc_names(line):
            body: list[str] = []
            for inner in lines:
                kept.append("")
                stripped = inner.lstrip("\t") if tabs else inner
                if stripped == terminator:
                    break
                body.append(stripped)
            documents.setdefault(line.split(maxsplit=1)[1].strip(), []).append("\n".join(body) + "\n")
    return "\n".join(kept) + "\n", documents


class _Reader:
    """Takes one instruction after the other."""

    def __init__(self, name: str, documents: Mapping[str, list[str]]) -> None:
        self.name = name
        self.documents = documents
        self.image = self.user = ""
        self.workdir = "/"
        self.env: dict[str, str] = {}
        machine = _MACHINES.get(platform.machine(), platform.machine())
        self.offered = {"TARGETARCH": machine, "TARGETOS": "linux", "TARGETPLATFORM": f"linux/{machine}"}
        self.args: dict[str, str] = {}
        self.shell: tuple[str, ...] = ("/bin/sh", "-c")
        self.steps: list[Step] = []
        self.notes: list[str] = []

    def take(self, word: str, value: str, line: int) -> None:
        method = getattr(self, f"_{word.lower()}", None)
        if word in _WITHOUT_MEANING:
            self.notes.append(f"{self.name}: {word} has no effect in the local sandbox")
        elif method is None or word.lower() not in (
            "from",
            "arg",
            "env",
            "workdir",
            "user",
            "run",
            "copy",
            "add",
            "shell",
        ):
            self._refuse(line, f"{word} is not an instruction the local sandbox can build")
        elif not self.image and word not in ("FROM", "ARG"):
            self._refuse(line, f"{word} comes before FROM")
        else:
            method(value, line)

    def _refuse(self, line: int, why: str) -> None:
        raise TaskError(f"{self.name} line {line}: {why}; {_ELSEWHERE}")

    def _expand(self, text: str) -> str:
        return expand(text, {**self.args, **self.env})

    def _from(self, value: str, line: int) -> None:
        if self.image:
            self._refuse(line, "a build in several stages is not something the local sandbox can do")
        self.image = self._expand(_FLAG.sub("", value)).split()[0]
        self.args = {}

    def _arg(self, value: str, line: int) -> None:
        for word in split_words(value):
            name, given, default = word.partition("=")
            if given or name in self.offered:
                self.args[name] = self._expand(default) if given else self.offered[name]

    def _env(self, value: str, line: int) -> None:
        first = value.split(maxsplit=1)
        if "=" not in first[0]:
            self.env[first[0]] = self._expand(first[1] if len(first) > 1 else "")
            return
        before = {**self.args, **self.env}
        for word in split_words(expand(value, before)):
            name, _, text = word.partition("=")
            self.env[name] = text

    def _workdir(self, value: str, line: int) -> None:
        self.workdir = str(PurePosixPath(self.workdir, split_words(self._expand(value))[0]))
        self.steps.append(MakeDir(self.workdir, self.user))

    def _user(self, value: str, line: int) -> None:
        self.user = self._expand(value).strip()

    def _shell(self, value: str, line: int) -> None:
        self.shell = tuple(self._json(value, line) or ())

    def _json(self, value: str, line: int) -> list[str] | None:
        """The exec form of an instruction; None for the shell form."""
        if not value.startswith("["):
            return None
        try:
            words = json.loads(value)
        except ValueError:
            return None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            self._refuse(line, "the list is not one of strings")
        return list(words)

    def _run(self, value: str, line: int) -> None:
        flags, rest = _flags(value)
        for name, option in flags:
            if name == "mount" and "type=cache" in option:
                self.notes.append(f"{self.name}: RUN --mount=type=cache has no effect in the local sandbox")
            else:
                self._refuse(line, f"RUN --{name} is not supported")
        words = self._json(rest, line)
        argv = tuple(words) if words else (*self.shell, self._script(value, rest))
        self.steps.append(Run(argv, {**self.args, **self.env}, self.workdir, self.user, line))

    def _script(self, value: str, rest: str) -> str:
        bodies = self.documents.get(value, [])
        if not bodies:
            return rest
        if not without_heredocs(rest):
            return "".join(bodies)
        endings = [f"{body}{name[0]}\n" for body, name in zip(bodies, heredoc_names(rest), strict=True)]
        return f"{rest}\n{''.join(endings)}"

    def _copy(self, value: str, line: int, *, unpack: bool = False) -> None:
        flags, rest = _flags(value)
        known = {"chown": "", "chmod": "", "link": ""}
        for name, option in flags:
            if name not in known:
                self._refuse(line, f"{'ADD' if unpack else 'COPY'} --{name} is not supported")
            known[name] = self._expand(option)
        if self.documents.get(value):
            self._inline(value, rest, known, line)
            return
        words = [self._expand(word) for word in self._json(rest, line) or ()] or split_words(self._expand(rest))
        if len(words) < 2:
            self._refuse(line, "COPY needs a source and a target")
        if any("://" in word or word.startswith("git@") for word in words[:-1]):
            self._refuse(line, "ADD of a URL is not supported")
        self.steps.append(Copy(tuple(words[:-1]), self._target(words[-1]), known["chown"], known["chmod"], unpack))

    def _inline(self, value: str, rest: str, known: Mapping[str, str], line: int) -> None:
        bodies, names = self.documents[value], heredoc_names(rest)
        words = split_words(self._expand(without_heredocs(rest)))
        if len(bodies) != 1 or len(words) != 1:
            self._refuse(line, "a here-document is copied alone, to one target")
        text = self._expand(bodies[0]) if names[0][2] else bodies[0]
        target = self._target(words[0])
        target = f"{target}{names[0][0]}" if target.endswith("/") else target
        self.steps.append(Copy((), target, known["chown"], known["chmod"], text=text))

    def _add(self, value: str, line: int) -> None:
        self._copy(value, line, unpack=True)

    def _target(self, word: str) -> str:
        path = str(PurePosixPath(self.workdir, word))
        return f"{path.rstrip('/')}/" if word.endswith(("/", "/.")) or word == "." else path


def _flags(value: str) -> tuple[list[tuple[str, str]], str]:
    """Leading --name=value words and the rest."""
    flags = []
    while match := _FLAG.match(value):
        flags.append((match[1], match[2] or ""))
        value = value[match.end() :]
    return flags, value
