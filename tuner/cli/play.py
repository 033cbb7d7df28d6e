"""The commands `rltune eval` and `rltune play`: evaluation and rendering of a trained agent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.cli.flags import parse_mapping
from rltune.cli.foreign import sentence
from rltune.common.options import options_of
from rltune.runs.run_options import RunOptions

EVAL_MODE = options_of(RunOptions)["eval_mode"].described()
WHAT = (
    "a checkpoint file or an exported policy, or a run: its folder, its name in runs/, or 'latest'"
)
EVAL_HELP = """\
Measure a trained agent, or actions at random.

  rltune eval latest --episodes 100
  rltune eval latest --eval-mode stochastic
  rltune eval random --env CartPole-v1
  rltune eval runs/my-search --trial 7
  rltune eval runs/my-training/checkpoints/last.pt --json
"""
PLAY_HELP = """\
Watch a trained agent: in a window, as a video, as pictures or as demonstrations.

  rltune play latest
  rltune play runs/my-search --episodes 3 --video play.mp4
  rltune play runs/my-search --trial 7
  rltune play runs/my-training --best --frames pictures/ --every-nth 2
  rltune play runs/my-training --episodes 10 --record demos.parquet
"""


def add_parser(subparsers: Any) -> None:
    """Add both commands."""
    evaluate = _add(subparsers, "eval", "measure a trained agent", EVAL_HELP, run_eval)
    evaluate.add_argument("--episodes", type=_positive, help="number of episodes (default: 100)")
    evaluate.add_argument(
        "--seed", type=_seed, help="random seed (default: that of the agent's evaluations)"
    )
    evaluate.add_argument("--eval-mode", default="greedy", metavar="MODE", help=EVAL_MODE)
    evaluate.add_argument(
        "--env-kwargs", metavar="YAML", help="keyword arguments of the environment, with random"
    )
    evaluate.add_argument(
        "--json", action="store_true", help="print everything as JSON, with every episode"
    )

    play = _add(subparsers, "play", "watch a trained agent", PLAY_HELP, run_play)
    play.add_argument(
        "--episodes", type=_positive, default=1, help="number of episodes (default: 1)"
    )
    play.add_argument("--seed", type=_seed, default=0, help="random seed (default: 0)")
    play.add_argument(
        "--window", action="store_true", help="show a window, the default where there is a display"
    )
    play.add_argument("--video", type=Path, metavar="FILE", help="write a video, an .mp4 or a .gif")
    play.add_argument("--frames", type=Path, metavar="DIR", help="write each frame as a PNG")
    play.add_argument(
        "--record", type=Path, metavar="FILE", help="write the episodes as demonstrations"
    )
    play.add_argument(
        "--delay",
        type=_seconds,
        metavar="S",
        help="seconds per step (default: the environment's own speed)",
    )
    play.add_argument(
        "--every-nth",
        type=_positive,
        default=1,
        metavar="N",
        help="steps per recorded frame (default: 1)",
    )


def _add(subparsers: Any, name: str, short: str, text: str, main: Any) -> Any:
    parser = subparsers.add_parser(
        name,
        help=short,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    what = f"{WHAT}; or random, with --env" if name == "eval" else WHAT
    parser.add_argument("checkpoint", metavar="CHECKPOINT_OR_RUN", help=what)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--best",
        action="store_true",
        help="take the agent of a training's best evaluation, not the last; of a search it is "
        "the winner with and without",
    )
    which.add_argument(
        "--trial",
        type=_seed,
        metavar="N",
        help="take the agent of this trial of a search (default: the winner)",
    )
    parser.add_argument(
        "--env",
        help="environment that the agent must be for, one of those that it was trained on; with "
        "random, the one to play",
    )
    parser.add_argument(
        "--device", default="auto", help="PyTorch device: cpu, cuda or auto (default: auto)"
    )
    parser.add_argument(
        "--max-steps", type=_positive, metavar="N", help="steps after which an episode is cut off"
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
    """Evaluate the agent, and print the returns."""
    import json

    from rltune.training.evaluation import EPISODES, describe, opened, summary

    _reject(args, extra)
    which = _which(args)
    if args.env_kwargs is not None:
        which["env_kwargs"] = parse_mapping("--env-kwargs", args.env_kwargs)
    with opened(args.checkpoint, **which) as (path, agent):
        episodes = args.episodes or EPISODES
        evaluation = agent.evaluate(episodes, args.seed, args.max_steps, args.eval_mode)
        result = summary(path, agent, evaluation, args.eval_mode)
    print(json.dumps(result, indent=2) if args.json else describe(result))
    return 0


def run_play(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Play episodes, in a window or into files."""
    from rltune.training.evaluation import play, shown
    from rltune.training.policy import load

    _reject(args, extra)
    policy = load(args.checkpoint, **_which(args))
    evaluation = play(
        policy,
        args.episodes,
        window=args.window,
        video=args.video,
        frames=args.frames,
        record=args.record,
        delay=args.delay,
        every_nth=args.every_nth,
        max_steps=args.max_steps,
        seed=args.seed,
    )
    policy.close()
    print(f"{shown(policy.path)}: {policy.agent.algorithm_spec} on {policy.env}")
    for number, result in enumerate(zip(evaluation.returns, evaluation.lengths, strict=True)):
        print(f"  episode {number}: return {result[0]:.6g} in {result[1]} steps")
    for written in (args.video, args.frames, args.record):
        if written is not None:
            print(f"  written: {written}")
    return 0


def _which(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of `rltune.load` that choose the agent."""
    return {name: getattr(args, name) for name in ("best", "trial", "env", "device")}


def _reject(args: argparse.Namespace, extra: Sequence[str]) -> None:
    if extra:
        if said := sentence(extra[0].removeprefix("--").partition("=")[0]):
            raise UserError(said)
        raise UserError(
            f"unexpected argument {extra[0]!r}; see rltune {args.command} --help. "
            "The hyperparameters are those of the checkpoint."
        )
