"""SAC's temperatures and target entropies (Haarnoja et al. 2018, arXiv:1812.05905, section 5).

Each of several choices has its own, as in Unity's ML-Agents: one of two values can be decided while
another of twenty is still explored.
"""

from __future__ import annotations

import math

import torch
from rltune.agents.errors import UserError
from rltune.agents.networks.actors import FactoredCategorical, SquashedGaussian
from torch import Tensor, nn


class Temperature(nn.Module):
    """The weights of the choices' entropies, by their logarithms (choices,); a Box has one.

    Args:
        ent_coef: a number, for every choice alike; auto or auto_<number>: each is ``learned``, from
            1 or from the number on
        n: how many

    Raises:
        UserError: it is neither, or not positive.
    """

    def __init__(self, ent_coef: str, n: int = 1) -> None:
        super().__init__()
        self.learned = str(ent_coef).startswith("auto")
        start = "1" if ent_coef == "auto" else str(ent_coef).removeprefix("auto_")
        initial = _number("ent_coef", start, ent_coef)
        if initial < 0 or (self.learned and initial == 0):
            raise UserError(f"ent_coef is {ent_coef!r}, but a temperature must be positive")
        self.log = nn.Parameter(torch.tensor([initial] * n).log())

    def value(self) -> Tensor:
        """Return the temperatures without their gradient: (n,)."""
        return self.log.detach().exp()

    @torch.no_grad()
    def restore(self, log: Tensor) -> None:
        """Take over logarithms: (n,), or (1,) of a version with one temperature for all choices."""
        self.log.copy_(log)

    @torch.no_grad()
    def clip(self, largest: float) -> None:
        """Keep the temperatures at most at ``largest``."""
        self.log.clamp_(max=math.log(largest))


class TargetEntropy:
    """The entropies that learned temperatures aim at, one for each choice; a Box has one.

    Args:
        target_entropy: a number: of the whole action, shared among the choices in proportion to
            their largest entropies; or auto: as the actor says, and where there are action masks,
            for the actions that they allow
        actor: its entropies are meant
        device: of the result

    Raises:
        UserError: it is neither.
    """

    def __init__(
        self,
        target_entropy: str,
        actor: SquashedGaussian | FactoredCategorical,
        device: torch.device,
    ) -> None:
        auto = target_entropy == "auto"
        fixed = actor.target_entropies()
        if not auto:
            total = _number("target_entropy", target_entropy, target_entropy)
            fixed = [total * share for share in _shares(fixed)]
        self.fixed = torch.tensor(fixed, device=device)
        self._masked: FactoredCategorical | None = None  # the actor, where masks are followed
        if auto and isinstance(actor, FactoredCategorical) and actor.torso.parts.n_mask:
            self._masked = actor

    def of(self, obs: Tensor) -> Tensor:
        """Return the targets where ``obs`` (batch, ...) was seen: (choices,)."""
        return self._masked.masked_target_entropies(obs) if self._masked else self.fixed


def _shares(entropies: list[float]) -> list[float]:
    """Return the shares in the sum; equal ones where no choice has two values."""
    total = sum(entropies)
    return [entropy / total if total else 1 / len(entropies) for entropy in entropies]


def _number(name: str, text: str, written: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name} is {written!r}, but must be a number or auto") from None
