"""SAC's temperature and its target entropy (Haarnoja et al. 2018, arXiv:1812.05905, section 5)."""

from __future__ import annotations

import math

import torch
from rltune.agents.errors import UserError
from rltune.agents.networks.actors import FactoredCategorical, SquashedGaussian
from torch import Tensor, nn


class Temperature(nn.Module):
    """The weight of the entropy, by its logarithm.

    Args:
        ent_coef: a number; auto or auto_<number>: it is ``learned``, from 1 or from the number on

    Raises:
        UserError: it is neither, or not positive.
    """

    def __init__(self, ent_coef: str) -> None:
        super().__init__()
        self.learned = str(ent_coef).startswith("auto")
        start = "1" if ent_coef == "auto" else str(ent_coef).removeprefix("auto_")
        initial = _number("ent_coef", start, ent_coef)
        if initial < 0 or (self.learned and initial == 0):
            raise UserError(f"ent_coef is {ent_coef!r}, but a temperature must be positive")
        self.log = nn.Parameter(torch.tensor([initial]).log())

    def value(self) -> Tensor:
        """Return the temperature without its gradient: 0-d."""
        return self.log.detach().exp().squeeze()

    @torch.no_grad()
    def clip(self, largest: float) -> None:
        """Keep the temperature at most at ``largest``."""
        self.log.clamp_(max=math.log(largest))


class TargetEntropy:
    """The entropy that a learned temperature aims at.

    Args:
        target_entropy: a number; or auto: as the actor says, and where there are action masks, for
            the actions that they allow
        actor: its entropy is meant
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
        fixed = (
            actor.target_entropy()
            if auto
            else _number("target_entropy", target_entropy, target_entropy)
        )
        self.fixed = torch.tensor(fixed, device=device)
        self._masked: FactoredCategorical | None = None  # the actor, where masks are followed
        if auto and isinstance(actor, FactoredCategorical) and actor.torso.parts.n_mask:
            self._masked = actor

    def of(self, obs: Tensor) -> Tensor:
        """Return the target where ``obs`` (batch, ...) was seen: 0-d."""
        return self._masked.masked_target_entropy(obs) if self._masked else self.fixed


def _number(name: str, text: str, written: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name} is {written!r}, but must be a number or auto") from None
