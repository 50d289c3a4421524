"""What an update reports, whichever engine computed it, and the search for what was not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.models.distributions import masked
from operant.ppo.job import Job
from operant.training.guard import NonFiniteError

FIGURES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "grad_norm")
"""What an update reports of each minibatch."""
DATA = ("obs", "action", "action_mask", "log_prob", "target", "value", "advantage")
"""What an update looks at."""


def report(job: Job, buffer: Any, figures: np.ndarray, iteration: int) -> dict[str, float]:
    """Means over minibatches of `figures` ``[minibatches, 6]``, after the NaN guard.

    Args:
        buffer: what was trained on, a `RolloutBuffer` or a `GpuBuffer`.

    Raises:
        NonFiniteError: the guard is on, and a loss or a gradient was not finite.
    """
    if job.config.run.nan_guard and not np.isfinite(figures).all():
        _raise_first(job, buffer, figures, iteration)
    means = np.add.reduce(figures) / len(figures)  # figures.mean(0) takes 5 us longer
    found = dict(zip(FIGURES, means.tolist(), strict=True))
    found["epochs"] = len(figures) / job.config.ppo.minibatches
    return found


def _raise_first(job: Job, buffer: Any, figures: np.ndarray, iteration: int) -> None:
    """Raise `NonFiniteError` for the first minibatch whose loss or gradient was not finite; there
    is one."""
    bad = ~np.isfinite(figures)
    first = int(bad.any(1).nonzero()[0][0])
    if bad[first, :-1].any():
        name = FIGURES[int(bad[first, :-1].argmax())]
        detail = f"{name} is {figures[first, FIGURES.index(name)]} in minibatch {first}"
        raise NonFiniteError("loss", iteration, _guilty_env(job, buffer), detail)
    detail = f"its norm is {figures[first, -1]} in minibatch {first}, though the loss is finite"
    raise NonFiniteError("gradient", iteration, None, detail)


def _guilty_env(job: Job, buffer: Any) -> int | None:
    """The first environment with a sample whose own loss is not finite, if there is one."""
    data = [tensor.to(job.device) for tensor in buffer.flat(*DATA)]
    obs, action, mask, old_log_prob, target, _, advantage = data
    for start in range(0, len(buffer), buffer.num_envs):
        index = torch.arange(start, start + buffer.num_envs, device=job.device)
        head, value = job.forward(obs[index])
        if mask.shape[1]:
            head = masked(head, mask[index])
        log_prob, entropy = job.distribution.evaluate(head, action[index])
        ratio = (log_prob - old_log_prob[index]).exp()
        loss = ratio * advantage[index] + entropy + (value - target[index]).square()
        bad = (~torch.isfinite(loss)).nonzero()
        if len(bad):
            return int(bad[0])
    return None


def trained_tensors(job: Job) -> list[Tensor]:
    """What an iteration changes in the policy and the optimiser; not copies."""
    adam = job.optimizer
    return [*job.policy.state_dict().values(), adam.exp_avg, adam.exp_avg_sq]
