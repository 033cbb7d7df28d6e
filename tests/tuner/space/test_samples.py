"""`rltune space check`, `rltune run` and its `--dry-run` refuse the same, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.cli import main
from rltune.search.space_choice import choose_space
from rltune.space.space import Space

HEAD = "agent: ppo\nenv: CartPole-v1\nbudget: 2000\n"
STEPS = "space: {n_steps: {pow2: [32, 128]}, n_epochs: {int: [1, 4]}}\n"
OPTIMIZERS = """\
space:
  optimizer: {choice: [adam, rmsprop]}
  rms_alpha: {uniform: [0.9, 0.99], when: {optimizer: rmsprop}}
  gamma: {uniform: [0.9, 0.99], when: {optimizer: adam}}
"""
LISTS = """\
space:
  net_arch: {choice: [[64, 64], [32]]}
  gamma: {uniform: [0.9, 0.99], when: {net_arch: WHEN}}
"""
REFUSED = {
    "no whole number": (
        STEPS + "derived: {batch_size: n_steps * n_envs / 3}",
        "5: derived.batch_size: n_steps * n_envs / 3 (n_envs=8, n_steps=",
    ),
    "all impossible": (
        STEPS + "derived: {batch_size: n_steps - 1000}",
        "5: derived.batch_size: n_steps - 1000 (n_steps=",
    ),
    "division by zero": (
        STEPS + "derived:\n  batch_size: 64 // (n_epochs - 2)",
        "6: derived.batch_size: 64 // (n_epochs - 2) (n_epochs=2): division by zero",
    ),
    "division by zero in a constraint": (
        STEPS + "constraints:\n- gamma < 2\n- 64 / (n_epochs - 2) < 100",
        "7: constraints[1]: 64 / (n_epochs - 2) < 100 (n_epochs=2): division by zero",
    ),
    "a point of a range": (
        "space:\n  gamma: {uniform: [0.9, 0.99]}\n  n_epochs: {int: [1, 4], when: {gamma: 0.95}}",
        "6: space.n_epochs.when.gamma: gamma is searched in uniform: [0.9, 0.99], where a sample",
    ),
    "never applies": (
        OPTIMIZERS + "constraints: [rms_alpha < gamma]",
        "8: constraints[0]: 'rms_alpha < gamma' never applies: optimizer is never what",
    ),
    "fixed otherwise": (
        "fixed: {optimizer: adam}\n"
        + OPTIMIZERS.replace("  optimizer: {choice: [adam, rmsprop]}\n", ""),
        "6: space.rms_alpha.when: rms_alpha is never there: optimizer is never what it",
    ),
    "an element is no list": (
        LISTS.replace("WHEN", "[64, 64]"),
        "6: space.gamma.when.net_arch: net_arch is never 64; its values are choice: [[64, 64], "
        "[32]]; a list as a value is written [[64, 64]]",
    ),
    "no such environment": (
        STEPS,
        "2: env: unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_check_and_dry_run_and_run_refuse_the_same(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text, message = REFUSED[case]
    head = HEAD.replace("Pole", "Pol") if case == "no such environment" else HEAD
    Path("s.yaml").write_text(head + text)
    said = []
    for line in ("space check s.yaml", "run --space s.yaml --dry-run", "run --space s.yaml"):
        assert main(line.split()) == 2
        said.append(capsys.readouterr().err)
    assert said[0].startswith(f"rltune: s.yaml:{message}")
    assert said == [said[0]] * 3
    assert [file.name for file in tmp_path.iterdir()] == ["s.yaml"]


def test_a_list_may_be_what_a_condition_asks_for() -> None:
    for when in ("[[64, 64]]", "[[64, 64], [32]]"):
        text = LISTS.replace("WHEN", when)
        space = choose_space("ppo", "CartPole-v1", _dict(text), PPOConfig, {}).space
        again = Space.from_dict(space.to_dict())  # as run.yaml holds it
        assert again == space
        assert again.active({"net_arch": [64, 64]}) == ["net_arch", "gamma"]
        assert again.active({"net_arch": [32]}) == (
            ["net_arch", "gamma"] if "[32]" in when else ["net_arch"]
        )


def test_what_a_constraint_excludes_may_be_impossible() -> None:
    text = STEPS + "derived: {batch_size: 64 // (n_epochs - 2)}\nconstraints: [n_epochs > 2]"
    space = choose_space("ppo", "CartPole-v1", _dict(text), PPOConfig, {}).space
    assert space.derived["batch_size"].evaluate({"n_epochs": 4}) == 32


def _dict(text: str) -> dict[str, object]:
    from rltune.space.yaml_lines import parse_yaml

    data, _ = parse_yaml(text, "s")
    assert isinstance(data, dict)
    return data
