"""Policies of RLlib's algorithms: their networks, asked for greedy actions."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.backends.names import EXPLORES

Array = NDArray[Any]


class RLlibPolicy:
    """The network of an RLlib algorithm, asked for greedy actions.

    Its inputs are observations (n, d). Where the network has a state (DreamerV3), 1 at the
    beginning of an episode and the state follow: see `rltune.agents.loop.acting.RecurrentActing`.
    """

    def __init__(self, module: Any, action_space: gymnasium.Space[Any]) -> None:
        self._module = module
        self._action_space = action_space
        initial = module.get_initial_state() if module.is_stateful() else {}
        self._shapes = {name: tuple(value.shape) for name, value in initial.items()}
        self.state_size = sum(math.prod(shape) for shape in self._shapes.values())
        self._last: tuple[Array | None, dict[str, Any]] = (None, {})

    def act(self, seen: Array, *, explore: bool = False) -> Array:
        """Return the greedy actions (n, ...), as the environment takes them."""
        from ray.rllib.core.columns import Columns
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        if explore:
            raise UserError(f"only greedy actions can be asked for: {EXPLORES}")
        out = self._forward(seen)
        if Columns.ACTIONS in out:
            actions = out[Columns.ACTIONS]
        else:
            distribution = self._module.get_inference_action_dist_cls()
            logits = out[Columns.ACTION_DIST_INPUTS]
            actions = distribution.from_logits(logits).to_deterministic().sample()
        if self.state_size:
            actions = actions.squeeze(1)  # of one step of time
        result: Array = np.asarray(actions.cpu())
        if isinstance(self._action_space, gymnasium.spaces.Box):
            # RLlib's networks act in [-1, 1], whatever the bounds.
            result = np.stack([unsquash_action(action, self._action_space) for action in result])
        return result

    def restart_exploration(self) -> None:
        """Raise `UserError`: there is none to be asked for."""
        raise UserError(f"only greedy actions can be asked for: {EXPLORES}")

    def next_state(self, seen: Array) -> Array:
        """Return the states (n, state_size) after the step."""
        state = self._forward(seen)["state_out"]
        return np.concatenate(
            [np.asarray(state[name].cpu()).reshape(len(seen), -1) for name in self._shapes], 1
        )

    def _forward(self, seen: Array) -> dict[str, Any]:
        # DreamerV3 draws its state: the action has to come of the same draw.
        if self._last[0] is seen:
            return self._last[1]
        device = next(self._module.parameters()).device
        rows = torch.as_tensor(seen).to(device)
        batch: dict[str, Any] = {"obs": rows}
        if self.state_size:
            n_obs, sizes = (
                rows.shape[1] - 1 - self.state_size,
                map(math.prod, self._shapes.values()),
            )
            obs, first, *parts = torch.split(rows, [n_obs, 1, *sizes], 1)
            batch = {"obs": obs[:, None], "is_first": first[:, 0]}
            batch["state_in"] = {
                name: part.reshape(-1, *shape)
                for part, (name, shape) in zip(parts, self._shapes.items(), strict=True)
            }
        with torch.no_grad():
            out: dict[str, Any] = self._module.forward_inference(batch)
        if self.state_size:
            self._last = seen, out
        return out
