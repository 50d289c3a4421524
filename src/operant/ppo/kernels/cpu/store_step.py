"""What the environments answered, stored in the rollout."""

from __future__ import annotations

from numba import float32 as f32
from numba import int32 as i32
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import STORE
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.record import record_at


@compiled
def store_step(step, tile_number, count, ended, scratch_address, args_address):
    """Store a step of a tile's environments, after they were stepped and `ended` finished.

    Observations, rewards and flags; of the policy's, log-probabilities and values; episodes, and
    the final observations of those cut short, or of all, if asked. Returns whether a number is not
    finite.
    """
    prefer_wide_vectors()
    args, scratch = record_at(ARGUMENTS, args_address), at(u64(scratch_address), f32)
    envs, tile, words = args.envs, args.tile, args.obs_words
    critic, lo = record_at(NETWORK, args.critic), tile_number * tile
    first, bad = step * envs + lo, False

    # Observations of any kind, as words of four bytes.
    seen = shifted(at(u64(args.env_obs), i32), lo * words)
    obs = shifted(at(u64(args.obs), i32), (first + envs) * words)
    for i in range(count * words):
        store(STORE.obs, obs, i, load(STORE.env_obs, seen, i))
    if args.encoding == n.PLAIN:
        numbers = shifted(at(u64(args.env_obs), f32), lo * words)
        for i in range(count * words):
            bad |= (numbers[i] - numbers[i]) != f32(0)
    values = shifted(scratch, critic.out + args.value_row * tile)
    log_probs = shifted(scratch, args.scratch_work + n.LOG_PROB * tile)
    rewards = shifted(args.env_reward, lo)
    value, log_prob, reward = args.value, args.log_prob, args.reward
    terminated, truncated = args.env_terminated, args.env_truncated
    over, late = args.terminated, args.truncated
    for i in range(count):
        a, b, c = (
            load(STORE.tile_value, values, i),
            load(STORE.tile_log_prob, log_probs, i),
            load(STORE.env_reward, rewards, i),
        )
        bad |= ((a - a) + (b - b) + (c - c)) != f32(0)
        store(STORE.value, value, first + i, a)
        store(STORE.log_prob, log_prob, first + i, b)
        store(STORE.reward, reward, first + i, c)
        store(STORE.terminated, over, first + i, load(STORE.env_terminated, terminated, lo + i))
        store(STORE.truncated, late, first + i, load(STORE.env_truncated, truncated, lo + i))
    if ended == 0:
        return bad

    counts, final_counts = args.episode_counts, args.final_counts
    indices, finals = args.episode_index, args.final_index
    returns, lengths = args.episode_return, args.episode_length
    cuts, finished = args.episode_cut, args.env_finished
    for j in range(lo, lo + ended):
        i = finished[j]
        episode = tile_number * args.episode_capacity + counts[tile_number]
        counts[tile_number] += 1
        cut = truncated[i] != 0 and terminated[i] == 0
        indices[episode], cuts[episode] = step * envs + i, cut
        returns[episode] = args.env_report_return[i]
        lengths[episode] = args.env_report_length[i]
        if cut or args.every_final != 0:
            final = tile_number * args.final_capacity + final_counts[tile_number]
            final_counts[tile_number] += 1
            finals[final] = step * envs + i
            last = at(u64(args.env_final_obs), i32)
            final_obs = at(u64(args.final_obs), i32)
            for k in range(words):
                final_obs[final * words + k] = last[i * words + k]
    return bad
