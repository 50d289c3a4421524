"""Stacks put together from single frames, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from operant.buffers.frame_rollout import FrameRollout


def rollout() -> FrameRollout:
    """Three frames a stack, four steps of two environments, whose frames are 10, 11, ... and 20,
    21, ...; the first one ends after step 1, the second one is at its second frame at the start."""
    frames = np.array([[[8], [9], [10]], [[19], [19], [20]]], np.int64)
    history = SimpleNamespace(frames=frames)
    buffer = FrameRollout(history, 4, 2, (1,), obs_dtype=torch.int64)
    buffer.start(np.array([[10], [20]]))
    flags = np.zeros(2, np.bool_)
    for t in range(4):
        ended = np.array([t == 1, False])
        buffer.store_step(t, np.array([[11 + t], [21 + t]]), np.zeros(2), flags, ended)
    buffer.store_final_obs(1, np.array([0]), np.array([[99]]))
    return buffer


def test_stacks_reach_back_to_the_first_frame_of_their_episode() -> None:
    buffer = rollout()
    found = [buffer.obs[t].squeeze(-1).tolist() for t in range(5)]
    assert [stacks[0] for stacks in found] == [
        [8, 9, 10],
        [9, 10, 11],
        [12, 12, 12],  # after the end
        [12, 12, 13],
        [12, 13, 14],
    ]
    assert [stacks[1] for stacks in found] == [
        [19, 19, 20],
        [19, 20, 21],
        [20, 21, 22],
        [21, 22, 23],
        [22, 23, 24],
    ]
    assert buffer.obs[-1].squeeze(-1).tolist() == found[4]
    (samples,) = buffer.flat("obs")
    assert len(samples) == 8
    index = torch.tensor([7, 4, 0])  # t * 2 + env
    assert samples.index_select(0, index).squeeze(-1).tolist() == [
        found[3][1],
        found[2][0],
        found[0][0],
    ]
    assert samples.reshape(-1, 3).tolist() == [row for stacks in found[:4] for row in stacks]


def test_final_stacks_end_with_the_final_frame() -> None:
    buffer = rollout()
    assert buffer.final_stacks().squeeze(-1).tolist() == [[10, 11, 99]]
    buffer.fill_final_values(lambda stacks: stacks.sum((1, 2)).float())
    assert buffer.arrays["final_value"][1, 0] == 10 + 11 + 99
