"""What an exported policy says of itself: its origin, its inputs and outputs, and their meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.common.version import __version__

if TYPE_CHECKING:
    import gymnasium
    from rltune.agents.loop.agent import Agent
    from rltune.agents.loop.policy_graph import Port

FORMAT = "rltune-policy"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class About:
    """The metadata of an exported policy; plain values, which a file keeps as JSON.

    Attributes:
        agent, env, env_kwargs, env_steps: of the training
        seed: of the agent, which its evaluations begin from
        view: how its environment is shown to it, see `rltune.agents.Agent.view`
        observation: how an observation of the environment becomes the input
        action: what an action is
        inputs, outputs: name, shape of one row, and type, in their order
        rltune: the version that wrote it
    """

    agent: str
    env: str
    env_kwargs: dict[str, Any]
    env_steps: int
    seed: int
    view: dict[str, Any]
    observation: dict[str, Any]
    action: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    rltune: str = __version__
    format: str = FORMAT
    version: int = VERSION

    @classmethod
    def of(cls, agent: Agent, inputs: list[Port], outputs: list[Port]) -> About:
        """Return what is to be said of an agent's policy."""
        from rltune.agents.envs.make import as_made, frame_stack_of, is_atari
        from rltune.agents.envs.masks import KEY, mask_to_info

        made, _ = as_made(agent.env, env_kwargs=agent.env_kwargs)
        shown = mask_to_info(made)
        observation = {
            **_form(agent, shown.observation_space),
            "frame_stack": max(1, frame_stack_of(agent.env, agent.view["frame_stack"], None)),
            "atari": is_atari(agent.env),
        }
        if any(port.name == KEY for port in inputs):
            observation["action_mask"] = "info" if shown is made else "observation"
        made.close()  # type: ignore[no-untyped-call]
        return cls(
            agent=agent.algorithm_spec,
            env=agent.env,
            env_kwargs=agent.env_kwargs,
            env_steps=agent.env_steps,
            seed=agent.seed,
            view=agent.view,
            observation=observation,
            action=_meaning(agent.action_space),
            inputs=[_plain(port) for port in inputs],
            outputs=[_plain(port) for port in outputs],
        )

    def texts(self) -> dict[str, str]:
        """Return the values as texts by their names; what is no text is JSON."""
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_texts(cls, texts: Mapping[str, str], path: object) -> About:
        """Return what `texts` gave.

        Raises:
            UserError: a file of something else, a damaged one, or one of a newer version.
        """
        if texts.get("format") != FORMAT:
            raise UserError(
                f"{path} is no policy that rltune exported: it does not say which environment it "
                "is for; rltune export RUN --to onnx writes one that does"
            )
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = texts.get(field.name, "")
            kind = _KINDS[str(field.type).partition("[")[0]]
            try:
                value = text if kind is str else json.loads(text)
            except ValueError:
                value = None
            if not isinstance(value, kind) or isinstance(value, bool):
                raise UserError(f"policy {path} is damaged: {field.name} can't be {text!r:.60}")
            values[field.name] = value
        if values["version"] > VERSION:
            raise UserError(
                f"policy {path} is of format {values['version']}, newer than this rltune reads "
                f"({VERSION}); upgrade rltune"
            )
        return cls(**values)


_KINDS: dict[str, type] = {"str": str, "int": int, "dict": dict, "list": list}


def _plain(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.shape), "dtype": port.dtype}


def _form(agent: Agent, space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Return how an observation of a space becomes numbers in a row, or an image."""
    from gymnasium import spaces
    from rltune.agents.images import image_layout
    from rltune.agents.spaces import InputParts, Mixed

    if isinstance(InputParts(agent.observation_space).observation_space, Mixed):
        return {"kind": "mixed"}
    if isinstance(space, spaces.Box):
        layout = image_layout(space.shape, space.dtype, agent.view["small_images"])
        if layout:
            return {"kind": "image", "layout": layout}
    return {"kind": "flatten"}


def _meaning(space: gymnasium.Space[Any]) -> str:
    """Return what an action is, in words."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return f"{space}: the number of the best action, as step() takes it"
    if isinstance(space, spaces.Box):
        return f"{space}: the best action, within the bounds, as step() takes it"
    return f"{space}: the best value of each choice, as step() takes them"
