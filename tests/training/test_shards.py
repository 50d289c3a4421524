"""What is computed over shards does not depend on who has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from operant.buffers.normalizer import RunningNormalizer
from operant.training.episodes import Episodes
from operant.training.ranks import RankError, anyone_says, check_same, first_says, gather_bytes
from operant.training.shards import Shards, in_pairs, merged_moments, moments, take_in

from .thread_group import ThreadGroup, together

COUNT = 8


def on_ranks(size: int, function) -> list:
    """``function(shards)`` on each of `size` ranks that share `COUNT` shards."""
    every = [Shards(COUNT, group) for group in ThreadGroup.all_of(size)]
    return together([lambda s=s: function(s) for s in every])


def parts() -> list[torch.Tensor]:
    return list(torch.randn(COUNT, 1000, generator=torch.Generator().manual_seed(1)))


def own(shards: Shards, every: list) -> list:
    return every[shards.first : shards.first + shards.local]


def test_pairs_are_added_in_a_fixed_order() -> None:
    def say(*names: str) -> list[torch.Tensor]:
        return [torch.tensor(list(name.encode()), dtype=torch.uint8) for name in names]

    def joined(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return torch.cat([one.new_tensor(list(b"(")), one, two, one.new_tensor(list(b")"))])

    found = in_pairs(say("a", "b", "c", "d", "e"), joined)
    assert bytes(found.tolist()) == b"(((ab)(cd))e)"


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_sum_has_the_same_bits_on_any_number_of_ranks(size: int) -> None:
    wanted = Shards(COUNT).total(parts())
    assert not torch.equal(wanted, torch.stack(parts()).sum(0))  # the order does matter
    for found in on_ranks(size, lambda shards: shards.total(own(shards, parts()))):
        assert torch.equal(found, wanted)


def test_moments_are_those_of_everything() -> None:
    every = parts()
    count, mean, m2 = in_pairs([moments(part) for part in every], merged_moments)
    whole = torch.cat(every).double()
    assert count == len(whole)
    torch.testing.assert_close(mean, whole.mean(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(m2 / count, whole.var(correction=0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_normaliser_sees_every_shard(size: int) -> None:
    rows = [part.view(-1, 4) * torch.tensor([1.0, 10, 100, 0]) + 5 for part in parts()]

    def seen(shards: Shards) -> RunningNormalizer:
        normalizer = RunningNormalizer((4,))
        normalizer.update(torch.ones(3, 4))  # merged into what is there
        take_in(shards, normalizer, own(shards, rows))
        return normalizer

    plain = RunningNormalizer((4,))
    plain.update(torch.ones(3, 4))
    plain.update(torch.cat(rows))
    alone = seen(Shards(COUNT))
    for found in on_ranks(size, seen):
        assert torch.equal(found.mean, alone.mean)
        assert torch.equal(found.m2, alone.m2)
        torch.testing.assert_close(found.variance, plain.variance, rtol=1e-10, atol=1e-12)


def test_a_shard_alone_updates_a_normaliser_as_without_shards() -> None:
    rows = torch.randn(500, 3)
    plain, found = RunningNormalizer((3,)), RunningNormalizer((3,))
    plain.update(rows)
    take_in(Shards(), found, [rows])
    assert torch.equal(plain.m2, found.m2)


def test_states_are_joined_and_divided_again() -> None:
    def round_trip(shards: Shards) -> dict[str, np.ndarray]:
        rank = shards.group.rank
        mine = {"x": np.arange(2) + 2 * rank, "bytes": np.full((2, 3 + rank), rank, np.uint8)}
        whole = shards.joined(mine)
        assert whole["x"].tolist() == [0, 1, 2, 3]
        assert whole["bytes"].shape == (4, 4)
        again = shards.own(whole)
        assert (again["x"] == mine["x"]).all()
        assert (again["bytes"][:, : 3 + rank] == mine["bytes"]).all()
        return whole

    on_ranks(2, round_trip)


def test_episodes_are_in_order_of_their_ends() -> None:
    def shared(shards: Shards) -> tuple[int, Episodes]:
        rank = shards.group.rank
        step, env = np.array([0, 1, 1]) + rank, np.array([1, 0, 1])
        mine = Episodes(env, step, 10.0 * rank + np.arange(3.0), np.arange(3) + 1, env == 1)
        return shards.all_episodes(mine, 5, rows=2)

    for count, found in on_ranks(2, shared):
        assert count == 6
        assert found.step.tolist() == [1, 1, 1, 2, 2]
        assert found.env_index.tolist() == [0, 1, 3, 2, 3]
        assert found.returns.tolist() == [1, 2, 10, 11, 12]
        assert found.lengths.tolist() == [2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("count", "size", "words"),
    [(4, 3, "1 or 2 or 4 ranks"), (1, 2, "run.shards=2"), (6, 2, "1 or 3 or 6 ranks")],
)
def test_shards_that_ranks_cannot_share(count: int, size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Shards(count, ThreadGroup.all_of(size)[0])


def test_ranks_agree() -> None:
    def ask(shards: Shards) -> tuple[bool, bool, list[bytes]]:
        group = shards.group
        word = b"x" * group.rank
        first = first_says(group, group.rank == 1)
        return first, anyone_says(group, group.rank == 1), gather_bytes(group, word)

    assert on_ranks(4, ask) == [(False, True, [b"", b"x", b"xx", b"xxx"])] * 4


def test_a_rank_that_differs_is_named_with_what() -> None:
    def check(shards: Shards) -> None:
        seed = "7" if shards.group.rank == 1 else "3"
        check_same(shards.group, {"torch": "2", "run.seed": seed})

    with pytest.raises(RankError, match=r"rank 1 has run.seed 7, and rank 0 has 3"):
        on_ranks(2, check)
