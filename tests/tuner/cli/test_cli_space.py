from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rltune.agents.errors import UserError
from rltune.cli import space as commands

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as `rltune.cli` does and return what it printed."""

    def run(*argv: str) -> str:
        parser = argparse.ArgumentParser(prog="rltune")
        commands.add_parser(parser.add_subparsers())
        args, extra = parser.parse_known_args(argv)
        assert args.main(args, extra) == 0
        return capsys.readouterr().out

    return run


def test_lists_the_shipped_spaces(run: Run) -> None:
    head, *rows = run("spaces").splitlines()
    names = ["name", "agent", "environment", "dimensions", "starts", "portfolio", "file"]
    assert head.split() == names
    by_name = {row.split()[0]: row.split() for row in rows}
    assert set(by_name) >= {"a2c", "acer", "ddpg", "dqn", "ppo", "sac", "td3", "trpo"}
    assert by_name["ppo"][:5] == ["ppo", "ppo", "Pendulum-v1", "12", "8"]
    assert all(Path(row[6]).is_file() for row in by_name.values())


def test_check_shows_the_parts_and_samples(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "agent: ppo\nbudget: 2e4\nfixed: {n_envs: 4}\nspace:\n"
        "  lr: {log: [1e-5, 1e-2]}\n  optimizer: {choice: [adam, rmsprop]}\n"
        "  rms_alpha: {uniform: [0.9, 0.99], when: {optimizer: rmsprop}}\n"
        "derived: {batch_size: 32 * n_envs}\nconstraints: [lr < 5e-3]\n"
        "start: [{name: mine, env: CartPole-v1, gamma: 0.9}, "
        "{name: other, env: Acrobot-v1, gamma: 0.8}]\n"
    )
    text = run("space", "check", str(file), "--samples", "3", "--env", "CartPole-v1")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "agent: ppo environment: CartPole-v1 budget: 20,000 env steps"
    assert "learning_rate log [1e-05, 0.01]" in lines
    assert "rms_alpha uniform [0.9, 0.99] optimizer rmsprop" in lines
    assert "fixed n_envs = 4" in lines
    assert "derived batch_size = 32 * n_envs" in lines
    assert "constraint learning_rate < 0.005" in lines
    assert "start mine CartPole-v1: gamma 0.9" in lines
    assert "Acrobot" not in text
    assert "3 samples:" in lines
    assert "batch_size 128 128 128" in lines
    assert lines[-1] == f"{file} is valid for ppo"
    assert max(map(len, text.splitlines())) <= max(80, len(lines[-1]))


def test_no_samples_and_no_agent(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "any.yaml"
    file.write_text("space: {whatever: {uniform: [0, 1]}}\n")
    text = run("space", "check", str(file), "--samples", "0")
    assert "sample:" not in text
    assert "samples:" not in text
    assert text.endswith("any.yaml is valid; no agent to check against\n")
    with pytest.raises(UserError, match=r"any\.yaml:1: space\.whatever: unknown hyperparameter"):
        run("space", "check", str(file), "--agent", "ppo")


def test_the_same_seed_shows_the_same_samples(run: Run) -> None:
    assert run("space", "check", "ppo") == run("space", "check", "ppo")
    assert run("space", "check", "ppo") != run("space", "check", "ppo", "--seed", "1")


def test_schema_prints_json(run: Run) -> None:
    assert json.loads(run("space", "schema"))["required"] == ["space"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["space"], "which command? Write rltune space check FILE or rltune space schema"),
        (["space", "check", "none.yaml"], "none.yaml: no such file; rltune spaces lists"),
        (["space", "check", "ppo", "--agent", "ppoo"], "unknown agent 'ppoo'"),
        (["space", "check", "ppo", "--samples", "-1"], "--samples and --seed must be 0 or more"),
        (["space", "check", "ppo", "--sampels", "3"], "space check: there is no '--sampels'"),
        (["spaces", "x"], "spaces: there is no 'x'; see rltune spaces --help"),
    ],
)
def test_bad_input_is_one_clear_error(run: Run, argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        run(*argv)
    assert message in str(caught.value)
