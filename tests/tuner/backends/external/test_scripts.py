"""Scripts of a user's own: how they are told and read, and whole searches over one."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import rltune
import yaml
from rltune.agents.envs.suite import NO_ENV
from rltune.agents.errors import UserError
from rltune.backends.external.readers import READERS
from rltune.backends.external.script import ScriptAgent
from rltune.backends.external.words import make_command
from rltune.backends.names import METRIC_NAME, SECTION
from rltune.cli import main
from rltune.space.script import ScriptSection, read_script
from rltune.space.space import Space
from rltune.space.yaml_lines import SourceText
from searching import HERE, check_history, check_resumed, kill_when_saved

pytestmark = pytest.mark.usefixtures("toy")
REGEX = r"global_step=(?P<step>\d+), episodic_return=\[?(?P<value>[-\d.e]+)"
WAYS = {
    "regex": ("return", {"regex": REGEX}),
    "json": ("score", {"json": True, "step": "step"}),
    "csv": ("rollout/return", {"csv": "progress.csv", "step": "time/steps"}),
    "tensorboard": ("charts/episodic_return", "tensorboard"),
}


def agent(folder: Path, way: str = "regex", config: Any = None, **section: Any) -> ScriptAgent:
    metric, results = WAYS[way]
    told = {"results": results, "args": ["--write", way], **section}
    made = ScriptAgent(
        "script:toy_script.py",
        NO_ENV,
        {"quality": 0.5, **(config or {})},
        total_timesteps=1000,
        seed=3,
        env_kwargs={METRIC_NAME: metric, SECTION: told},
    )
    made.work_in(folder)
    return made


@pytest.mark.parametrize("way", WAYS)
def test_results_are_read_as_scripts_write_them(tmp_path: Path, way: str) -> None:
    if way == "tensorboard":
        pytest.importorskip("tensorboard")
    made = agent(tmp_path / "files", way)
    made.learn(500)
    expected = 0.5 * (1 - math.exp(-500 / 300)) + 0.003
    assert made.evaluate().mean == pytest.approx(expected, rel=1e-6)
    assert made.evaluate().metrics[WAYS[way][0]] == pytest.approx(expected, rel=1e-6)
    made.learn(1000)
    assert made.finished
    made.close()
    assert (tmp_path / "files" / "output.txt").read_text().endswith("done\n")
    words = (tmp_path / "files" / "begins.txt").read_text()
    assert words.endswith("--quality 0.5 --seed 3 --total-timesteps 1000\n")


def test_a_stopped_script_ends_with_all_it_has_started(tmp_path: Path) -> None:
    made = agent(tmp_path / "files", config={"sleep": 0.05})
    made.learn(100)
    script = int((tmp_path / "files" / "begins.txt").read_text().split()[0])
    assert psutil.pid_exists(script)
    began = time.time()
    made.close()
    assert time.time() - began < 5
    assert not psutil.pid_exists(script)


@pytest.mark.slow
def test_a_script_ends_with_its_worker(tmp_path: Path) -> None:
    """Whatever kills the worker, nothing of the script stays."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_scripts import agent
