"""Policy graphs: all that lies between an environment's observation and its action, as one module.

The normalisation of observations, action masks, the recurrent state, the network, and the way from
its outputs to what the environment takes. Tensor operations alone: it can be traced, and so written
in formats that others run.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rltune.agents.loop.agent import Agent
from rltune.agents.spaces import InputParts
from torch import Tensor, nn

OBSERVATION, MASK, STATE = "observation", "action_mask", "state"
ACTION, NEXT_STATE = "action", "next_state"


class Port(NamedTuple):
    """An input or output of a graph; the first axis of its tensors is the batch.

    Attributes:
        name: of it
        shape: of one row
        dtype: as NumPy calls it
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class PolicyGraph(nn.Module):
    """The greedy policy of an agent, from observations to actions.

    Its inputs are observations as the agent is shown them (a vector, an image of bytes, frames
    stacked), then, where there are masks, the allowed actions, then, where there is a recurrent
    state, the state, which is 0 where an episode begins. Its outputs are actions as the environment
    takes them, and the next state.

    Args:
        agent: on a CPU, made to act only; the graph takes its networks, which can't be trained then

    Attributes:
        inputs, outputs: in their order

    Raises:
        UserError: the agent has no policy that can be exported.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self._algorithm = agent.algorithm
        if isinstance(nets := getattr(agent.algorithm, "nets", None), nn.Module):
            self.nets = nets.requires_grad_(False)
            for weights in nets.parameters():
                # No parts of the optimizer's flat vector: a file would hold all of that.
                weights.data = weights.data.clone()
        self._parts = parts = InputParts(agent.observation_space)
        self._normalisation = _Normalisation(agent)
        self._encoding = _Encoding(agent.action_space)
        self._is_plain = not (parts.n_mask or agent.algorithm.state_size)
        self._n_rest = 0  # numbers of the state that are no part of the policy
        pixels = parts.has_images and len(parts.shape) == 3
        self.inputs = [Port(OBSERVATION, parts.shape, "uint8" if pixels else "float32")]
        if parts.n_mask:
            self.inputs.append(Port(MASK, (parts.n_mask,), "bool"))
        self.outputs = [Port(ACTION, cast("tuple[int, ...]", agent.action_space.shape), "")]
        if agent.algorithm.state_size:
            state = Port(STATE, (self._state_size(),), "float32")
            self.inputs.append(state)
            self.outputs.append(state._replace(name=NEXT_STATE))
        self.eval()
        action = self.run(self.examples(2))[0]
        self.outputs[0] = self.outputs[0]._replace(dtype=str(action.numpy().dtype))

    def _state_size(self) -> int:
        """Return how many numbers of the recurrent state are the policy's."""
        whole = self._algorithm.state_size
        n_inputs = self._parts.flag + 1 + whole
        with torch.no_grad():
            size = self._algorithm.greedy_state(torch.zeros(1, n_inputs)).shape[1]
        self._n_rest = whole - size
        return size

    def examples(self, n: int) -> tuple[Tensor, ...]:
        """Return inputs to trace with, of so many rows."""
        dtypes = {port.name: getattr(torch, port.dtype) for port in self.inputs}
        return tuple(
            torch.ones(n, *port.shape, dtype=dtypes[port.name])
            if port.name == MASK
            else torch.zeros(n, *port.shape, dtype=dtypes[port.name])
            for port in self.inputs
        )

    @torch.no_grad()
    def run(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the outputs in their order."""
        found = self(*inputs)
        return found if isinstance(found, tuple) else (found,)

    def forward(self, observation: Tensor, *others: Tensor) -> Any:
        """Return the actions, and the next states where there are any."""
        inputs = self._inputs(self._normalisation(observation), others)
        action = self._encoding(self._algorithm.greedy(inputs))
        if not self._algorithm.state_size:
            return action
        return action, self._algorithm.greedy_state(inputs)

    def _inputs(self, observation: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """Return the algorithm's inputs (`rltune.agents.spaces`)."""
        if self._is_plain:
            return observation
        parts = [observation.flatten(1)]
        if self._parts.n_mask:
            parts.append(others[0].to(torch.float32))
        if self._algorithm.state_size:
            state = others[-1]
            # The mark of a beginning counts within sequences alone, and here is a single step.
            parts += [torch.zeros_like(state[:, :1]), state]
            if self._n_rest:
                parts.append(state[:, :1].expand(-1, self._n_rest) * 0)
        return torch.cat(parts, 1)


class _Normalisation(nn.Module):
    """Normalises observations as training does, in float64; the result is float32."""

    mean: Tensor
    factor: Tensor

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self._n: int | None = None  # how many numbers are normalised; None: there is no such thing
        if agent.observations is not None:
            mean, factor, self._limit = agent.observations.constants()
            self._n = len(mean)
            self._is_whole = mean.shape == InputParts(agent.observation_space).shape
            self.register_buffer("mean", torch.from_numpy(mean))
            self.register_buffer("factor", torch.from_numpy(factor))

    def forward(self, observation: Tensor) -> Tensor:
        if self._n is None:
            return observation.to(torch.float32)
        scaled = (observation[:, : self._n].to(torch.float64) - self.mean) * self.factor
        scaled = scaled.clamp(-self._limit, self._limit).to(torch.float32)
        if self._is_whole:
            return scaled
        return torch.cat([scaled, observation[:, self._n :]], 1)


class _Encoding(nn.Module):
    """Turns an algorithm's actions into what the environment takes, as `ActionEncoder` does."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self._dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        self._bounds: tuple[Tensor, Tensor] | None = None
        self._start: Tensor | int = 0
        if isinstance(space, spaces.Box):
            self._bounds = torch.from_numpy(space.low), torch.from_numpy(space.high)
        elif isinstance(space, spaces.Discrete):
            self._start = int(space.start)
        elif isinstance(space, spaces.MultiDiscrete) and np.any(space.start):
            self._start = torch.from_numpy(space.start)

    def forward(self, action: Tensor) -> Tensor:
        if self._bounds is not None:
            action = action.to(self._dtype)
            action = torch.minimum(torch.maximum(action, self._bounds[0]), self._bounds[1])
        elif isinstance(self._start, Tensor) or self._start:
            action = action + self._start
        return action.to(self._dtype)
