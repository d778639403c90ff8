"""Dataset discovery: what counts as a task, in which order, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harbor_env.errors import TaskError
from harbor_env.tasks import check_secrets, load_dataset, load_task

MINIMAL = 'schema_version = "1.4"\n'


def make_task(folder: Path, toml: str = MINIMAL, leave_out: tuple[str, ...] = ()) -> Path:
    files = {
        "task.toml": toml,
        "instruction.md": f"Do {folder.name}.\n",
        "environment/Dockerfile": "FROM scratch\n",
        "tests/test.sh": "exit 0\n",
    }
    for name, text in files.items():
        if name not in leave_out:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def problems(folder: Path) -> list[tuple[str, str, str]]:
    with pytest.raises(TaskError) as caught:
        load_dataset(folder)
    return [(problem.task, problem.file, problem.what) for problem in caught.value.problems]


def test_bundled_means_its_training_tasks_and_has_a_held_out_split() -> None:
    train, heldout, everything = load_dataset(), load_dataset(split="heldout"), load_dataset(split="all")
    assert (len(train), len(heldout), len(everything)) == (32, 18, 50)
    assert {task.split for task in train} == {"train"}
    assert {task.split for task in heldout} == {"heldout"}
    assert load_dataset("bundled", split="train") == train


def test_a_folder_of_tasks_nested_at_will_is_a_dataset_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b/two", "a/deep/er/one", "c", "b/ten", ".hidden/no"):
        make_task(tmp_path / name)
    make_task(tmp_path / "c" / "tests" / "fixture")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    dataset = load_dataset(str(tmp_path))
    assert [task.name for task in dataset] == ["a/deep/er/one", "b/ten", "b/two", "c"]
    assert dataset[3].instruction == "Do c.\n"
    assert [task.name for task in dataset[1:3]] == ["b/ten", "b/two"]


def test_one_task_folder_is_a_dataset_of_one(tmp_path: Path) -> None:
    make_task(tmp_path / "only")
    (task,) = load_dataset(tmp_path / "only")
    assert (task.name, task.path) == ("only", (tmp_path / "only").resolve())


def test_a_task_carries_its_level_tags_timeouts_and_the_secrets_its_verifier_needs(tmp_path: Path) -> None:
    toml = """
        schema_version = "1.4"
        [task]
        name = "org/judged"
        keywords = ["text", "judge"]
        [metadata]
        difficulty = "hard"
        tags = ["judge", "slow"]
        author_name = "someone"
        [agent]
        timeout_sec = 120
        [verifier]
        timeout_sec = 30.5
        env = { JUDGE_KEY = "${JUDGE_KEY}", MODE = "${MODE:-fast}", URL = "http://${JUDGE_HOST}/${JUDGE_KEY}" }
    """
    task = load_task(make_task(tmp_path / "judged", toml))
    assert (task.level, task.tags) == (3, ("text", "judge", "slow"))
    assert (task.agent_timeout, task.verifier_timeout) == (120.0, 30.5)
    assert task.secrets == ("JUDGE_KEY", "JUDGE_HOST")
    assert task.metadata["author_name"] == "someone"


def test_a_task_of_several_steps_tells_them_all_and_may_share_its_test(tmp_path: Path) -> None:
    toml = MINIMAL + '[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n'
    folder = make_task(tmp_path / "steps", toml, leave_out=("instruction.md",))
    for step in ("first", "second"):
        (folder / "steps" / step).mkdir(parents=True)
        (folder / "steps" / step / "instruction.md").write_text(f"Do {step}.\n")
    assert load_task(folder).instruction == "Do first.\n\nDo second.\n"
    (folder / "tests" / "test.sh").unlink()
    assert problems(folder) == [
        ("steps", "steps/first/tests/test.sh", "is not there"),
        ("steps", "steps/second/tests/test.sh", "is not there"),
    ]


def test_a_prebuilt_image_needs_no_environment_folder(tmp_path: Path) -> None:
    folder = make_task(
        tmp_path / "image", MINIMAL + '[environment]\ndocker_image = "x:1"\n', ("environment/Dockerfile",)
    )
    assert load_task(folder).name == "image"


def test_everything_a_task_lacks_is_named_at_once(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "bare", leave_out=("instruction.md", "environment/Dockerfile", "tests/test.sh"))
    with pytest.raises(TaskError) as caught:
        load_dataset(folder)
    assert str(caught.value).splitlines() == [
        f"{folder.resolve()} is not a usable Harbor task:",
        "  bare: instruction.md is not there; write what the agent is told into it",
        "  bare: tests/test.sh is not there; add the script that writes /logs/verifier/reward.json",
        "  bare: environment/ is not there; add environment/Dockerfile, or name a docker_image under [environment] in"
        " task.toml",
    ]


def test_everything_wrong_with_every_task_of_a_dataset_is_in_one_list(tmp_path: Path) -> None:
    make_task(tmp_path / "good")
    make_task(tmp_path / "a" / "silent", leave_out=("instruction.md", "tests/test.sh"))
    make_task(tmp_path / "b", "[agent]\ntimeout_sec = 'soon'\n")
    (make_task(tmp_path / "c") / "instruction.md").write_text(" \n")
    (make_task(tmp_path / "d") / "environment" / "Dockerfile").rename(tmp_path / "d" / "environment" / "other")
    assert problems(tmp_path) == [
        ("a/silent", "instruction.md", "is not there"),
        ("a/silent", "tests/test.sh", "is not there"),
        ("b", "task.toml", "holds something else than expected (could not convert string to float: 'soon')"),
        ("c", "instruction.md", "is empty"),
        ("d", "environment/Dockerfile", "is not there"),
    ]


def test_a_long_list_says_how_many_more_there_are_and_keeps_them_all(tmp_path: Path) -> None:
    for number in range(60):
        make_task(tmp_path / f"bad{number:02}", leave_out=("tests/test.sh",))
    with pytest.raises(
        TaskError, match=r"60 of 60 tasks in .* cannot be used:\n  bad00: (.*\n)*  and 10 more$"
    ) as caught:
        load_dataset(tmp_path)
    assert len(caught.value.problems) == 60


def test_a_link_that_leaves_the_dataset_is_refused_and_one_that_stays_is_not(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "set" / "one")
    (tmp_path / "set" / "shared.txt").write_text("x")
    (folder / "environment" / "shared.txt").symlink_to("../../shared.txt")
    assert len(load_dataset(tmp_path / "set")) == 1
    (folder / "environment" / "passwd").symlink_to("/etc/passwd")
    (folder / "tests" / "up").symlink_to("../../..")
    assert problems(tmp_path / "set") == [
        ("one", "environment/passwd", "is a link that leaves the dataset"),
        ("one", "tests/up", "is a link that leaves the dataset"),
    ]


def test_a_file_that_only_stands_for_one_in_git_lfs_is_a_problem(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (make_task(tmp_path / "big") / "environment" / "data.bin").write_text(pointer)
    assert problems(tmp_path) == [("big", "environment/data.bin", "is a Git LFS pointer")]


def test_secrets_that_are_not_set_are_listed_with_the_tasks_that_need_them(tmp_path: Path) -> None:
    toml = MINIMAL + '[verifier.env]\nKEY = "${JUDGE_KEY}"\nMODE = "${MODE:-fast}"\n'
    steps = MINIMAL + '[[steps]]\nname = "a"\n[steps.verifier.env]\nT = "${STEP_TOKEN}"\n'
    make_task(tmp_path / "judged", toml)
    stepped = make_task(tmp_path / "stepped", steps)
    make_task(stepped / "steps" / "a")
    (stepped / "steps" / "a" / "task.toml").unlink()
    tasks = load_dataset(tmp_path)
    check_secrets(tasks, {"JUDGE_KEY": "k", "STEP_TOKEN": "t"})
    with pytest.raises(TaskError, match="Set JUDGE_KEY, STEP_TOKEN first") as caught:
        check_secrets(tasks, {"JUDGE_KEY": ""})
    assert [(problem.task, problem.file) for problem in caught.value.problems] == [
        ("judged", "JUDGE_KEY"),
        ("stepped", "STEP_TOKEN"),
    ]


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("not toml", "task.toml cannot be read"),
        ("metadata = 3\n", r"\[metadata\] is not a table"),
        ('[metadata]\nlevel = "high"\n', "invalid literal for int"),
        ('[agent]\ntimeout_sec = "soon"\n', "could not convert string to float"),
        ("[metadata]\nlevel = inf\n", "infinity"),
        ("[agent]\ntimeout_sec = nan\n", "timeout_sec is nan, not a number of seconds"),
        ("[verifier]\ntimeout_sec = inf\n", "timeout_sec is inf, not a number of seconds"),
        ("[agent]\ntimeout_sec = -1\n", "timeout_sec is -1, not a number of seconds"),
        ("[agent]\ntimeout_sec = 0\n", "timeout_sec is 0, not a number of seconds"),
        ("[agent]\ntimeout_sec = true\n", "timeout_sec is True, not a number of seconds"),
        (f"x = {'[' * 5000}{']' * 5000}\n", "nested"),
        ('[[steps]]\nname = "../../elsewhere"\n', "names no folder below steps/"),
        ('[[steps]]\nname = "/etc"\n', "names no folder below steps/"),
        ("[verifier]\nenv = 7\n", "not a usable Harbor task"),
        ('[task]\nkeywords = 5\nname = "a/b"\n', "not a usable Harbor task"),
    ],
)
def test_a_malformed_task_toml_is_a_problem_with_its_path(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        load_task(make_task(tmp_path / "malformed", toml))
    assert str(tmp_path) in str(caught.value)


def test_a_folder_without_tasks_says_what_a_task_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    expected = r"is not a Harbor task: no task\.toml here or below; expected a folder with task\.toml, instruction\.md"
    with pytest.raises(TaskError, match=expected):
        load_dataset(tmp_path)


@pytest.mark.parametrize("spec", ["nope", "/etc/hostname", "~nobody-here/x", "a\0b", "x" * 5000, "../nope"])
def test_a_spec_that_is_nothing_says_what_can_be_given(spec: str) -> None:
    with pytest.raises(TaskError, match="is no dataset: there is no such folder; expected 'bundled', a folder of"):
        load_dataset(spec)


def test_splits_are_folders_or_what_tasks_declare(tmp_path: Path) -> None:
    make_task(tmp_path / "dev" / "one")
    make_task(tmp_path / "two", MINIMAL + '[metadata]\nsplit = "test"\n')
    assert [task.name for task in load_dataset(tmp_path, split="dev")] == ["one"]
    assert [task.name for task in load_dataset(tmp_path, split="test")] == ["two"]
    assert len(load_dataset(tmp_path)) == len(load_dataset(tmp_path, split="all")) == 2
    with pytest.raises(TaskError, match="has no split 'train'; there is: all, dev, test"):
        load_dataset(tmp_path, split="train")


def test_several_splits_are_one_dataset_whose_tasks_know_theirs(tmp_path: Path) -> None:
    for name in ("dev/one", "easy/two", "hard/one"):
        make_task(tmp_path / name)
    make_task(tmp_path / "loose", MINIMAL + '[metadata]\nsplit = "test"\n')
    several = load_dataset(tmp_path, split="hard, dev,test,dev")
    assert [(task.name, task.split) for task in several] == [
        ("hard/one", "hard"),
        ("dev/one", "dev"),
        ("loose", "test"),
    ]
    mapped = load_dataset(tmp_path, split="train=easy,eval=hard")
    assert [(task.name, task.split) for task in mapped] == [("easy/two", "train"), ("hard/one", "eval")]
    assert len(load_dataset("bundled", split="train,heldout")) == 50


@pytest.mark.parametrize("split", ["..", "dev,../elsewhere", "x=/etc", "dev=..", "."])
def test_a_split_that_leaves_the_dataset_is_none(tmp_path: Path, split: str) -> None:
    make_task(tmp_path / "set" / "dev" / "one")
    make_task(tmp_path / "elsewhere" / "two")
    with pytest.raises(TaskError, match="has no split"):
        load_dataset(tmp_path / "set", split=split)


def test_an_index_past_the_end_and_an_unknown_name_say_what_exists() -> None:
    dataset = load_dataset(split="heldout")
    with pytest.raises(TaskError, match=r"bundled/heldout has no task 18: its tasks are numbered 0 to 17"):
        dataset[18]
    with pytest.raises(TaskError, match=r"no task named 'zzz'; there are: l1-count-lines, .* and 13 more"):
        dataset.find("zzz")
    with pytest.raises(TaskError, match=r"several tasks that end in 'top'"):
        dataset.find("top")


def test_a_task_is_found_by_its_name_or_the_end_of_it() -> None:
    dataset = load_dataset()
    assert dataset.find("l1-count-lines") is dataset.find("count-lines")


def test_a_seed_chooses_the_same_task_every_time() -> None:
    dataset, again = load_dataset(), load_dataset()
    chosen = [dataset.choose(seed).name for seed in range(100)]
    assert chosen == [again.choose(seed).name for seed in range(100)]
    assert len(set(chosen)) > 20


def test_listing_tasks_imports_neither_harbor_nor_an_engine() -> None:
    code = "import sys; from harbor_env.tasks import load_dataset; load_dataset(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"harbor", "torch", "transformers", "xllamacpp", "openenv"} & set(done.stdout.split())
