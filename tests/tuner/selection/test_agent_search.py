"""Searches over several agents, from end to end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rltune
import yaml
from rltune.agents.errors import StorageError, UserError
from rltune.cli import main
from rltune.cluster import session
from rltune.runs.directory import RunDir
from rltune.selection import drive

from tests.parameters import quick

SMALL: dict[str, Any] = {
    "budget": 400, "trials": 4, "test_seeds": 2, "finalists": 1, "wandb": "off", "screen": "none",
    "eval_episodes": 1, "name": "run",
}  # fmt: skip


@pytest.mark.usefixtures("no_ray")
def test_agents_are_searched_in_rounds_and_the_best_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {**SMALL, "trials": 6, "storage_path": tmp_path}
    found = rltune.AgentSearch("ppo,a2c,trpo,td3", "CartPole-v1", **values)
    assert list(found.spec.left_out) == ["td3"]
    result = found.run()
    assert result.agent in ("a2c", "ppo", "trpo")
    assert result.search is not None
    assert result.search.best is not None
    rounds = yaml.safe_load((result.path / "rounds.yaml").read_text())
    assert rounds[0]["agents"] == ["ppo", "a2c", "trpo"]
    assert len(rounds[1]["agents"]) == 2
    for agent in rounds[1]["agents"]:
        run = rltune.open(result.path / "agents" / agent)
        assert run.answer is not None
        assert len(run.trials()) == 5
        assert run.spec["wandb_group"] == "run"
    assert (result.path / "report" / "index.html").exists()
    pages = result.path.glob("agents/*/report/index.html")  # none in a round that isn't the last
    assert {page.parents[1].name for page in pages} == set(rounds[1]["agents"])
    capsys.readouterr()

    assert rltune.open(result.path).spec["agent"] == result.agent  # what reads a run reads this one
    assert main(["show", str(result.path)]) == 0
    shown = capsys.readouterr().out
    assert f"Use {result.agent} with" in shown
    assert "Left out, as they can't be trained there: td3." in shown
    assert main(["show", str(result.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agent"] == result.agent
    assert main(["export", str(result.path), "--to", "rltune"]) == 0
    assert main(["resume", str(result.path), "--plain"]) == 0  # it is at its end
    assert main(["resume", str(result.path), "--trials", "9"]) == 2
    assert "--trials can't be changed in a search over several agents" in capsys.readouterr().err


def test_all_parts_have_one_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    @contextlib.contextmanager
    def one_ray(quiet: bool) -> Iterator[None]:
        happened.append("Ray starts")
        yield
        happened.append("Ray ends")

    monkeypatch.setattr(session, "ray_session", one_ray)
    monkeypatch.setattr(drive.Rounds, "drive", lambda rounds: happened.append("all parts"))
    search = rltune.AgentSearch("ppo,a2c", "CartPole-v1", storage_path=tmp_path, **SMALL)
    search.run()
    assert happened == ["Ray starts", "all parts", "Ray ends"]
    happened.clear()
    there = {**SMALL, "name": "there", "address": "10.0.0.1:6379"}
    rltune.AgentSearch("ppo,a2c", "CartPole-v1", storage_path=tmp_path, **there).run()
    assert happened == ["all parts"]  # each part joins the cluster, with the user's code


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_a_search_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    searched: list[str] = []
    request = drive.request

    def count(spec: Any, path: Path, agent: str, *others: Any, **options: Any) -> Any:
        searched.append(agent)
        if agent == "a2c" and searched.count("a2c") == 1:
            raise KeyboardInterrupt
        return request(spec, path, agent, *others, **options)

    search = rltune.AgentSearch("ppo,a2c", "CartPole-v1", storage_path=tmp_path, **SMALL)
    monkeypatch.setattr(drive, "request", count)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    with pytest.raises(UserError, match=r"names none yet; go on with: rltune resume .*agents/ppo"):
        rltune.open(tmp_path / "run")
    (tmp_path / "run" / "rounds.yaml").write_text("- {agents: [ppo, a2c], done: []}\n")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "run")]) == 0  # that of the agent under way
    assert "ppo on CartPole-v1" in capsys.readouterr().out
    assert main(["stop", str(tmp_path / "run")]) == 2
    assert "the search 'ppo' is not running" in capsys.readouterr().err
    (tmp_path / "run" / "rounds.yaml").write_text("- {agents: [ppo, a2c], done: [ppo]}\n")
    result = rltune.resume_agents(tmp_path / "run", screen="none")
    assert searched == ["ppo", "a2c", "a2c"]
    assert result.agent is not None


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("lasting", quick([True], [True, False]))
def test_a_full_disk_ends_the_search_and_an_agent_that_fails_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    from rltune.selection import drive

    request = drive.request

    def fail(spec: Any, path: Path, agent: str, *others: Any, **options: Any) -> Any:
        if agent == "ppo":
            (path / "agents" / "ppo").mkdir(parents=True)
            raise StorageError("the disk is full.") if lasting else UserError("nothing works.")
        return request(spec, path, agent, *others, **options)

    search = rltune.AgentSearch("ppo,a2c", "CartPole-v1", storage_path=tmp_path, **SMALL)
    monkeypatch.setattr(drive, "request", fail)
    if lasting:
        with pytest.raises(StorageError, match="the disk is full"):
            search.run()
        assert not (tmp_path / "run" / "rounds.yaml").exists()
    else:
        assert search.run().agent == "a2c"


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"space": "ppo"}, "--space is for a search of one agent: each agent has a space"),
        ({"tournament": False}, "--no-tournament is for a search of one agent"),
        ({"scheduler": "pbt"}, "--scheduler pbt trains a population of one agent"),
        ({"trial_time": 5}, "--budget and --trial-time say the same"),
        ({"env": "CartPole-v1,Acrobot-v1"}, "agents are compared in one environment"),
        ({"storage_path": "s3://bucket/runs"}, "needs a local folder"),
        ({"sampler": "foo"}, "foo"),
        ({"report": "maybe"}, "report must be True or False"),
        ({"agents": ["toy:ToyAgent", "toy:DescentAgent"], "env": "toy:ToyEnv", "budget": None},
         "how fast toy:ToyAgent trains is not known before; give --budget"),
    ],
)  # fmt: skip
def test_what_works_with_one_agent_alone_is_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    values = {"agents": "ppo,a2c", "env": "CartPole-v1", "storage_path": tmp_path, **SMALL}
    with pytest.raises(UserError, match=said):
        rltune.AgentSearch(**{**values, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_agents_of_ones_own_are_compared(tmp_path: Path) -> None:
    agents = ["toy:ToyAgent", "toy:DescentAgent"]
    result = rltune.AgentSearch(agents, "toy:ToyEnv", storage_path=tmp_path, **SMALL).run()
    assert result.agent in agents
    assert (tmp_path / "run" / "agents" / "toy-ToyAgent" / "run.yaml").exists()


def test_the_command_line_refuses_flags_of_one_agent(capsys: pytest.CaptureFixture[str]) -> None:
    line = "run ppo,a2c --env CartPole-v1 --learning-rate 1e-4 1e-3"
    assert main(line.split()) == 2
    assert "--learning-rate is for a search of one agent" in capsys.readouterr().err
    assert main(["run", "auto"]) == 2
    assert "which environment? Give --env ID." in capsys.readouterr().err
    assert main("run ppo --env CartPole-v1 --trial-time 5s".split()) == 2
    assert "--trial-time is for a search over several agents" in capsys.readouterr().err
    assert main("plan ppo,a2c --env CartPole-v1".split()) == 2
    assert "plan takes one agent" in capsys.readouterr().err
    line = "run ppo,a2c --env CartPole-v1 --budget 5e3 --trials 8 --dry-run"
    assert main(line.split()) == 0
    assert "Rounds: 2 agents.\nTrials of an agent by then: 8." in capsys.readouterr().out


@pytest.mark.slow
def test_a_search_that_was_killed_loses_nothing(tmp_path: Path) -> None:
    line = "run ppo,a2c --env CartPole-v1 --budget 4000 --trials 6 --test-seeds 2 --plain"
    command = [sys.executable, "-m", "rltune", *line.split(), "--wandb", "off", "--name", "run"]
    command += ["--storage-path", str(tmp_path), "--no-report"]
    process = subprocess.Popen(command, start_new_session=True)
    rounds = tmp_path / "run" / "rounds.yaml"
    deadline = time.monotonic() + 120
    while not rounds.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = len(rltune.open(tmp_path / "run" / "agents" / "ppo").trials())
    resume = [sys.executable, "-m", "rltune", "resume", str(tmp_path / "run"), "--plain"]
    assert subprocess.run(resume, check=False).returncode == 0
    assert RunDir.open_whole(tmp_path / "run").named_agent() in ("ppo", "a2c")
    assert len(rltune.open(tmp_path / "run" / "agents" / "ppo").trials()) == before
