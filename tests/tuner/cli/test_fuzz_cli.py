"""Random and mutated input of the command line: no traceback, no hang, no file elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
import rltune.cli
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from patience import patience
from rltune.space.space import shipped_spaces

QUICK = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LONG = settings(QUICK, max_examples=3000, derandomize=False)
SHIPPED = Path(rltune.cli.__file__).resolve().parents[2] / "search_spaces"
SPACE = """\
agent: ppo
budget: 1e5
fixed: {n_envs: 8}
space:
  learning_rate: {log: [1e-5, 1e-2]}
  gamma: {one_minus_log: [0.9, 0.9999]}
  n_steps: {pow2: [32, 2048]}
  batch_size: {pow2: [32, 1024]}
  optimizer: {choice: [adam, rmsprop]}
  rms_alpha: {uniform: [0.9, 0.999], when: {optimizer: rmsprop}}
derived:
  n_epochs: max(1, n_steps // batch_size)
constraints:
  - batch_size <= n_steps * n_envs
start:
  - {learning_rate: 1e-3, gamma: 0.98, n_steps: 32, batch_size: 256}
"""
NASTY = [
    "1e400", "-1e400", ".nan", ".inf", "9" * 400, "0x1F", "1_000", "on", "~", "\t", "\x00", "\x85",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "é", "𝟙", "&a [*a]", "*b",
    "!!int x", "!!python/name:os.system", "{", "[" * 200, "- " * 50, "? :", "<<: {a: 1}", "|", ">",
    "%YAML 9.9",
    "---", "...", "{pow2: [1, 9999999999999999999999]}", "{pow2: [1, 1e308]}", "{int: [0, 1e30]}",
    "{log: [0, 1]}", "{log: [1e-400, 1]}", "{choice: []}", "{choice: [[1], {a: 1}]}",
    "{uniform: [1, 1]}", "{uniform: [.nan, 1]}", "9**9**9**9", "().__class__",
    "a.b", "[x for x in y]",
    "lambda: 0", "'a' * 9999999999", "(" * 90, "not " * 100 + "1", "1 if 1 else 2", "max(*a)",
    "2 ** -1e308", "10 ** 300 * 10 ** 300", "1 // 0", "f'{1}'", "a := 1", "-" * 450 + "1",
]  # fmt: skip


def run(argv: list[str]) -> tuple[int, str]:
    """Run a command as a shell would; return its exit code and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with patience(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = rltune.cli.main(argv)
        except SystemExit as end:  # --help
            code = int(end.code or 0)
    assert code in (0, 2), (argv, code)
    if code == 2:
        said = err.getvalue()
        assert said.startswith("rltune: "), said
        assert "Traceback" not in said
    return code, err.getvalue()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, beside one that has to stay as it is, and a HOME that is empty."""
    for name in ("here", "home", "beside"):
        (tmp_path / name).mkdir()
    (tmp_path / "beside" / "precious").write_text("precious")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def untouched(home: Path) -> bool:
    left = {path.name for path in home.iterdir()} == {"here", "home", "beside"}
    beside = [path.read_text() for path in (home / "beside").iterdir()]
    return left and beside == ["precious"] and not any((home / "home").iterdir())


# --------------------------------------------------------------------------------------- spaces


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """A valid text with some of its pieces doubled, dropped, exchanged or made nasty."""
    text = draw(st.sampled_from(texts))
    rng = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(rng.randint(1, 6)):
        at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        end = min(end, at + rng.choice([0, 1, 4, 30]))
        kind = rng.randrange(5)
        new = text[at:end] * rng.choice([0, 2, 5])
        if kind == 0:
            new = rng.choice(NASTY)
        elif kind == 1:
            new = rng.choice(string.printable)
        elif kind == 2:
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines) if rng.random() < 0.2 else lines.insert(0, rng.choice(lines or [""]))
            text, new, at, end = "".join(lines), "", 0, 0
        elif kind == 3:  # a value of a key
            parts = text.split(": ")
            i = rng.randrange(len(parts))
            parts[i] = rng.choice(NASTY) + parts[i][parts[i].find("\n") :]
            text, new, at, end = ": ".join(parts), "", 0, 0
        text = text[:at] + new + text[end:]
    return text


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["log", "pow2", "int", "uniform", "choice", "when", "gamma", *NASTY])
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4),
    max_leaves=15,
)
KEYS = ("agent", "env", "budget", "fixed", "space", "derived", "constraints", "start")
SPACES = st.dictionaries(st.sampled_from(KEYS), TREES).map(
    lambda data: yaml.safe_dump({"space": {"gamma": {"uniform": [0.9, 0.99]}}, **data})
)


def check_space(text: str, home: Path) -> None:
    file = home / "here" / "some.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    run(["space", "check", str(file)])
    assert untouched(home)


@QUICK
@given(text=mutated([SPACE]) | SPACES)
@example(text="a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nspace: [*b,*b,*b,*b,*b]\n")
@example(text="space: {gamma: {uniform: [0.9, 0.99]}}\nspace: {}\n")
@example(text="space:\n\tgamma: 1\n")
@example(text="[" * 5000)
@example(text="space: {n_steps: {pow2: [1, 1e300]}}")
@example(text="space: {n_steps: {choice: [" + "1, " * 30_000 + "2]}}")
@example(text="- 1\n" * 400_000)
def test_any_text_as_a_space(text: str, home: Path) -> None:
    check_space(text, home)


@QUICK
@given(text=st.sampled_from(NASTY) | st.text("n_steps()*/%<>=-.1e9,'and or not", max_size=40))
@example(text="9**9**9**9 > 1")
@example(text="().__class__.__bases__[0].__subclasses__() == 1")
@example(text="-" * 480 + "1 < 2")
@example(text="n_steps" + " + n_steps" * 49 + " > 0")
@example(text="max(" * 41 + "1" + ")" * 41 + " > 0")
def test_any_text_as_a_constraint(text: str, home: Path) -> None:
    data: dict[str, Any] = {"agent": "ppo", "space": {"n_steps": {"pow2": [32, 2048]}}}
    for key, value in (("constraints", [text]), ("derived", {"batch_size": text})):
        check_space(yaml.safe_dump({**data, key: value}), home)


# ------------------------------------------------------------------------------------- arguments

WORDS = st.sampled_from(
    ["", "-", "--", "---", "-1", "0", "1e400", "nan", "-inf", "1e5", "9" * 400, "∞", "a,b", "=",
     "x=y", "../..", "/", "/dev/null/x", "beside", "~", "\x1b[31m", "\ud800", "a\nb", "{a: 1}", "{",
     "[1,", "!!x y",
     "CartPole-v1", "CartPole-v0", "ppo", "ppO", "rllib:PPO", "rllib:X", "os:system",
     "subprocess:run", "a:b:c",
     "CartPole-v1=1:2,Acrobot-v1=3:3", "latest", "none", "tpe", "asha", "last:0",
     "best:-1", "2m", "-5s",
     "--learning-rate", "--gamma", "--net-arch", "--n-envs", "--no-gamma", "--help-me"]
)  # fmt: skip
# Beginnings that end soon: everything but a search or a training that really starts.
COMMANDS: dict[str, list[str]] = {
    "run": ["ppo", "--env", "CartPole-v1", "--dry-run"],
    "plan": ["ppo", "--env", "CartPole-v1", "--quick"],
    "train": ["ppo", "--env", "NoSuchEnv-v0"],
    "eval": ["nothing"], "play": ["nothing"], "show": ["nothing"], "report": ["nothing"],
    "compare": ["nothing", "nowhere"], "importances": ["nothing"], "export": ["nothing"],
    "replay": ["nothing"], "resume": ["nothing"], "dashboard": ["nothing"],
    "spaces": [], "space": ["check"], "env": ["NoSuchEnv-v0"], "": [], "stop": ["nothing"],
    "fetch": ["file:///nowhere/nothing"], "submit": ["resume", "nothing"], "status": ["nothing"],
    "logs": ["nothing"], "doctor": [], "demonstrations": ["nothing"],
    "import-trainer": ["nothing"], "push": ["nothing", "--to", "me/nothing"], "pull": ["no name"],
    "import": ["nothing"], "plugins": [],
    "record": ["--env", "NoSuchEnv-v0", "--to", "nothing"],
}  # fmt: skip


def flags_of(command: str) -> list[str]:
    """Return the flags of a command, from its parser."""
    parser = rltune.cli.make_parser()
    for action in parser._subparsers._group_actions if parser._subparsers else ():
        found = (action.choices or {}).get(command)  # type: ignore[union-attr, call-overload]
        if found is not None:
            return [flag for action in found._actions for flag in action.option_strings]
    return []


def test_every_command_is_known() -> None:
    parser = rltune.cli.make_parser()
    assert parser._subparsers is not None
    (action,) = parser._subparsers._group_actions
    choices = dict(action.choices or {})
    assert choices.pop("tune") is choices["run"]
    assert set(choices) <= set(COMMANDS)


def check_arguments(command: str, data: st.DataObject, home: Path) -> None:
    argv = [command, *COMMANDS[command]] if command else []
    own = flags_of(command)
    for _ in range(data.draw(st.integers(0, 4))):
        words = [data.draw(WORDS | st.text(max_size=8))]
        if own and data.draw(st.booleans()):
            words = [data.draw(st.sampled_from(own)), *words]
        at = data.draw(st.integers(min(1, len(argv)), len(argv)))
        argv[at:at] = words
    if command == "run" and "--dry-run" not in argv[1:]:
        argv.append("--dry-run")
    if command in ("plan", "doctor"):
        argv = [*argv, "--no-such-flag", "1"]  # it would measure for seconds
    run(argv)
    assert untouched(home)
    shutil.rmtree(home / "here")
    (home / "here").mkdir()
    os.chdir(home / "here")


@pytest.mark.parametrize("command", COMMANDS)
@settings(QUICK, max_examples=6)
@given(data=st.data())
def test_any_arguments(command: str, data: st.DataObject, home: Path) -> None:
    check_arguments(command, data, home)


# ------------------------------------------------------------------------------------ for longer


@pytest.mark.slow
@LONG
@given(text=mutated([SPACE, *(Path(SHIPPED, f"{n}.yaml").read_text() for n in shipped_spaces()
                              if Path(SHIPPED, f"{n}.yaml").exists())]) | SPACES)  # fmt: skip
def test_any_text_as_a_space_for_longer(text: str, home: Path) -> None:
    check_space(text, home)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@settings(LONG, max_examples=300)
@given(data=st.data())
def test_any_arguments_for_longer(command: str, data: st.DataObject, home: Path) -> None:
    check_arguments(command, data, home)
