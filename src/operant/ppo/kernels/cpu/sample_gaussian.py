"""From the actor's outputs to continuous actions, a tile at a time; see `sample_categorical`."""

from __future__ import annotations

from numba import float32 as f32
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.closed_forms import gaussian, gaussian_sample
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.noise import fill_noise
from operant.ppo.kernels.cpu.record import record_at


@compiled
def sample_gaussian(step, lo, count, scratch_address, args_address):
    """Draw the actions of environments lo .. lo + count, and ``LOG_PROB`` of them, after `forward`.

    Two numbers for each component, which depend on (seed, environment, step) alone. Actions go into
    the rollout, and limited to their bounds to the environments.
    """
    prefer_wide_vectors()
    args, scratch = record_at(ARGUMENTS, args_address), at(u64(scratch_address), f32)
    actor, tile, parts = record_at(NETWORK, args.actor), args.tile, args.parts
    noise, work = shifted(scratch, args.scratch_noise), shifted(scratch, args.scratch_work)
    action, out = shifted(scratch, args.scratch_action), shifted(scratch, actor.out)
    log_std, kind = shifted(args.weights, args.log_std), args.action_kind
    stored = shifted(at(u64(args.action), f32), (step * args.envs + lo) * parts)
    action_addresses = args.env_actions
    lows, highs = args.lows, args.highs
    fill_noise(args, step, lo, count, noise)
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
        taken, low, high = at(u64(action_addresses[part]), f32), lows[part], highs[part]
        for i in range(count):
            x = drawn[i]
            stored[i * parts + part] = x
            x = select(x < low, low, x)
            taken[lo + i] = select(x > high, high, x)
    return 0
