"""A rollout: policy, environments and memory, step by step; what each thread runs.

Threads claim tiles of environments, and take a tile through all steps before they touch the next,
so that its states, observations and activations stay in the core's cache. Nobody waits for anybody.
What an environment does and what its policy draws depend on who it is alone, not on the tile.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

from numba import float32 as f32
from numba import int32 as i32
from numba import int64 as i64
from numba import njit
from numba import uint8 as u8
from numba import uint32 as u32
from numba import uint64 as u64

from operant.lang.intrinsics import (
    at,
    atomic_add,
    call_step,
    load,
    prefer_wide_vectors,
    select,
    shifted,
    store,
)
from operant.ppo.kernels.numba import layout as n
from operant.ppo.kernels.numba import table as t
from operant.ppo.kernels.numba.encode import PLAIN, encode
from operant.ppo.kernels.numba.heads import (
    CHOICES,
    LOG_PROB,
    sample_choices,
    sample_gaussian,
)
from operant.ppo.kernels.numba.network import forward_network
from operant.ppo.kernels.numba.simd import LANES
from operant.vector.numba_philox import philox
from operant.vector.philox import POLICY_BLOCK

TILES_CLAIMED = 0
"""Place in the control words."""


@njit(nogil=True, error_model="numpy")
def _fill_noise(table, step, lo, count, noise):
    """The policy's uniform numbers ``[:, TILE]``, see `operant.ppo.noise`."""
    prefer_wide_vectors()
    tile, scale = table[t.TILE], f32(2**-24)
    when = table[t.FIRST_STEP] + step
    low, high = u32(when & 0xFFFFFFFF), u32(when >> 32)
    seed_low, seed_high = u32(table[t.SEED_LOW]), u32(table[t.SEED_HIGH])
    for block in range(table[t.NOISE_BLOCKS]):
        one, two = shifted(noise, 4 * block * tile), shifted(noise, (4 * block + 1) * tile)
        three, four = shifted(noise, (4 * block + 2) * tile), shifted(noise, (4 * block + 3) * tile)
        number = u32(POLICY_BLOCK + block)
        for i in range(count):
            words = philox(low, high, seed_high, number, seed_low, u32(lo + i))
            store(256, one, i, f32(words[0] >> u32(8)) * scale)
            store(257, two, i, f32(words[1] >> u32(8)) * scale)
            store(258, three, i, f32(words[2] >> u32(8)) * scale)
            store(259, four, i, f32(words[3] >> u32(8)) * scale)


@njit(nogil=True, error_model="numpy")
def _store_actions(table, step, lo, count, action):
    """Into the rollout, and as the environments take them."""
    parts, tile, envs = table[t.PARTS], table[t.TILE], table[t.ENVS]
    places = at(u64(table[t.ENV_ACTIONS]), i64)
    place = (step * envs + lo) * parts
    for k in range(parts):
        drawn = shifted(action, k * tile)
        if table[t.KIND] == CHOICES:
            start = i32(at(u64(table[t.STARTS]), i64)[k])
            kept, taken = at(u64(table[t.ACTION]), i64), at(u64(places[k]), i32)
            for i in range(count):
                kept[place + i * parts + k] = i64(drawn[i])
                taken[lo + i] = i32(i32(drawn[i]) + start)
        else:
            low, high = at(u64(table[t.LOWS]), f32)[k], at(u64(table[t.HIGHS]), f32)[k]
            kept_floats, taken_floats = at(u64(table[t.ACTION]), f32), at(u64(places[k]), f32)
            for i in range(count):
                x = drawn[i]
                kept_floats[place + i * parts + k] = x
                x = select(x < low, low, x)
                taken_floats[lo + i] = select(x > high, high, x)


@njit(nogil=True, error_model="numpy")
def _copy(to, source, count):
    """Copy numbers; whether one of them is not finite."""
    prefer_wide_vectors()
    bad = False
    for i in range(count):
        x = load(260, source, i)
        bad |= (x - x) != f32(0)
        store(261, to, i, x)
    return bad


