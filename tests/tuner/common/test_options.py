"""An option that is declared once: its flag, its help, its range, its keyword."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

import pytest
from rltune.agents.errors import UserError
from rltune.agents.loop.controls import Controls
from rltune.cli import Parser
from rltune.cli.option_flags import add_groups, given
from rltune.common.options import (
    check_options,
    keywords,
    option,
    options_of,
    parse_duration,
    resumed,
)
from rltune.runs.train_options import CONTROLS


@dataclass(frozen=True, kw_only=True)
class Baking:
    """Options of no run."""

    cakes: int = option(group="what", metavar="N", least=1, help="number of cakes")
    heat: float | None = option(
        None, group="how", above=0, below=300, help="oven temperature in degrees", resume=True
    )
    time: float | None = option(
        None, group="how", parse=parse_duration, help="baking time", resume="time from now on"
    )
    mode: str = option("fan", flags=("-m", "--mode"), choices=("fan", "grill"), help="oven mode")
    tins: list[str] = option([], group="what", flags=("--tin",), help="may be repeated")
    recipe: dict[str, Any] = option({}, group="what", metavar="YAML", help="ingredients")
    icing: bool = option(True, group="how", help="leave the icing out")
    notes: str = option("", flags=(), help="of the baker")
    oven: str = "ours"

    def __post_init__(self) -> None:
        check_options(self)


OPTIONS = options_of(Baking)


def parsed(line: str) -> dict[str, Any]:
    parser = Parser(prog="bake")
    add_groups(parser, ("what", "how"), OPTIONS.values())
    return given(parser.parse_args(line.split()), OPTIONS)


def test_flags_have_the_names_and_the_types_of_the_fields() -> None:
    line = "--cakes 2e1 --heat 180.5 --time 1h30m --tin a --tin b --recipe {flour:} --no-icing"
    assert parsed(line) == {
        "cakes": 20,
        "heat": 180.5,
        "time": 5400.0,
        "tins": ["a", "b"],
        "recipe": {"flour": None},
        "icing": False,
    }
    assert parsed("") == {}


@pytest.mark.parametrize("text", ["1.5", "1e400", "nan", "many"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"--cakes: invalid whole number value: '{text}'"):
        parsed(f"--cakes {text}")


def test_a_large_whole_number_keeps_all_its_digits() -> None:
    assert parsed(f"--cakes {2**53 + 1}") == {"cakes": 2**53 + 1}


def test_the_help_page_shows_help_and_defaults_by_group() -> None:
    parser = Parser(prog="bake", formatter_class=argparse.RawDescriptionHelpFormatter)
    add_groups(parser, ("what", "how"), OPTIONS.values())
    page = parser.format_help().partition("\n\n")[2]
    assert page.index("what:") < page.index("--cakes N") < page.index("how:") < page.index("--heat")
    assert "notes" not in page
    assert page.index("--mode MODE") < page.index("what:")  # it has no group
    assert OPTIONS["mode"].described() == "oven mode (default: fan)"
    assert OPTIONS["cakes"].described() == "number of cakes"
    assert OPTIONS["time"].described(resumed=True) == "time from now on"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cakes": 0}, "--cakes must be at least 1, not 0."),
        ({"heat": 0}, "--heat must be above 0, not 0."),
        ({"heat": 300}, "--heat must be below 300, not 300."),
        ({"mode": "gril"}, "--mode: unknown value 'gril'; did you mean 'grill'?"),
        ({"cakes": "two"}, "cakes must be a whole number, not 'two'."),
        ({"oven": None}, "oven must be a text, not None."),
    ],
)
def test_a_value_out_of_range_is_one_sentence(values: dict[str, Any], words: str) -> None:
    assert Baking(cakes=1, heat=299).heat == 299
    with pytest.raises(UserError) as raised:
        Baking(**{"cakes": 1, **values})
    assert str(raised.value) == words


def test_keywords_may_be_texts_where_the_flag_is_parsed() -> None:
    assert keywords({"time": "2m", "heat": 3}, OPTIONS) == {"time": 120, "heat": 3}
    assert list(resumed(OPTIONS)) == ["heat", "time"]
    with pytest.raises(UserError, match="unknown option 'tim'; did you mean 'time'"):
        keywords({"tim": 3}, OPTIONS)


def test_every_control_of_a_training_has_a_flag() -> None:
    assert list(CONTROLS) == [field.name for field in fields(Controls)]
    assert {name: control.default for name, control in CONTROLS.items()} == vars(Controls())


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "0", "inf", "1x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UserError, match="is no duration"):
        parse_duration(text)
