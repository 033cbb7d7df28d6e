"""Values for JSON and YAML."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from rltune.common.plain import json_dict, plain, scalar
from rltune.stats.estimates import Estimate


def test_values_become_dictionaries_lists_and_scalars() -> None:
    made = plain({1: (np.float64(0.5), np.int64(3)), "e": Estimate(1.0, 0.5, 1.5)})
    assert made == {1: [0.5, 3], "e": [1.0, 0.5, 1.5]}
    assert [type(value) for value in made[1]] == [float, int]


def test_json_has_no_nan_and_no_numbers_as_keys() -> None:
    made = json_dict({1: math.nan, "a": [np.float32(math.inf), {2: 0.5}], "b": None, "c": True})
    assert made == {"1": None, "a": [None, {"2": 0.5}], "b": None, "c": True}
    assert math.isnan(plain(math.nan))


@pytest.mark.parametrize("value", [Path("runs/a"), np.zeros(3)])
def test_what_json_has_no_type_for_becomes_text(value: object) -> None:
    assert scalar(value) == str(value)
