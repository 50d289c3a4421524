"""What the environments answered, kept in the rollout."""

from __future__ import annotations

from numba import float32 as f32
from numba import int32 as i32
from numba import int64 as i64
from numba import uint8 as u8
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.alias_scopes import STORE
from operant.ppo.kernels.cpu.unit import Unit


@Unit
def keep(step, tile_number, count, ended, scratch_address, table_address):
    """Keep a step of a tile's environments, after they were stepped and `ended` finished.

    Observations, rewards and flags; of the policy's, log-probabilities and values; episodes, and
    the final observations of those cut short. Returns whether a number is not finite.
    """
    prefer_wide_vectors()
    table, scratch = at(u64(table_address), i64), at(u64(scratch_address), f32)
    envs, tile, words = table[t.ENVS], table[t.TILE], table[t.OBS_WORDS]
    critic, lo = at(u64(table[t.CRITIC]), i64), tile_number * tile
    place, bad = step * envs + lo, False

    # Observations of any kind, as words of four bytes.
    seen = shifted(at(u64(table[t.ENV_OBS]), i32), lo * words)
    obs = shifted(at(u64(table[t.OBS]), i32), (place + envs) * words)
    for i in range(count * words):
        store(STORE.obs, obs, i, load(STORE.env_obs, seen, i))
    if table[t.ENCODING] == n.PLAIN:
        numbers = shifted(at(u64(table[t.ENV_OBS]), f32), lo * words)
        for i in range(count * words):
            bad |= (numbers[i] - numbers[i]) != f32(0)
    values = shifted(scratch, critic[n.OUT] + table[t.VALUE_ROW] * tile)
    log_probs = shifted(scratch, table[t.SCRATCH_WORK] + n.LOG_PROB * tile)
    rewards = shifted(at(u64(table[t.ENV_REWARD]), f32), lo)
    value, log_prob = at(u64(table[t.VALUE]), f32), at(u64(table[t.LOG_PROB]), f32)
    reward = at(u64(table[t.REWARD]), f32)
    terminated, truncated = (
        at(u64(table[t.ENV_TERMINATED]), u8),
        at(u64(table[t.ENV_TRUNCATED]), u8),
    )
    over, late = at(u64(table[t.TERMINATED]), u8), at(u64(table[t.TRUNCATED]), u8)
    for i in range(count):
        a, b, c = (
            load(STORE.tile_value, values, i),
            load(STORE.tile_log_prob, log_probs, i),
            load(STORE.env_reward, rewards, i),
        )
        bad |= ((a - a) + (b - b) + (c - c)) != f32(0)
        store(STORE.value, value, place + i, a)
        store(STORE.log_prob, log_prob, place + i, b)
        store(STORE.reward, reward, place + i, c)
        store(STORE.terminated, over, place + i, load(STORE.env_terminated, terminated, lo + i))
        store(STORE.truncated, late, place + i, load(STORE.env_truncated, truncated, lo + i))
    if ended == 0:
        return bad

    counts = at(u64(table[t.EPISODE_COUNTS]), i64)
    final_counts = at(u64(table[t.FINAL_COUNTS]), i64)
    places, finals = at(u64(table[t.EPISODE_PLACE]), i64), at(u64(table[t.FINAL_PLACE]), i64)
    returns, lengths = at(u64(table[t.EPISODE_RETURN]), f32), at(u64(table[t.EPISODE_LENGTH]), i32)
    cuts = at(u64(table[t.EPISODE_CUT]), u8)
    finished = at(u64(table[t.ENV_FINISHED]), i64)
    for j in range(lo, lo + ended):
        i = finished[j]
        episode = tile_number * table[t.EPISODES_MOST] + counts[tile_number]
        counts[tile_number] += 1
        cut = truncated[i] != 0 and terminated[i] == 0
        places[episode], cuts[episode] = step * envs + i, cut
        returns[episode] = at(u64(table[t.ENV_REPORT_RETURN]), f32)[i]
        lengths[episode] = at(u64(table[t.ENV_REPORT_LENGTH]), i32)[i]
        if cut:
            final = tile_number * table[t.FINALS_MOST] + final_counts[tile_number]
            final_counts[tile_number] += 1
            finals[final] = step * envs + i
            last = at(u64(table[t.ENV_FINAL_OBS]), i32)
            final_obs = at(u64(table[t.FINAL_OBS]), i32)
            for k in range(words):
                final_obs[final * words + k] = last[i * words + k]
    return bad
