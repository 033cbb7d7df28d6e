from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rltune.agents.algorithms.ppo import PPO
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class, agent_names
from rltune.agents.user_code import import_object


def test_our_agents_are_known() -> None:
    assert "ppo" in agent_names()
    assert agent_class("ppo") is PPO
    assert agent_class("PPO") is PPO
    assert agent_class("rltune.agents.algorithms.ppo:PPO") is PPO


def test_a_module_of_ones_own_beside_an_agents_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("mine = 1\n")
    (tmp_path / "their_agent.py").write_text(
        "import agents\nfrom rltune.agents import PPO\nclass Theirs(PPO):\n    mine = agents.mine\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    # pytest runs in the repository, whose own folder another test may have imported.
    monkeypatch.delitem(sys.modules, "agents", raising=False)
    assert agent_class("their_agent:Theirs").mine == 1  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"unknown agent in their_agent 'Their'; .*'Theirs'"):
        agent_class("their_agent:Their")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pop", "unknown agent 'pop'; did you mean 'ppo'"),
        ("nowhere:Thing", "no module 'nowhere'"),
        ("numpy:ndarray", "not a subclass"),
        ("json:JSONDecoder", "Python's own"),
        ("rltune.agents:Algorithm", "lacks act, load_state_dict, make_memory"),
        (":Thing", "module:Name"),
    ],
)
def test_mistakes_are_explained(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        agent_class(spec)


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "needy_module.py").write_text("import not_installed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UserError, match="can't be imported: ZeroDivisionError"):
        import_object("broken_module:X", "agent")
    with pytest.raises(UserError, match="can't be imported: No module named 'not_installed'"):
        import_object("needy_module:X", "agent")


WHOLE = """
from dataclasses import dataclass
from rltune.agents import AgentConfig, Algorithm
from rltune.agents.algorithms.ppo import PPO

@dataclass(frozen=True, kw_only=True)
class Mine(AgentConfig): pass
class Plain(AgentConfig): pass
class Whole(PPO): pass
class NoConfig(PPO): Config = None
class NoDataclass(PPO): Config = Plain
class OtherConfig(PPO): Config = dict
class OtherInit(PPO):
    def __init__(self, config): pass
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoConfig", "lacks Config: write Config = MyConfig in the class"),
        ("NoDataclass", "Config must be a frozen dataclass below rltune.agents.AgentConfig"),
        ("OtherConfig", "Config must be a frozen dataclass below rltune.agents.AgentConfig"),
        ("OtherInit", "__init__ must take (config, spaces, *, seed, device): too many positional"),
    ],
)
def test_a_missing_part_of_an_own_agent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (tmp_path / "parts_of_agents.py").write_text(WHOLE)
    monkeypatch.syspath_prepend(tmp_path)
    assert agent_class("parts_of_agents:Whole")
    with pytest.raises(UserError, match=re.escape(message)):
        agent_class(f"parts_of_agents:{name}")
