"""Run directories, checkpoints and logs that come from anybody: nothing is executed or lost."""

from __future__ import annotations

import base64
import io
import os
import pickle
import shutil
import sqlite3
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
import yaml
from rltune.agents.envs.make import make_env
from rltune.agents.errors import UserError
from rltune.agents.loop import checkpoint
from rltune.agents.loop.agent import Agent
from rltune.agents.user_code import factory, import_object
from rltune.cli import main
from rltune.common.reading import load_yaml
from searching import search

HERE = Path(__file__).parents[1]
READING = ("show", "report", "importances", "export", "compare", "replay")
TINY = {"n_envs": 1, "n_steps": 8, "batch_size": 8, "n_epochs": 1}


class Evil:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search with the toy agent; tests work on copies."""
    patch = pytest.MonkeyPatch()
    patch.chdir(HERE)
    patch.syspath_prepend(str(HERE))
    from serial_jobs import run_here

    run_here(patch)
    folder = tmp_path_factory.mktemp("made")
    search(folder, budget=90, trials=3, evaluations=3, eval_episodes=1, test_seeds=2)
    patch.undo()
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path, toy: None) -> Path:
    copy: Path = shutil.copytree(made, tmp_path / "run")
    return copy


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of PPO."""
    agent = Agent("ppo", "CartPole-v1", TINY, total_timesteps=16)
    agent.learn(16)
    file = tmp_path_factory.mktemp("trained") / "agent.pt"
    agent.save(file)
    agent.close()
    return file


def change(run: Path, **spec: Any) -> None:
    content = yaml.safe_load((run / "run.yaml").read_text())
    content["spec"] |= spec
    (run / "run.yaml").write_text(yaml.safe_dump(content))


