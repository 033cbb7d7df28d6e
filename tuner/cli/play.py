"""`rltune eval` and `rltune play`: a trained agent, measured and watched."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.agents.agent import Agent, Evaluation
    from rltune.learners import AnyAgent
    from rltune.suite import SuiteAgent

WHAT = "a checkpoint file, or a run: its folder, its name in runs/, or 'latest'"
EVAL_HELP = """\
Measure a trained agent on greedy episodes.

  rltune eval latest --episodes 100
  rltune eval runs/my-search --trial 7
  rltune eval runs/my-training/checkpoints/last.pt --json
"""
PLAY_HELP = """\
Watch a trained agent: in a window, as a video or as pictures.

  rltune play latest
  rltune play runs/my-search --episodes 3 --video play.mp4
  rltune play runs/my-search --trial 7
  rltune play runs/my-training --best --frames pictures/ --every-nth 2
"""


def add_parser(subparsers: Any) -> None:
    """Add both commands."""
    evaluate = _add(subparsers, "eval", "measure a trained agent", EVAL_HELP, run_eval)
    evaluate.add_argument("--episodes", type=_positive, default=100, help="default: 100")
    evaluate.add_argument("--seed", type=_seed, help="default: that of the agent's evaluations")
    evaluate.add_argument("--json", action="store_true", help="print JSON, every episode in it")

    play = _add(subparsers, "play", "watch a trained agent", PLAY_HELP, run_play)
    play.add_argument("--episodes", type=_positive, default=1, help="default: 1")
    play.add_argument("--seed", type=_seed, default=0, help="default: 0")
    play.add_argument("--window", action="store_true", help="the default where there is a display")
    play.add_argument("--video", type=Path, metavar="FILE", help="write an .mp4 or .gif")
    play.add_argument("--frames", type=Path, metavar="DIR", help="write a PNG per picture")
    play.add_argument(
        "--delay", type=_seconds, metavar="S", help="seconds per step; default: the natural speed"
    )
    play.add_argument(
        "--every-nth", type=_positive, default=1, metavar="N", help="record every so many steps"
    )


def _add(subparsers: Any, name: str, short: str, text: str, main: Any) -> Any:
    parser = subparsers.add_parser(
        name,
        help=short,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("checkpoint", metavar="CHECKPOINT_OR_RUN", help=WHAT)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--best",
        action="store_true",
        help="of a training, the agent of its best evaluation, by default the last one; "
        "of a search the winner, as without it",
    )
    which.add_argument("--trial", type=_seed, metavar="N", help="of a search, this trial's agent")
    parser.add_argument(
        "--env", help="refuse an agent of another environment; of several, this one"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default)")
    parser.add_argument(
        "--max-steps", type=_positive, metavar="N", help="cut episodes off after so many"
    )
    return parser


def _positive(text: str) -> int:
    return int(_number(text, 1, whole=True))


def _seed(text: str) -> int:
    return int(_number(text, 0, whole=True))


def _seconds(text: str) -> float:
    return _number(text, 0, whole=False)


def _number(text: str, least: int, *, whole: bool) -> float:
    kind = "whole number" if whole else "number"
    with suppress(ValueError):
        value = float(text)
        if least <= value < 2**53 and (not whole or value.is_integer()):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a {kind} from {least} up")


def run_eval(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Evaluate."""
    import json

    path, agent = _load(args, extra)
    evaluation = agent.evaluate(args.episodes, seed=args.seed, max_steps=args.max_steps)
    agent.close()
    result = summary(path, agent, evaluation)
    print(json.dumps(result, indent=2) if args.json else describe(result))
    return 0


