"""Generalised advantage estimation (Schulman et al., 2016): pure, batched, time-major ``[T, N]``.

    delta[t]     = reward[t] + gamma * next_value[t] - value[t]
    advantage[t] = delta[t] + gamma * lambda * advantage[t + 1]     (second term only if not done)
    target[t]    = advantage[t] + value[t]

``next_value`` is 0 where the episode ``terminated``, the value of the final observation where it
was ``truncated``, and otherwise the value of the next step. Twice: compiled for NumPy, and for
tensors.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from torch import Tensor


def gae(
    reward: np.ndarray,
    value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_value: np.ndarray,
    last_value: np.ndarray,
    gamma: float,
    gae_lambda: float,
    out: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets, each float32 ``[T, N]``.

    Args:
        reward, value: float32 ``[T, N]``.
        terminated, truncated: bool ``[T, N]``; where both are set, terminated counts.
        final_value: float32 ``[T, N]``: value of the final observation where `truncated`; not read
            elsewhere.
        last_value: float32 ``[N]``: value of the observation after the last step.
        gamma, gae_lambda: discount and trace decay, 0 to 1.
        out: advantages and targets are written here if given.

    Raises:
        ValueError: shapes that do not agree.
    """
    named = {
        "value": value,
        "terminated": terminated,
        "truncated": truncated,
        "final_value": final_value,
    }
    check_shapes(reward.shape, last_value.shape, {name: x.shape for name, x in named.items()})
    floats = [np.ascontiguousarray(x, np.float32) for x in (reward, value, final_value, last_value)]
    flags = [np.ascontiguousarray(x, np.bool_) for x in (terminated, truncated)]
    if out is None:
        out = (np.empty(reward.shape, np.float32), np.empty(reward.shape, np.float32))
    _gae(
        floats[0],
        floats[1],
        flags[0].view(np.uint8),
        flags[1].view(np.uint8),
        floats[2],
        floats[3],
        np.float32(gamma),
        np.float32(gae_lambda),
        *out,
    )
    return out


@njit(cache=True, nogil=True, fastmath=False)
def _gae(reward, value, terminated, truncated, final_value, last_value, gamma, lam, adv, target):
    """Steps backwards; all environments of a step in one vectorised loop."""
    steps, envs = reward.shape
    one, zero = np.float32(1), np.float32(0)
    trace = np.zeros(envs, np.float32)
    following = last_value.copy()
    for k in range(steps):
        t = steps - 1 - k
        r, v, te, tr, fv = reward[t], value[t], terminated[t], truncated[t], final_value[t]
        a, g = adv[t], target[t]
        for i in range(envs):
            after = fv[i] if tr[i] else following[i]
            after = zero if te[i] else after
            live = one if (te[i] | tr[i]) == 0 else zero
            delta = r[i] + gamma * after - v[i]
            advantage = delta + gamma * lam * live * trace[i]
            a[i] = advantage
            g[i] = advantage + v[i]
            trace[i] = advantage
            following[i] = v[i]


def gae_torch(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    last_value: Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """`gae` for tensors on any device; same shapes, new tensors."""
    import torch

    named = {
        "value": value,
        "terminated": terminated,
        "truncated": truncated,
        "final_value": final_value,
    }
    check_shapes(reward.shape, last_value.shape, {name: x.shape for name, x in named.items()})
    following = torch.cat([value[1:], last_value.unsqueeze(0)])
    after = torch.where(truncated, final_value, following).masked_fill(terminated, 0.0)
    delta = reward + gamma * after - value
    decay = gamma * gae_lambda * (~(terminated | truncated)).to(reward.dtype)
    advantage = torch.empty_like(reward)
    trace = torch.zeros_like(last_value)
    for t in reversed(range(len(reward))):
        trace = delta[t] + decay[t] * trace
        advantage[t] = trace
    return advantage, advantage + value


def check_shapes(
    shape: tuple[int, ...], last: tuple[int, ...], others: dict[str, tuple[int, ...]]
) -> None:
    """Raise ValueError unless everything is ``[T, N]`` and the last value ``[N]``."""
    if len(shape) != 2:
        raise ValueError(f"reward must have shape [T, N], got {tuple(shape)}")
    for name, other in others.items():
        if tuple(other) != tuple(shape):
            raise ValueError(f"{name} must have reward's shape {tuple(shape)}, got {tuple(other)}")
    if tuple(last) != tuple(shape[1:]):
        raise ValueError(f"last_value must have shape {tuple(shape[1:])}, got {tuple(last)}")


def discounted_returns(
    reward: np.ndarray, done: np.ndarray, carry: np.ndarray, gamma: float
) -> np.ndarray:
    """Running discounted returns, float32 ``[T, N]``: ``g[t] = gamma * g[t - 1] + reward[t]``.

    `carry`, float32 ``[N]``, is ``g`` from before the first step and is left at the last; a step
    that ends an episode (`done`, bool ``[T, N]``) is counted and then starts from 0.
    """
    out = np.empty_like(reward)
    for t in range(len(reward)):
        np.multiply(carry, np.float32(gamma), out=carry)
        np.add(carry, reward[t], out=carry)
        out[t] = carry
        carry[done[t]] = 0
    return out
