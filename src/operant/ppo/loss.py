"""PPO's loss (Schulman et al., 2017): tensors in, tensors out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """Means over a batch. ``total`` carries the gradient; the others are detached."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    """Estimate of KL(old || new), never negative: ratio - 1 - log ratio."""
    clipped: Tensor
    """Share of samples whose ratio was outside the clip range."""


def ppo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
    old_value: Tensor,
    *,
    clip: float | Tensor,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
) -> Loss:
    """The clipped objective, the value loss and the entropy bonus of a batch; all inputs ``[B]``.

    Args:
        log_prob, entropy, value: of the policy being trained.
        old_log_prob, old_value: of the policy that collected.
        advantage: as it is to be used (normalised already, if at all).
        target: what the value should be.
        clip: how far the probability ratio counts: 1 - clip to 1 + clip.
        value_clip: how far the value may move from `old_value`; 0 for no limit.
        value_coef, entropy_coef: weights.

    The loss of a batch is the mean of its parts' losses, weighted by their sizes.
    """
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    near_one = ratio.clamp(1 - clip, 1 + clip)  # type: ignore[arg-type]  # numbers or tensors
    gain = torch.minimum(ratio * advantage, near_one * advantage)
    policy_loss = -gain.mean()
    error = (value - target).square()
    if value_clip:
        near = old_value + (value - old_value).clamp(-value_clip, value_clip)
        error = torch.maximum(error, (near - target).square())
    value_loss = 0.5 * error.mean()
    mean_entropy = entropy.mean()
    total = policy_loss + value_coef * value_loss
    if entropy_coef:  # its gradient costs time
        total = total - entropy_coef * mean_entropy
    with torch.no_grad():
        # expm1: in float32, ratio - 1 loses what is left of a small log ratio.
        kl = (log_ratio.expm1() - log_ratio).clamp(min=0).mean()
        clipped = ((ratio - 1).abs() > clip).to(ratio.dtype).mean()
    return Loss(
        total, policy_loss.detach(), value_loss.detach(), mean_entropy.detach(), kl, clipped
    )


def normalized(advantage: Tensor) -> Tensor:
    """`advantage` ``[B]`` with mean 0 and standard deviation 1; a new tensor.

    A batch of one, or one whose advantages are all the same, is only centred.
    """
    # In float64, or the rounding of the mean would be all that equal advantages are made of.
    centred = advantage - advantage.mean(dtype=torch.float64).to(advantage.dtype)
    return centred / (centred.square().mean().sqrt() + 1e-8)
