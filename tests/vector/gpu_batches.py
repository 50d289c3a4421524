"""Batches of the ``cuda`` backend against the reference: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


def random_actions(env: Any, steps: int, seed: int = 0) -> np.ndarray:
    """``[steps, num_envs, ...]``, some of them outside of a Box's bounds."""
    layout = env.rules.action
    rng = np.random.default_rng(seed)
    shape = (steps, env.num_envs, *layout.shape)
    if layout.dtype == "float":
        return (1.5 * rng.normal(size=shape)).astype(np.float32)
    columns = [rng.integers(*ends, shape[:2]) for ends in zip(layout.low, layout.high, strict=True)]
    return np.stack(columns, axis=-1).reshape(shape)


def assert_same(found: Any, wanted: Any, what: str = "") -> None:
    """Equal in dtype, shape and bits."""
    found = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
    wanted = wanted.cpu().numpy() if isinstance(wanted, torch.Tensor) else wanted
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if found.tobytes() != wanted.tobytes():
        rows = (found != wanted).reshape(len(found), -1).any(axis=1)
        k = int(np.argmax(rows))
        pytest.fail(f"{what}: {rows.sum()} differ; {k} is {found[k]!r} instead of {wanted[k]!r}")


def assert_same_state(one: Any, two: Any) -> None:
    state, other = one.get_state(), two.get_state()
    assert list(state) == list(other)
    for name, array in state.items():
        assert_same(array, other[name], name)


def assert_same_step(env: Any, found: Any, wanted: Any) -> None:
    """`found`, from `env`, against the reference's results, which say less if nobody finished."""
    for name, a, b in zip(("obs", "reward", "term", "trunc"), found, wanted[:4], strict=False):
        assert_same(a, b, name)
    info, ended = found[4], wanted[2] | wanted[3]
    assert_same(info["_episode"], ended, "_episode")
    for key, kind in (("r", np.float32), ("l", np.int32)):
        zeros = np.zeros(len(ended), kind)
        report = wanted[4].get("episode", {}).get(key, zeros)
        assert_same(info["episode"][key], report.astype(kind), key)
    seconds = info["episode"]["t"].cpu().numpy()
    assert (seconds[ended] >= 0).all()
    assert (seconds[ended] < 60).all()
    assert not seconds[~ended].any()
    if env.autoreset_mode.value == "SameStep":
        assert set(info) == {"episode", "_episode", "final_obs", "_final_obs"}
        assert_same(info["_final_obs"], ended, "_final_obs")
        if ended.any():
            final = info["final_obs"].cpu().numpy()[ended]
            assert_same(final, wanted[4]["final_obs"][ended], "final_obs")
    else:
        assert set(info) == {"episode", "_episode"}


def run_both(env: Any, reference: Any, actions: np.ndarray) -> int:
    """Steps of both, compared; how many episodes finished. In mode Disabled they are reset."""
    finished = 0
    for k, row in enumerate(actions):
        result = reference.step(row)
        given = torch.from_numpy(row if k % 2 or row.dtype.kind == "f" else row.astype(np.int32))
        assert_same_step(env, env.step(given.to(env.device)), result)
        ended = result[2] | result[3]
        finished += int(ended.sum())
        if env.rules.mask is not None:
            assert_same(env.action_masks(), reference.action_masks(), "masks")
        if env.autoreset_mode.value == "Disabled" and ended.any():
            obs, _ = env.reset(options={"reset_mask": torch.from_numpy(ended).to(env.device)})
            assert_same(obs, reference.reset(options={"reset_mask": ended})[0], "reset")
    return finished
