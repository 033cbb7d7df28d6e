"""For users of Ray Tune: rltune's study, samplers and early stopping inside a `tune.Tuner`.

`searcher` returns a search algorithm for ``TuneConfig(search_alg=...)``, `scheduler` one for
``TuneConfig(scheduler=...)``. Each does without the other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.tune.scheduling import scheduler as scheduler
    from rltune.tune.searching import searcher as searcher

__all__ = ["scheduler", "searcher"]
_HOMES = {"scheduler": "rltune.tune.scheduling", "searcher": "rltune.tune.searching"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