made = agent(Path({str(tmp_path / "files")!r}), config={{"sleep": 1.0}})
made.learn(1000)
"""
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=HERE)
    begins = tmp_path / "files" / "begins.txt"
    while not begins.exists() or not begins.read_text():
        assert worker.poll() is None
        time.sleep(0.1)
    script = psutil.Process(int(begins.read_text().split()[0]))
    worker.kill()
    worker.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        script.wait(10)
    assert not psutil.pid_exists(script.pid)


def test_a_script_that_fails_says_its_last_lines(tmp_path: Path) -> None:
    made = agent(tmp_path / "files", args=["--fail"])
    said = r"toy_script.py ended with exit code 1: loading data \| there is no data here"
    with pytest.raises(RuntimeError, match=said):
        made.learn(1000)
    made.close()


def test_a_metric_that_is_not_there_is_a_sentence_with_those_that_are(tmp_path: Path) -> None:
    made = agent(tmp_path / "files", "json")
    made.env_kwargs[METRIC_NAME] = "scroe"
    with pytest.raises(UserError, match="it wrote no 'scroe'; there are loss, score, step"):
        made.learn(1000)
    made.close()


def test_a_script_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    for told, begins in (({"resume": "--resume", "checkpoint": "state.json"}, 2), ({}, 1)):
        folder = tmp_path / f"files{begins}"
        made = agent(folder, config={"sleep": 0.02}, **told)
        made.learn(400)
        made.save(tmp_path / "checkpoint.pt")
        value = made.evaluate().mean
        made.close()
        again = ScriptAgent.load(tmp_path / "checkpoint.pt")
        again.work_in(folder)
        assert again.evaluate().mean == value
        again.learn(1000)
        again.close()
        lines = (folder / "begins.txt").read_text().splitlines()
        assert len(lines) == begins  # without a flag for it, it starts over in an empty folder
        assert lines[-1].split()[1].endswith("state.json" if told else "new")
        assert again.evaluate().mean == pytest.approx(0.5 * (1 - math.exp(-1000 / 300)) + 0.003)


def command(values: dict[str, Any], text: str = "", **section: Any) -> list[str]:
    path = Path("script_of_a_test.py")
    path.write_text(text)
    made = make_command(
        ScriptSection(**section), path, values, seed=7, budget=100, env=None, folder=Path()
    )
    for file, content in made.files.items():
        file.write_text(content)
    return [*made.words[2:], *(f"{k}={v}" for k, v in made.variables.items())]


@pytest.mark.parametrize(
    ("section", "text", "words"),
    [
        ({}, "import tyro", "--a-b 1 --no-c --d 1 2 --seed 7 --total-timesteps 100"),
        ({}, 'add("--a_b")', "--a_b 1 --c False --d 1 2 --seed 7 --total_timesteps 100"),
        ({}, "add('--x', action='store_true')", "--a-b 1 --d 1 2 --seed 7 --total-timesteps 100"),
        ({}, "import hydra", "a_b=1 c=false d=[1,2] seed=7 total_timesteps=100"),
        ({"style": "env"}, "", "A_B=1 C=False D=[1, 2] SEED=7 TOTAL_TIMESTEPS=100"),
        (
            {"names": {"a_b": "--AB", "c": "--see"}, "seed": None, "budget": "-n", "args": ["x"]},
            "",
            "x --AB 1 --see False --d 1 2 -n 100",
        ),
    ],
)
def test_hyperparameters_are_told_in_the_way_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Any, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert " ".join(command({"a_b": 1, "c": False, "d": [1, 2]}, text, **section)) == words


def test_a_file_has_the_hyperparameters_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = {"style": "yaml", "names": {"lr": "optimizer.lr"}, "config": "--cfg", "budget": "-n"}
    assert command({"lr": 0.1}, **told) == ["-n", "100", "--cfg", "config.yaml"]
    assert yaml.safe_load(Path("config.yaml").read_text()) == {
        "optimizer": {"lr": 0.1},
        "seed": 7,
    }


def test_monitor_files_give_the_mean_of_the_last_episodes(tmp_path: Path) -> None:
    with open(tmp_path / "0.monitor.csv", "w") as file:
        file.write('#{"t_start": 1.0}\n')
        rows = csv.writer(file)
        rows.writerows([["r", "l", "t"], [10.0, 5, 0.1], [20.0, 7, 0.2], [40.0, 8, 0.3]])
        file.write("99.0,")  # half a line
    section = ScriptSection(results="csv", pattern="*.monitor.csv", average=2)
    reader = READERS["csv"](section, "eval_return", tmp_path, tmp_path / "output.txt")
    assert [(r.env_steps, r.value) for r in reader.poll()] == [(5, 10.0), (12, 15.0), (20, 30.0)]
    assert reader.poll() == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("style: flags", "my.yaml:4: script.style: needs one of dashes, underscores"),
        ("sead: --seed", "my.yaml:4: script.sead: unknown key 'sead'; did you mean 'seed'"),
        ("results: {csv: true}", "my.yaml:4: script.results.csv: needs the pattern"),
        ("results: {regex: 'a('}", "my.yaml:4: script.results.regex: is no regular expression"),
        ("results: {regex: 'a'}", r"my.yaml:4: script.results.regex: needs a group \(\?P<step>"),
        ("results: {json: true}", "my.yaml:4: script.results.json: needs the key of the env"),
        ("average: 0", "my.yaml:4: script.average: needs a whole number from 1 on; got 0"),
        ("resume: --resume", "my.yaml:4: script.resume: goes with checkpoint"),
        ("seed: 5", "my.yaml:4: script.seed: needs a text; got 5"),
    ],
)
def test_mistakes_in_the_section_are_sentences(tmp_path: Path, lines: str, said: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(f"space:\n  a: {{uniform: [0, 1]}}\nscript:\n  {lines}\n")
    with pytest.raises(UserError, match=said):
        Space.load(path)


def test_a_section_is_written_and_read_back() -> None:
    data = {"style": "env", "results": {"csv": "a.csv", "step": "b"}, "seed": None, "average": 3}
    section = read_script(data, SourceText())
    assert section is not None
    assert section.seed is None
    assert read_script(section.to_dict(), SourceText()) == section
    assert section.to_dict() == data
    space = Space.from_dict({"space": {"a": {"uniform": [0, 1]}}, "script": data})
    assert Space.from_dict(space.to_dict()).script == section
    assert ScriptSection().to_dict() == {}


# --------------------------------------------------------------------------------- whole searches


@pytest.mark.usefixtures("toy_ray")
def test_a_search_over_a_script_ends_with_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "my.yaml"
    space.write_text(
        "budget: 1000\nspace:\n  quality: {uniform: [0, 1]}\n  hidden_size: {pow2: [16, 256]}\n"
        f"script:\n  results: {{regex: '{REGEX}'}}\n  args: [--sleep, 0.01]\n"
    )
    words = ["run", "script:toy_script.py", "--space", str(space), "--metric", "return"]
    words += ["--trials", "5", "--test-seeds", "2", "--wandb", "off", "--plain", "--no-report"]
    assert main([*words, "--storage-path", str(tmp_path), "--name", "run"]) == 0
    run = rltune.open(tmp_path / "run")
    trials = run.trials()
    assert trials.loc[0, "origin"] == "default"  # the script's own values
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    check_history(run.history())
    (folder,) = (tmp_path / "run/trials").glob("*0/checkpoint.files")
    told = (folder / "begins.txt").read_text().split()
    assert "--quality" not in told
    best = shlex.split((tmp_path / "run/best/command.txt").read_text())
    done = subprocess.run(best, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "global_step=1000" in done.stdout
    assert len(list((tmp_path / "run").glob("trials/*/test-10?.files/output.txt"))) >= 2
    assert main(["show", str(tmp_path / "run")]) == 0
    assert main(["play", str(tmp_path / "run")]) == 2
    assert "code of your own" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_search_over_a_script_goes_on_to_its_answer(tmp_path: Path) -> None:
    """The driver, its workers and the scripts are killed; the scripts find their own files."""
    section = {
        "results": {"regex": REGEX}, "resume": "--resume", "checkpoint": "state.json",
        "args": ["--sleep", "0.1"],
    }  # fmt: skip
    values = {
        "space": {"space": {"quality": {"uniform": [0.0, 1.0]}}, "script": section},
        **{"budget": 1000, "trials": 3, "test_seeds": 2, "metric": "return", "screen": "plain"},
        **{"wandb": "off", "report": False, "name": "run", "storage_path": str(tmp_path)},
    }
    code = f"import rltune\nrltune.Search('script:toy_script.py', **{values!r}).run()"
    kill_when_saved(["-c", code], tmp_path / "run")
    check_resumed(tmp_path / "run")
    began = [file.read_text() for file in (tmp_path / "run").glob("trials/*/*.files/begins.txt")]
    assert any("state.json" in text for text in began)  # one went on from its own file


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agent": "script:none.py"}, "none.py: there is no such script"),
        ({"metric": "eval_return"}, "which number of toy_script.py counts? Give --metric"),
        ({"env": "CartPole-v1"}, "write env: --env-id in the section script:"),
        ({"agent": "ppo", "env": "CartPole-v1"}, "script: is for script:FILE"),
    ],
)
def test_what_a_script_can_not_have_is_a_sentence(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    space = {"space": {"gamma": {"uniform": [0.5, 0.9]}}, "script": {"args": ["--x"]}}
    values = {"agent": "script:toy_script.py", "metric": "a", "budget": 100, **options}
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        rltune.Search(space=space, storage_path=tmp_path, screen="none", **values)


def test_a_script_that_came_with_a_run_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_text("format_version: 1\n")
    (tmp_path / "evil.py").write_text("")
    monkeypatch.chdir(tmp_path)
    space = {"space": {"a": {"uniform": [0, 1]}}}
    with pytest.raises(UserError, match="lies in a run directory"):
        rltune.Search("script:evil.py", space=space, metric="a", budget=100)
    assert os.getcwd() == str(tmp_path)
