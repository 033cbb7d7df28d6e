"""The command line as a user meets it: help, and one sentence with exit code 2 for a mistake."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from rltune.agents.errors import UserError, storage_error, unknown
from rltune.cli import main
from rltune.cli.flags import parse_flags
from rltune.runs.directory import RunDir

GOOD = {"agent": "ppo", "budget": 1000, "space": {"learning_rate": {"log": [1e-5, 1e-2]}}}


TAKEN = "The environment is Pendulum-v1, as ppo.yaml says; --env ID takes another."


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a command that is a mistake, and return its one sentence."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("rltune: ")
    return lines[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("run pp0 --env CartPole-v1", "did you mean 'ppo'"),
        ("run ppo --env CartPol-v1", "CartPole-v1"),
        ("run ppo --env no_module:Env", "no_module"),
        ("run ppo --env CartPole-v1 --learnig-rate 1e-3 1e-2", "did you mean --learning-rate?"),
        ("run ppo --env CartPole-v1 --trails 3", "did you mean --trials?"),
        ("run ppo --env CartPole-v1 --preset zoo", "a search tries the presets"),
        ("run ppo --env CartPole-v1 --algo ppo", "`rltune run` has no such flag, and ppo no such"),
        ("run ppo --env CartPole-v1 --sampler tpee", "did you mean 'tpe'"),
        ("run ppo --env CartPole-v1 --scheduler ahsa", "did you mean 'asha'"),
        ("run ppo --env CartPole-v1 --trials 0", "--trials"),
        ("run ppo --env CartPole-v1 --target-reward nan", "target_reward must be a number"),
        ("run ppo --env CartPole-v1 --budget 1e3 --evaluations 5 --eval-freq 9", "keep one of"),
        ("run ppo --env CartPole-v1 --cpus-per-trial inf", "cpus_per_trial must be a finite"),
        ("train ppo --env CartPole-v1 --target-reward nan", "target_reward must be a number"),
        ("train ppo --env CartPole-v1 --early-stop-patience 3", "plateau_patience; give both"),
        (
            "train ppo --env CartPole-v1 --plateau-patience -3",
            "plateau_patience must be at least 1",
        ),
        ("run ppo --env CartPole-v1 --cpus-per-trial 999", "--cpus-per-trial 999"),
        ("run ppo --env CartPole-v1 --gpus-per-trial 99.5", "--gpus-per-trial 99.5"),
        ("run ppo --env CartPole-v1 --trials many", "--trials"),
        ("run ppo --env CartPole-v1 --time-limit soon", "soon"),
        ("run ppo --env CartPole-v1 --learning-rate", "--learning-rate"),
        ("run ppo --env CartPole-v1 -s learning_rate=1..0:log", "learning_rate"),
        ("run ppo --env CartPole-v1 --name ../out", "name"),
        ("run ppo --env CartPole-v1 --space nowhere.yaml", "nowhere.yaml"),
        ("run ppo --env CartPole-v1 --wandb maybe", "maybe"),
        ("run", "which agent? Name one first"),
        ("run --gamma 0.9 0.99", "which agent? Name one first"),
        ("run --space nowhere.yaml --gamma 0.9 0.99", "nowhere.yaml: no such file"),
        ("run sac --space ppo", "the space is for the agent 'ppo', not 'sac'"),
        ("resume nowhere", "nowhere"),
        ("resume nowhere --frobnicate", "--frobnicate"),
        (
            "resume nowhere --trails 3",
            "`rltune resume` does not know '--trails'; did you mean --tr",
        ),
        ("export nowhere --too zoo", "`rltune export` does not know '--too'; did you mean --to?"),
        ("run ppo --env CartPole-v1 --trials", "rltune: argument --trials"),
        ("show nowhere", "nowhere"),
        ("train pp0 --env CartPole-v1", "did you mean 'ppo'"),
        ("train ppo --env CartPole-v1 --gamma 2", "gamma"),
        ("eval nowhere", "nowhere"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: str, words: str
) -> None:
    assert words in complaint(capsys, *argv.split())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"space": {"learning_rate": {"log": ["a", 1]}}}, "learning_rate"),
        ({"space": {"learning_rate": {"log": [1e-2, 1e-5]}}}, "learning_rate"),
        ({"space": {"n_steps": {"uniform": [1, 2]}}}, "n_steps"),
        ({"constraints": ["learning_rate < nonsense"]}, "nonsense"),
        ({"derived": {"n_steps": "batch_size + 1", "batch_size": "n_steps + 1"}}, "n_steps"),
        ({"agent": "dqn"}, "dqn"),
        ({"spice": {}}, "spice"),
    ],
)
def test_a_bad_space_is_named_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], words: str
) -> None:
    (folder / "mine.yaml").write_text(yaml.safe_dump({**GOOD, **change}))
    sentence = complaint(capsys, *"run ppo --env CartPole-v1 --space mine.yaml".split())
    assert words in sentence
    if "agent" not in change:
        assert re.search(r"mine\.yaml:\d+: ", sentence)
    assert [path.name for path in folder.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("command", ["resume", "show", "report", "export", "compare", "dashboard"])
@pytest.mark.usefixtures("folder")
def test_a_variable_that_is_not_set_names_no_run(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert "the name of the run is empty" in complaint(capsys, command, "")


def test_runs_that_are_none_or_newer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    assert "no run directory" in complaint(capsys, "resume", "empty")
    (folder / "empty" / "run.yaml").write_text("format_version: 99\nkind: search\n")
    assert "newer" in complaint(capsys, "resume", "empty")


def test_a_full_disk_is_one_sentence(
    small_disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (small_disk / "filler").write_bytes(b"x" * (240 << 10))
    argv = "run ppo --env CartPole-v1 --trials 2 --wandb off --plain --storage-path".split()
    assert "disk is full" in complaint(capsys, *argv, str(small_disk / "runs"))


def test_the_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = "run ppo --env CartPole-v1 --dry-run --gamma 0.9 0.99 --n-epochs 4 --trials 7".split()
    assert main(argv) == 0
    plan = capsys.readouterr().out
    assert "one_minus_log: [0.9, 0.99]" in plan
    assert "7 trials" in plan
    assert "n_epochs" not in plan.split("searched")[1].split("always")[0]
    assert "n_epochs 4" in next(line for line in plan.splitlines() if "default: " in line)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run ppo --space search_spaces/ppo.yaml", [TAKEN, "search_spaces/ppo.yaml is not here; "]),
        ("run ppo", [TAKEN]),
        ("run --space ppo --learning-rate 1e-5 1e-2", [TAKEN]),
        ("run --space ppo --env CartPole-v1", []),
        ("tune --env CartPole-v1 ppo", ["rltune tune is rltune run."]),
    ],
)
def test_a_search_needs_no_more_than_a_space(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, said: list[str]
) -> None:
    env = "CartPole-v1" if "--env" in line else "Pendulum-v1"
    assert main([*line.split(), "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ppo on {env}: 60 trials of 50,000 env steps\n")
    lines = captured.err.splitlines()
    assert len(lines) == len(said)
    assert all(line.startswith(text) for line, text in zip(lines, said, strict=True))
    assert list(folder.iterdir()) == []


def test_known_good_settings_that_learn_nothing_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "run td3 --dry-run --trials 2 --env".split()
    said = "nothing is learned: learning_starts is 10,000 of"
    for env, budget, shown in (
        ("Pendulum-v1", 10_000, f"{said} 10,000"),
        ("Pendulum-v1", 10_001, ""),
        ("Pendulum-v1=-1250:-150,MountainCarContinuous-v0=0:90", 16_000, f"{said} 8,000"),
    ):
        assert main([*line, env, "--budget", str(budget)]) == 0
        plan = capsys.readouterr().out
        assert shown in plan
        assert (said in plan) == bool(shown)


def test_a_model_file_takes_the_place_of_the_networks_of_space_and_starts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[dense] units=7 common=1\n[dense] output=1\n[dense] output=1"
    (folder / "net.cfg").write_text(text)
    space = {**GOOD, "start": [{"net_arch": [32], "gamma": 0.9}]}
    space["space"] = {**GOOD["space"], "activation": {"choice": ["tanh", "relu"]}}  # type: ignore[dict-item]
    (folder / "space.yaml").write_text(yaml.safe_dump(space))
    argv = "run ppo --env CartPole-v1 --space space.yaml --dry-run --model net.cfg".split()
    assert main(argv) == 0
    plan = capsys.readouterr().out
    assert "searched (1)" in plan
    assert "start:0: " in plan
    assert "model and net_arch both" in complaint(capsys, *argv, "--net-arch", "32")
    (folder / "net.cfg").write_text(text.replace("units", "unit"))
    assert "net.cfg:1: unknown key of [dense] 'unit'" in complaint(capsys, *argv)


def test_flags_of_hyperparameters() -> None:
    args = argparse.Namespace(command="run", agent="ppo")
    words = ["--gamma", "0.9", "0.99", "--n-epochs=4"]
    assert parse_flags(args, words, ["gamma", "n_epochs"]) == {
        "gamma": ["0.9", "0.99"],
        "n-epochs": ["4"],
    }


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = "import sys, rltune.cli as c; c.main([]); print(*sys.modules)"
    started = time.process_time()
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert time.process_time() - started < 0.3
    assert "commands:" in output
    loaded = set(output.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "pandas", "ray", "optuna", "rich", "wandb", "yaml"}


AS_NOBODY = """
import os, sys
from rltune.agents.errors import UserError, storage_error, unknown
from rltune.cli import main
commands = [["show"], ["resume"], ["space", "check"]]
for command in commands:
    main([*command, "nowhere.yaml"])  # imports what nobody may not read