@njit(nogil=True, error_model="numpy")
def _store_results(table, step, lo, count):
    """What the environments answered; whether a number is not finite."""
    size, place = table[t.INPUT_SIZE], step * table[t.ENVS] + lo
    after = (place + table[t.ENVS]) * size
    if table[t.ENCODING] == PLAIN:
        obs, seen = at(u64(table[t.ENV_OBS]), f32), at(u64(table[t.OBS]), f32)
        bad = _copy(shifted(seen, after), shifted(obs, lo * size), count * size)
    else:
        whole, kept = at(u64(table[t.ENV_OBS]), i64), at(u64(table[t.OBS]), i64)
        bad = False
        for i in range(count * size):
            kept[after + i] = whole[lo * size + i]
    reward = at(u64(table[t.ENV_REWARD]), f32)
    bad |= _copy(shifted(at(u64(table[t.REWARD]), f32), place), shifted(reward, lo), count)
    terminated, over = at(u64(table[t.ENV_TERMINATED]), u8), at(u64(table[t.TERMINATED]), u8)
    truncated, late = at(u64(table[t.ENV_TRUNCATED]), u8), at(u64(table[t.TRUNCATED]), u8)
    for i in range(count):
        over[place + i] = terminated[lo + i]
    for i in range(count):
        late[place + i] = truncated[lo + i]
    return bad


@njit(nogil=True, error_model="numpy")
def _store_ends(table, step, lo, ended, tile_number):
    """Note the episodes that ended, and the final observations of those cut short."""
    envs, size = table[t.ENVS], table[t.INPUT_SIZE]
    counts = at(u64(table[t.EPISODE_COUNTS]), i64)
    final_counts = at(u64(table[t.FINAL_COUNTS]), i64)
    places, finals = at(u64(table[t.EPISODE_PLACE]), i64), at(u64(table[t.FINAL_PLACE]), i64)
    returns, lengths = at(u64(table[t.EPISODE_RETURN]), f32), at(u64(table[t.EPISODE_LENGTH]), i32)
    cuts = at(u64(table[t.EPISODE_CUT]), u8)
    finished = at(u64(table[t.ENV_FINISHED]), i64)
    terminated = at(u64(table[t.ENV_TERMINATED]), u8)
    truncated = at(u64(table[t.ENV_TRUNCATED]), u8)
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
            if table[t.ENCODING] == PLAIN:
                seen = at(u64(table[t.ENV_FINAL_OBS]), f32)
                kept = at(u64(table[t.FINAL_OBS]), f32)
                for k in range(size):
                    kept[final * size + k] = seen[i * size + k]
            else:
                whole = at(u64(table[t.ENV_FINAL_OBS]), i64)
                kept_whole = at(u64(table[t.FINAL_OBS]), i64)
                for k in range(size):
                    kept_whole[final * size + k] = whole[i * size + k]


@njit(nogil=True, error_model="numpy")
def _final_values(table, tile_number, scratch):
    """Values of the final observations of episodes that were cut short."""
    envs, tile = table[t.ENVS], table[t.TILE]
    critic, weights = at(u64(table[t.CRITIC]), i64), at(u64(table[t.WEIGHTS]), f32)
    x, x_row = shifted(scratch, table[t.SCRATCH_X]), table[t.X_ROW]
    values = shifted(scratch, critic[n.OUT] + table[t.VALUE_ROW] * tile)
    finals, found = at(u64(table[t.FINAL_PLACE]), i64), at(u64(table[t.FINAL_VALUE]), f32)
    first = tile_number * table[t.FINALS_MOST]
    last = first + at(u64(table[t.FINAL_COUNTS]), i64)[tile_number]
    bad = False
    for lo in range(first, last, tile):
        count = min(tile, last - lo)
        rows = (count + LANES - 1) // LANES * LANES
        encode(table, table[t.FINAL_OBS], lo, count, x)
        forward_network(critic, table[t.ACTIVATION], x, x_row, rows, tile, weights, scratch)
        for i in range(count):
            bad |= (values[i] - values[i]) != f32(0)
            found[finals[lo + i]] = values[i]
    return bad


