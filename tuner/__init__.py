"""rltune tunes reinforcement-learning agents with Ray Tune and Optuna.

`Search` runs a search from Python, `resume` goes on with one, `open` reads a run directory,
`report` writes its page, `export` its winner for others, `importances` says which hyperparameters
mattered, `preset` gives known-good ones, `replay` says what another scheduler would have done,
`replay_sampler` another sampler.
`compare` puts several runs side by side, `plot_history` draws their learning curves.
Whatever is wrong with what they are asked for is a `UserError` of one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rltune.agents.errors import UserError
    from rltune.comparing.comparison import compare
    from rltune.comparing.figures import plot_history
    from rltune.exported import export
    from rltune.importance import importances
    from rltune.presets import preset
    from rltune.replayed import replay
    from rltune.replayed_sampler import replay_sampler
    from rltune.reporting.report import report
    from rltune.runs import Run
    from rltune.runs import open_run as open
    from rltune.search import Search, SearchResult, resume
    from rltune.space import Space

__all__ = [
    "Run",
    "Search",
    "SearchResult",
    "Space",
    "UserError",
    "__version__",
    "compare",
    "export",
    "importances",
    "open",
    "plot_history",
    "preset",
    "replay",
    "replay_sampler",
    "report",
    "resume",
]

_HOMES = {
    "Run": ("rltune.runs", "Run"),
    "Search": ("rltune.search", "Search"),
    "SearchResult": ("rltune.search", "SearchResult"),
    "Space": ("rltune.space", "Space"),
    "UserError": ("rltune.agents.errors", "UserError"),
    "compare": ("rltune.comparing.comparison", "compare"),
    "export": ("rltune.exported", "export"),
    "importances": ("rltune.importance", "importances"),
    "open": ("rltune.runs", "open_run"),
    "plot_history": ("rltune.comparing.figures", "plot_history"),
    "preset": ("rltune.presets", "preset"),
    "replay": ("rltune.replayed", "replay"),
    "replay_sampler": ("rltune.replayed_sampler", "replay_sampler"),
    "report": ("rltune.reporting.report", "report"),
    "resume": ("rltune.search", "resume"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import rltune` and the command line stay light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rltune' has no attribute {name!r}")
    import importlib

    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
