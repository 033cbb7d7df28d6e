"""Searches on a Ray cluster: whom it takes, what it refuses, what travels there."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rltune
from ray.exceptions import RayActorError
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.cluster import address, code
from rltune.cluster.code import folder_of_code, travelling
from rltune.cluster.nodes import Nodes
from rltune.cluster.resources import Growth, NodeType, Resources, fitting
from rltune.execution import tune
from rltune.search.driver import Driver
from searching import check_history

HERE = Path(__file__).parents[1]


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ------------------------------------------------------------------------------------- placement


@pytest.mark.parametrize(
    ("needed", "have", "fit"),
    [
        (Resources(1), (4, 0), 4),
        (Resources(0.2), (1, 0), 5),
        (Resources(3), (8, 0), 2),
        (Resources(1, 0.4), (16, 2), 4),  # two per GPU: a fraction is never of two
        (Resources(1, 0.5), (3, 2), 3),
        (Resources(1, 2), (16, 5), 2),
        (Resources(4, 1), (8, 8), 2),
    ],
)
def test_trials_fit_whole_on_a_machine(
    needed: Resources, have: tuple[float, float], fit: int
) -> None:
    assert needed.on_node(*have) == fit
    assert fitting(needed, *have) == fit


def test_actors_of_a_trial_may_be_on_other_machines() -> None:
    needed = Resources(cpus=3, actors=2, cpus_per_actor=1)
    assert needed.bundles == [{"CPU": 1}, {"CPU": 1}, {"CPU": 1}]
    assert needed.on_nodes([(2, 0), (2, 0), (2, 0)]) == 2
    assert needed.on_nodes([(2, 0)]) == 0
    shared = Resources(cpus=2, gpus=1, actors=2, cpus_per_actor=0.5)
    assert shared.bundles == [{"CPU": 1, "GPU": 1}, {"CPU": 0.5}, {"CPU": 0.5}]
    assert shared.on_nodes([(1, 1), (8, 0)]) == 1  # one GPU
    assert Resources(3).on_nodes([(8, 0), (2, 0)]) == 2  # whole, on one


def test_what_can_never_be_had_is_refused() -> None:
    with pytest.raises(UserError, match=r"--gpus-per-trial 0\.5 can never be had"):
        fitting(Resources(1, 0.5), 8, 0)


def test_an_autoscaler_adds_what_it_may() -> None:
    config = {
        "max_workers": 5,
        "head_node_type": "head",
        "provider": {"type": "aws"},
        "available_node_types": {
            "head": {"resources": {"CPU": 0}, "max_workers": 0},
            "cpu": {"resources": {"CPU": 16}, "max_workers": 4},
            "gpu": {"resources": {"CPU": 8, "GPU": 2}, "max_workers": 4},
        },
    }
    growth = Growth.of(config)
    assert growth.most(Resources(8)) == 4 * 2 + 1
    assert growth.most(Resources(1, 0.5)) == 4 * 4
    assert growth.most(Resources(32)) == 0
    assert not growth.says_nothing(workers=0)
    own = Growth([NodeType(2, None)], 2)
    assert own.says_nothing(workers=1)
    assert not own.says_nothing(workers=2)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("node2", "worker on node2 died: "),
        (platform.node(), "worker died: "),
        ("", "worker died: "),
    ],
)
def test_the_node_of_a_worker_that_died_is_named(node: str, says: str) -> None:
    error = RayActorError()
    assert tune._explained(error, error, "", node).reason.startswith(says)


# ------------------------------------------------------------------------------------- addresses


@pytest.mark.slow  # each waits for Ray to give up
def test_a_wrong_address_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = unused_port()
    run = "run ppo --env CartPole-v1 --budget 100 --trials 1 --wandb off --name dead --address"
    for given, says in (
        (f"127.0.0.1:{port}", f"--address 127.0.0.1:{port}: no Ray cluster answers there"),
        (f"ray://127.0.0.1:{port}", "no Ray cluster answers there"),
        ("nonsense", "is no address"),
        ("ray://nonsense", "is no address"),
    ):
        started = time.monotonic()
        assert main([*run.split(), given]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.splitlines()[-1].startswith("rltune: ")
        assert "Traceback" not in error
        assert time.monotonic() - started < 30  # on a busy machine; Ray itself takes more
    assert not (tmp_path / "runs").exists(), "nothing is written before the cluster answers"


def test_what_is_no_ray_is_no_cluster() -> None:
    server = socket.create_server(("127.0.0.1", 0))  # it never says a word
    with server, pytest.raises(UserError, match="no Ray cluster answers"):
        address.find(f"127.0.0.1:{server.getsockname()[1]}")


def test_without_an_address_no_cluster_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert address.find(None) is None
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(UserError, match="nonsense"):
        address.find(None)


# ------------------------------------------------------------------------------------- encryption


def make_certificates(folder: Path) -> dict[str, str]:
    """Make an authority and a certificate of it for this machine; return Ray's variables."""
    from ray.util import get_node_ip_address

    folder.mkdir()
    commands = f"""
        openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=rltune -keyout ca.key -out ca.crt
        openssl req -newkey rsa:2048 -nodes -subj /CN=node -keyout node.key -out node.csr
        echo "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{get_node_ip_address()}" > names
        openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
            -extfile names -out node.crt
    """
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True)
    files = dict(zip(address.TLS_FILES, ("node.crt", "node.key", "ca.crt"), strict=True))
    return {"RAY_USE_TLS": "1", **{name: str(folder / file) for name, file in files.items()}}


