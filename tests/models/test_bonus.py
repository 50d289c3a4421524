"""RND and ICM against an oracle in float64 NumPy; counts against a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from operant.models import ICM, RND, EpisodicCount, distribution_for
from operant.models.action_numbers import ActionNumbers
from operant.models.bonus import Bonus, Setting, Transitions
from operant.models.count_table import Counts, count_on_host, count_on_tensors, distinct
from operant.models.features import Features, Inputs
from operant.models.hashing import ObsHash, _mixed, mixed
from operant.spaces.rows import ObsLayout

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "dict": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (2,), np.float32)}),
}


def setting(obs: spaces.Space[Any] = BOX, action: spaces.Space[Any] | None = None) -> Setting:
    dist = distribution_for(action or ACTIONS["discrete"])
    return Setting(obs, dist, num_envs=2, num_steps=4, device=torch.device("cpu"))


def built(bonus: Any, *spaces_: Any) -> Any:
    torch.manual_seed(0)
    bonus.build(setting(*spaces_))
    for part in bonus.children():
        if isinstance(part, Features):
            part.encode = lambda obs: obs  # which makes float32 of it
    bonus.inputs.forward = lambda obs: obs.clamp(-5, 5)  # likewise; nothing was observed
    return bonus.double()


def actions(space: spaces.Space[Any], count: int) -> torch.Tensor:
    dist = distribution_for(space)
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(count, dist.noise_size, generator=generator)
    return dist.sample(torch.zeros(count, dist.head_size), noise)[0]


def batch(space: spaces.Space[Any], count: int = 5) -> Transitions:
    rng = np.random.default_rng(2)
    obs, following = torch.from_numpy(rng.normal(size=(2, count, 3)))
    return Transitions(obs, actions(space, count), following)


# The oracle: layers, ReLU and their derivatives, by hand --------------------------------------
def layers(network: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    linear = [one for one in network.modules() if isinstance(one, nn.Linear)]
    return [(one.weight.detach().numpy(), one.bias.detach().numpy()) for one in linear]


def run(weights: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> list[np.ndarray]:
    """What each layer was given, and the output."""
    seen = [x]
    for k, (w, b) in enumerate(weights):
        x = x @ w.T + b
        x = np.maximum(x, 0) if k + 1 < len(weights) else x
        seen.append(x)
    return seen


def back(
    weights: list[tuple[np.ndarray, np.ndarray]], seen: list[np.ndarray], d: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Gradients of weights and biases, in order, and of the input."""
    found: list[np.ndarray] = []
    for k in reversed(range(len(weights))):
        if k + 1 < len(weights):
            d = d * (seen[k + 1] > 0)
        found = [d.T @ seen[k], d.sum(0), *found]
        d = d @ weights[k][0]
    return found, d


def gradients(loss: torch.Tensor, *networks: nn.Module) -> list[np.ndarray]:
    parameters = [p for network in networks for p in network.parameters()]
    return [g.numpy() for g in torch.autograd.grad(loss.mean(), parameters)]


def test_rnd_has_the_loss_and_gradient_of_the_oracle() -> None:
    rnd = built(RND(hidden=(4,), features=3))
    samples = batch(ACTIONS["discrete"])
    x = np.clip(samples.next_obs.numpy(), -5, 5)
    target, seen = run(layers(rnd.target), x)[-1], run(layers(rnd.predictor), x)
    error = seen[-1] - target
    loss = rnd.loss(samples)
    np.testing.assert_allclose(loss.detach().numpy(), (error**2).mean(1), rtol=1e-12)
    wanted, _ = back(layers(rnd.predictor), seen, 2 * error / error.size)
    for ours, theirs in zip(gradients(loss, rnd.predictor), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)
    assert not any(p.requires_grad for p in rnd.target.parameters())