if os.geteuid() == 0:
    os.seteuid(65534)  # permissions don't bind root
print("now", file=sys.stderr)
for command in commands:
    assert main([*command, sys.argv[1]]) == 2
"""


def test_what_may_not_be_entered_is_one_sentence(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0)
    code = [sys.executable, "-c", AS_NOBODY, str(folder / "closed" / "x.yaml")]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.partition("now\n")[2].splitlines()
    assert len(lines) == 3, done.stderr
    assert all("ermission" in line and line.startswith("rltune: ") for line in lines), done.stderr


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("search", "-n 100"),
        ("search", "--target-reward 3"),
        ("train", "--trials 3"),
        ("train", "--test-seeds 3"),
        ("train", "--no-report"),
        ("train", "--gpus-per-trial 1"),
    ],
)
def test_a_resume_refuses_flags_for_runs_of_the_other_kind(
    kind: str, flags: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunDir.create(folder / "mine", {"agent": "ppo"}, kind=kind)
    said = complaint(capsys, "resume", "./mine", *flags.split())
    this, other = ("search", "training") if kind == "search" else ("training", "search")
    assert f"{flags.split()[0]} is for a {other}; 'mine' is a {this}" in said


def test_a_search_space_is_no_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.yaml").write_text(yaml.safe_dump(GOOD))
    said = complaint(capsys, *"train ppo --env CartPole-v1 --config mine.yaml".split())
    assert "mine.yaml is a search space, which `rltune run --space` takes" in said


def test_advice_on_a_folder_names_a_flag_only_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = FileExistsError(17, "File exists")
    assert "; choose another --out." in str(storage_error(error, tmp_path / "file", "--out"))
    assert str(storage_error(error, "x")) == (
        "cannot write x: a file stands where a folder is needed."
    )
    with pytest.raises(UserError, match="no permission; see its owner, or choose another -o"):
        raise storage_error(PermissionError(13, "no"), "x", "-o")


@pytest.mark.parametrize(("name", "close"), [("pp0", "ppo"), ("clip", "clip_range"), ("agent", "")])
def test_what_was_meant_is_close(name: str, close: str) -> None:
    said = str(unknown("name", name, ["ppo", "clip_range", "target_kl"]))
    assert ("did you mean" in said) == bool(close)
    assert close in said