@pytest.mark.slow
def test_an_encrypted_cluster(tmp_path: Path) -> None:
    ours, foreign = (make_certificates(tmp_path / name) for name in ("ours", "foreign"))
    port, folder = unused_port(), tempfile.mkdtemp(prefix="rl-", dir="/tmp")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}
    told = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_")
    } | token
    log = (tmp_path / "head.log").open("w")
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--port", str(port), "--num-cpus", "1", "--include-dashboard", "false"),
            *("--temp-dir", folder, "--object-store-memory", "80000000"),
        ],
        env={**told, **ours}, stdout=log, stderr=log,
    )  # fmt: skip

    def run(name: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        options = "--budget 500 --trials 1 --wandb off --no-tournament --no-report"
        command = f"run ppo --env CartPole-v1 {options} --name {name} --address 127.0.0.1:{port}"
        return subprocess.run(
            [sys.executable, "-m", "rltune", *command.split()],
            cwd=tmp_path, env={**told, **more}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    try:
        for _ in range(10):  # until it is up
            result = run("ours", ours)
            if "no Ray cluster answers" not in result.stderr:
                break
        assert result.returncode == 0, result.stderr + (tmp_path / "head.log").read_text()
        assert (tmp_path / "runs" / "ours" / "trials.parquet").exists()
        for name, more, says in (
            ("none", {}, "does it use TLS, while RAY_USE_TLS is not set here?"),
            ("foreign", foreign, "is its certificate of another authority than RAY_TLS_CA_CERT?"),
        ):
            result = run(name, more)
            assert result.returncode == 2
            assert says in result.stderr.splitlines()[-1]
            assert "Traceback" not in result.stderr
            assert not (tmp_path / "runs" / name).exists()
    finally:
        head.send_signal(signal.SIGTERM)  # it ends what it has started
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def test_incomplete_variables_for_tls_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.delenv("RAY_TLS_SERVER_CERT", raising=False)
    with pytest.raises(UserError, match="set RAY_TLS_SERVER_CERT, too"):
        address.find("127.0.0.1:6379")
    for name in address.TLS_FILES:
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    with pytest.raises(UserError, match=r"can't be read: .*absent"):
        address.find("127.0.0.1:6379")
    for name in address.TLS_FILES:
        monkeypatch.setenv(name, str(HERE / "toy.py"))  # no certificate
    with pytest.raises(UserError, match="no Ray cluster answers"):
        address.find(f"127.0.0.1:{unused_port()}")


# ----------------------------------------------------------------------------- code that travels


def test_only_what_is_the_users_travels(tmp_path: Path) -> None:
    assert folder_of_code(False, "CartPole-v1", str(tmp_path)) is None
    assert folder_of_code(True, "CartPole-v1", str(tmp_path)) == tmp_path
    assert folder_of_code(False, "CartPole-v1,mine:Env", str(tmp_path)) == tmp_path
    (tmp_path / "mine.py").touch()
    for folder, mark in (("env", "pyvenv.cfg"), ("old", "run.yaml"), ("runs", "x"), (".git", "x")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / mark).touch()
    environment = travelling(tmp_path)
    assert environment["working_dir"] == str(tmp_path)
    assert sorted(environment["excludes"]) == ["/.git/", "/env/", "/old/", "/runs/"]


def test_a_folder_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MAX_FOLDER", 10)
    (tmp_path / "data").write_bytes(bytes(11))
    with pytest.raises(UserError, match="travels to every node"):
        travelling(tmp_path)


# ------------------------------------------------------------------------------ a cluster of two


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head and a worker with one CPU each, which nobody else finds by accident."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    folder = tempfile.mkdtemp(prefix="rl-", dir="/tmp")  # short: sockets lie in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("TOY_FOLDER", folder)
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 2)
        read_authentication()
        args = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
        several = Cluster(initialize_head=True, head_node_args=args)
        try:
            yield several
        finally:
            several.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
    read_authentication()  # or the next cluster of this process would want the token


def read_authentication() -> None:
    """Let Ray in this process take the mode and the token from the environment as it is."""
    raylet: Any = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


# The user's own module: it notes on which nodes it was imported, and from where.
OWN = """
from pathlib import Path
import ray

node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "none"
(Path({seen!r}) / node).write_text(__file__)
"""


@pytest.mark.slow
def test_a_search_on_a_cluster_that_grows(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, seen = tmp_path / "code", tmp_path / "seen"
    code.mkdir()
    seen.mkdir()
    (code / "own.py").write_text((HERE / "toy.py").read_text() + OWN.format(seen=str(seen)))
    monkeypatch.chdir(code)
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.setattr("rltune.execution.tune.WATCH_EVERY", 0.5)
    joined: list[Any] = []

    def on_result(driver: Driver, *args: Any) -> bool:
        if not joined:  # the second node joins while the first trial runs
            joined.append(nodes.add_node(num_cpus=1, object_store_memory=80_000_000))
        return stock(driver, *args)

    stock = Driver.on_result
    monkeypatch.setattr(Driver, "on_result", on_result)
    result = rltune.Search(
        "own:ToyAgent", "own:ToyEnv",
        {"space": {"quality": {"uniform": [0.0, 1.0]}}, "fixed": {"sleep": 0.05}},
        budget=900, trials=12, tournament=False, wandb="off", report=False, screen="plain",
        name="run", storage_path=tmp_path / "runs", address=nodes.address,
    ).run()  # fmt: skip
    assert set(result.trials()["state"]) <= {"COMPLETE", "PRUNED"}
    assert len(result.trials()) == 12
    assert "the cluster has changed: 2 at once, 1 before" in capsys.readouterr().out
    imported = {file.name: file.read_text() for file in seen.iterdir() if file.name != "none"}
    workers = [path for path in imported.values() if not path.startswith(str(code))]
    assert len(imported) == 2, "trials ran on both nodes"
    assert len(workers) == 2, "the workers have a copy of the user's folder"


@pytest.mark.slow
def test_workers_that_do_not_see_the_run_bring_their_checkpoints(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unseen(run: Path) -> Any:
        address, actor = stock(run)
        return address._replace(digest="of another"), actor

    stock = tune.open_checkpoint_server
    monkeypatch.setattr(tune, "open_checkpoint_server", unseen)
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))
    space = {
        "space": {"quality": {"uniform": [0.0, 1.0]}},
        "start": [{"quality": 0.9, "mode": "kill_once", "at": 60}],
    }
    result = rltune.Search(
        "toy:ToyAgent", "toy:ToyEnv", space, budget=900, trials=3, tournament=False, wandb="off",
        report=False, screen="none", scheduler="none", name="run", storage_path=tmp_path / "runs",
        address=nodes.address,
    ).run()  # fmt: skip
    trials = result.trials()
    assert set(trials["state"]) == {"COMPLETE"}
    assert list(trials["retries"]) == [0, 1, 0]
    check_history(result.history())
    for number in range(3):
        assert (result.path / "trials" / str(number) / "checkpoint.pt").exists()


@pytest.mark.slow
def test_a_trial_is_spread_over_the_nodes_by_its_actors(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while len(nodes.worker_nodes) < 1:
        nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))
    seen = tmp_path / "seen"
    seen.mkdir()
    space = {
        "space": {"learning_rate": {"log": [1e-4, 1e-2]}},
        "fixed": {"num_actors": 1, "max_policy_lag": 20, "learning_starts": 50},
    }
    result = rltune.Search(
        "dqn", "mortal:mortal", space, budget=400, trials=1, evaluations=2, tournament=False,
        env_kwargs={"folder": str(seen)}, wandb="off", report=False, screen="none", name="run",
        storage_path=tmp_path / "runs", address=nodes.address,
    ).run()  # fmt: skip
    assert list(result.trials()["state"]) == ["COMPLETE"]
    where = [dict([file.name.split("-")]) for file in seen.iterdir()]
    learners = {node for one in where for kind, node in one.items() if kind == "learner"}
    actors = {node for one in where for kind, node in one.items() if kind == "actor"}
    assert len(actors) == len(learners) == 1
    assert not learners & actors


@pytest.mark.slow
def test_a_trial_that_fits_no_node_is_refused_at_once(nodes: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"budget": 900, "trials": 1, "wandb": "off", "screen": "none"}
    search = rltune.Search(
        "ppo", "CartPole-v1", cpus_per_trial=2, address=nodes.address, name="run",
        storage_path=tmp_path / "runs", **options,
    )  # fmt: skip
    with pytest.raises(UserError, match="can never be"):
        search.run()
    assert not (tmp_path / "runs" / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["python", "ray", "torch", "rltune", "source"])
def test_other_versions_are_refused(nodes: Any, tmp_path: Path, package: str) -> None:
    from rltune.cluster.session import ray_session

    with ray_session(nodes.address):
        asked = Nodes(tmp_path)
        asked.check()
        asked = Nodes(tmp_path)
        asked.here[package] = "0.0.1"
        with pytest.raises(UserError, match=package):
            asked.check()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_token_is_asked_for(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "_has_token", lambda loader: False)
    with pytest.raises(UserError, match="refuses this machine, which has no token"):
        address.find(nodes.address)