@pytest.mark.parametrize("kind", ["discrete", "multi", "box"])
def test_icm_has_the_losses_and_gradient_of_the_oracle(kind: str) -> None:
    space = ACTIONS[kind]
    icm = built(ICM(hidden=(4,), features=3, beta=0.3), BOX, space)
    samples = batch(space)
    x, y = samples.obs.numpy().clip(-5, 5), samples.next_obs.numpy().clip(-5, 5)
    encoder, inverse, forward = (layers(m) for m in (icm.encoder, icm.inverse, icm.forward_model))
    now, following = run(encoder, x), run(encoder, y)
    pair = np.concatenate([now[-1], following[-1]], 1)
    guess = run(inverse, pair)
    action = samples.action.numpy().astype(np.float64).reshape(5, -1)
    if kind == "box":
        numbers, inverse_loss = action, 0.5 * ((guess[-1] - action) ** 2).sum(1)
        d_guess = (guess[-1] - action) / 5
    else:
        sizes = [3] if kind == "discrete" else [2, 3]
        numbers = np.concatenate(
            [np.eye(n)[action[:, k].astype(int)] for k, n in enumerate(sizes)], 1
        )
        parts, start = [], 0
        for n in sizes:
            logits = guess[-1][:, start : start + n]
            parts.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
            start += n
        chances = np.concatenate(parts, 1)
        inverse_loss = -(numbers * np.log(chances)).sum(1)
        d_guess = (chances - numbers) / 5
    told = run(forward, np.concatenate([now[-1], numbers], 1))
    error = told[-1] - following[-1]
    losses = icm.loss(samples)
    for name, wanted in (
        ("inverse_loss", inverse_loss),
        ("forward_loss", 0.5 * (error**2).mean(1)),
        ("loss", 0.7 * inverse_loss + 0.3 * 0.5 * (error**2).mean(1)),
    ):
        np.testing.assert_allclose(losses[name].detach().numpy(), wanted, rtol=1e-6)
    d_inverse, d_pair = back(inverse, guess, 0.7 * d_guess)
    d_error = 0.3 * error / error.size
    d_forward, d_told = back(forward, told, d_error)
    first, _ = back(encoder, now, d_pair[:, :3] + d_told[:, :3])
    second, _ = back(encoder, following, d_pair[:, 3:] - d_error)
    wanted_all = [*(a + b for a, b in zip(first, second, strict=True)), *d_inverse, *d_forward]
    found = gradients(losses["loss"], icm.encoder, icm.inverse, icm.forward_model)
    for ours, theirs in zip(found, wanted_all, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_of_every_kind_are_numbers_and_can_be_learnt(kind: str) -> None:
    numbers, taken = ActionNumbers(distribution_for(ACTIONS[kind])), actions(ACTIONS[kind], 6)
    seen = numbers(taken)
    assert seen.shape == (6, numbers.size)
    right, wrong = numbers.loss(20 * seen, taken), numbers.loss(20 * seen + 3 - 40 * seen, taken)
    if kind in ("discrete", "multi", "binary"):
        assert (right < 1e-3).all()
        assert (wrong > 1).all()
    else:
        assert numbers.loss(seen * (10 if kind == "dict" else 1), taken).shape == (6,)


def image(shape: tuple[int, ...] = (12, 12, 3)) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


TREE = spaces.Dict({"eye": image(), "arm": BOX, "mode": spaces.Discrete(4)})


@pytest.mark.parametrize("space", [image(), TREE, spaces.Discrete(5), spaces.Box(0, 9, ())])
@pytest.mark.parametrize("kind", [RND, ICM])
def test_every_kind_of_observation(space: spaces.Space[Any], kind: Callable[..., Any]) -> None:
    bonus = kind(hidden=(8,), features=4)
    bonus.build(setting(space))
    layout = ObsLayout.of(space)
    rows = torch.from_numpy(layout.memory(4, 2))
    for leaf, view in layout.views(rows).items():
        low = 4 if leaf == "mode" else 5 if isinstance(space, spaces.Discrete) else 10
        view.copy_(torch.randint(0, low, view.shape))
    bonus.observe(rows)
    obs, action = layout.split(rows), torch.zeros(4, 2, dtype=torch.int64)
    found = bonus.reward(obs, action, obs)
    assert found.shape == (4, 2)
    assert torch.isfinite(found).all()
    assert found.std() > 0


def test_pixels_and_numbers_are_normalised_and_choices_are_not() -> None:
    inputs = Inputs(ObsLayout.of(TREE), setting(TREE).encoders)
    assert set(inputs.paths) == {"eye", "arm"}
    layout = ObsLayout.of(TREE)
    rows = torch.from_numpy(layout.memory(500))
    views = layout.views(rows)
    generator = torch.Generator().manual_seed(3)
    views["eye"].copy_(torch.randint(0, 256, views["eye"].shape, generator=generator))
    views["arm"].copy_(torch.randn(views["arm"].shape, generator=generator) * 3 + 7)
    inputs.update(rows)
    found = inputs(views)
    for path in ("eye", "arm"):
        torch.testing.assert_close(
            found[path].mean(0), torch.zeros_like(found[path][0]), atol=0.02, rtol=0
        )
        torch.testing.assert_close(
            found[path].std(0), torch.ones_like(found[path][0]), atol=0.02, rtol=0
        )
    assert found["mode"] is views["mode"]


# Counts -------------------------------------------------------------------------------------
def memory(envs: int, size: int) -> Counts:
    table = [torch.zeros(envs, size, dtype=d) for d in (torch.int64, torch.int32, torch.int32)]
    small = [torch.zeros(envs, dtype=d) for d in (torch.int32, torch.int64)]
    return Counts(*table, *small, torch.zeros(4096, dtype=torch.int32), torch.zeros(2).double())


class Oracle:
    """A dictionary for each environment."""

    def __init__(self, envs: int) -> None:
        self.seen: list[dict[int, int]] = [{} for _ in range(envs)]
        self.last: list[int | None] = [None] * envs

    def count(self, seen: Any, after: Any, done: Any, live: Any) -> np.ndarray:
        found = np.zeros(after.shape, np.int32)
        for i, known in enumerate(self.seen):
            begins = self.last[i] != int(seen[0, i])
            for t in range(len(after)):
                if live is not None and not live[t, i]:  # between two episodes
                    begins = True
                    continue
                if begins:
                    known.clear()
                    known[int(seen[t, i])] = 1
                key = int(after[t, i])
                found[t, i] = known[key] = known.get(key, 0) + 1
                begins = bool(done[t, i])
            self.last[i] = None if begins else int(seen[-1, i])
        return found


@pytest.mark.parametrize("rests", [False, True])
def test_counts_are_those_of_a_dictionary_on_the_host_and_on_tensors(rests: bool) -> None:
    steps, envs = 12, 5
    generator = torch.Generator().manual_seed(4)
    host, device, oracle = memory(envs, 64), memory(envs, 64), Oracle(envs)
    first = torch.randint(0, 9, (envs,), generator=generator)
    over = torch.zeros(envs, dtype=torch.bool)
    for rollout in range(6):
        seen = torch.randint(0, 9, (steps + 1, envs), generator=generator)
        seen[0] = first + (rollout == 4)  # someone has reset the environments
        done = torch.rand(steps, envs, generator=generator) < 0.2
        after = torch.where(done, torch.randint(0, 9, done.shape, generator=generator), seen[1:])
        live = None
        if rests:  # after an end, for a step or more, and on into the next rollout
            live = torch.ones_like(done)
            for t in range(steps):
                ended = over if t == 0 else (done[t - 1] | ~live[t - 1])
                live[t] = ~ended | (torch.rand(envs, generator=generator) < 0.4)
            done &= live
            over = done[-1] | ~live[-1]
        keys, ends = _mixed(seen), _mixed(after)
        found = count_on_host(host, keys, ends, done, live)
        np.testing.assert_array_equal(found, oracle.count(keys, ends, done, live))
        assert count_on_tensors(device, keys, ends, done, live).equal(found)
        assert all(a.equal(b) for a, b in zip(host, device, strict=True))
        first = seen[-1]


def test_a_full_table_pays_nothing_for_what_finds_no_place() -> None:
    host, device = memory(1, 64), memory(1, 64)
    seen = _mixed(torch.arange(201)[:, None])
    done = torch.zeros(200, 1, dtype=torch.bool)
    found = count_on_host(host, seen, seen[1:], done, None)
    assert count_on_tensors(device, seen, seen[1:], done, None).equal(found)
    assert (found == 1).sum() == 63  # the first observation has the other place
    assert (found == 0).sum() == 137


@pytest.mark.parametrize("count", [0, 10, 1000, 20_000])
def test_distinct_states_are_counted_within_a_few_percent(count: int) -> None:
    counts = memory(1, 64)
    if count:
        seen = _mixed(torch.arange(count)[:, None] % count)
        count_on_host(counts, seen, seen[1:], torch.zeros(count - 1, 1, dtype=torch.bool), None)
    # What finds no place is noted nowhere: so each has an episode of its own.
    noted = memory(count or 1, 64)
    if count:
        seen = _mixed(torch.arange(count)[None].repeat(2, 1))
        count_on_host(noted, seen, seen[1:], torch.zeros(1, count, dtype=torch.bool), None)
    assert float(distinct(noted.registers)) == pytest.approx(count, rel=0.05, abs=0.5)


def test_hashes_tell_what_they_are_told_to_look_at() -> None:
    layout = ObsLayout.of(TREE)
    rows = torch.from_numpy(layout.memory(3))
    views = layout.views(rows)
    views["arm"][1, 0], views["eye"][2, 0, 0, 0] = 0.4, 7
    a, b, c = ObsHash(layout)(rows).tolist()
    assert len({a, b, c}) == 3
    a, b, c = ObsHash(layout, ["arm"])(rows).tolist()
    assert a == c != b
    a, b, c = ObsHash(layout, ["arm"], resolution=0.5)(rows).tolist()
    assert a == b == c
    views["arm"][1, 0] = -0.0
    a, b, _ = ObsHash(layout, ["arm"])(rows).tolist()
    assert a == b
    with pytest.raises(ValueError, match=r"no leaf 'leg' .* it has 'arm', 'eye', 'mode'"):
        ObsHash(layout, ["leg"])


def test_numbers_are_mixed_alike_on_the_host_and_on_tensors() -> None:
    x = torch.from_numpy(np.random.default_rng(7).integers(-(2**63), 2**63, 99, np.int64))
    assert _mixed(x).equal(mixed(x.clone()))


def test_one_leaf_need_not_be_in_a_list() -> None:
    assert EpisodicCount(leaves="goal").leaves == EpisodicCount(leaves=["goal"]).leaves == ("goal",)


def test_a_hash_is_that_of_python_integers() -> None:
    hashed = ObsHash(ObsLayout.of(spaces.MultiDiscrete([9, 9])))
    rows = torch.tensor([[1, 2], [8, 0], [3, 3]])
    factors = [int(x) for x in hashed.factor_0]

    def by_hand(words: list[int]) -> int:
        x = sum(w * f for w, f in zip(words, factors, strict=True)) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        x ^= x >> 31
        return x - 2**64 if x >= 2**63 else x

    wanted = [by_hand([a, 0, b, 0]) for a, b in rows.tolist()]  # eight bytes are two words
    assert hashed(rows).tolist() == wanted


def test_what_is_refused() -> None:
    for make, text in (
        (lambda: RND(features=0), "features must be at least 1"),
        (lambda: ICM(beta=2), "beta must be 0 to 1, got 2"),
        (lambda: EpisodicCount("cube"), "form must be sqrt or first, got 'cube'"),
        (lambda: EpisodicCount(resolution=-1), "resolution must be at least 0"),
        (
            lambda: EpisodicCount(resolution=float("nan")),
            "resolution must be at least 0 .* got nan",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(NotImplementedError):
        Bonus().reward(None, torch.zeros(1), None)
