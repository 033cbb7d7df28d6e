"""Exports to Stable-Baselines3 and rl-zoo3, held against our own agents and run with theirs."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rltune
import torch
import yaml
from exporting import training
from rltune.agents.config import Hyperparameter, config_dict, hyperparameters, make_config
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.registry import agent_class
from rltune.agents.reward_signals import RewardSignalConfig
from rltune.agents.schedules import value_at
from rltune.exporting.sb3_words import AGENTS, EnvFacts, translate, updates, without_equal
from torch import nn

VECTORS = EnvFacts(images=False, atari=False, box_actions=True, discrete_actions=False)
# Each with something that is easily lost: schedules, normalisation, noise, gSDE, optimizers.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": (
        "ppo", "CartPole-v1",
        {"learning_rate": "lin_1e-3", "clip_range": "lin_0.2", "clip_range_vf": 0.3, "n_envs": 2,
         "net_arch": [32, 16], "n_steps": 32, "n_minibatches": 4, "target_kl": 0.02},
    ),
    "ppo-rmsprop": (
        "ppo", "Pendulum-v1",
        {"optimizer": "rmsprop", "rms_alpha": 0.95, "max_grad_norm": 0, "n_steps": 32, "n_envs": 2,
         "weight_init": "torch", "activation": "silu", "use_sde": True, "sde_sample_freq": 4,
         "normalize_rewards": False},
    ),
    "a2c": (
        "a2c", "Pendulum-v1",
        {"optimizer": "rmsprop", "optimizer_eps": 1e-4, "log_std_init": -1.0, "n_envs": 2,
         "normalize_observations": False, "normalize_rewards": False},
    ),
    "a2c-adam": ("a2c", "CartPole-v1", {"optimizer": "adam", "n_envs": 2, "frame_stack": 3}),
    "a2c-alpha": ("a2c", "CartPole-v1", {"optimizer": "rmsprop", "rms_alpha": 0.9, "n_envs": 2}),
    "trpo": ("trpo", "Pendulum-v1", {"n_envs": 2, "n_steps": 32, "batch_size": 32}),
    "dqn": (
        "dqn", "CartPole-v1",
        {"n_envs": 2, "train_freq": 4, "gradient_steps": 2, "learning_starts": 20, "n_step": 3,
         "net_arch": [48], "activation": "tanh", "max_grad_norm": 0, "optimizer_eps": 1e-6},
    ),
    "td3": (
        "td3", "Pendulum-v1",
        {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.3, "net_arch": [20, 30],
         "learning_starts": 20, "policy_delay": 3, "normalize_observations": True},
    ),
    "ddpg": ("ddpg", "Pendulum-v1", {"noise_std": 0.2, "learning_rate": "lin_1e-3"}),
    "sac": (
        "sac", "Pendulum-v1",
        {"use_sde": True, "sde_sample_freq": 8, "ent_coef": "auto_0.1", "target_entropy": "-2",
         "net_arch": [24, 24], "log_std_init": -2.0, "learning_starts": 20},
    ),
}  # fmt: skip


FIRST = "first = {name: value.clone() for name, value in model.policy.state_dict().items()}"


def learners(agent: Agent) -> dict[str, Any]:
    found = {"learner": "policy", "actor_learner": "actor", "critic_learner": "critic"}
    algorithm = agent.algorithm
    return {theirs: getattr(algorithm, ours) for ours, theirs in found.items()
            if hasattr(algorithm, ours)}  # fmt: skip


def networks(model: Any, agent: Agent) -> list[tuple[nn.Module, nn.Module]]:
    """Return pairs of SB3's network and ours."""
    nets: Any = agent.algorithm.nets  # type: ignore[attr-defined]
    if agent.algorithm_spec == "dqn":
        return [(model.q_net, nets)]
    if hasattr(nets, "critics"):
        return [(model.actor, nets.actor), (model.critic, nets.critics)]
    return [(model.policy, nets)]


def weights(net: nn.Module) -> dict[tuple[int, ...], list[torch.Tensor]]:
    found: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for tensor in net.parameters():  # shared ones once
        found.setdefault(tuple(tensor.shape), []).append(tensor.detach())
    return found