@njit(nogil=True, error_model="numpy")
def _collect_tile(table, tile_number, scratch):
    """All steps of the environments of a tile; whether a number was not finite."""
    tile, envs, steps = table[t.TILE], table[t.ENVS], table[t.STEPS]
    lo = tile_number * tile
    count = min(tile, envs - lo)
    rows = (count + LANES - 1) // LANES * LANES
    whole = (count + 63) // 64 * 64  # environments are stepped in 64s
    actor, critic = at(u64(table[t.ACTOR]), i64), at(u64(table[t.CRITIC]), i64)
    weights, activation = at(u64(table[t.WEIGHTS]), f32), table[t.ACTIVATION]
    x, x_row = shifted(scratch, table[t.SCRATCH_X]), table[t.X_ROW]
    noise, action = shifted(scratch, table[t.SCRATCH_NOISE]), shifted(scratch, table[t.SCRATCH_ACTION])
    work, out = shifted(scratch, table[t.SCRATCH_WORK]), shifted(scratch, actor[n.OUT])
    values = shifted(scratch, critic[n.OUT] + table[t.VALUE_ROW] * tile)
    value_rows, log_probs = at(u64(table[t.VALUE]), f32), at(u64(table[t.LOG_PROB]), f32)
    as_it_is = table[t.ENCODING] == PLAIN and table[t.NORMALIZE] == 0
    bad = False
    for step in range(steps + 1):
        if as_it_is:
            x_row = table[t.INPUT_SIZE]
            x = shifted(at(u64(table[t.ENV_OBS]), f32), lo * x_row)
        else:
            encode(table, table[t.ENV_OBS], lo, count, x)
        net = critic
        for k in range(table[t.NETS]):
            if k > 0:
                if step == steps:
                    break
                net = actor
            forward_network(net, activation, x, x_row, rows, tile, weights, scratch)
        if step == steps:
            bad |= _copy(shifted(at(u64(table[t.LAST_VALUE]), f32), lo), values, count)
            break
        _fill_noise(table, step, lo, count, noise)
        if table[t.KIND] == CHOICES:
            p = shifted(scratch, actor[n.D_OUT])
            sizes = at(u64(table[t.SIZES]), i64)
            sample_choices(sizes, table[t.PARTS], out, noise, action, work, p, tile, count)
        else:
            log_std = shifted(weights, table[t.LOG_STD])
            sample_gaussian(
                table[t.KIND], table[t.PARTS], out, log_std, noise, action, work, tile, count
            )
        place = step * envs + lo
        bad |= _copy(shifted(value_rows, place), values, count)
        bad |= _copy(shifted(log_probs, place), shifted(work, LOG_PROB * tile), count)
        _store_actions(table, step, lo, count, action)
        ended = call_step(
            u64(table[t.ENV_STEP]), lo, lo + whole, table[t.NOW_US], i64(step == 0),
            table[t.ENV_TABLE],
        )  # fmt: skip
        bad |= _store_results(table, step, lo, count)
        if ended > 0:
            _store_ends(table, step, lo, ended, tile_number)
    return _final_values(table, tile_number, scratch) or bad


@njit(cache=True, nogil=True, error_model="numpy")
def collect(worker, table_address):
    """Work on a rollout until nothing is left to claim; every thread of a team calls this."""
    table = at(u64(table_address), i64)
    control = at(u64(table[t.CONTROL]), i64)
    scratch = shifted(at(u64(table[t.SCRATCH]), f32), worker * table[t.SCRATCH_SIZE])
    bad = at(u64(table[t.BAD]), i64)
    while True:
        claimed = atomic_add(control, TILES_CLAIMED, 1)
        if claimed >= table[t.ENV_TILES]:
            return claimed
        if _collect_tile(table, claimed, scratch):
            bad[claimed] = 1
