"""Visits of observations within episodes: a table of hashes for each environment, with linear
probing. Twice: compiled for main memory, and for tensors on any device, with the same results.

A place belongs to the episode whose number is its stamp, and is free in any other: a table is
emptied by counting its episode on. An episode begins with the first sample after the end of another
one: a row that rests in between shows nothing of it.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import torch
from numba import int64 as i64
from numba import njit
from torch import Tensor

PROBES = 32
"""Places that are looked at; an observation that finds none there is not counted."""
_INDEX_BITS = 12
_REST_BITS = 64 - _INDEX_BITS


class Counts(NamedTuple):
    """What is remembered from rollout to rollout; changed in place. C is a power of two."""

    keys: Tensor
    """int64 ``[N, C]``: hashes."""
    stamps: Tensor
    """int32 ``[N, C]``: episodes that they belong to."""
    counts: Tensor
    """int32 ``[N, C]``: visits."""
    episode: Tensor
    """int32 ``[N]``: the episode under way; 0 before the first."""
    last: Tensor
    """int64 ``[N]``: hash of what the last rollout ended with, its bits inverted where no episode
    was under way any more: another one begins an episode."""
    registers: Tensor
    """int32 ``[4096]``: of all observations ever, as HyperLogLog (Flajolet et al., 2007) has it."""
    visits: Tensor
    """float64 ``[2]``: steps of the last rollout, and those that were first visits."""


def count_on_host(
    memory: Counts, seen: Tensor, after: Tensor, done: Tensor, live: Tensor | None
) -> Tensor:
    """How often what followed each step has been visited in its episode, int32 ``[T, N]``, this
    time included; 0 where it found no place, or the step is no sample.

    Args:
        memory: counted on.
        seen: int64 ``[T + 1, N]``: hashes of the observations.
        after: int64 ``[T, N]``: of what followed, final observations included.
        done: bool ``[T, N]``: where episodes ended.
        live: bool ``[T, N]``: which steps are samples; None: all.
    """
    found = torch.zeros(after.shape, dtype=torch.int32)
    counted = done.new_ones(1, 1) if live is None else live
    arrays = [x.numpy() for x in (*memory, seen, after, done, counted, found)]
    _count(*arrays)
    return found


@njit(cache=True, nogil=True)
def _count(keys, stamps, counts, episode, last, registers, visits, seen, after, done, live, found):
    steps, envs = after.shape
    every = live.shape[0] == 1 and steps * envs > 1
    new, samples = 0, 0
    for i in range(envs):
        table, stamp, count = keys[i], stamps[i], counts[i]
        now = episode[i]
        begins = now == 0 or last[i] != seen[0, i]
        for t in range(steps):
            if not (every or live[t, i]):
                begins = True
                continue
            if begins:
                now += 1
                _visit(table, stamp, count, now, seen[t, i])
                _note(registers, seen[t, i])
            visits_now = _visit(table, stamp, count, now, after[t, i])
            found[t, i] = visits_now
            samples += 1
            if visits_now == 1:
                new += 1
                _note(registers, after[t, i])
            begins = done[t, i]
        episode[i], last[i] = now, ~seen[steps, i] if begins else seen[steps, i]
    visits[0], visits[1] = samples, new


@njit(nogil=True)
def _visit(table, stamp, count, episode, key):
    """Count a visit; how many there are, 0 if there was no place."""
    most = len(table) - 1
    for k in range(PROBES):
        place = (key + k) & most
        if stamp[place] != episode:
            table[place], stamp[place], count[place] = key, episode, 1
            return 1
        if table[place] == key:
            count[place] += 1
            return count[place]
    return 0


@njit(nogil=True)
def _note(registers, key):
    index = key & i64((1 << _INDEX_BITS) - 1)
    rest = (key >> i64(_INDEX_BITS)) & i64((1 << _REST_BITS) - 1)
    rank = 1  # of the lowest bit that is set: on average the second
    while rank <= _REST_BITS and not rest & 1:
        rest >>= 1
        rank += 1
    registers[index] = max(registers[index], rank)


def count_on_tensors(
    memory: Counts, seen: Tensor, after: Tensor, done: Tensor, live: Tensor | None
) -> Tensor:
    """`count_on_host` on any device; it never waits for it."""
    everywhere = torch.ones_like(done[0])
    begins = (memory.episode == 0) | (memory.last != seen[0])
    noted: list[tuple[Tensor, Tensor]] = []
    found = []
    for t in range(len(after)):
        counted = everywhere if live is None else live[t]
        first = begins & counted
        memory.episode.add_(first)
        _visit_all(memory, seen[t], first)
        found.append(_visit_all(memory, after[t], counted))
        noted += [(seen[t], first), (after[t], found[-1] == 1)]
        begins = torch.where(counted, done[t], True)
    memory.last.copy_(torch.where(begins, ~seen[-1], seen[-1]))
    hashes, which = (torch.stack(column) for column in zip(*noted, strict=True))
    _note_all(memory.registers, hashes.flatten(), which.flatten())
    visits = torch.stack(found)
    samples = everywhere.expand_as(visits) if live is None else live
    memory.visits.copy_(torch.stack([samples.sum(), (visits == 1).sum()]))
    return visits


def _visit_all(memory: Counts, key: Tensor, counted: Tensor) -> Tensor:
    """Count a visit of each environment that is `counted`; int32 ``[N]``, 0 for the others."""
    keys, stamps, counts = memory.keys, memory.stamps, memory.counts
    probes = torch.arange(PROBES, device=key.device)
    places = (key[:, None] + probes) & (keys.shape[1] - 1)
    own = stamps.gather(1, places) == memory.episode[:, None]
    fits = ~own | (keys.gather(1, places) == key[:, None])
    first = torch.where(fits, probes, PROBES).amin(1)
    there = counted & (first < PROBES)
    chosen = first.clamp(max=PROBES - 1)[:, None]
    place = places.gather(1, chosen)
    again = own.gather(1, chosen).squeeze(1)
    old = counts.gather(1, place).squeeze(1)
    visits = torch.where(there, torch.where(again, old + 1, 1), 0).to(torch.int32)
    for table, value in ((keys, key), (stamps, memory.episode), (counts, visits)):
        kept = table.gather(1, place).squeeze(1)
        table.scatter_(1, place, torch.where(there, value, kept)[:, None])
    return visits


def _note_all(registers: Tensor, key: Tensor, which: Tensor) -> None:
    index = key & ((1 << _INDEX_BITS) - 1)
    rest = (key >> _INDEX_BITS) & ((1 << _REST_BITS) - 1)
    lowest = torch.frexp((rest & -rest).double()).exponent  # exact: a power of two, or 0
    rank = torch.where(rest == 0, _REST_BITS + 1, lowest)
    rank = torch.where(which, rank, 0).to(torch.int32)
    registers.scatter_reduce_(0, index, rank, "amax")


def distinct(registers: Tensor) -> Tensor:
    """How many different hashes were noted, about: within 2 % as a rule; a number in float64."""
    size = len(registers)
    rough = 0.7213 / (1 + 1.079 / size) * size**2 / torch.exp2(-registers.double()).sum()
    empty = (registers == 0).sum().double()
    few = size * torch.log(size / empty.clamp(min=1))
    return torch.where((rough <= 2.5 * size) & (empty > 0), few, rough)
