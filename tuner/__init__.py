"""rltune tunes reinforcement-learning agents with Ray Tune and Optuna.

`Search` runs a search from Python, `resume` goes on with one, `open` reads a run directory,
`report` writes its page, `export` its winner for others, `importances` says which hyperparameters
mattered, `preset` gives known-good ones, `replay` says what another scheduler would have done,
`replay_sampler` another sampler.
`Search(train=my_function)` tunes a training of your own, which is given a `Trial` to report to, and
`StopTraining` is raised in it where it shall end.
`AgentSearch` searches over several agents, `resume_agents` goes on with it.
`compare` puts several runs side by side, `plot_history` draws their learning curves.
`train` trains one agent, `resume_training` goes on with it, `evaluate` measures it, `play` shows
it, and `load` gives what a run has learned as a `Policy`: a function from observations to actions.
`Callback` is what a search or a training tells of what happens.
Whatever is wrong with what they are asked for is a `UserError` of one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltune.common.version import __version__

if TYPE_CHECKING:
    from rltune.agents.errors import UserError
    from rltune.analysis.importance.importances import importances
    from rltune.analysis.replay_sampler import replay_sampler
    from rltune.analysis.replay_scheduler import replay
    from rltune.backends.external.trial import StopTraining, Trial
    from rltune.common.callbacks import Callback
    from rltune.comparing.comparison import compare
    from rltune.comparing.figures import plot_history
    from rltune.exporting.export import export
    from rltune.exporting.policies import export_policy
    from rltune.reporting.report import report
    from rltune.results import Run, SearchResult
    from rltune.results import open_run as open
    from rltune.search.search import Search, resume
    from rltune.selection.agent_search import AgentSearch
    from rltune.selection.agent_search import resume as resume_agents
    from rltune.space.space import Space
    from rltune.training.evaluation import evaluate, play
    from rltune.training.policy import Policy, load
    from rltune.training.presets import preset
    from rltune.training.request import train
    from rltune.training.train import TrainResult, resume_training

__all__ = [
    "AgentSearch",
    "Callback",
    "Policy",
    "Run",
    "Search",
    "SearchResult",
    "Space",
    "StopTraining",
    "TrainResult",
    "Trial",
    "UserError",
    "__version__",
    "compare",
    "evaluate",
    "export",
    "export_policy",
    "importances",
    "load",
    "open",
    "play",
    "plot_history",
    "preset",
    "replay",
    "replay_sampler",
    "report",
    "resume",
    "resume_agents",
    "resume_training",
    "train",
]

_HOMES = {
    "AgentSearch": ("rltune.selection.agent_search", "AgentSearch"),
    "Callback": ("rltune.common.callbacks", "Callback"),
    "Policy": ("rltune.training.policy", "Policy"),
    "Run": ("rltune.results", "Run"),
    "Search": ("rltune.search.search", "Search"),
    "SearchResult": ("rltune.results", "SearchResult"),
    "Space": ("rltune.space.space", "Space"),
    "StopTraining": ("rltune.backends.external.trial", "StopTraining"),
    "TrainResult": ("rltune.training.train", "TrainResult"),
    "Trial": ("rltune.backends.external.trial", "Trial"),
    "UserError": ("rltune.agents.errors", "UserError"),
    "compare": ("rltune.comparing.comparison", "compare"),
    "evaluate": ("rltune.training.evaluation", "evaluate"),
    "export": ("rltune.exporting.export", "export"),
    "export_policy": ("rltune.exporting.policies", "export_policy"),
    "importances": ("rltune.analysis.importance.importances", "importances"),
    "load": ("rltune.training.policy", "load"),
    "open": ("rltune.results", "open_run"),
    "play": ("rltune.training.evaluation", "play"),
    "plot_history": ("rltune.comparing.figures", "plot_history"),
    "preset": ("rltune.training.presets", "preset"),
    "replay": ("rltune.analysis.replay_scheduler", "replay"),
    "replay_sampler": ("rltune.analysis.replay_sampler", "replay_sampler"),
    "report": ("rltune.reporting.report", "report"),
    "resume": ("rltune.search.search", "resume"),
    "resume_agents": ("rltune.selection.agent_search", "resume"),
    "resume_training": ("rltune.training.train", "resume_training"),
    "train": ("rltune.training.request", "train"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import rltune` and the command line stay light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rltune' has no attribute {name!r}")
    import importlib

    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    """Show the public names alone, whether they have been used yet or not."""
    return __all__
