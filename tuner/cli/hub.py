"""The commands `rltune push` and `rltune pull`: policies on the Hugging Face hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

PUSH_HELP = """\
Put the policy of a run on the Hugging Face hub, with a model card: the answer, the learning curves,
the clip of the winner, and the configuration.

  rltune push latest --to me/ppo-CartPole-v1
  rltune push runs/my-training --best --to me/sac-Pendulum-v1
"""
PULL_HELP = """\
Fetch a policy from the Hugging Face hub. Nothing of it is run.

  rltune pull me/ppo-CartPole-v1
  rltune play ppo-CartPole-v1/policy.pt
"""


def add_parser(subparsers: Any) -> None:
    """Add the commands."""
    parser = subparsers.add_parser(
        "push",
        help="put a policy on the Hugging Face hub",
        description=PUSH_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=push_main)
    parser.add_argument("run", help="run directory, its name, latest, or a checkpoint file")
    parser.add_argument("--to", required=True, metavar="USER/NAME", help="the repository")
    parser.add_argument(
        "--best", action="store_true", help="of a training, its best evaluation's policy"
    )
    parser.add_argument("--trial", type=int, metavar="N", help="of a search, this trial's policy")
    parser.add_argument(
        "--episodes", type=int, default=10, metavar="N", help="episodes of the card (default: 10)"
    )
    parser.add_argument("--private", action="store_true", help="make a private repository")
    parser = subparsers.add_parser(
        "pull",
        help="fetch a policy from the Hugging Face hub",
        description=PULL_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=pull_main)
    parser.add_argument("repo", metavar="USER/NAME", help="the repository")
    parser.add_argument("--to", metavar="DIR", help="folder of the files (default: NAME)")
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit")


def push_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Push, and print where to."""
    reject_extra(args, extra)
    from rltune.hub.push import push

    pushed = push(
        args.run,
        args.to,
        best=args.best,
        trial=args.trial,
        episodes=max(1, args.episodes),
        private=args.private,
    )
    print(f"{pushed.url}\n  {', '.join(pushed.files)}")
    return 0


def pull_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Pull, and print the folder."""
    reject_extra(args, extra)
    from rltune.hub.pull import pull

    folder = pull(args.repo, args.to, revision=args.revision)
    print(f"{folder}\n\n  rltune play {folder}/policy.pt")
    return 0
