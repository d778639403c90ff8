"""Datasets in git repositories, Hugging Face's included: fetched once per commit by plain git, then read from a cache.

Invariant: what a spec says reaches git only as a checked URL, ref or commit after `--`; nothing it names is written
outside the cache; a commit once fetched is never fetched again, with or without a network.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from harbor_env.errors import TaskError
from harbor_env.sandboxes.places import places
from harbor_env.whole_file import write_whole

log = logging.getLogger(__name__)

FETCHED_WITHIN = 1800
ANSWERED_WITHIN = 60
"""Seconds for git to fetch a commit, and to say which commit a ref is."""

_SCHEMES = ("https", "http", "ssh", "git", "file")
_REF = re.compile(r"[A-Za-z0-9_][\w./+-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAMED = re.compile(r"(hf:)?\w[\w.-]*/\w[\w.-]*(@.*)?")
_SCP = re.compile(r"(\w[\w.-]*@\w[\w.-]*:[\w~][\w./~-]*)")
_HOST = re.compile(r"\w[\w.-]*@[\w.-]+:")
_SAFE = ("core.hooksPath=/dev/null", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "advice.detachedHead=false")


@dataclass(frozen=True, slots=True)
class Repository:
    """`ref` is a branch, a tag or a full commit, "" for the default branch; `folder` lies below the repository."""

    url: str
    ref: str = ""
    folder: str = ""

    @property
    def shown(self) -> str:
        """The URL without a password."""
        parts = urlsplit(self.url)
        if not parts.scheme:
            return self.url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def parse_repository(spec: str) -> Repository:
    """The repository a spec names: ORG/NAME, hf:ORG/NAME, a URL or USER@HOST:PATH; then maybe @REF and #FOLDER.

    Raises TaskError for what git could take for anything but a place and a ref.
    """
    rest, _, folder = spec.partition("#")
    url, ref, tree = _split(rest)
    folder = folder or tree
    if ref and not is_ref(ref):
        raise TaskError(f"{ref!r} is no branch, tag or commit, so {spec!r} cannot be fetched.")
    if folder and (Path(folder).is_absolute() or ".." in Path(folder).parts):
        raise TaskError(f"{folder!r} leaves the repository: name a folder below it after the #.")
    return Repository(url, ref, folder)


def is_ref(name: str) -> bool:
    """Whether git can take it for nothing but a branch, a tag or a commit."""
    return bool(_REF.fullmatch(name)) and ".." not in name and not name.endswith((".lock", "/", "."))


def is_address(spec: str) -> bool:
    """Whether it names a host, as a URL or USER@HOST:PATH does, and is not a name that stands for one."""
    return "://" in spec or bool(_HOST.match(spec))


def _split(spec: str) -> tuple[str, str, str]:
    """(url, ref, folder) of a spec without its #FOLDER."""
    if "://" not in spec and not spec.startswith("hf:") and ":" in spec:
        user, _, place = spec.partition(":")
        path, _, ref = place.partition("@")
        if not _SCP.fullmatch(f"{user}:{path}"):
            raise TaskError(f"{spec!r} is no address of a git repository: expected USER@HOST:PATH.")
        return f"{user}:{path}", ref, ""
    if "://" not in spec:
        if not _NAMED.fullmatch(spec):
            raise TaskError(f"{spec!r} is no address of a git repository: expected ORG/NAME, hf:ORG/NAME or a URL.")
        hub = spec.startswith("hf:")
        home = f"{os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'}/datasets" if hub else "https://github.com"
        spec = f"{home.rstrip('/')}/{spec.removeprefix('hf:').lstrip('/')}"
    parts = urlsplit(spec)
    path, _, ref = parts.path.partition("@")
    if parts.scheme not in _SCHEMES or re.search(r"[\s\0-\x1f\x7f\\]", spec) or parts.query:
        raise TaskError(f"{spec!r} is no address of a git repository: expected one of {', '.join(_SCHEMES)}://.")
    if parts.netloc.rpartition("@")[2].startswith("-") or (parts.scheme != "file" and not parts.netloc):
        raise TaskError(f"{spec!r} is no address of a git repository: it names no host.")
    repository, tree, below = path.partition("/tree/")
    if tree and not ref:
        path = repository
        ref, _, folder = below.strip("/").partition("/")
    else:
        folder = ""
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", "")), ref, folder


