"""The model card of a policy on the hub: what it is, how good it is, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

ANSWER = "best/answer.yaml"


@dataclass(frozen=True)
class Card:
    """What a model card says.

    Attributes:
        repo: USER/NAME
        agent, env: whose policy it is
        config: its hyperparameters
        mean, std, episodes: of greedy episodes of this very policy
        answer: of the search that found it, as answer.yaml has it; None: there was none
        command: that trains it again; empty: nobody knows it
        files: beside the card, by what they are
    """

    repo: str
    agent: str
    env: str
    config: Mapping[str, Any]
    mean: float
    std: float
    episodes: int
    answer: Mapping[str, Any] | None
    command: str
    files: Mapping[str, str]

    def text(self) -> str:
        """Return the card: metadata that the hub reads, and Markdown."""
        metadata = yaml.safe_dump(self._metadata(), sort_keys=False, allow_unicode=True)
        return f"---\n{metadata}---\n\n" + "\n\n".join(self._parts()) + "\n"

    def _metadata(self) -> dict[str, Any]:
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": self.env, "type": self.env},
            "metrics": [
                {
                    "type": "mean_reward",
                    "value": f"{self.mean:.2f} +/- {self.std:.2f}",
                    "name": "mean_reward",
                    "verified": False,
                }
            ],
        }
        return {
            "library_name": "rltune",
            "tags": [self.env, "reinforcement-learning", "deep-reinforcement-learning", "rltune"],
            "model-index": [{"name": self.agent, "results": [result]}],
        }

    def _parts(self) -> list[str]:
        parts = [
            f"# {self.agent} on {self.env}",
            f"Mean return {self.mean:.6g} ± {self.std:.3g} of {self.episodes} greedy episodes.",
        ]
        if clip := self.files.get("clip"):
            parts.append(f"![a greedy episode]({clip})" if clip.endswith(".gif") else
                         f'<video src="{clip}" controls autoplay loop muted></video>')  # fmt: skip
        if self.answer:
            sentences = [*self.answer.get("sentences", []), *self.answer.get("warnings", [])]
            parts += ["## What the search found", *map(str, sentences)]
        if curves := self.files.get("curves"):
            parts.append(f"![learning curves]({curves})")
        parts.append("## Use")
        use = f"rltune pull {self.repo}\nrltune play {self.repo.split('/')[-1]}/policy.pt"
        parts.append(f"```bash\n{use}\n```")
        if self.command:
            parts += ["## Train it again", f"```bash\n{self.command}\n```"]
        rows = [f"| {name} | {value} |" for name, value in self.config.items()]
        table = "\n".join(["| name | value |", "|---|---|", *rows])
        return [*parts, "## Configuration", table]
