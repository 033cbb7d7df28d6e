"""Generative adversarial imitation learning, GAIL (Ho and Ermon 2016, arXiv:1606.03476)."""

from __future__ import annotations

import torch
from rltune.agents.rewards.demonstrated import DrawnSteps
from rltune.agents.rewards.networks import ActionCode, Features, Steps
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

# As in ML-Agents: the variational bottleneck's numbers (Peng 2019, arXiv:1810.00821), the
# information that it lets through, and how fast its weight follows.
CODE_SIZE, INFORMATION, PACE = 128, 0.5, 5e-4


class GAIL(RewardSignal):
    """Rewards steps that a discriminator can't tell from demonstrated ones.

    Args:
        spaces: of one environment
        encoder: what reads images
        size: width of the discriminator
        generator: where the weights come from
        device: of the networks
        demonstrated: draws demonstrated steps
        use_actions: show the discriminator actions, and whether the episode terminated
        use_vail: a variational bottleneck
        gradient_penalty: weight of the gradient penalty
    """

    episodic = True
    weight: Tensor

    def __init__(
        self,
        spaces: Spaces,
        encoder: str,
        size: int,
        generator: torch.Generator,
        device: torch.device,
        *,
        demonstrated: DrawnSteps,
        use_actions: bool,
        use_vail: bool,
        gradient_penalty: float,
    ) -> None:
        super().__init__(scaled=False)
        self.demonstrated, self.use_actions = demonstrated, use_actions
        self.gradient_penalty = gradient_penalty
        self.code = ActionCode(spaces.action, device)
        n_beside = self.code.size + 1 if use_actions else 0
        self.features = Features(spaces, encoder, [size, size], generator, n_beside)
        self.bottleneck = nn.Linear(size, CODE_SIZE) if use_vail else None
        if use_vail:
            self.deviation = nn.Parameter(torch.ones(CODE_SIZE))
        self.register_buffer("weight", torch.tensor(0.0))  # of the bottleneck's loss
        self.head = nn.Linear(CODE_SIZE if use_vail else size, 1)
        for layer in filter(None, (self.bottleneck, self.head)):
            nn.init.orthogonal_(layer.weight, 0.2, generator=generator)
            nn.init.zeros_(layer.bias)
        self.to(device)

    def learn_scale(self, steps: Steps) -> None:
        """Let the whitening take in the observations."""
        self.features.learn(steps.obs)

    def rewards(self, steps: Steps) -> Tensor:
        """Return -log(1 - D) of each row, D the probability that it was demonstrated: (rows,)."""
        read, beside = self._inputs(steps)
        return softplus(self._logits(read, beside, None)[0])

    def loss(self, steps: Steps, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the discriminator's loss, with the gradient penalty and the bottleneck's part."""
        shown = self.demonstrated.draw(len(steps.action), generator)
        self.features.learn(shown.obs)
        own, theirs = self._inputs(steps), self._inputs(shown)
        own_logits, own_code = self._logits(*own, generator)
        logits, code = self._logits(*theirs, generator)
        told = -(logsigmoid(logits) + logsigmoid(-own_logits)).mean()
        loss = told
        if self.gradient_penalty > 0:
            loss = loss + self.gradient_penalty * self._penalty(own, theirs, generator)
        if own_code is not None and code is not None:
            variance = self.deviation.square()
            means = 0.5 * (own_code.square() + code.square())
            excess = (variance + means - 1 - variance.log()).sum(1).mean() - INFORMATION
            loss = loss + self.weight.clone() * excess
            with torch.no_grad():
                self.weight.copy_((self.weight + PACE * excess).clamp(min=0.0))
        metrics = {
            "gail_loss": told.detach(),
            "gail_policy": own_logits.detach().sigmoid().mean(),
            "gail_expert": logits.detach().sigmoid().mean(),
        }
        return loss, metrics

    def _inputs(self, steps: Steps) -> tuple[Tensor, Tensor | None]:
        """Return what the discriminator reads: observations, and numbers beside them."""
        read = self.features.observation(steps.obs).float()
        if not self.use_actions:
            return read, None
        ended = steps.terminated.float().unsqueeze(1)
        return read, torch.cat([self.code.encode(steps.action), ended], 1)

    def _logits(
        self, read: Tensor, beside: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits of D (rows,) and the bottleneck's means; a generator makes it noisy."""
        hidden = self.features.encoded(read, beside).relu()
        if self.bottleneck is None:
            return self.head(hidden).squeeze(1), None
        code = mean = self.bottleneck(hidden)
        if generator is not None:
            noise = torch.randn(mean.shape, generator=generator, device=generator.device)
            code = mean + noise * self.deviation
        return self.head(code).squeeze(1), mean

    def _penalty(
        self,
        own: tuple[Tensor, Tensor | None],
        theirs: tuple[Tensor, Tensor | None],
        generator: torch.Generator,
    ) -> Tensor:
        """Return how far gradients between both are above length 1 (Gulrajani 2017, 1704.00028).

        Those below it cost nothing (their section 4): at last both are alike, and D is flat.
        """
        between = []
        for a, b in zip(own, theirs, strict=True):
            if a is None or b is None:
                continue
            shape = (len(a), *[1] * (a.ndim - 1))
            part = torch.rand(shape, generator=generator, device=generator.device)
            between.append((part * a + (1 - part) * b).requires_grad_())
        read, beside = (*between, None)[:2]
        assert read is not None
        told = self._logits(read, beside, generator)[0].sum()
        gradients = torch.autograd.grad(told, between, create_graph=True)
        square = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
        return ((square + 1e-7).sqrt() - 1).clamp(min=0.0).square().mean()