def check_same(model: Any, agent: Agent, config: dict[str, Any]) -> None:
    """SB3's model, untrained, has our networks and our optimizers."""
    activations = (nn.Tanh, nn.ReLU, nn.ELU, nn.SiLU)
    for theirs, ours in networks(model, agent):
        mine, other = weights(ours), weights(theirs)
        assert {k: len(v) for k, v in other.items()} == {k: len(v) for k, v in mine.items()}
        kinds = [
            {type(module) for module in net.modules()} & set(activations) for net in (theirs, ours)
        ]
        assert kinds[0] == kinds[1] | (kinds[0] & {nn.Tanh} if hasattr(model, "actor") else set())
        for shape, tensors in mine.items():
            if len(shape) == 2:
                check_beginning(tensors, other[shape], config["weight_init"])
    for name, learner in learners(agent).items():
        if agent.algorithm_spec == "trpo":
            name = "policy"
        optimizer = getattr(model, name).optimizer
        group = optimizer.param_groups[0]
        assert type(optimizer).__name__.lower() == config["optimizer"]
        assert group["eps"] == learner.config.optimizer_eps
        assert group["weight_decay"] == 0
        rate = str(learner.config.learning_rate)
        assert model.lr_schedule(1.0) == pytest.approx(float(rate.removeprefix("lin_")))
        assert model.lr_schedule(0.5) == pytest.approx(
            float(rate.removeprefix("lin_")) * (0.5 if rate.startswith("lin_") else 1)
        )
        if config["optimizer"] == "rmsprop":
            assert group["alpha"] == learner.config.rms_alpha
        else:
            assert group["betas"] == (0.9, 0.999)


def check_beginning(ours: list[torch.Tensor], theirs: list[torch.Tensor], rule: str) -> None:
    """Both begin by the same rule: orthogonal weights have one singular value, their gain."""
    sizes = [sorted(float(entry.norm()) for entry in some) for some in (ours, theirs)]
    if rule == "orthogonal":
        for weight in (*ours, *theirs):
            values = torch.linalg.svdvals(weight)
            assert values.max() == pytest.approx(float(values.min()), rel=1e-4)
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4 if rule == "orthogonal" else 0.35)


def check_settings(model: Any, config: dict[str, Any], agent: str) -> None:
    env = model.get_env()
    norm = model.get_vec_normalize_env()
    assert env.num_envs == config["n_envs"]
    assert bool(norm and norm.norm_obs) == config["normalize_observations"]
    assert bool(norm and norm.norm_reward) == config["normalize_rewards"]
    if norm is not None:
        assert norm.gamma == config["gamma"]
    assert model.gamma == config["gamma"]
    if agent in ("ppo", "a2c", "dqn"):
        assert model.max_grad_norm == (config["max_grad_norm"] or float("inf"))
    if agent == "ppo":
        rows = config["n_steps"] * config["n_envs"]
        size = rows // config["n_minibatches"] if config["n_minibatches"] else config["batch_size"]
        assert model.batch_size == size
        assert (model.target_kl or 0) == config["target_kl"]
    if agent in ("dqn", "td3", "ddpg", "sac"):
        every = config["train_freq"] / (
            config["gradient_steps"] if config["gradient_steps"] > 0 else config["train_freq"]
        )
        steps = model.train_freq.frequency * env.num_envs
        theirs = steps / (model.gradient_steps if model.gradient_steps > 0 else steps)
        assert theirs == every
    if "noise_std" in config:
        noise = model.action_noise
        assert config["noise_type"].split("-")[0] in type(noise).__name__.lower()
        assert noise._sigma == pytest.approx(config["noise_std"])


