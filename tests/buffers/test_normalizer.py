"""Running statistics against NumPy, in any order and grouping."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.buffers.normalizer import RunningNormalizer


def data(rows: int, *shape: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(random.normal(0, 5, shape), 2.0, (rows, *shape)).astype(np.float32)


def fed(*batches: np.ndarray, shape: tuple[int, ...] = ()) -> RunningNormalizer:
    normalizer = RunningNormalizer(shape)
    for batch in batches:
        normalizer.update(torch.from_numpy(batch))
    return normalizer


def assert_statistics(normalizer: RunningNormalizer, rows: np.ndarray, rtol: float = 1e-12) -> None:
    wide = rows.astype(np.float64)
    assert normalizer.count.item() == len(rows)
    np.testing.assert_allclose(normalizer.mean.numpy(), wide.mean(0), rtol=rtol, atol=1e-15)
    np.testing.assert_allclose(normalizer.variance.numpy(), wide.var(0), rtol=rtol, atol=1e-15)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_mean_and_variance_are_numpys(shape: tuple[int, ...]) -> None:
    rows = data(1000, *shape)
    normalizer = fed(rows[:1], rows[1:10], rows[10:], shape=shape)
    assert_statistics(normalizer, rows)
    found = normalizer(torch.from_numpy(rows)).numpy()
    assert found.shape == rows.shape
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(found, (wide - wide.mean(0)) / wide.std(0), rtol=1e-4, atol=1e-5)


def test_large_batches_are_taken_in_parts() -> None:
    rows = data(150_000, 2)
    assert_statistics(fed(rows, shape=(2,)), rows)
    wide = data(3, 140_000)
    assert_statistics(fed(wide, shape=(140_000,)), wide, rtol=1e-9)


def test_leading_dimensions_are_samples() -> None:
    rows = data(60, 2)
    assert_statistics(fed(rows.reshape(5, 3, 4, 2), shape=(2,)), rows)


@settings(deadline=None, max_examples=50)
@given(
    cuts=st.lists(st.integers(0, 40), max_size=6),
    order=st.randoms(use_true_random=False),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    offset=st.sampled_from([0.0, -1e3, 1e6]),
)
def test_any_split_and_any_grouping(
    cuts: list[int], order: object, scale: float, offset: float
) -> None:
    rows = np.random.default_rng(len(cuts)).normal(offset, scale, (40, 2))
    parts = [fed(part, shape=(2,)) for part in np.split(rows, sorted(cuts))]
    order.shuffle(parts)  # type: ignore[attr-defined]
    while len(parts) > 1:  # merge two neighbours anywhere, until one is left
        k = order.randrange(len(parts) - 1)  # type: ignore[attr-defined]
        parts[k].merge(parts.pop(k + 1))
    # What float64 data of that offset can tell about their variance.
    rtol = 1e-12 + 1e-13 * abs(offset / scale)
    assert parts[0].count.item() == 40
    np.testing.assert_allclose(parts[0].mean.numpy(), rows.mean(0), rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(parts[0].variance.numpy(), rows.var(0), rtol=rtol)


def test_a_large_offset_does_not_swallow_the_variance() -> None:
    """A mean of 1e6 and a deviation of 1e-3: their squares differ by 18 digits, float64 has 16."""
    rows = np.random.default_rng(0).normal(1e6, 1e-3, (20_000, 1))
    normalizer = fed(*np.array_split(rows, 30), shape=(1,))
    assert_statistics(normalizer, rows, rtol=1e-6)
    found = normalizer(torch.from_numpy(rows))
    assert found.std().item() == pytest.approx(1, abs=0.01)


def test_sums_do_not_run_in_float32() -> None:
    """0.1 a million times: a float32 sum that counts one by one is off by a percent."""
    rows = np.full((1_000_000, 1), 0.1, np.float32)
    normalizer = fed(rows, shape=(1,))
    assert normalizer.mean.item() == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert normalizer.variance.item() < 1e-20


def test_constant_data_become_zero() -> None:
    for constant in (0.0, 0.1, -1e6):
        rows = np.full((100, 2), constant, np.float32)
        normalizer = fed(rows[:33], rows[33:], shape=(2,))
        assert torch.equal(normalizer(torch.from_numpy(rows)), torch.zeros(100, 2))
        assert torch.isfinite(normalizer.scale()).all()


def test_data_pass_unchanged_before_the_first_update() -> None:
    normalizer = RunningNormalizer((2,))
    x = torch.tensor([[1.5, -3.25], [0.0, 9.99]])
    assert torch.equal(normalizer(x), x)
    assert normalizer.variance.tolist() == [1, 1]
    assert normalizer.scale().tolist() == [1, 1]
    normalizer.update(torch.zeros(0, 2))
    assert normalizer.count.item() == 0
    assert torch.equal(normalizer(x), x)
    assert normalizer(torch.tensor([[99.0, -99.0]])).tolist() == [[10, -10]]


def test_one_sample_has_no_deviation() -> None:
    normalizer = fed(np.array([[5.0, -5.0]]), shape=(2,))
    assert normalizer.mean.tolist() == [5, -5]
    assert normalizer.variance.tolist() == [1, 1]
    assert normalizer(torch.tensor([[6.0, -5.0]])).tolist() == [[1, 0]]


def test_an_empty_batch_changes_nothing() -> None:
    rows = data(10, 2)
    normalizer = fed(rows, shape=(2,))
    normalizer.update(torch.zeros(3, 0, 2))
    normalizer.merge(RunningNormalizer((2,)))
    assert_statistics(normalizer, rows)
    empty = RunningNormalizer((2,))
    empty.merge(normalizer)
    assert_statistics(empty, rows)


def test_merging_leaves_the_other_alone() -> None:
    rows = data(20, 2)
    one, other = fed(rows[:5], shape=(2,)), fed(rows[5:], shape=(2,))
    one.merge(other)
    assert_statistics(one, rows)
    assert_statistics(other, rows[5:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    rows = torch.from_numpy(data(50, 2)).to(dtype)
    normalizer = RunningNormalizer((2,))
    normalizer.update(rows)
    assert_statistics(normalizer, rows.double().numpy())
    found = normalizer(rows)
    assert found.dtype == dtype
    wanted = (rows.double() - rows.double().mean(0)) / rows.double().std(0, correction=0)
    coarse = {torch.bfloat16: 0.05, torch.float16: 0.01}
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=coarse.get(dtype, 1e-5))
    assert normalizer.scale(dtype).dtype == dtype


def test_integers_are_counted_too() -> None:
    rows = np.arange(200, dtype=np.uint8).reshape(100, 2)
    assert_statistics(fed(rows, shape=(2,)), rows)


def test_clip() -> None:
    normalizer = RunningNormalizer((1,), clip=1.5)
    normalizer.update(torch.tensor([[-1.0], [1.0]]))
    found = normalizer(torch.tensor([[-9.0], [-1.0], [1.25], [9.0]]))
    assert found.flatten().tolist() == pytest.approx([-1.5, -1.0, 1.25, 1.5])


def test_only_update_and_merge_change_the_statistics() -> None:
    normalizer = fed(data(10, 2), shape=(2,))
    before = copy.deepcopy(normalizer.state_dict())
    x = torch.full((4, 2), 3.0)
    normalizer.train()(x)
    normalizer.eval()(x)
    assert torch.equal(x, torch.full((4, 2), 3.0)), "not in place"
    assert all(torch.equal(t, before[name]) for name, t in normalizer.state_dict().items())


def test_tensors_stay_the_same_objects() -> None:
    """An engine may have captured their addresses."""
    normalizer = RunningNormalizer((2,))
    held = [normalizer.mean, normalizer.m2, normalizer.count]
    addresses = [tensor.data_ptr() for tensor in held]
    normalizer.update(torch.from_numpy(data(10, 2)))
    normalizer.merge(fed(data(10, 2, seed=1), shape=(2,)))
    normalizer.load_state_dict(fed(data(5, 2), shape=(2,)).state_dict())
    now = [normalizer.mean, normalizer.m2, normalizer.count]
    assert all(a is b for a, b in zip(now, held, strict=True))
    assert [tensor.data_ptr() for tensor in now] == addresses
    assert held[2].item() == 5


def test_saved_and_loaded() -> None:
    rows = data(30, 2)
    normalizer, other = fed(rows[:20], shape=(2,)), RunningNormalizer((2,))
    assert set(normalizer.state_dict()) == {"mean", "m2", "count"}
    file = io.BytesIO()
    torch.save(normalizer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    other.update(torch.from_numpy(rows[20:]))
    assert_statistics(other, rows)
    assert not list(other.parameters())


def test_updates_do_not_build_a_graph() -> None:
    normalizer = RunningNormalizer((2,))
    x = torch.randn(10, 2, requires_grad=True)
    normalizer.update(x)
    assert not normalizer.mean.requires_grad
    normalizer(x).sum().backward()
    torch.testing.assert_close(x.grad, normalizer.scale().expand(10, 2))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"statistics of shape \(3,\) into \(2,\)"):
        RunningNormalizer((2,)).merge(RunningNormalizer((3,)))