def fails(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that has to end with one sentence, and return it."""
    assert main(argv) == 2, argv
    said = capsys.readouterr().err
    assert said.startswith("rltune: ")
    assert "Traceback" not in said
    return said


# ------------------------------------------------------------------------------------ own code


@pytest.mark.parametrize(
    "spec", ["subprocess:Popen", "subprocess:run", "os:system", "shutil:rmtree"]
)
def test_pythons_own_is_no_environment(spec: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Python's own"):
        make_env(spec, env_kwargs={"args": ["touch", str(tmp_path / "x")]})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "spec",
    ["borrowed:run", "borrowed:Popen", "borrowed:partial", "numpy:load", "torch:load",
     "numpy:ndarray", "torch.utils.cpp_extension:load"],
)  # fmt: skip
def test_a_function_of_others_is_not_called(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "borrowed.py").write_text(
        "import functools\nfrom subprocess import Popen, run\npartial = functools.partial(run)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UserError, match=r"gymnasium\.Env|unknown environment"):
        factory(spec)
    sys.modules.pop("borrowed", None)


@pytest.mark.parametrize(
    "spec", ["..:X", ".x:Y", "../../evil:X", "a b:C", "os.path:join", "evil.:X"]
)
def test_odd_names_are_refused(spec: str) -> None:
    with pytest.raises(UserError):
        import_object(spec, "agent")


def test_no_module_of_a_run_directory_is_imported(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "planted.py").write_text(f"open({str(run / 'executed')!r}, 'w')\n")
    (run / "package").mkdir()
    (run / "package" / "__init__.py").write_text(f"open({str(run / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(run)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for spec in ("planted:Env", "package:Env", "package.deeper:Env"):
        with pytest.raises(UserError, match="lies in a run directory"):
            import_object(spec, "environment")
        with pytest.raises(UserError, match="lies in a run directory"):
            make_env(f"{spec}-v0")
    assert not (run / "executed").exists()


def test_reading_a_run_imports_nothing_that_it_names(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    change(run, agent="planted:Agent", env="planted:Env", import_path=str(tmp_path))
    for command in (*READING, "export --to json", "export --to zoo", "export --to rllib"):
        name, *rest = command.split()
        assert main([name, str(run), *rest]) in (0, 2)
    assert "rltune train planted:Agent" in capsys.readouterr().out
    assert not (tmp_path / "executed").exists()


def test_resuming_imports_from_where_the_user_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "evil_module.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    change(run, env="evil_module:Env", agent="evil_module:Agent", import_path=str(planted))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert "no module 'evil_module'" in fails(["resume", str(run), "--trials", "9"], capsys)
    assert not (tmp_path / "executed").exists()


# ------------------------------------------------------------------------------------ checkpoints


def torch_file(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def test_a_checkpoint_is_no_pickle(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Evil(mark)))
    legacy = tmp_path / "legacy.pt"
    torch.save({"a": Evil(mark)}, legacy, _use_new_zipfile_serialization=False)
    zipped = torch_file(tmp_path / "zipped.pt", {"format": checkpoint.FORMAT, "a": Evil(mark)})
    for file in (plain, legacy, zipped):
        with pytest.raises(UserError, match="not a checkpoint of rltune"):
            checkpoint.read(file)
    assert not mark.exists()


def test_a_compressed_checkpoint_is_refused(trained: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pt"
    with zipfile.ZipFile(trained) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if "data.pkl" in name else bytes(10_000_000))
    assert bomb.stat().st_size < 10_000_000
    with pytest.raises(UserError, match="too large"):
        checkpoint.read(bomb)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", "1"), ("version", None), ("agent", 3), ("agent", "subprocess:Popen"),
        ("env", ["CartPole-v1"]), ("env", "subprocess:run"), ("config", None), ("config", {1: 2}),
        ("config", {"n_envs": -1}), ("config", {"n_envs": "many"}),
        ("config", {"n_envs": 10**9}),
        ("config", {"net_arch": [10**9, 10**9]}), ("total_timesteps", "all"), ("seed", -1),
        ("seed", 1.5), ("controls", {"target": 1}), ("controls", {"reward_buffer_size": "x"}),
        ("controls", {"reward_buffer_size": 10**15}), ("env_kwargs", {"gravy": 1}),
        ("env_kwargs", []), ("algorithm", {}), ("algorithm", []),
        ("progress", {"steps": 1}), ("progress", {"env_steps": "x"}), ("monitor", {}),
        ("observations", {"mean": torch.zeros(7), "var": torch.zeros(7), "count": 1.0}),
        ("observations", None), ("extra", None),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_one_sentence(
    key: str, value: Any, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = checkpoint.read(trained)
    state[key] = value
    file = torch_file(tmp_path / "damaged.pt", state)
    fails(["eval", str(file), "--episodes", "1"], capsys)


@pytest.mark.parametrize(
    ("key", "value"), [("config", {"n_steps": 10**12}), ("memory", {}), ("memory", 3), ("obs", "x")]
)
def test_damage_that_only_a_training_meets(
    key: str, value: Any, trained: Path, tmp_path: Path
) -> None:
    state = checkpoint.read(trained)
    state[key] = value
    file = torch_file(tmp_path / "damaged.pt", state)
    with pytest.raises((UserError, MemoryError)):
        Agent.load(file)
    assert main(["eval", str(file), "--episodes", "1"]) == 0  # who only acts needs none of it


def test_spaces_in_rllibs_state_are_not_unpickled(tmp_path: Path) -> None:
    pytest.importorskip("ray.rllib")
    from ray.rllib.utils.serialization import gym_space_from_dict
    from rltune.backends.rllib.internals import _no_pickles

    mark = tmp_path / "executed"
    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil(mark)], dtype=object), allow_pickle=True)
    text = base64.b64encode(zlib.compress(buffer.getvalue())).decode()
    space = {"space": "box", "low": text, "high": text, "shape": [1], "dtype": "float32"}
    with _no_pickles(), pytest.raises(ValueError, match="allow_pickle"):
        gym_space_from_dict(space)
    assert not mark.exists()
    with pytest.raises(Exception):  # noqa: B017, PT011  (RLlib alone does unpickle it)
        gym_space_from_dict(space)
    assert mark.exists()


# --------------------------------------------------------------------------------- run directories


@pytest.mark.parametrize("name", [".lock", "report", "best/config.yaml", "history", "trials/7"])
def test_no_link_leads_out(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    (outside / "index.html").write_text("precious")
    link = run / name
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(outside / "precious" if link.suffix or name == ".lock" else outside)
    for command in ("show", "report", "resume", "play"):
        assert "leads out" in fails([command, str(run)], capsys)
    assert {file.read_text() for file in outside.iterdir()} == {"precious"}
    assert len(list(outside.iterdir())) == 2


def test_links_inside_and_a_linked_run_are_fine(run: Path, tmp_path: Path) -> None:
    (run / "best" / "link.yaml").symlink_to("config.yaml")
    (tmp_path / "other").symlink_to(run)
    assert main(["show", str(tmp_path / "other")]) == 0


@pytest.mark.parametrize("name", ["run.yaml", "trials.parquet", "best/answer.yaml", "study.db"])
def test_a_pipe_is_not_waited_for(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    for command in ("show", "resume"):
        assert "neither a file nor a folder" in fails([command, str(run)], capsys)


@pytest.mark.parametrize("name", ["../../evil", "/etc/x", "..", "a/b", "x\x00y"])
def test_names_stay_in_the_storage(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "ppo", "--env", "CartPole-v1", "-n", "8", "--name", name]
    fails([*argv, "--storage-path", str(tmp_path / "runs")], capsys)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [touch executed]",
        "!!python/object/new:subprocess.Popen [[touch, executed]]",
        "&a [*a]",
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "\n".join(
            f"{x}: &{x} [{','.join(['*' + y] * 9)}]"
            for y, x in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "[" * 3000,
        "x: " + "9" * 5000,
        "? [a, b]\n: 1",
        "a: 2020-99-99",
        "\x00",
    ],
)
def test_yaml_is_data(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "some.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=r"some\.yaml is damaged"):
        load_yaml(file)
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


def test_a_huge_yaml_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("- 1\n" * 1_000_000)
    with pytest.raises(UserError, match="too large"):
        load_yaml(file)


def test_a_study_is_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pickle of Optuna's own CMA-ES, which would load it, is left alone; bad JSON is said."""
    mark = tmp_path / "executed"
    hexed = pickle.dumps(Evil(mark)).hex()
    with sqlite3.connect(run / "study.db") as study:
        study.executemany(
            "insert into trial_system_attributes (trial_id, key, value_json) values (1, ?, ?)",
            [(key, f'"{hexed}"') for key in ("cma:optimizer", "cma:optimizer:0", "cma:x")],
        )
    optuna.load_study(study_name=None, storage=f"sqlite:///{run / 'study.db'}").trials  # noqa: B018
    assert main(["resume", str(run), "--trials", "3", "--plain"]) in (0, 2)
    assert not mark.exists()
    with sqlite3.connect(run / "study.db") as study:
        study.execute('update trial_params set distribution_json = \'{"name": "x"}\'')
    capsys.readouterr()
    assert "study.db" in fails(["resume", str(run), "--trials", "9"], capsys)


def test_a_page_runs_no_script_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "</script><script>alert(1)</script>"
    content = (run / "run.yaml").read_text().replace("quality", evil)
    (run / "run.yaml").write_text(content)
    change(run, agent=evil, env=evil)
    answer = (run / "best" / "answer.yaml").read_text().replace("trial", evil)
    (run / "best" / "answer.yaml").write_text(answer)
    main(["report", str(run), "--no-pictures"])
    page = run / "report" / "index.html"
    assert not page.exists() or evil not in page.read_text()


def test_an_exported_command_keeps_to_its_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run, env="CartPole-v1\ntouch executed", agent="ppo; touch executed")
    for to in ("rltune", "yaml"):
        assert main(["export", str(run), "--to", to]) in (0, 2)
        lines = capsys.readouterr().out.splitlines()
        assert not [line for line in lines if line.strip().startswith("touch")]


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "\x1b" not in fails(["show", str(tmp_path / "\x1b]0;evil\x07")], capsys)


@pytest.mark.parametrize("command", ["train ppo --env CartPole-v1 -n 8 --name x", "eval {file}"])
@pytest.mark.parametrize("device", ["x\x1b", "nonsense", "cuda:99", "meta:x"])
def test_odd_devices_are_one_sentence(
    device: str, command: str, trained: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    fails([*command.format(file=trained).split(), "--device", device], capsys)
