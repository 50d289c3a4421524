"""From the leaves of an observation to features: one encoder a leaf, chosen by its space.

An encoder takes what an environment gives, ``[B, *leaf.shape]`` of the leaf's own dtype, and
returns float32 ``[B, size]``; ``size`` is an attribute of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from operant.models.cnn import GridEncoder, ImpalaCNN, NatureCNN, SmallCNN
from operant.models.names import CHANNEL_NAMES, IMAGE_NAMES
from operant.models.pixels import image_encoding, scale_of
from operant.spaces.rows import ObsLayout

MOST_ONE_HOT = 1024
"""Values of a Discrete, or of one number of a MultiDiscrete, that become a one-hot vector; more are
looked up in a table."""

_CNNS: dict[str, Callable[..., Any]] = {
    "nature": NatureCNN,
    "impala": ImpalaCNN,
    "small": SmallCNN,
    "grid": GridEncoder,
}


@dataclass(frozen=True)
class EncoderOptions:
    """How leaves are encoded; options of ``[policy]``.

    Raises:
        ValueError: an unknown name, or no numbers at all for a value.
    """

    image: str = "auto"
    """``"nature"``, ``"impala"``, ``"small"``, ``"grid"`` or ``"flat"``; ``"auto"``: by the space,
    see `operant.models.pixels`."""
    channels: str = "auto"
    """Where an image has its channels: ``"first"``, ``"last"``, or seen from its shape."""
    embedding: int = 32
    """Numbers that stand for a value of a Discrete with more than 1024."""

    def __post_init__(self) -> None:
        """Check the names."""
        for name, known in (("image", IMAGE_NAMES), ("channels", CHANNEL_NAMES)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.embedding < 1:
            raise ValueError(f"embedding must be at least 1, got {self.embedding}")


def flatten(obs: Tensor) -> Tensor:
    """Observations ``[B, ...]`` as float32 ``[B, numbers]``."""
    return obs.flatten(1).float()


def column(obs: Tensor) -> Tensor:
    """Numbers ``[B]`` as float32 ``[B, 1]``."""
    return obs.unsqueeze(1).float()


class Numbers(nn.Module):
    """The numbers of a Box or MultiBinary, as they are; bytes are scaled to 0 to 1.

    Args:
        space: of the leaf.
        scaled: whether bytes are scaled; not where something else has normalised them.

    Raises:
        ValueError: the leaf is empty.
    """

    def __init__(self, space: spaces.Box | spaces.MultiBinary, scaled: bool = True) -> None:
        super().__init__()
        self.size = math.prod(space.shape)
        if not self.size:
            raise ValueError(f"the observation space {space} has nothing to see")
        is_bytes = isinstance(space, spaces.Box) and space.dtype == "uint8"
        self.scale = scale_of(space) if scaled and is_bytes else 1.0  # type: ignore[arg-type]

    def forward(self, obs: Tensor) -> Tensor:
        """Float32 ``[B, size]``."""
        numbers = obs.reshape(obs.shape[0], self.size).float()
        return numbers if self.scale == 1 else numbers * self.scale


class OneHot(nn.Module):
    """Integers of a Discrete or MultiDiscrete to one-hot vectors side by side, one for each
    integer.

    Args:
        space: of the leaf; may count from another number than 0.
    """

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        self.sizes, self.starts = _choices(space)
        self.size = sum(self.sizes)

    def forward(self, obs: Tensor) -> Tensor:
        """The vectors, float32 ``[B, size]``; only numbers that the space has may occur."""
        columns = obs.long().reshape(len(obs), len(self.sizes)).unbind(-1)
        parts = zip(columns, self.sizes, self.starts, strict=True)
        return torch.cat([functional.one_hot(x - low, n) for x, n, low in parts], -1).float()


class Embedding(nn.Module):
    """Integers of a Discrete or MultiDiscrete, each looked up in a table that is trained; for those
    with so many values that `OneHot` would be too wide.

    Args:
        space: of the leaf; may count from another number than 0.
        embedding: numbers that each integer becomes, normal ones to begin with.
    """

    offset: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete, embedding: int = 32) -> None:
        super().__init__()
        sizes, starts = _choices(space)
        self.size = len(sizes) * embedding
        self.table = nn.Embedding(sum(sizes), embedding)
        first = torch.tensor(sizes).cumsum(0) - torch.tensor(sizes)
        self.register_buffer("offset", first - torch.tensor(starts), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Float32 ``[B, size]``; only numbers that the space has may occur."""
        index = obs.long().reshape(obs.shape[0], self.offset.shape[0]) + self.offset
        found: Tensor = self.table(index)
        return found.flatten(1)


