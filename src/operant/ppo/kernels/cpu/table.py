"""The table: how kernels are told what to work on.

A kernel gets the address of one table of int64, whose words have names: numbers as they are, memory
by its address.
"""

from __future__ import annotations

import numpy as np

# fmt: off
(
    STEPS, ENVS, TILE, ENV_TILES, CHUNKS, MINIBATCHES, FIRST_STEP, SEED_LOW, SEED_HIGH,
    ITERATION, EPOCH, KIND, PARTS, SIZES, STARTS, LOWS, HIGHS, NOISE_BLOCKS, ACTIVATION, NETS,
    ACTOR, CRITIC, ACTOR_OUTPUTS, VALUE_ROW, ENCODING, INPUT_SIZE, X_ROW, ONE_HOT_PARTS,
    ONE_HOT_SIZES, ONE_HOT_STARTS, NORMALIZE, OBS_MEAN, OBS_SCALE, OBS_LIMIT, WEIGHTS, PIECES,
    PIECE_COUNT, LOG_STD, D_LOG_STD, SCRATCH, SCRATCH_SIZE, SCRATCH_X, SCRATCH_NOISE,
    SCRATCH_ACTION, SCRATCH_DATA, SCRATCH_WORK, SCRATCH_OPTIONS, ENV_TABLE,
    ENV_STEP, ENV_OBS, ENV_FINAL_OBS, ENV_REWARD, ENV_TERMINATED, ENV_TRUNCATED, ENV_ACTIONS,
    ENV_REPORT_RETURN, ENV_REPORT_LENGTH, ENV_FINISHED, NOW_US, OBS, ACTION, LOG_PROB, VALUE,
    REWARD, TERMINATED, TRUNCATED, FINAL_VALUE, LAST_VALUE, ADVANTAGE, TARGET, EPISODE_PLACE,
    EPISODE_RETURN, EPISODE_LENGTH, EPISODE_CUT, EPISODES_MOST, FINAL_OBS, FINAL_PLACE,
    FINALS_MOST, EPISODE_COUNTS, FINAL_COUNTS, BAD, SAMPLES, SAMPLE_ROW, SAMPLE_DATA, ORDER,
    KEYS, MOMENTS, GRADIENTS, GRADIENT_SIZE, FIGURE_SUMS, FLAT, EXP_AVG, EXP_AVG_SQ,
    PARAMETER_COUNT, TRACES, RATES, OPTION_VALUES, RESULTS, CONTROL, DISCOUNTS,
    FORWARD, BACKWARD, SAMPLE, LOSS, ORDER_CHUNK, FINISH, ENCODE, SPREAD, KEEP, OBS_WORDS,
    MASK_SIZE, MASK_ROWS, ENV_ACTION_MASK, ACTION_MASK, ENV_LANES,
    WORDS,
) = range(116)
# fmt: on


class Table:
    """Words by lower-case name; arrays are kept alive and passed as their addresses."""

    def __init__(self) -> None:
        self.words = np.zeros(WORDS, np.int64)
        self.arrays: dict[str, np.ndarray] = {}

    def set(self, **values: int | np.ndarray) -> None:
        """Set words."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                assert value.flags.c_contiguous
                self.arrays[name] = value
                value = value.ctypes.data
            self.words[globals()[name.upper()]] = value

    @property
    def address(self) -> int:
        """Where the words are."""
        address: int = self.words.ctypes.data
        return address
