"""Seeds of the environments of a batch."""

from __future__ import annotations

import numpy as np


def env_seed(seed: int, index: int, life: int = 0) -> int:
    """The seed that environment `index` of a batch with `seed` is first reset with, 0 .. 2**31 - 1.

    It depends on nothing else, so that a batch plays the same episodes however many processes run
    it, and a plain loop over ``gymnasium.make`` with these seeds plays them too. Environments of
    batches with neighbouring seeds have nothing in common, unlike with ``seed + index``.

    Args:
        seed: of the batch, 0 or more.
        index: of the environment.
        life: how often its process was started again.
    """
    words = [seed, index, life] if life else [seed, index]
    return int(np.random.SeedSequence(words).generate_state(1)[0]) >> 1
