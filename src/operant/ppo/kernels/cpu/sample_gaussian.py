"""From the actor's outputs to continuous actions, a tile at a time; see `sample_choices`."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.noise import fill_noise
from operant.ppo.kernels.cpu.unit import Unit
from operant.ppo.kernels.cpu.words import gaussian, gaussian_sample


@Unit
def sample_gaussian(step, lo, count, scratch_address, table_address):
    """Draw the actions of environments lo .. lo + count, and ``LOG_PROB`` of them, after `forward`.

    Two numbers for each component, which depend on (seed, environment, step) alone. Actions go into
    the rollout, and limited to their bounds to the environments.
    """
    prefer_wide_vectors()
    table, scratch = at(u64(table_address), i64), at(u64(scratch_address), f32)
    actor, tile, parts = at(u64(table[t.ACTOR]), i64), table[t.TILE], table[t.PARTS]
    noise, work = shifted(scratch, table[t.SCRATCH_NOISE]), shifted(scratch, table[t.SCRATCH_WORK])
    action, out = shifted(scratch, table[t.SCRATCH_ACTION]), shifted(scratch, actor[n.OUT])
    log_std, kind = shifted(at(u64(table[t.WEIGHTS]), f32), table[t.LOG_STD]), table[t.KIND]
    kept = shifted(at(u64(table[t.ACTION]), f32), (step * table[t.ENVS] + lo) * parts)
    places = at(u64(table[t.ENV_ACTIONS]), i64)
    lows, highs = at(u64(table[t.LOWS]), f32), at(u64(table[t.HIGHS]), f32)
    fill_noise(table, step, lo, count, noise)
    log_prob = shifted(work, n.LOG_PROB * tile)
    for i in range(count):
        store(HEADS.log_prob, log_prob, i, f32(0))
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        one, two = shifted(noise, part * tile), shifted(noise, (parts + part) * tile)
        drawn, constant = shifted(action, part * tile), log_std[part]
        for i in range(count):
            mean, deviation = load(HEADS.outputs, means, i), constant
            if kind == n.GAUSSIAN_BY_STATE:
                deviation = load(HEADS.log_std, deviations, i)
            x = gaussian_sample(
                load(HEADS.noise, one, i), load(HEADS.second_noise, two, i), mean, deviation
            )[0]
            store(HEADS.action, drawn, i, x)
            # Of the action as rounded: it is what the update will look at.
            mine = gaussian(x, mean, deviation)[0]
            store(HEADS.log_prob, log_prob, i, load(HEADS.log_prob, log_prob, i) + mine)
        taken, low, high = at(u64(places[part]), f32), lows[part], highs[part]
        for i in range(count):
            x = drawn[i]
            kept[i * parts + part] = x
            x = select(x < low, low, x)
            taken[lo + i] = select(x > high, high, x)
    return 0
