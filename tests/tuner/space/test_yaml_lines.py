from __future__ import annotations

import contextlib
import math
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rltune.agents.errors import UserError
from rltune.space import yaml_lines
from rltune.space.space import shipped_spaces
from rltune.space.yaml_lines import parse_yaml, read_yaml

# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def load(text: str) -> object:
    return parse_yaml(text, "f.yaml")[0]


# Python 3.10 before its seventh correction reads any number of digits.
LIMITS_DIGITS = pytest.mark.skipif(
    not hasattr(sys, "get_int_max_str_digits"), reason="this Python reads numbers of any length"
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("1e-5", 1e-5),
        ("1.5E+3", 1500.0),
        ("+.5", 0.5),
        ("1_000_000", 1_000_000),
        ("010", 10),
        ("-3", -3),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("lin_1e-3", "lin_1e-3"),
        ("'1e6'", "1e6"),
        ("2020-01-01", "2020-01-01"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    loaded = load(f"x: {text}")
    assert loaded == {"x": value}
    assert isinstance(loaded, dict)
    assert type(loaded["x"]) is type(value)


def test_what_libyaml_refuses_is_read_by_pyyaml() -> None:
    assert load("{a:, b: 1}") == {"a": None, "b": 1}


def test_every_key_knows_its_line() -> None:
    _, source = parse_yaml("a: 1\n\nb:\n  c: {d: 2}\n  e:\n    - 1\n    - f: 2\n", "f.yaml")
    assert str(source.error(("a",), "bad")) == "f.yaml:1: a: bad"
    assert str(source.error(("b", "c", "d"), "bad")) == "f.yaml:4: b.c.d: bad"
    assert str(source.error(("b", "e", 1, "f"), "bad")) == "f.yaml:7: b.e[1].f: bad"
    assert str(source.error(("b", "missing"), "bad")) == "f.yaml:3: b.missing: bad"
    assert str(source.error((), "bad")) == "f.yaml:1: bad"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", r"f.yaml:4: b.c: written twice, first in line 3; remove one"),
        ("a: [1, 2", r"f.yaml:1: not valid YAML"),
        ("a: 1\n\tb: 2", r"f.yaml:2: not valid YAML"),
        ("a: !!python/object:os.system x", r"f.yaml:1: the tag .* is not allowed"),
        ("a: !mine 1", r"f.yaml:1: the tag '!mine' is not allowed"),
        ("{[1, 2]: 3}", r"f.yaml:1: a key must be a name"),
        ("a: *b", r"f.yaml:1: not valid YAML"),
        ("a: \x00", r"f.yaml: not valid YAML"),
        ("a: 1\n---\nb: 2", r"f.yaml:2: not valid YAML"),
        pytest.param(
            "a: " + "9" * 5000, r"f.yaml:1: '9+' is not a number", marks=LIMITS_DIGITS, id="digits"
        ),
        ("[" * 700, r"f.yaml"),
        pytest.param("[" * 300_000, r"f.yaml: nested too deeply", id="brackets"),
        ("a: &a [1, *a]", r"f.yaml"),
    ],
)
def test_mistakes_name_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(text)


def test_nested_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(UserError, match="more than 20000 values"):
        load("\n".join(lines))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UserError, match="not a text file"):
        read_yaml(tmp_path / "binary.yaml")


YAML_WORDS = ["a", "b: ", "- ", "\n", "  ", "[", "]", "{", "}", ": ", ", ", "&a ", "*a", "!!int "]
YAML_WORDS += ["1e5", ".nan", "'", '"', "# c", "|\n", "? ", "!!set ", "<<: ", "!!binary ", "%"]


SOME_YAML = st.lists(st.sampled_from(YAML_WORDS), max_size=25).map("".join)


@relaxed
@given(st.one_of(st.text(), SOME_YAML))
def test_any_text_is_data_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(UserError):
        load(text)


def without_libyaml(text: str) -> tuple[object, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "__with_libyaml__", False)
        data, source = parse_yaml(text, "f.yaml")
    return repr(data), source


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="needs libyaml")
@relaxed
@given(SOME_YAML)
def test_text_is_read_alike_with_and_without_libyaml(text: str) -> None:
    with contextlib.suppress(UserError):
        data, source = parse_yaml(text, "f.yaml")
        assert (repr(data), source) == without_libyaml(text)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="needs libyaml")
@pytest.mark.parametrize("name", shipped_spaces())
def test_libyaml_reads_what_ships(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(shipped_spaces()[name]).read_text()
    data, source = parse_yaml(text, "f.yaml")
    assert (repr(data), source) == without_libyaml(text)
    monkeypatch.delattr(yaml_lines, "_Pure")  # nothing is left to it
    assert parse_yaml(text, "f.yaml")[0] == data