@pytest.mark.parametrize("case", CASES)
def test_the_script_runs_and_has_our_networks(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    if case == "trpo":
        pytest.importorskip("sb3_contrib")
    monkeypatch.chdir(tmp_path)
    name, env, values = CASES[case]
    text = rltune.export(training(tmp_path, name, env, values), to="sb3")
    text = text.replace("TIMESTEPS = 1_000", "TIMESTEPS = 70")
    text = text.replace("    model.learn(", f"    {FIRST}\n    model.learn(")
    (tmp_path / "script.py").write_text(text)
    runs = runpy.run_path("script.py", run_name="__main__")
    model = runs["model"]
    assert model.num_timesteps >= 70
    assert (tmp_path / f"{name}-{env}.zip").exists()
    agent = Agent(name, env, values, total_timesteps=70, device="cpu")
    config = config_dict(agent.config)
    model.policy.load_state_dict(runs["first"])
    check_same(model, agent, config)
    check_settings(model, config, name)
    agent.close()


@pytest.mark.parametrize(
    "schedule",
    ["lin_1e-3", "lin_1e-3_1e-4", "exp_1e-3_1e-5", "pw_0.1:1e-3_0.5:2e-3_0.5:1e-4_0.8:0"],
)
def test_schedules_are_told(schedule: str, tmp_path: Path) -> None:
    run = training(tmp_path, "ppo", "CartPole-v1", {"learning_rate": schedule})
    text = rltune.export(run, to="sb3")
    functions = text[text.index("SEED = 3") : text.index("if __name__")]
    said = re.search(r"learning_rate=(.*),\n", text)
    assert said is not None
    names: dict[str, Any] = {}
    exec(functions, names)
    theirs = eval(said[1], names)
    for progress in (0.0, 0.05, 0.1, 0.3, 0.49, 0.5, 0.7, 0.8, 0.95, 1.0):
        assert theirs(1 - progress) == pytest.approx(value_at(schedule, progress))
    if schedule == "lin_1e-3":
        assert "learning_rate: lin_1e-3" in rltune.export(run, to="zoo")
    else:
        with pytest.raises(
            UserError, match=f"lin_X alone, a line to 0, not learning_rate {schedule}"
        ):
            rltune.export(run, to="zoo")
        assert f"CleanRL keeps learning_rate at its first value; here it is {schedule}" in (
            rltune.export(run, to="cleanrl")
        )


def test_learning_rates_of_their_own_and_betas_are_told_or_refused(tmp_path: Path) -> None:
    rates = {
        "learning_rate": 1e-3, "actor_learning_rate": 2e-4, "critic_learning_rate": "lin_3e-4",
        "temperature_learning_rate": 5e-4,
    }  # fmt: skip
    run = training(tmp_path, "sac", "Pendulum-v1", rates)
    flags = rltune.export(run, to="cleanrl")
    assert "--policy-lr 0.0002 --q-lr 0.0003" in flags
    assert "CleanRL's temperature learns at --q-lr; here its rate is 0.0005" in flags
    script = rltune.export(run, to="rllib")
    for line in ("actor_lr=0.0002", "critic_lr=[[0, 0.0003], [1000, 0.0]]", "alpha_lr=0.0005"):
        assert line in script
    with pytest.raises(
        UserError, match=r"no equal for actor_learning_rate \(0\.0002 here\), critic"
    ):
        rltune.export(run, to="sb3")
    betas = training(tmp_path, "ppo", "CartPole-v1", {"adam_beta1": 0.5})
    assert "betas=(0.5, 0.999)" in rltune.export(betas, to="sb3")
    for agent, values in (
        ("td3", {"td_loss": "huber"}), ("dqn", {"reward_scale": 2.0}),
        ("dqn", {"exploration_decay_steps": 500}), ("ppo", {"max_grad_value": 1.0}),
        ("trpo", {"cg_residual_tolerance": 1e-6}), ("ppo", {"advantage_eps": 1e-5}),
    ):  # fmt: skip
        env = "Pendulum-v1" if agent == "td3" else "CartPole-v1"
        with pytest.raises(UserError, match=f"no equal for {next(iter(values))}"):
            rltune.export(training(tmp_path, agent, env, values), to="sb3")


@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_images_beside_numbers_are_read_by_our_networks_there_too(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "agents")
    env, config = "toy_envs:Camera", {"n_envs": 2}
    if agent == "dqn":
        config["buffer_size"] = 100
    folder = training(tmp_path, agent, env, config, env_kwargs={})
    text = rltune.export(folder, to="sb3", own_code=True)
    if agent == "ppo":
        assert "SB3 normalises what is a Box" in text
    (tmp_path / "script.py").write_text(re.sub(r"\n    model\.(learn|save).*", "", text))
    runs = runpy.run_path("script.py", run_name="__main__")
    made = Agent(agent, env, config, total_timesteps=70, device="cpu")
    check_same(runs["model"], made, config_dict(made.config))
    if agent == "ppo":
        assert runs["env"].norm_obs_keys == ["turn"]
    with pytest.raises(UserError, match="for environments with vectors"):
        rltune.export(folder, to="rllib", own_code=True)


@pytest.mark.parametrize("case", CASES)
def test_the_zoo_builds_our_networks(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = pytest.importorskip("rl_zoo3.exp_manager")
    monkeypatch.chdir(tmp_path)
    name, env, values = CASES[case]
    file = tmp_path / "zoo.yml"
    file.write_text(rltune.export(training(tmp_path, name, env, values), to="zoo"))
    import argparse

    experiment = manager.ExperimentManager(
        argparse.Namespace(), name, env, str(tmp_path / "logs"), eval_freq=-1, seed=3,
        log_interval=-1, device="cpu", config=str(file), verbose=0,
    )  # fmt: skip
    model, _ = experiment.setup_experiment()
    assert experiment.n_timesteps == 1000
    agent = Agent(name, env, values, total_timesteps=70, device="cpu")
    config = config_dict(agent.config)
    check_same(model, agent, config)
    check_settings(model, config, name)
    experiment.n_timesteps = 70
    experiment.learn(model)
    agent.close()


def test_the_zoo_file_is_plain_yaml(tmp_path: Path) -> None:
    name, env, values = CASES["td3"]
    text = rltune.export(training(tmp_path, name, env, values, controls={"target_reward": -200}),
                         to="zoo")  # fmt: skip
    assert "# not in it: target_reward -200" in text
    (known,) = yaml.safe_load(text).items()
    assert known[0] == env
    assert known[1]["noise_type"] == "ornstein-uhlenbeck"
    assert known[1]["normalize"] == "dict(norm_obs=True, norm_reward=False)"
    assert known[1]["policy_kwargs"].startswith("dict(net_arch=[20, 30], activation_fn=nn.ReLU")


# ---------------------------------------------------------------------------- nothing gets lost

ON = {
    "ppo": {"lstm_size": 32, "shared_torso": True, "layer_norm": True, "weight_init": "xavier",
            "state_dependent_std": True, "encoder": "small_cnn"},
    "a2c": {"lstm_size": 32, "shared_torso": True},
    "trpo": {"max_grad_norm": 0.5, "ent_coef": 0.01, "vf_coef": 0.5},
    "dqn": {"dueling": True, "prioritised": True, "double": True, "noisy": True, "lstm_size": 32,
            "distributional": "c51", "huber_delta": 2.0, "weight_init": "orthogonal"},
    "sac": {"max_grad_norm": 1.0, "lstm_size": 32},
    "td3": {"max_grad_norm": 1.0, "layer_norm": True},
    "ddpg": {"weight_init": "xavier"},
}  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS)
def test_what_sb3_has_no_equal_for_is_named(agent: str) -> None:
    for name, value in ON[agent].items():
        config = config_dict(make_config(agent_class(agent).Config, {name: value}))
        assert without_equal(agent, config, VECTORS) == [name]
        with pytest.raises(UserError, match=f"{agent.upper()} has no equal for {name} "):
            translate(agent, config, VECTORS)
    together = config_dict(make_config(agent_class(agent).Config, ON[agent]))
    assert without_equal(agent, together, VECTORS) == sorted(ON[agent])


SILENT = {
    *("rms_alpha", "burn_in", "sequence_length", "noisy_sigma", "n_quantiles", "n_atoms", "v_min"),
    *("demonstrations", "cloning_steps", "cloning_batch_size", "cloning_updates"),
    *("v_max", "priority_alpha", "priority_beta", "goal_selection_strategy", "shared_value"),
    *(name for name in RewardSignalConfig.__dataclass_fields__ if not name.endswith("_strength")),
    # All of these have no meaning while their switch is off. What follows is said elsewhere.
    *("vectorization", "frame_stack", "n_learners", "num_actors"),
    *("max_policy_lag", "evaluation_actor"),
}
TEXTS = {"ent_coef": "auto_0.3", "target_entropy": "-2.5"}


def other(parameter: Hyperparameter) -> Any:
    """Return a value that is not the default."""
    if parameter.type == "bool":
        return not parameter.default
    if parameter.type == "ints":
        return [7]
    if parameter.choices:
        return next(
            choice for choice in parameter.choices if choice not in (parameter.default, "mlp")
        )
    if parameter.type == "str":
        return TEXTS.get(parameter.name, "[dense]\nunits=4\n")
    return 3 if parameter.type == "int" else 0.77


@pytest.mark.parametrize("agent", AGENTS)
def test_every_hyperparameter_is_said_or_refused(agent: str) -> None:
    """A new one can't get lost: another value changes the words, or is refused."""
    known = hyperparameters(agent_class(agent).Config)
    base = {name: parameter.default for name, parameter in known.items()}
    for name in known.keys() - SILENT:
        plain = {**base, **({"optimizer": "adam"} if name.startswith("adam_") else {})}
        config = {**plain, name: other(known[name])}
        if not without_equal(agent, config, VECTORS):
            assert translate(agent, config, VECTORS) != translate(agent, plain, VECTORS), name


def test_updates_an_env_step_are_the_same_with_any_number_of_environments() -> None:
    assert updates(4, -1, 1) == (4, -1)
    assert updates(1, 1, 4) == (1, 4)
    assert updates(8, 2, 4) == (2, 2)
    assert updates(6, 2, 4) == (3, 4)  # every 12 env_steps


def test_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    own = training(tmp_path, "ppo", "toy:ToyEnv", {"n_envs": 2}, env_kwargs={})
    with pytest.raises(UserError, match="--own-code"):
        rltune.export(own, to="sb3")
    text = rltune.export(own, to="sb3", own_code=True)
    assert "from toy import ToyEnv" in text
    assert "make_vec_env(ToyEnv, n_envs=2" in text
    limit = {"max_episode_steps": 7}
    limited = training(tmp_path, "ppo", "toy:ToyEnv", {"n_envs": 2}, env_kwargs=limit)
    text = rltune.export(limited, to="sb3", own_code=True)
    assert "env = TimeLimit(env, max_episode_steps=7)" in text
    assert "env_kwargs" not in text
    with pytest.raises(UserError, match="registered environments alone"):
        rltune.export(own, to="zoo", own_code=True)
    lake = training(tmp_path, "dqn", "FrozenLake-v1", {}, env_kwargs={"is_slippery": False})
    values = yaml.safe_load(rltune.export(lake, to="zoo"))["FrozenLake-v1"]
    assert values["env_wrapper"] == ["gymnasium.wrappers.FlattenObservation"]
    assert values["env_kwargs"] == {"is_slippery": False}
    assert "env = FlattenObservation(env)" in rltune.export(lake, to="sb3")
    with pytest.raises(UserError, match="has no 'acer'"):
        rltune.export(training(tmp_path, "acer", "CartPole-v1", {}), to="sb3")
    with pytest.raises(UserError, match="Box actions alone"):
        rltune.export(training(tmp_path, "sac", "CartPole-v1", {}), to="sb3")


@pytest.mark.slow
def test_environments_in_processes_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    config = {"vectorization": "async", "n_envs": 2}
    run = training(tmp_path, "a2c", "CartPole-v1", config, total_timesteps=50)
    assert "--vec-env subproc" in rltune.export(run, to="zoo")
    text = rltune.export(run, to="sb3")
    assert "vec_env_cls=SubprocVecEnv" in text
    (tmp_path / "script.py").write_text(text)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)
    assert (tmp_path / "a2c-CartPole-v1.zip").exists()


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_atari(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("ale_py")
    monkeypatch.chdir(tmp_path)
    values = {"n_envs": 1, "normalize_rewards": False}
    values |= {"n_steps": 16, "batch_size": 16} if agent == "ppo" else {"buffer_size": 100}
    run = training(tmp_path, agent, "ALE/Pong-v5", values)
    text = rltune.export(run, to="sb3").replace("TIMESTEPS = 1_000", "TIMESTEPS = 20")
    text = text.replace("    model.learn(", f"    {FIRST}\n    model.learn(")
    (tmp_path / "script.py").write_text(text)
    runs = runpy.run_path("script.py", run_name="__main__")
    model = runs["model"]
    ours = Agent(agent, "ALE/Pong-v5", values, total_timesteps=70, device="cpu")
    model.policy.load_state_dict(runs["first"])
    check_same(model, ours, config_dict(ours.config))
    assert model.observation_space.shape == (4, 84, 84)
    zoo = yaml.safe_load(rltune.export(run, to="zoo"))["ALE/Pong-v5"]
    assert zoo["frame_stack"] == 4
    assert zoo["env_kwargs"] == {"frameskip": 1}
    ours.close()


def test_no_path_of_the_machine(tmp_path: Path) -> None:
    name, env, values = CASES["ppo"]
    run = training(tmp_path, name, env, values)
    for to in ("sb3", "zoo", "rltune", "yaml", "json", "cleanrl"):
        text = rltune.export(run, to=to)
        assert str(tmp_path) not in text
        assert os.getcwd() not in text
        assert re.search(r"exported by rltune \d", text)


def test_builds_of_unity_are_rltunes(tmp_path: Path) -> None:
    run = training(tmp_path, "ppo", "unity:builds/Walker", {"n_envs": 2})
    for to in ("sb3", "rllib", "cleanrl"):
        with pytest.raises(UserError, match="environment 'unity:builds/Walker' comes with rltune"):
            rltune.export(run, to=to, own_code=True)