def run_play(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Play."""
    from rltune.agents.video import play
    from rltune.scales import environments, is_suite

    path, agent = _load(args, extra)
    if is_suite(agent.env):
        raise UserError(
            f"which environment? Give --env, one of {', '.join(environments(agent.env))}."
        )
    evaluation = play(
        cast("Agent", agent),  # RLlib's have all that is needed here
        args.episodes,
        window=args.window or (args.video is None and args.frames is None),
        video=args.video,
        frames=args.frames,
        delay=args.delay,
        every_nth=args.every_nth,
        max_steps=args.max_steps,
        seed=args.seed,
    )
    agent.close()
    print(f"{shown(path)}: {agent.algorithm_spec} on {agent.env}")
    for number, result in enumerate(zip(evaluation.returns, evaluation.lengths, strict=True)):
        print(f"  episode {number}: return {result[0]:.6g} in {result[1]} steps")
    for written in (args.video, args.frames):
        if written is not None:
            print(f"  written: {written}")
    return 0


def _load(args: argparse.Namespace, extra: Sequence[str]) -> tuple[Path, AnyAgent]:
    if extra:
        raise UserError(
            f"unexpected argument {extra[0]!r}; see rltune {args.command} --help. "
            "The hyperparameters are those of the checkpoint."
        )
    path = find_checkpoint(args.checkpoint, best=args.best, trial=args.trial)
    from rltune.agents import checkpoint
    from rltune.learners import agent_type
    from rltune.scales import is_suite

    found = checkpoint.read(path)
    kind = agent_type(found["agent"], found["env"])
    if not is_suite(found["env"]):
        return path, kind.load(path, device=args.device, env=args.env)
    suite = cast("SuiteAgent", kind.load(path, device=args.device))
    return path, suite if args.env is None else suite.member(args.env)


def find_checkpoint(where: str, *, best: bool = False, trial: int | None = None) -> Path:
    """Return the checkpoint file that is meant.

    Of a training: the last one, or that of the best evaluation. Of a search: the winner's, or that
    of one trial. `UserError` when there is none.
    """
    from rltune.rundir import RunDir, find_run

    path = Path(where).expanduser()
    if path.is_file():
        if best or trial is not None:
            raise UserError(f"{where} is one checkpoint; --best and --trial choose within a run")
        return path
    run = RunDir.open(find_run(where))
    if run.kind == "train":
        return _of_training(run.path, best, trial)
    if trial is not None:
        return _of_trial(run.path / "trials", trial, run.checkpoint(trial))
    found = run.best_dir / "checkpoint.pt"
    if not found.is_file():
        raise UserError(
            f"run {run.path} has no winner yet; choose a trial: --trial N. "
            f"Those so far: {_numbers(run.path / 'trials')}"
        )
    return found


def _of_training(run: Path, best: bool, trial: int | None) -> Path:
    if trial is not None:
        raise UserError(f"run {run} is a training, it has no trials; leave out --trial")
    found = run / "checkpoints" / ("best.pt" if best else "last.pt")
    if not found.is_file():
        raise UserError(f"run {run} has no checkpoint {found.name} yet")
    return found


def _of_trial(trials: Path, number: int, found: Path) -> Path:
    if not found.is_file():
        raise UserError(
            f"{trials.parent} has no checkpoint of trial {number}; there are: {_numbers(trials)}"
        )
    return found


def _numbers(trials: Path) -> str:
    numbers = sorted(
        int(path.parent.name)
        for path in trials.glob("*/checkpoint.pt")
        if path.parent.name.isdecimal()
    )
    return ", ".join(map(str, numbers)) or "none"


# ------------------------------------------------------------------------------------------ results


def shown(path: Path) -> str:
    """Return a path as one would type it: relative to where one is, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def summary(path: Path, agent: AnyAgent, evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as JSON-able values.

    The interval is None for fewer than 5 episodes, the success rate where none is told.
    """
    import math

    from rltune.stats import FEW_RUNS, bootstrap_interval, iqm

    interval: Sequence[float | None] = (None, None)
    if len(evaluation.returns) >= FEW_RUNS and all(map(math.isfinite, evaluation.returns)):
        interval = bootstrap_interval(evaluation.returns)
    return {
        "checkpoint": shown(path),
        "agent": agent.algorithm_spec,
        "env": agent.env,
        "env_steps": agent.env_steps,
        "episodes": len(evaluation.returns),
        "mean": evaluation.mean,
        "std": evaluation.std,
        "iqm": iqm(evaluation.returns),
        "iqm_interval": list(interval),
        "success_rate": evaluation.success_rate,
        "mean_length": sum(evaluation.lengths) / len(evaluation.lengths),
        "seconds": evaluation.seconds,
        "returns": evaluation.returns,
        "lengths": evaluation.lengths,
        "cut_off": evaluation.cut,
    }


def describe(result: Mapping[str, Any]) -> str:
    """Return an evaluation in a few lines."""
    returns, (low, high) = result["returns"], result["iqm_interval"]
    interval = "" if low is None else f"  95 % interval {low:.6g} to {high:.6g}"
    lengths = result["lengths"]
    rows = {
        "mean": f"{result['mean']:.6g}  standard deviation {result['std']:.6g}",
        "interquartile mean": f"{result['iqm']:.6g}{interval}",
        "lowest, highest": f"{min(returns):.6g}, {max(returns):.6g}",
        "success rate": "" if result["success_rate"] is None else f"{result['success_rate']:.6g}",
        "episode length": f"{result['mean_length']:.6g}  ({min(lengths)} to {max(lengths)} steps)",
        "cut off": f"{result['cut_off']} episodes (no time limit)" if result["cut_off"] else "",
    }
    return "\n".join(
        [
            f"{result['checkpoint']}: {result['agent']} on {result['env']}, "
            f"trained for {result['env_steps']:,} env_steps",
            f"return of {result['episodes']} greedy episodes, {result['seconds']:.1f} s",
            *(f"  {name:<20}{value}" for name, value in rows.items() if value),
        ]
    )
