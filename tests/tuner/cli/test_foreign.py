"""Flags of xagents on our command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from rltune.cli import main, make_parser
from rltune.cli.foreign import SAID, SAME, renamed, sentence

RUN = "run ppo --env CartPole-v1"
TRAIN = "train ppo --env CartPole-v1"


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (f"{RUN} --study mine --trial-steps 5e4", f"{RUN} --name mine --budget 5e4"),
        (f"{RUN} --study=mine --non-silent", f"{RUN} --name=mine --ray-output"),
        (f"{TRAIN} --monitor-session mine", f"{TRAIN} --name mine"),
        ("play latest --render --frame-dir a", "play latest --window --frames a"),
    ],
)
def test_flags_that_mean_the_same_are_ours(given: str, ours: str) -> None:
    assert renamed(given.split()) == ours.split()
    parser = make_parser()
    assert parser.parse_known_args(given.split()) == parser.parse_known_args(ours.split())


def test_the_flags_that_stand_for_others_exist() -> None:
    parser = make_parser()
    for command, same in SAME.items():
        target = ["latest"] if command == "play" else ["ppo"]
        for ours in set(same.values()):
            switch = ours in ("--window", "--ray-output")
            _, extra = parser.parse_known_args([command, *target, ours, *([] if switch else ["1"])])
            assert ours not in extra, command


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        *((f"{RUN} --{name.replace('_', '-')} 3", said) for name, said in SAID.items()),
        (f"{TRAIN} --checkpoints a.tf", "--weights CHECKPOINT starts from one"),
        (f"{TRAIN} --log-frequency=5", "--log-frequency: a line comes with every evaluation"),
        ("train trpo --env CartPole-v1 --ppo-epochs 4", "n_critic_updates counts its critic's"),
        ("train trpo --env CartPole-v1 --clip-norm 0.1", "is clip_range here, which trpo does not"),
        ("train ppo --env CartPole-v1 --epsilon 1e-6", "is importance_eps here, which ppo does"),
        ("play latest --video-dir videos", "with --video FILE.mp4 as a video"),
        (f"{RUN} --storage sqlite:///a.db --dry-run", "is a database, but runs are folders"),
        (f"{TRAIN} --storage sqlite:///a.db", "runs/NAME/study.db, which any Optuna tool opens"),
    ],
)
def test_one_sentence_says_what_does_the_work_of_the_others(
    argv: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if argv.startswith(RUN) and "ppo-epochs" in argv:
        argv = argv.replace("ppo", "dqn", 1)  # ppo has epochs
    assert main(argv.split()) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert not list(tmp_path.iterdir())


def test_what_is_nobodys_has_no_sentence() -> None:
    assert sentence("nonsense", "ppo") is None


@pytest.mark.parametrize(
    ("agent", "flag", "own"),
    [
        ("ppo", "--clip-norm 0.3", "clip_range"),
        ("ppo", "--advantage-epsilon 1e-5", "advantage_eps"),
        ("ppo", "--beta1 0.8", "adam_beta1"),
        ("td3", "--beta2 0.99", "adam_beta2"),
        ("acer", "--epsilon 1e-5", "importance_eps"),
        ("dqn", "--epsilon-decay-steps 500", "exploration_decay_steps"),
        ("trpo", "--actor-iterations 7", "line_search_max_iter"),
        ("trpo", "--cg-residual-tolerance 1e-8", "cg_residual_tolerance"),
        ("trpo", "--fvp-n-steps 5", "sub_sampling_factor"),
    ],
)
def test_names_of_hyperparameters_mean_ours(agent: str, flag: str, own: str) -> None:
    from rltune.agents.config import hyperparameters
    from rltune.backends.registry import config_class
    from rltune.cli.flags import parse_flags
    from rltune.cli.train import read_flags

    known = hyperparameters(config_class(agent))
    args = make_parser().parse_args(["train", agent])
    values = read_flags(parse_flags(args, flag.split(), known), agent, known)
    assert values == {own: float(flag.split()[1])}


def test_quiet_prints_nothing_but_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        *TRAIN.split(),
        *"-n 128 --n-envs 1 --n-steps 64 --eval-episodes 1 --wandb off".split(),
    ]
    assert main([*words, "--quiet", "--name", "q"]) == 0
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "runs" / "q" / "checkpoints" / "last.pt").exists()
    assert main([*words, "--quiet", "--gamma", "7"]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("rltune: ")
