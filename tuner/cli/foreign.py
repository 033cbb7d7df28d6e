"""Flags of xagents: their names here, or a sentence on what does their work.

Its names for hyperparameters stand beside the others' in `rltune.agents.aliases.ALIASES`.
"""

from __future__ import annotations

from collections.abc import Sequence

# By command: flag of xagents -> our flag that means the same.
SAME = {
    "train": {"--monitor-session": "--name"},
    "run": {
        "--monitor-session": "--name",
        "--study": "--name",
        "--trial-steps": "--budget",
        "--non-silent": "--ray-output",
    },
    "play": {
        "--render": "--window",
        "--frame-dir": "--frames",
        "--frame-delay": "--delay",
        "--frame-frequency": "--every-nth",
    },
}
SAME["plan"] = SAME["run"]

_PLAYED = "`rltune play RUN` shows an agent in a window, with --video FILE.mp4 as a video"
_ATARI = "Atari games are made so without being asked (84 x 84, grey, the larger of two frames)"
# Flags without a counterpart -> the sentence that follows the flag in the error.
SAID = {
    "checkpoints": "a run keeps its checkpoints in its own directory; --name and --storage-path "
    "say where that is, and --weights CHECKPOINT starts from one",
    "display_precision": "numbers have as many digits as they need; `rltune show RUN --json` and "
    "the history have all of them",
    "frame_dir": _PLAYED,
    "history_checkpoint": "a run keeps its history in its own directory, and `rltune resume RUN` "
    "goes on with it",
    "log_frequency": "a line comes with every evaluation (--eval-freq STEPS); --quiet prints none",
    "max_frame": f"{_ATARI}; leave it out",
    "ppo_epochs": "epochs are ppo's alone (n_epochs); trpo's actor takes one step a rollout, and "
    "n_critic_updates counts its critic's passes",
    "preprocess": f"{_ATARI}; leave it out",
    "render": _PLAYED,
    "video_dir": _PLAYED,
    "warmup_trials": "a rung stops no trial before it has seen min_population of them: "
    '--scheduler-options "{min_population: N}"',
}


def renamed(argv: Sequence[str]) -> list[str]:
    """Return a command line with our names for flags that mean the same."""
    same = SAME.get(argv[0], {}) if argv else {}
    words = (word.partition("=") for word in argv)
    return [same.get(flag, flag) + equals + value for flag, equals, value in words]


def sentence(flag: str, agent: str = "") -> str | None:
    """Return the advice for a flag of another library; None: no library that we know has it.

    Args:
        flag: without the dashes
        agent: the agent that does not have it, if it is a hyperparameter
    """
    from rltune.agents.config import ALIASES

    name = flag.replace("-", "_")
    if name in SAID:
        return f"--{flag}: {SAID[name]}."
    if agent and name in ALIASES:
        return f"--{flag} is {ALIASES[name]} here, which {agent} does not have."
    return None
