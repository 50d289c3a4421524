"""Encoders: what is an image, how pixels, codes and choices become features, and whole policies for
any space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from operant.models import (
    Embedding,
    EncoderOptions,
    GridEncoder,
    ImpalaCNN,
    NatureCNN,
    Numbers,
    OneHot,
    SmallCNN,
    TreeEncoder,
    TreeNormalizer,
    leaf_encoder,
    policy_for,
)
from operant.models.actor_critic import normalizable
from operant.models.cnn import _Residual
from operant.models.encoders import encoder
from operant.models.pixels import Pixels, image_encoding, image_shape
from operant.spaces import flatten, layout

CHOICE = spaces.Discrete(3)


def pictures(*shape: int, high: int = 255, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, high, shape, dtype)


def samples(space: spaces.Space[Any], count: int = 4) -> Tensor:
    """Rows of memory."""
    space.seed(0)
    rows = flatten(space, [space.sample() for _ in range(count)])
    return torch.from_numpy(rows)


# What is an image ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("space", "image", "kind"),
    [
        (pictures(84, 84, 3), "auto", "nature"),
        (pictures(4, 84, 84), "auto", "nature"),
        (pictures(84, 84), "auto", "nature"),
        (pictures(4, 84, 84, 3), "auto", "nature"),
        (pictures(35, 36, 3), "auto", "small"),
        (pictures(36, 36, 3), "auto", "nature"),
        (pictures(10, 10, 4), "auto", "small"),
        (pictures(10, 10), "auto", "small"),
        (pictures(7, 7, 3), "auto", None),
        (pictures(7, 7, 3, high=10), "auto", None),
        (pictures(9, 20, 3), "auto", None),
        (pictures(7, 7, 3), "grid", "grid"),
        (pictures(20, 20, high=31), "auto", "grid"),
        (pictures(20, 20, high=32), "auto", "small"),
        (pictures(8, 8), "auto", None),
        (pictures(2, 2, 3), "auto", None),
        (pictures(128), "auto", None),
        (pictures(10, 10, 6, high=1, dtype=np.bool_), "auto", "small"),
        (pictures(8, 8, 111, high=1, dtype=np.bool_), "auto", "small"),
        (pictures(8, 8, high=1), "auto", "small"),
        (pictures(84, 84, 3, high=1, dtype=np.float32), "auto", None),
        (pictures(84, 84, 3, dtype=np.int32), "auto", None),
        (spaces.MultiBinary((10, 10)), "auto", None),
        (pictures(84, 84, 3), "impala", "impala"),
        (pictures(84, 84, 3), "flat", None),
        (pictures(19, 19, 3), "grid", "grid"),
        (pictures(10, 10, 3, high=1, dtype=np.float32), "small", "small"),
        (pictures(10, 10, high=1, dtype=np.float32), "small", None),
    ],
)
def test_what_counts_as_an_image(space: Any, image: str, kind: str | None) -> None:
    assert image_encoding(space, image) == kind
    known = {"nature": NatureCNN, "impala": ImpalaCNN, "small": SmallCNN, "grid": GridEncoder}
    assert type(leaf_encoder(space, EncoderOptions(image))) is known.get(kind or "", Numbers)


@pytest.mark.parametrize(
    ("shape", "channels", "wanted"),
    [
        ((84, 84, 3), "auto", (3, 84, 84, "hwc")),
        ((4, 84, 84), "auto", (4, 84, 84, "chw")),
        ((210, 160, 3), "auto", (3, 210, 160, "hwc")),
        ((3, 210, 160), "auto", (3, 210, 160, "chw")),
        ((10, 10, 40), "auto", (40, 10, 10, "hwc")),
        ((40, 10, 10), "auto", (40, 10, 10, "chw")),
        ((12, 12, 12), "auto", (12, 12, 12, "hwc")),
        ((20, 10, 10), "last", (10, 20, 10, "hwc")),
        ((84, 84, 3), "first", (84, 84, 3, "chw")),
        ((40, 30), "auto", (1, 40, 30, "hw")),
        ((4, 84, 80, 3), "auto", (12, 84, 80, "khwc")),
    ],
)
def test_where_the_channels_are(shape: Any, channels: str, wanted: Any) -> None:
    assert image_shape(pictures(*shape), channels) == wanted


def test_bytes_are_scaled_in_the_model() -> None:
    obs = torch.tensor([[0, 51, 255]], dtype=torch.uint8).reshape(1, 1, 3, 1).expand(2, 3, 3, 1)
    found = Pixels(pictures(3, 3, 1))(obs)
    torch.testing.assert_close(found[0, 0, 0], torch.tensor([0.0, 0.2, 1.0]))
    assert found.dtype == torch.float32
    bits = pictures(3, 3, 2, high=1, dtype=np.bool_)
    assert Pixels(bits)(torch.ones(1, 3, 3, 2, dtype=torch.bool)).unique().tolist() == [1]
    assert Pixels(pictures(3, 3, high=4))(torch.full((1, 3, 3), 2)).unique().tolist() == [0.5]
    assert Numbers(pictures(2))(torch.tensor([[51, 255]])).tolist() == [[pytest.approx(0.2), 1]]
    assert Numbers(pictures(2), scaled=False)(torch.tensor([[51, 255]])).tolist() == [[51, 255]]


def test_axes_arrive_where_convolutions_expect_them() -> None:
    picture = torch.randint(0, 256, (5, 12, 10, 3), dtype=torch.uint8)
    first = picture.permute(0, 3, 1, 2)
    by_hand = first.float() / 255
    for given_as, shape in ((picture, (12, 10, 3)), (first.contiguous(), (3, 12, 10))):
        found = Pixels(pictures(*shape))(given_as)
        torch.testing.assert_close(found, by_hand)
        assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(Pixels(pictures(12, 10))(picture[..., 0]), by_hand[:, :1])
    stack = torch.stack([picture, 255 - picture], 1)
    found = Pixels(pictures(2, 12, 10, 3))(stack)
    torch.testing.assert_close(found, torch.cat([by_hand, 1 - by_hand], 1))


# Networks -----------------------------------------------------------------------------------
def test_the_nature_network_is_the_published_one() -> None:
    network = NatureCNN(pictures(84, 84, 4))
    x = network.pixels(torch.zeros(2, 84, 84, 4, dtype=torch.uint8))
    shapes = []
    for layer in network.convolutions:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(32, 20, 20), (64, 9, 9), (64, 7, 7)]
    dense = network.dense[1]
    assert (dense.in_features, dense.out_features) == (3136, 512)  # type: ignore[union-attr]
    assert sum(p.numel() for p in network.parameters()) == 8224 + 32832 + 36928 + 1606144


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaCNN, SmallCNN, GridEncoder])
def test_the_same_picture_in_either_order_has_the_same_features(kind: Any) -> None:
    picture = torch.randint(0, 256, (3, 40, 36, 3), dtype=torch.uint8)
    torch.manual_seed(1)
    last = kind(pictures(40, 36, 3), size=7)
    torch.manual_seed(1)
    first = kind(pictures(3, 40, 36), size=7)
    wanted = last(picture)
    assert wanted.shape == (3, 7)
    torch.testing.assert_close(first(picture.permute(0, 3, 1, 2)), wanted)
    assert last(picture[:0]).shape == (0, 7)


def test_weights_are_orthogonal_and_biases_0() -> None:
    layers = [m for m in ImpalaCNN(pictures(12, 12, 3)).modules() if hasattr(m, "weight")]
    layers += [m for m in NatureCNN(pictures(40, 40)).modules() if hasattr(m, "weight")]
    assert len(layers) == 16 + 4
    for layer in layers:
        assert not layer.bias.any()  # type: ignore[operator]
        weight = layer.weight.detach().double().flatten(1)  # type: ignore[operator]
        short = weight if weight.shape[0] <= weight.shape[1] else weight.T
        product = short @ short.T
        gain = product[0, 0]
        assert min(abs(gain - 1), abs(gain - 2)) < 1e-5
        torch.testing.assert_close(
            product, gain * torch.eye(len(short), dtype=torch.float64), rtol=0, atol=1e-5
        )


def test_a_residual_block_adds() -> None:
    block, x = _Residual(4), torch.randn(2, 4, 5, 5)
    wanted = x + block.second(functional.relu(block.first(functional.relu(x))))
    assert torch.equal(block(x), wanted)


def test_a_cell_is_the_sum_of_what_its_codes_stand_for() -> None:
    encode = GridEncoder(pictures(5, 5, 3, high=9), embedding=6)
    assert encode.table.weight.shape == (30, 6)
    obs = torch.randint(0, 10, (2, 5, 5, 3), dtype=torch.uint8)
    table = encode.table.weight.reshape(3, 10, 6)
    cells = sum(table[k][obs[..., k].long()] for k in range(3))
    wanted = encode.dense(encode.convolutions(cells.permute(0, 3, 1, 2)))  # type: ignore[union-attr]
    torch.testing.assert_close(encode(obs), wanted)
    assert "offset" not in encode.state_dict()


# Choices ------------------------------------------------------------------------------------
def test_one_hot_agrees_with_torch() -> None:
    space = spaces.MultiDiscrete([4, 2, 3], start=[-1, 0, 7], dtype=np.int32)
    obs = samples(space, 20)
    parts = [
        functional.one_hot(obs[:, k].long() - low, n)
        for k, (n, low) in enumerate(zip([4, 2, 3], [-1, 0, 7], strict=True))
    ]
    assert torch.equal(OneHot(space)(obs), torch.cat(parts, 1).float())
    single = spaces.Discrete(5, start=-2)
    wanted = functional.one_hot(samples(single, 9) + 2, 5).float()
    assert torch.equal(OneHot(single)(samples(single, 9)), wanted)


def test_tables_begin_where_the_space_does() -> None:
    space = spaces.MultiDiscrete([3000, 4], start=[-5, 2])
    encode = leaf_encoder(space, EncoderOptions(embedding=6))
    assert isinstance(encode, Embedding)
    assert (encode.size, encode.table.weight.shape) == (12, (3004, 6))
    found = encode(torch.tensor([[-5, 2], [2994, 5]]))
    rows = encode.table.weight[[0, 3000, 2999, 3003]].reshape(2, 12)
    assert torch.equal(found, rows)
    with pytest.raises(IndexError):
        encode(torch.tensor([[2995, 6]]))


@pytest.mark.parametrize(("n", "kind"), [(1024, OneHot), (1025, Embedding)])
def test_few_values_are_one_hot_and_many_are_looked_up(n: int, kind: type) -> None:
    assert type(leaf_encoder(spaces.Discrete(n))) is kind


# Trees --------------------------------------------------------------------------------------
TREE = spaces.Dict(
    {
        "arm": spaces.Tuple(
            [spaces.Box(-50, 50, (2, 2), np.float64), spaces.Discrete(3, start=-1)]
        ),
        "bits": spaces.MultiBinary(3),
        "camera": pictures(12, 10, 3),
        "count": spaces.Box(0, 1000, (), np.int32),
        "grid": pictures(11, 10, 2, high=9),
        "ram": pictures(6),
        "where": spaces.Discrete(2000),
    }
)


def test_features_stand_side_by_side_in_the_order_of_the_leaves() -> None:
    encode, size = encoder(TREE)
    assert isinstance(encode, TreeEncoder)
    assert encode.paths == ("arm/0", "arm/1", "bits", "camera", "count", "grid", "ram", "where")
    kinds = [type(one) for one in encode.encoders]
    wanted = [Numbers, OneHot, Numbers, SmallCNN, Numbers, GridEncoder, Numbers, Embedding]
    assert kinds == wanted
    sizes = [one.size for one in encode.encoders]
    assert sizes == [4, 3, 3, 128, 1, 128, 6, 32]
    obs = layout(TREE).split(samples(TREE))
    found = encode(obs)
    assert found.shape == (4, size)
    for path, one, part in zip(encode.paths, encode.encoders, found.split(sizes, 1), strict=True):
        torch.testing.assert_close(part, one(obs[path]))


def test_numbers_of_a_tree_are_normalised_and_nothing_else() -> None:
    rows = samples(TREE, 64)
    obs = layout(TREE).split(rows)
    normalizer = TreeNormalizer(layout(TREE))
    assert normalizer.paths == ("arm/0", "count", "ram")
    normalizer.update(rows[:40].reshape(5, 8, -1))
    normalizer.update(rows[40:])
    found = normalizer(obs)
    for path, leaf in obs.items():
        if path in normalizer.paths:
            plain = leaf.double()
            wanted = (plain - plain.mean(0)) / plain.std(0, correction=0)
            torch.testing.assert_close(found[path].double(), wanted, rtol=1e-4, atol=1e-5)
            assert found[path].dtype == torch.float32
        else:
            assert found[path] is leaf


def test_the_normaliser_of_a_tree_is_part_of_the_policy() -> None:
    rows = samples(TREE, 64)
    obs = layout(TREE).split(rows)
    torch.manual_seed(0)
    policy = policy_for(TREE, CHOICE, hidden=(8,), normalize_obs=True)
    plain = policy_for(TREE, CHOICE, hidden=(8,))
    assert isinstance(policy.obs_normalizer, TreeNormalizer)
    policy.obs_normalizer.update(rows)
    own = {k: v for k, v in policy.state_dict().items() if "normalizer" not in k}
    assert len(own) == len(policy.state_dict()) - 9
    plain.load_state_dict(own)
    normal = policy.obs_normalizer(obs)
    normal["ram"] = normal["ram"] * 255  # which the other scales
    for found, wanted in zip(policy(obs), plain(normal), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.value(obs), policy(obs)[1])
    torch.testing.assert_close(policy.head(obs), policy(obs)[0])
    other = policy_for(TREE, CHOICE, hidden=(8,), normalize_obs=True)
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other(obs)[0], policy(obs)[0])


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (TREE, True),
        (spaces.Box(-1, 1, (84, 84, 3)), True),
        (spaces.Box(0, 9, (2,), np.int16), True),
        (pictures(84, 84, 3), False),
        (pictures(7, 7, 3), True),
        (pictures(12, 12, high=7), False),
        (spaces.Box(0, 1, (3,), np.bool_), False),
        (CHOICE, False),
        (spaces.Dict({"a": pictures(12, 12), "b": CHOICE}), False),
    ],
)
def test_what_can_be_normalised(space: Any, wanted: bool) -> None:
    assert normalizable(space) == wanted
    if wanted:
        policy_for(space, CHOICE, normalize_obs=True)
    else:
        with pytest.raises(ValueError, match="can be normalised"):
            policy_for(space, CHOICE, normalize_obs=True)


# Whole policies -----------------------------------------------------------------------------
SIZES = st.integers(1, 4)
BOXES = st.builds(
    lambda shape, t: spaces.Box(0, 1, shape, np.dtype(t)),
    st.lists(st.integers(1, 4), max_size=4).map(tuple),
    st.sampled_from(("bool", "u1", "i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8")),
)
IMAGES = st.builds(
    lambda h, w, c, last, high: pictures(*((h, w, c) if last else (c, h, w)), high=high),
    *(st.integers(3, 13), st.integers(3, 13), SIZES, st.booleans(), st.sampled_from((1, 9, 255))),
)
DISCRETE = st.builds(
    lambda n, start: spaces.Discrete(n, start=start),
    st.integers(1, 5) | st.just(1500),
    st.integers(-3, 3),
)
LEAVES = (
    BOXES
    | IMAGES
    | DISCRETE
    | st.lists(SIZES, min_size=1, max_size=3).map(spaces.MultiDiscrete)
    | SIZES.map(spaces.MultiBinary)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["a", "b.c", "keys", ""]), inner, min_size=1, max_size=3
        ).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=40)
@given(space=TREES, normalize=st.booleans(), shared=st.booleans())
def test_any_space_has_a_policy_and_its_gradient_reaches_every_encoder(
    space: spaces.Space[Any], normalize: bool, shared: bool
) -> None:
    normalize = normalize and normalizable(space)
    policy = policy_for(space, CHOICE, hidden=(8,), shared=shared, normalize_obs=normalize)
    rows = samples(space, 3)
    if policy.obs_normalizer is not None:
        policy.obs_normalizer.update(rows)
    head, value = policy(layout(space).split(rows))
    assert (head.shape, value.shape) == ((3, 3), (3,))
    assert head.dtype == value.dtype == torch.float32
    assert torch.isfinite(head).all()
    (head.square().sum() + value.sum()).backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
    encode: Any = policy.encode
    for one in encode.encoders if isinstance(encode, TreeEncoder) else [encode]:
        weights = list(one.parameters()) if isinstance(one, nn.Module) else []
        assert not weights or any(p.grad.any() for p in weights)  # type: ignore[union-attr]


def as_it_was(inputs: int, outputs: int, shared: bool) -> list[Tensor]:
    """The parameters of a policy for flat numbers, in the order in which they were always drawn:
    layers of the actor, of the critic, then both heads."""

    def layer(before: int, after: int, gain: float) -> list[Tensor]:
        made = nn.Linear(before, after)
        nn.init.orthogonal_(made.weight, gain)
        nn.init.zeros_(made.bias)
        return [made.weight, made.bias]

    trunks = [[(inputs, 8), (8, 5)]] * (1 if shared else 2)
    drawn = [layer(*sizes, math.sqrt(2)) for trunk in trunks for sizes in trunk]
    heads = layer(5, outputs, 0.01), layer(5, 1, 1.0)
    return [tensor for one in (*drawn, *heads) for tensor in one]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("space", "inputs"),
    [
        (spaces.Box(-1, 1, (4,)), 4),
        (spaces.Box(-1, 1, (12, 12, 2)), 288),
        (spaces.Box(-1, 1, (2, 3), np.float64), 6),
        (spaces.Discrete(6, start=-2), 6),
        (spaces.MultiDiscrete([2, 3]), 5),
    ],
)
def test_policies_for_flat_spaces_have_the_weights_that_they_always_had(
    space: Any, inputs: int, shared: bool
) -> None:
    torch.manual_seed(7)
    policy = policy_for(space, CHOICE, hidden=(8, 5), shared=shared)
    torch.manual_seed(7)
    wanted = as_it_was(inputs, 3, shared)
    trunks = ["actor"] if shared else ["actor", "critic"]
    names = [f"{trunk}.{k}" for trunk in trunks for k in (0, 2)] + ["actor_head", "critic_head"]
    found = policy.state_dict()
    assert list(found) == [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]
    for one, other in zip(found.values(), wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_policy_on_the_gpu_agrees() -> None:
    actions = spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float64), "button": CHOICE})
    policy = policy_for(TREE, actions, normalize_obs=True)
    rows = samples(TREE, 64)
    assert policy.obs_normalizer is not None
    policy.obs_normalizer.update(rows)
    dist = policy.distribution
    wanted = [*policy(layout(TREE).split(rows)), dist.to_env(torch.zeros(64, 3))]
    policy = policy.cuda()
    found = [*policy(layout(TREE).split(rows.cuda())), dist.to_env(torch.zeros(64, 3).cuda())]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-2, atol=1e-2)  # TF32 convolutions


# Errors -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: NatureCNN(pictures(35, 84, 3)), "36 x 36 at least, got 35 x 84; take SmallCNN"),
        (lambda: policy_for(pictures(7, 7, 3), CHOICE, image="nature"), "got 7 x 7"),
        (lambda: SmallCNN(pictures(5)), "an image has 2 axes, 3 or, .* got a Box of shape"),
        (lambda: EncoderOptions("resnet"), "image must be one of auto, nature, .*'resnet'"),
        (lambda: EncoderOptions(channels="middle"), "channels must be one of .*'middle'"),
        (lambda: EncoderOptions(embedding=0), "embedding must be at least 1, got 0"),
        (lambda: image_encoding(CHOICE, "x"), "image must be one of"),
        (lambda: image_shape(pictures(3, 3), "x"), "channels must be one of"),
        (lambda: GridEncoder(spaces.Box(0, 1, (5, 5))), "a Box of integers, got"),
        (lambda: GridEncoder(spaces.Box(-1, 5, (5, 5), np.int8)), "0 to 65535 at most, got -1"),
        (lambda: GridEncoder(spaces.Box(0, 2**30, (5, 5), np.int32)), "got 0 to 1073741824"),
        (lambda: leaf_encoder(spaces.Text(3)), "no encoding for the observation space Text"),
        (lambda: Numbers(spaces.Box(0, 1, (0,))), "nothing to see"),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_rows_of_flat_spaces_and_trees_agree() -> None:
    """`flatten` of `operant.spaces` makes the rows that a policy takes apart again."""
    batch = {"a": np.ones((3, 2), np.float32), "b": np.arange(3)}
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": CHOICE})
    rows = torch.from_numpy(flatten(space, batch))
    encode, _ = encoder(space)
    wanted = [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 0, 1]]
    assert encode(layout(space).split(rows)).tolist() == wanted


def test_initial_weights_do_not_depend_on_threads() -> None:
    def weights(threads: int) -> list[torch.Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            torch.manual_seed(0)
            policy = policy_for(spaces.Box(-1, 1, (6,)), spaces.Discrete(3), hidden=(256, 256))
            assert torch.get_num_threads() == threads
            return list(policy.parameters())
        finally:
            torch.set_num_threads(before)

    for one, two in zip(weights(1), weights(2), strict=True):
        assert torch.equal(one, two)
