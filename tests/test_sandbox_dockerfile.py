"""Reading Dockerfiles: what is carried out, what is noted, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harbor_env.errors import TaskError
from harbor_env.sandboxes.context import Context, context_digest
from harbor_env.sandboxes.dockerfile import Copy, MakeDir, Run, read_dockerfile
from harbor_env.sandboxes.words import expand, split_words
from tests.sandbox_world import write_tree


def test_steps_carry_the_state_that_came_before_them() -> None:
    recipe = read_dockerfile(
        "ARG TAG=3.12\nFROM python:${TAG}-slim AS base\nENV A=1 B='two words'\nWORKDIR /app\nUSER app\n"
        "RUN make \\\n    # a comment in between\n    all\nWORKDIR sub\nUSER root\nCOPY data/ ./\n"
    )
    assert recipe.image == "python:3.12-slim"
    assert recipe.steps == (
        MakeDir("/app", ""),
        Run(("/bin/sh", "-c", "make     all"), {"A": "1", "B": "two words"}, "/app", "app", 6),
        MakeDir("/app/sub", "app"),
        Copy(("data/",), "/app/sub/"),
    )
    assert (recipe.env, recipe.workdir, recipe.user) == ({"A": "1", "B": "two words"}, "/app/sub", "root")


def test_exec_form_shell_and_build_arguments() -> None:
    recipe = read_dockerfile(
        'FROM x\nARG V=7\nARG TARGETOS\nSHELL ["/bin/bash", "-ec"]\nRUN echo $V\nRUN ["ls", "-l"]\nENV W=${V}x\n'
    )
    first, second = recipe.steps
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert first.argv == ("/bin/bash", "-ec", "echo $V")
    assert first.env == {"V": "7", "TARGETOS": "linux"}
    assert second.argv == ("ls", "-l")
    assert recipe.env == {"W": "7x"}


def test_here_documents_run_as_scripts_and_become_files() -> None:
    recipe = read_dockerfile(
        "FROM x\nENV N=5\nRUN <<EOF\nset -e\necho $N\nEOF\nRUN cat <<'END' > /f\nbody # not a comment\nEND\n"
        "COPY <<EOF /etc/app.conf\nn=$N\nEOF\n"
    )
    script, shell, file = recipe.steps
    assert isinstance(script, Run)
    assert isinstance(shell, Run)
    assert script.argv[-1] == "set -e\necho $N\n"
    assert shell.argv[-1] == "cat <<'END' > /f\nbody # not a comment\nEND\n"
    assert file == Copy((), "/etc/app.conf", text="n=5\n")


def test_copy_flags_lists_and_archives() -> None:
    recipe = read_dockerfile('FROM x\nCOPY --chown=app:app --chmod=755 a b* /to/\nADD ["a b.tar", "/x"]\n')
    assert recipe.steps == (
        Copy(("a", "b*"), "/to/", "app:app", "755"),
        Copy(("a b.tar",), "/x", unpack=True),
    )


def test_what_has_no_meaning_here_is_noted() -> None:
    recipe = read_dockerfile(
        'FROM x\nCMD ["bash"]\nEXPOSE 80\nLABEL a=b\nRUN --mount=type=cache,target=/c pip install y\n'
    )
    assert [note.split(" has")[0] for note in recipe.notes] == [
        "Dockerfile: CMD",
        "Dockerfile: EXPOSE",
        "Dockerfile: LABEL",
        "Dockerfile: RUN --mount=type=cache",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN x\n", "line 1: RUN comes before FROM"),
        ("FROM a\nFROM b\n", "line 2: a build in several stages"),
        ("FROM a\nCOPY --from=b /x /y\n", "line 2: COPY --from is not supported"),
        ("FROM a\nONBUILD RUN x\n", "line 2: ONBUILD is not an instruction"),
        ("FROM a\nADD https://x.org/y /z\n", "line 2: ADD of a URL"),
        ("FROM a\nRUN --mount=type=secret,id=k x\n", "line 2: RUN --mount"),
        ("FROM a\nCOPY one\n", "line 2: COPY needs"),
        ("# nothing\n", "has no FROM"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        read_dockerfile(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A-${A}", "1-1"),
        ("${B:-x}${E:-y}${E-z}", "xy"),
        ("${A:+set}${B:+set}", "set"),
        ("'$A'", "'$A'"),
        ("\\$A", "$A"),
        ("${B:-$A}", "1"),
    ],
)
def test_variables_expand_as_in_docker(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "E": ""}) == expanded


def test_words_keep_quoted_blanks_together() -> None:
    assert split_words("""a "b c" d\\ e 'f"g' "" """) == ["a", "b c", "d e", 'f"g', ""]


def test_context_finds_only_what_lies_inside(tmp_path: Path) -> None:
    write_tree(tmp_path / "out", {"secret": "s"})
    folder = write_tree(tmp_path / "in", {"a.txt": "a", "b.txt": "b", "d/c": "c"})
    (folder / "link").symlink_to(tmp_path / "out" / "secret")
    context = Context(folder)
    assert [path.name for path in context.find("*.txt")] == ["a.txt", "b.txt"]
    assert context.find(".") == [folder]
    for pattern in ("../out/secret", "link", "missing", "/../out"):
        with pytest.raises(TaskError):
            context.find(pattern)


def test_dockerignore_leaves_files_out(tmp_path: Path) -> None:
    folder = write_tree(tmp_path, {".dockerignore": "*.log\nnode_modules\n!keep.log\n", "a.log": "", "keep.log": ""})
    write_tree(folder, {"node_modules/x/y": "", "b": ""})
    names = {name for _, name in Context(folder).members(folder.resolve())}
    assert names == {".", ".dockerignore", "keep.log", "b"}


def test_digest_of_a_context_sees_names_modes_links_and_contents(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": "1", "b": "2"})
    seen = {context_digest(tmp_path)}
    (tmp_path / "a").chmod(0o755)
    seen.add(context_digest(tmp_path))
    (tmp_path / "a").write_text("3")
    seen.add(context_digest(tmp_path))
    (tmp_path / "l").symlink_to("a")
    seen.add(context_digest(tmp_path))
    (tmp_path / "b").rename(tmp_path / "c")
    seen.add(context_digest(tmp_path))
    assert len(seen) == 5