class TreeEncoder(nn.Module):
    """The leaves of a Dict or Tuple observation, each through an encoder of its own, to features
    side by side.

    Args:
        layout: of the observation space, see `operant.spaces.layout`.
        options: how they are encoded.
        normalized: the leaves that `numeric` says have passed a `TreeNormalizer`.

    Raises:
        ValueError: a leaf that cannot be encoded so.
    """

    def __init__(
        self,
        layout: ObsLayout,
        options: EncoderOptions | None = None,
        *,
        normalized: bool = False,
    ) -> None:
        super().__init__()
        self.paths = tuple(leaf.path for leaf in layout.leaves)
        """In the order of the features."""
        encoders: list[Any] = [
            leaf_encoder(leaf.space, options, scaled=not normalized) for leaf in layout.leaves
        ]
        self.encoders = nn.ModuleList(encoders)
        self.size = sum(encoder.size for encoder in encoders)

    def forward(self, obs: Any) -> Tensor:
        """Features ``[B, size]`` of a dict of leaves ``[B, ...]`` by path."""
        pairs = zip(self.paths, self.encoders, strict=True)
        return torch.cat([encoder(obs[path]) for path, encoder in pairs], -1)


def leaf_encoder(
    space: spaces.Space[Any], options: EncoderOptions | None = None, *, scaled: bool = True
) -> nn.Module:
    """The encoder of one leaf: a CNN for images and grids of codes, `OneHot` or `Embedding` for
    Discrete and MultiDiscrete, `Numbers` for the rest.

    Args:
        space: of the leaf.
        options: how.
        scaled: whether bytes that are no image are scaled.

    Raises:
        ValueError: a space without an encoding.
    """
    options = options or EncoderOptions()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if max(_choices(space)[0], default=0) > MOST_ONE_HOT:
            return Embedding(space, options.embedding)
        return OneHot(space)
    kind = image_encoding(space, options.image, options.channels)
    if kind is not None:
        encoder: nn.Module = _CNNS[kind](space, channels=options.channels)
        return encoder
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Numbers(space, scaled)
    raise ValueError(
        f"no encoding for the observation space {space}; known are Box, Discrete, MultiDiscrete "
        "and MultiBinary, and Dict and Tuple of them"
    )


def numeric(space: spaces.Space[Any], options: EncoderOptions | None = None) -> bool:
    """Whether a leaf holds plain numbers, which can be normalised: a Box that is no image, no grid
    of codes, and not of bools."""
    options = options or EncoderOptions()
    return (
        isinstance(space, spaces.Box)
        and space.dtype != bool
        and image_encoding(space, options.image, options.channels) is None
    )


def encoder(
    space: spaces.Space[Any], options: EncoderOptions | None = None, *, normalized: bool = False
) -> tuple[Callable[[Any], Tensor], int]:
    """A function or module from observations of a whole space to float32 features ``[B, size]``,
    and that size.

    Args:
        space: of an environment; of a Dict or Tuple the function takes a dict of leaves by path.
        options: how leaves are encoded.
        normalized: the numbers are normalised, those of a tree before they come here, others
            afterwards.

    Raises:
        ValueError: a space without one.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        tree = TreeEncoder(ObsLayout.of(space), options, normalized=normalized)
        return tree, tree.size
    if math.prod(space.shape or ()) == 0:
        raise ValueError(f"the observation space {space} has nothing to see")
    if numeric(space, options) and (normalized or space.dtype != "uint8"):
        # Not modules: fused engines know these two functions.
        return flatten if space.shape else column, math.prod(space.shape or ())
    leaf: Any = leaf_encoder(space, options)
    return leaf, int(leaf.size)


def _choices(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[list[int], list[int]]:
    """How many values each number has, and the least of them."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    return space.nvec.flatten().tolist(), space.start.flatten().tolist()