def fetch(repository: Repository) -> tuple[Path, str]:
    """(folder, commit) of the repository at its ref. TaskError: it cannot be had, and is not in the cache either."""
    if shutil.which("git") is None:
        raise TaskError(f"git is not installed, so {repository.shown} cannot be fetched: install it, or give a folder.")
    key = hashlib.sha256(repository.url.encode()).hexdigest()[:24]
    home = places().cache / "datasets" / "git" / key
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(home):
        commit = _resolve(repository, home)
        checkout = home / commit
        if not checkout.is_dir():
            _check_out(repository, commit, checkout)
    return checkout, commit


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve(repository: Repository, home: Path) -> str:
    """The commit a ref is now; what it was when last asked where nobody answers."""
    if _COMMIT.fullmatch(repository.ref):
        return repository.ref
    known_file = home / "refs.json"
    known: dict[str, str] = json.loads(known_file.read_text()) if known_file.is_file() else {}
    try:
        said = _git("ls-remote", "--", repository.url, repository=repository, within=ANSWERED_WITHIN)
    except TaskError:
        commit = known.get(repository.ref, "")
        if commit and (home / commit).is_dir():
            log.warning("%s does not answer; using commit %s, the one found last.", repository.shown, commit)
            return commit
        raise
    refs = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
    ref = repository.ref
    names = [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", ref] if ref else ["HEAD"]
    found = next((refs[name] for name in names if name in refs), "")
    if not _COMMIT.fullmatch(found):
        branches = [name.removeprefix("refs/heads/") for name in refs if name.startswith("refs/heads/")][:5]
        hint = "give a branch, a tag or a full commit" + (f"; there is: {', '.join(branches)}" if branches else "")
        raise TaskError(f"{repository.shown} has no {ref or 'commit'!r}: {hint}.")
    write_whole(known_file, [json.dumps({**known, repository.ref: found}).encode()])
    return found


def _check_out(repository: Repository, commit: str, checkout: Path) -> None:
    """Put the files of `commit` into the folder `checkout`, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=checkout.parent, prefix="part-") as folder:
        made = Path(folder, "files")
        _git("init", "--quiet", "--", str(made), repository=repository)
        _git("remote", "add", "--", "origin", repository.url, repository=repository, cwd=made)
        try:
            _git("fetch", "--quiet", "--no-tags", "--depth=1", "origin", commit, repository=repository, cwd=made)
        except TaskError:  # a server that gives no commit by its name
            everything = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            _git("fetch", "--quiet", "origin", *everything, repository=repository, cwd=made)
        _git("checkout", "--quiet", "--detach", commit, repository=repository, cwd=made)
        if _git("rev-parse", "HEAD", repository=repository, cwd=made).strip() != commit:
            raise TaskError(f"{repository.shown} gave something else than commit {commit}; try again.")
        shutil.rmtree(made / ".git")
        made.rename(checkout)


def _git(*words: str, repository: Repository, cwd: Path | None = None, within: float = FETCHED_WITHIN) -> str:
    settings = [word for setting in _SAFE for word in ("-c", setting)]
    environment = {
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(_SCHEMES),
        "LC_ALL": "C",
    }
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            ["git", *settings, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TaskError(f"{repository.shown} did not answer within {within:.0f} seconds; try again later.") from None
    if done.returncode:
        raise TaskError(f"{repository.shown} cannot be fetched: {_why(done.stderr, repository)}")
    return done.stdout


def _why(said: str, repository: Repository) -> str:
    """The last thing git complained of, and what to do about it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    cause = next((line for line in lines if line.startswith(("fatal:", "error:"))), (lines or ["git failed"])[-1])
    cause = re.sub(r"(?<=://)[^\s/@]+@", "", cause).replace(repository.url, repository.shown).rstrip(".")
    if re.search(r"could not read Username|Authentication failed|Permission denied|terminal prompts disabled", said):
        return f"{cause}. Is it private, or misspelt? Give git your credentials (a credential helper, or an ssh URL)."
    if re.search(r"Could not resolve host|unable to access|Connection|timed out", said):
        return f"{cause}. Without a network, give a folder, or a commit fetched before."
    if re.search(r"[Nn]ot found|does not (exist|appear)", said):
        return f"{cause}. Check the address, or give a folder."
    return f"{cause}."
