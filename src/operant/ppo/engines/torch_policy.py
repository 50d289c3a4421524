"""What PyTorch computes with a policy on a GPU: a step of a rollout, and of an update.

These are the functions that `torch.compile` may replace; see `operant.ppo.engines.compile_policy`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from operant.models.distributions import masked
from operant.ppo.engines.gpu_memory import GpuMemory
from operant.ppo.loss import Loss, normalized, ppo_loss

LOSS_SCALE = 1024.0
"""Gradients are this much larger in float16, which has no numbers below 6e-8."""
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PolicyFunctions(NamedTuple):
    """What a program calls: the methods of a `TorchPolicy`, or the same compiled."""

    act: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    loss: Callable[..., tuple[Tensor, Tensor]]
    apply: Callable[[list[Tensor], Tensor, Tensor], None]


class TorchPolicy:
    """A policy in some precision, its loss, and the optimiser's step.

    Args:
        memory: has the rates, and what an update reports.
        preferred_precision: where the configuration leaves it open.
    """

    def __init__(self, memory: GpuMemory, preferred_precision: str) -> None:
        self.job, self.device = memory.job, memory.device
        self._preferred_precision = preferred_precision
        self._scales = self.job.value_scale is not None
        self._rates, self._active = memory.rates.gpu, memory.active
        self._taken = memory.steps_taken
        self._low, self._rounded = self._rounded_weights()

    @property
    def functions(self) -> PolicyFunctions:
        """Not compiled."""
        return PolicyFunctions(self.act, self.value, self.loss, self.apply)

    # rollout --------------------------------------------------------------------------------
    def round_weights(self) -> None:
        """Round the weights for a rollout; see `_low_forward`."""
        if self._low:
            torch._foreach_copy_(list(self._low.values()), self._rounded)

    def act(
        self, obs: Tensor, mask: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor
    ) -> Tensor:
        """Sample actions, as the environment takes them. Writes `action` and `log_prob`."""
        job = self.job
        with self._autocast():
            head = self._low_forward(obs)[0] if self._low else job.head(obs)
        head = head.float()
        if job.mask_size:
            head = masked(head, mask)
        drawn, found = job.distribution.sample(head, noise)
        action.copy_(drawn)
        log_prob.copy_(found)
        return job.distribution.to_env(drawn).contiguous()

    def value(self, obs: Tensor) -> Tensor:
        """Values ``[B]`` of observations, float32."""
        with self._autocast():
            value = self._low_forward(obs)[1] if self._low else self.job.value(obs)
        return value.float()

    def intrinsic_value(self, obs: Tensor) -> Tensor:
        """Values ``[B]`` of bonuses, float32."""
        with self._autocast():
            return self.job.intrinsic_value(obs).float()

    def _low_forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Head and value by weights that were rounded once for the whole rollout. Autocast would
        round them to the same numbers, at every step."""
        outputs: tuple[Tensor, Tensor] = functional_call(self.job.policy, self._low, (obs,))
        return outputs

    def _rounded_weights(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Memory for the weights that autocast rounds, by name, and the weights; may be none."""
        dtype = AUTOCAST.get(self.precision)
        kinds = (nn.Linear, nn.modules.conv._ConvNd)
        layers = [(k, m) for k, m in self.job.policy.named_modules() if isinstance(m, kinds)]
        found = {
            f"{name}.{key}" if name else key: parameter
            for name, layer in (layers if dtype else [])
            for key, parameter in layer.named_parameters(recurse=False)
        }
        low = {name: torch.empty_like(p, dtype=dtype).detach() for name, p in found.items()}
        return low, list(found.values())  # not views: a parameter may be given other memory

    # update ---------------------------------------------------------------------------------
    def loss(self, index: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the samples `index`, scaled if in float16, and figures ``[5]`` about it."""
        ppo = self.job.config.ppo
        samples = [x.index_select(0, index) for x in data]
        obs, action, mask, old_log_prob, target, old_value, advantage = samples[:7]
        bonus_target, bonus_value = samples[7:], []
        if ppo.normalize_advantage:
            advantage = normalized(advantage)
        with self._autocast():
            if bonus_target:
                head, value, of_bonuses = self.job.streams(obs)
                bonus_value.append(of_bonuses.float())
            else:
                head, value = self.job.policy(obs)
        head, value = head.float(), value.float()
        if self.job.mask_size:
            head = masked(head, mask)
        log_prob, entropy = self.job.distribution.evaluate(head, action)
        if self._scales:
            value, target, old_value = self.job.scaled(obs, value, target, old_value)
        loss: Loss = ppo_loss(
            log_prob,
            entropy,
            value,
            old_log_prob,
            advantage,
            target,
            old_value,
            clip=self._rates[1].float(),
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )
        total = loss.total
        for own, wanted in zip(bonus_value, bonus_target, strict=True):
            total = total + ppo.value_coef * 0.5 * (own - wanted).square().mean()
        return total * self._loss_scale, torch.stack(loss[1:])

    def apply(self, pieces: list[Tensor], some: Tensor, figures: Tensor) -> None:
        """Clip the gradient and let Adam step, unless the target KL was passed.

        Args:
            pieces: the gradient, as `loss` scaled it, of each parameter.
            some: figures ``[5]`` of the loss.
            figures: float64 ``[6]``, written.
        """
        ppo, adam = self.job.config.ppo, self.job.optimizer
        gradient = torch.cat([piece.flatten() for piece in pieces]) / self._loss_scale
        norm = gradient.norm()
        figures.copy_(torch.cat([some, norm.unsqueeze(0)]))
        if ppo.max_grad_norm:
            gradient = gradient * (ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        if self.job.config.run.nan_guard:
            # A bad gradient moves nothing, so that the weights stay good; reported at the end.
            gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        adam.step_on_gpu(gradient, self._rates[0], self._taken, self._active)

    # precision ------------------------------------------------------------------------------
    @property
    def precision(self) -> str:
        """Of the networks: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""
        asked = self.job.config.run.precision
        return self._preferred_precision if asked == "auto" else asked

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        if dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype)

    @property
    def _loss_scale(self) -> float:
        return LOSS_SCALE if self.precision == "fp16" else 1.0
