"""Steps of a random policy, on environments of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from operant.models.distributions import Distribution, masked
from operant.spaces.rows import ObsLayout
from operant.vector.batch import Batch, StepMemory

_MOST_ENVS = 64


def random_observations(
    batch: Batch, distribution: Distribution, steps: int, seed: int
) -> Iterator[Tensor]:
    """Observations ``[n, *shape]``, as they lie in memory, that follow random actions, the final
    ones of episodes included: those of `steps` rows in all, rounded up, less those that rest or are
    reset. In memory that the next ones overwrite.

    Args:
        batch: whose kind of environments; it is not stepped itself.
        distribution: drawn from with all outputs of a policy 0: choices are equally probable,
            numbers are normal ones.
        steps: how many.
        seed: of episodes and actions.

    Raises:
        ValueError: environments that cannot be made again.
    """
    count = min(batch.num_envs, _MOST_ENVS, max(1, steps))
    try:
        play = batch.for_evaluation(count)
    except ValueError as error:
        raise ValueError(
            f"{error}; or set intrinsic.random_steps=0, and none are needed for random steps"
        ) from None
    try:
        play.reset(seed=seed)
        rows, random = play.num_envs, np.random.Generator(np.random.Philox(key=seed))
        memory = ObsLayout.of(play.single_observation_space).memory(rows)
        flags = np.zeros((2, rows), np.bool_)
        out = StepMemory(memory, np.zeros(rows, np.float32), flags[0], flags[1])
        head = torch.zeros(rows, distribution.head_size)
        acts = np.ones(rows, np.bool_)
        for _ in range(-(-steps // rows)):
            noise = random.random((rows, distribution.noise_size), np.float32)
            now = head
            if play.mask_size:
                now = masked(head, torch.from_numpy(np.asarray(play.action_masks())))
            action, _ = distribution.sample(now, torch.from_numpy(noise))
            live = play.live_rows()
            ends = play.write_step(distribution.to_env(action).numpy(), out)
            seen = memory
            if ends is not None and ends.final_obs is not None:
                seen = memory.copy()
                seen[ends.env_index] = ends.final_obs[ends.env_index]
            yield torch.from_numpy(seen[acts if live is None else live])
            if play.autoreset_mode != AutoresetMode.SAME_STEP:
                acts = ~(flags[0] | flags[1])  # the next step resets the others
    finally:
        play.close()
